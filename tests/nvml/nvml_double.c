/* A libnvidia-ml.so.1 whose cards live in a text file, so that the real bindings can be tested where there is no card.
 *
 * $NVML_DOUBLE names the file; every call reads it anew (replace it by renaming). One fact per line:
 *
 *   driver 570.124.06
 *   card 0 GPU-aaaa                      a card and its UUID; NVML's indices follow the order of these lines
 *   set 0 name NVIDIA H200               a property (see the getters); one that is not there is NOT_SUPPORTED
 *   process 0 4711 2048                  pid and MiB on card 0; MiB `-`: not told; a fourth word `graphics` or `mps`
 *   link 0 3 1                           NVLink 3 of card 0 leads to card 1; `switch`: to an NVSwitch
 *   level 0 1 10                         what the two have in common on PCIe (nvmlGpuTopologyLevel_t)
 *   xid 0 79                             one Xid event; each line is delivered once
 *   lost 0                               the card fell off the bus: every call on it is GPU_IS_LOST
 *   fail nvmlDeviceGetPowerUsage 0 999   that call on that card (`*`: any, or none) returns this code
 *   hang nvmlDeviceGetUUID * 2           it takes 2 s; `while`: as long as the line is there; `ever`
 *
 * Without the file: DRIVER_NOT_LOADED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9,
       TIMED_OUT = 10, LOST = 15 };
enum { CARDS = 16, LINES = 512, WIDTH = 160 };

typedef int Result;
typedef char *Device;                       /* points at the card's cell in `handles` */
typedef struct { int count; char line[LINES][WIDTH]; } World;

static char handles[CARDS];                 /* a card's number is its place here, whatever its index is */
static int initialised;
static int xids_delivered;

/* --- the file --- */

static int look(World *world) {
    const char *path = getenv("NVML_DOUBLE");
    FILE *file = path ? fopen(path, "r") : NULL;
    world->count = 0;
    if (!file) return 0;
    while (world->count < LINES && fgets(world->line[world->count], WIDTH, file)) {
        world->line[world->count][strcspn(world->line[world->count], "\n")] = 0;
        world->count++;
    }
    fclose(file);
    return 1;
}

/* The rest of the nth line that begins with `words` and a blank. */
static const char *find(const World *world, const char *words, int nth) {
    size_t length = strlen(words);
    for (int i = 0; i < world->count; i++)
        if (!strncmp(world->line[i], words, length) && world->line[i][length] == ' ' && nth-- == 0)
            return world->line[i] + length + 1;
    return NULL;
}

static const char *vice(const World *world, const char *kind, const char *function, int card) {
    char words[WIDTH];
    const char *found;
    snprintf(words, sizeof words, "%s %s *", kind, function);
    if ((found = find(world, words, 0)) || card < 0) return found;
    snprintf(words, sizeof words, "%s %s %d", kind, function, card);
    return find(world, words, 0);
}

static void doze(void) {
    struct timespec pause = {0, 10 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Every call begins here: read the file, then hang or fail as it says. `card` is -1 where there is none. */
static Result enter(World *world, const char *function, int card) {
    char words[WIDTH];
    const char *how;
    double begun_s = now_s();
    int here = look(world);
    while (here && (how = vice(world, "hang", function, card))) {
        if (!strcmp(how, "ever")) for (;;) doze();
        if (strcmp(how, "while") && now_s() - begun_s >= atof(how)) break;
        doze();
        here = look(world);
    }
    if (!here) return NO_DRIVER;
    if (!initialised && strncmp(function, "nvmlInit", 8)) return UNINITIALIZED;
    if ((how = vice(world, "fail", function, card))) return atoi(how);
    if (card >= 0) {
        snprintf(words, sizeof words, "lost %d", card);
        for (int i = 0; i < world->count; i++) if (!strcmp(world->line[i], words)) return LOST;
        snprintf(words, sizeof words, "card %d", card);
        if (!find(world, words, 0)) return LOST;
    }
    return OK;
}

static int number_of(Device device) { return (int)(device - handles); }

static Result property(Device device, const char *function, const char *key, World *world, const char **value) {
    char words[WIDTH];
    Result result = enter(world, function, number_of(device));
    if (result != OK) return result;
    snprintf(words, sizeof words, "set %d %s", number_of(device), key);
    *value = find(world, words, 0);
    return *value ? OK : NOT_SUPPORTED;
}

static Result number(Device device, const char *function, const char *key, unsigned *out) {
    World world;
    const char *value;
    Result result = property(device, function, key, &world, &value);
    if (result == OK) *out = (unsigned)strtoul(value, NULL, 10);
    return result;
}

/* --- the library --- */

Result nvmlInitWithFlags(unsigned flags) {
    World world;
    Result result = enter(&world, __func__, -1);
    (void)flags;
    if (result == OK) initialised++;
    return result;
}

Result nvmlShutdown(void) {
    World world;
    Result result = enter(&world, __func__, -1);
    if (result == OK || result == NO_DRIVER) initialised = initialised > 0 ? initialised - 1 : 0;
    return result;
}

const char *nvmlErrorString(Result result) {
    static char text[40];
    snprintf(text, sizeof text, "error %d of the double", result);
    return text;
}

Result nvmlSystemGetDriverVersion(char *version, unsigned length) {
    World world;
    Result result = enter(&world, __func__, -1);
    const char *value = find(&world, "driver", 0);
    if (result == OK) snprintf(version, length, "%s", value ? value : "0");
    return result;
}

Result nvmlDeviceGetCount_v2(unsigned *count) {
    World world;
    Result result = enter(&world, __func__, -1);
    for (*count = 0; result == OK && find(&world, "card", (int)*count); ++*count) {}
    return result;
}

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    World world;
    int card;
    const char *line = look(&world) ? find(&world, "card", (int)index) : NULL;
    if (!line) return enter(&world, __func__, -1) == OK ? INVALID : NO_DRIVER;
    card = atoi(line);
    *device = handles + card;
    return card < 0 || card >= CARDS ? INVALID : enter(&world, __func__, card);
}

Result nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) {
    World world;
    char words[WIDTH];
    Result result = enter(&world, __func__, number_of(device));
    if (result != OK) return result;
    snprintf(words, sizeof words, "card %d", number_of(device));
    snprintf(uuid, length, "%s", find(&world, words, 0));
    return OK;
}

Result nvmlDeviceGetName(Device device, char *name, unsigned length) {
    World world;
    const char *value;
    Result result = property(device, __func__, "name", &world, &value);
    if (result == OK) snprintf(name, length, "%s", value);
    return result;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

static void pci_of(int card, Pci *pci) {    /* every card has a bus of its own: 0x10 and up */
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 + (unsigned)card;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus & 0xff);
}

Result nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
    World world;
    Result result = enter(&world, __func__, number_of(device));
    if (result == OK) pci_of(number_of(device), pci);
    return result;
}

typedef unsigned long long Bytes;
typedef struct { unsigned version; Bytes total, reserved, free, used; } Memory;

Result nvmlDeviceGetMemoryInfo_v2(Device device, Memory *memory) {
    unsigned total_mib, used_mib;
    Result result = number(device, __func__, "memory_total_mib", &total_mib);
    if (result == OK) result = number(device, __func__, "memory_used_mib", &used_mib);
    if (result != OK) return result;
    memory->total = (Bytes)total_mib << 20;
    memory->used = (Bytes)used_mib << 20;
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return OK;
}

typedef struct { unsigned pid; Bytes used; unsigned gpu_instance, compute_instance; } Process;

static Result processes(Device device, const char *function, const char *wanted, unsigned *count, Process *into) {
    World world;
    char words[WIDTH], used[32], kind[32];
    const char *line;
    unsigned pid, room = *count, found = 0;
    Result result = enter(&world, function, number_of(device));
    if (result != OK) return result;
    snprintf(words, sizeof words, "process %d", number_of(device));
    for (int i = 0; (line = find(&world, words, i)); i++) {
        if (sscanf(line, "%u %31s %31s", &pid, used, kind) < 3) *kind = 0;
        if (strcmp(kind, wanted)) continue;
        if (found < room && into) {
            into[found].pid = pid;
            into[found].used = *used == '-' ? (Bytes)-1 : (Bytes)strtoull(used, NULL, 10) << 20;
            into[found].gpu_instance = into[found].compute_instance = (unsigned)-1;
        }
        found++;
    }
    *count = found;
    return found > room || (found && !into) ? TOO_SMALL : OK;
}

Result nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *into) {
    return processes(device, __func__, "", count, into);
}

Result nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, Process *into) {
    return processes(device, __func__, "graphics", count, into);
}

Result nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, Process *into) {
    return processes(device, __func__, "mps", count, into);
}

Result nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    World world;
    const char *value;
    Result result = property(device, __func__, "compute_capability", &world, &value);
    if (result != OK) return result;
    return sscanf(value, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

Result nvmlDeviceGetUtilizationRates(Device device, unsigned rates[2]) {
    rates[1] = 0;
    return number(device, __func__, "utilisation_percent", &rates[0]);
}

Result nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    return number(device, __func__, "power_mw", milliwatts);
}

Result nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
    return number(device, __func__, "power_cap_mw", milliwatts);
}

Result nvmlDeviceGetPersistenceMode(Device device, unsigned *on) {
    return number(device, __func__, "persistence", on);
}

Result nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *mhz) {
    return number(device, __func__, type == 2 ? "memory_clock_mhz" : "sm_clock_mhz", mhz);
}

Result nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned *mhz) {
    return number(device, __func__, type == 2 ? "memory_clock_max_mhz" : "sm_clock_max_mhz", mhz);
}

Result nvmlDeviceGetEccMode(Device device, unsigned *current, unsigned *pending) {
    Result result = number(device, __func__, "ecc", current);
    *pending = *current;
    return result;
}

Result nvmlDeviceGetTotalEccErrors(Device device, unsigned error, unsigned counter, Bytes *count) {
    unsigned found = 0;
    Result result = number(device, __func__, error ? "ecc_uncorrected" : "ecc_corrected", &found);
    (void)counter;
    *count = found;
    return result;
}

Result nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    *corrected = *uncorrected = *failed = 0;
    number(device, __func__, "rows_failed", failed);
    return number(device, __func__, "rows_pending", pending);
}

Result nvmlDeviceGetRetiredPages(Device device, unsigned cause, unsigned *count, Bytes *addresses) {
    unsigned found = 0, room = *count;
    Result result = number(device, __func__, cause ? "pages_double" : "pages_single", &found);
    if (result != OK) return result;
    *count = found;
    if (found > room) return TOO_SMALL;
    for (unsigned i = 0; i < found && addresses; i++) addresses[i] = (Bytes)i << 12;
    return OK;
}

Result nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned *pending) {
    return number(device, __func__, "pages_pending", pending);
}

Result nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    Result result = number(device, __func__, "mig", current);
    *pending = *current;
    return result;
}

/* --- topology --- */

static Result link_of(Device device, const char *function, unsigned link, char *leads_to) {
    World world;
    char words[WIDTH];
    const char *line;
    Result result = enter(&world, function, number_of(device));
    if (result != OK) return result;
    snprintf(words, sizeof words, "link %d %u", number_of(device), link);
    if (!(line = find(&world, words, 0))) return NOT_SUPPORTED;
    snprintf(leads_to, 16, "%s", line);
    return OK;
}

Result nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    char leads_to[16];
    *active = 1;
    return link_of(device, __func__, link, leads_to);
}

Result nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *type) {
    char leads_to[16];
    Result result = link_of(device, __func__, link, leads_to);
    if (result == OK) *type = strcmp(leads_to, "switch") ? 0 : 2;
    return result;
}

Result nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, Pci *pci) {
    char leads_to[16];
    Result result = link_of(device, __func__, link, leads_to);
    if (result == OK) pci_of(strcmp(leads_to, "switch") ? atoi(leads_to) : 0xe0, pci);
    return result;
}

Result nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned *level) {
    World world;
    char words[WIDTH];
    const char *line;
    int low = number_of(one), high = number_of(other);
    Result result = enter(&world, __func__, low);
    if (result != OK) return result;
    if (low > high) { int swap = low; low = high; high = swap; }
    snprintf(words, sizeof words, "level %d %d", low, high);
    if (!(line = find(&world, words, 0))) return NOT_SUPPORTED;
    *level = (unsigned)atoi(line);
    return OK;
}

/* --- events --- */

typedef struct { Device device; Bytes type, data; unsigned gpu_instance, compute_instance; } Event;

Result nvmlEventSetCreate(void **set) {
    World world;
    *set = handles;
    return enter(&world, __func__, -1);
}

Result nvmlDeviceRegisterEvents(Device device, Bytes types, void *set) {
    World world;
    (void)types, (void)set;
    return enter(&world, __func__, number_of(device));
}

Result nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
    World world;
    const char *line;
    int card;
    Result result = enter(&world, __func__, -1);
    (void)set, (void)timeout_ms;
    if (result != OK) return result;
    if (!(line = find(&world, "xid", xids_delivered))) return TIMED_OUT;
    xids_delivered++;
    memset(event, 0, sizeof *event);
    if (sscanf(line, "%d %llu", &card, &event->data) != 2 || card < 0 || card >= CARDS) return NOT_FOUND;
    event->device = handles + card;
    event->type = 8;
    return OK;
}

Result nvmlEventSetFree(void *set) {
    World world;
    (void)set;
    return enter(&world, __func__, -1);
}
