"""The inventory through the real bindings, on cards that a C library makes up: free, ours, a stranger's, lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_kit import NOBODY, Cards, Watched, build_double, card_lines, uuid_of

from controller.config import Gpus
from controller.effects.gpus import look_at_host, open_inventory
from controller.effects.gpus.people import container_in

TWO = (*card_lines(0), *card_lines(1))
CACHE = "anon 29000000\nfile 31000000\ninactive_file 10000000\nactive_file 20000000"
V1_CACHE = "total_inactive_file 10000000\ntotal_active_file 20000000"
FULL = {
    "utilisation_percent": 93,
    "power_mw": 412_500,
    "power_cap_mw": 700_000,
    "persistence": 1,
    "sm_clock_mhz": 1980,
    "sm_clock_max_mhz": 1980,
    "memory_clock_mhz": 2619,
    "memory_clock_max_mhz": 2619,
    "ecc": 1,
    "ecc_corrected": 3,
    "ecc_uncorrected": 0,
    "rows_pending": 0,
    "rows_failed": 0,
    "pages_single": 2,
    "pages_double": 1,
    "pages_pending": 0,
    "mig": 0,
    "compute_capability": "9.0",
}


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    return build_double(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def cards(library: Path, tmp_path: Path) -> Cards:
    return Cards(library, tmp_path / "cards")


@pytest.fixture
def watch(cards: Cards, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    begun: list[Watched] = []

    def begin(**settings: object) -> Watched:
        begun.append(Watched(cards, tmp_path / f"{len(begun)}.log", **settings))
        return begun[-1]

    yield begin
    for watched in begun:
        watched.kill()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of somebody else's: an interpreter that waits, with something secret among its arguments."""
    words = [sys.executable, "-m", "http.server", "--api-key", "hunter2"]
    process = subprocess.Popen(
        [words[0], "-c", "import sys; sys.stdin.read()", *words[3:]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    yield process.pid
    process.communicate()


# --- health ---


def test_everything_a_card_tells(cards, watch):
    cards.show(*card_lines(0, 40_000, **FULL), *card_lines(1))
    sheet = watch().ask(ours=[], held=[uuid_of(0)])
    assert (sheet["source"], sheet["driver"], sheet["why"]) == ("nvml", "570.124.06", "")
    first = sheet["cards"][0]
    assert {key: first[key] for key in ("id", "index", "name", "bus_id", "trusted", "foreign")} == {
        "id": uuid_of(0),
        "index": 0,
        "name": "NVIDIA Double",
        "bus_id": "00000000:10:00.0",
        "trusted": True,
        "foreign": [],
    }
    assert (first["memory_total_mib"], first["memory_used_mib"]) == (81_920, 40_000)
    assert (first["power_w"], first["power_cap_w"], first["persistence"]) == (412.5, 700.0, True)
    assert (first["sm_clock_mhz"], first["memory_clock_max_mhz"]) == (1980, 2619)
    assert (first["ecc"], first["ecc_corrected"], first["rows_pending"]) == (True, 3, False)
    assert (first["rows_failed"], first["pages_retired"], first["pages_pending"]) == (False, 3, False)
    assert first["mig"] is False
    assert [gpu["compute_capability"] for gpu in sheet["gpus"]] == [[9, 0], None]
    assert sheet["facts"] == {"inventory": "nvml", "driver": "570.124.06", "gpus": [uuid_of(0), uuid_of(1)]}
    assert sheet["hardware"] == {"driver": "570.124.06", "gpus": ["NVIDIA Double"] * 2}


def test_what_a_card_does_not_support_is_none_and_no_failure(cards, watch):
    cards.show(f"card 0 {uuid_of(0)}", *card_lines(1))
    bare = watch().ask()["cards"][0]
    assert bare["trusted"]
    told = {key for key, value in bare.items() if value is not None}
    silent = {"memory_total_mib", "memory_used_mib", "last_xid", "pages_retired", "power_w", "power_cap_w", *FULL}
    assert told.isdisjoint(silent)


def test_which_cards_are_near_each_other(cards, watch):
    four = [line for card in range(4) for line in card_lines(card)]
    # 0 and 1 are linked and share a switch; 2 hangs on an NVSwitch with 3; 1 and 2 share a host bridge.
    cards.show(*four, "link 0 0 1", "link 1 0 0", "link 2 0 switch", "link 3 0 switch", "level 0 1 10", "level 1 2 30")
    gpus = watch().ask()["gpus"]
    assert [gpu["nvlink"] for gpu in gpus] == [[uuid_of(1)], [uuid_of(0)], [uuid_of(3)], [uuid_of(2)]]
    assert [gpu["switch"] for gpu in gpus] == [[uuid_of(1)], [uuid_of(0)], [], []]


def test_an_xid_error_is_told(cards, watch):
    cards.show(*TWO)
    watched = watch()
    assert watched.ask()["cards"][1]["last_xid"] is None
    cards.show(*TWO, "xid 1 79")
    sheet = watched.until(lambda seen: seen["cards"][1]["last_xid"] == 79)
    assert sheet["cards"][0]["last_xid"] is None


# --- whose is it ---


def test_a_stranger_appears_is_named_and_vanishes(cards, watch, stranger):
    cards.show(*TWO)
    watched = watch()
    assert watched.ask()["gpus"][1]["foreign"] == []
    cards.show(*card_lines(0), *card_lines(1, 2052), f"process 1 {stranger} 2048")
    gpu = watched.until(lambda seen: seen["gpus"][1]["foreign"])["gpus"][1]
    (sentence,) = gpu["foreign"]
    assert sentence.startswith(f"pid {stranger} (python")
    assert sentence.endswith("holds 2048 MiB")
    assert "hunter2" not in sentence
    cards.show(*TWO)
    assert watched.until(lambda seen: not seen["gpus"][1]["foreign"])["gpus"][1]["trusted"]


def test_ours_is_no_stranger(cards, watch, stranger):
    cards.show(*card_lines(0, 2052), *card_lines(1), f"process 0 {stranger} 2048")
    watched = watch()
    sheet = watched.ask(ours=[stranger], held=[uuid_of(0)])
    assert sheet["gpus"][0]["foreign"] == []
    assert [(p["pid"], p["ours"]) for p in sheet["cards"][0]["processes"]] == [(stranger, True)]
    # It ended and NVML still lists it: while the card is held it does not turn into a stranger.
    assert watched.ask(ours=[], held=[uuid_of(0)])["gpus"][0]["foreign"] == []
    # The card was given back, and a later reading still has it there: now it is one.
    assert watched.until(lambda seen: seen["gpus"][0]["foreign"])["gpus"][0]["trusted"]


def test_ours_and_a_stranger_on_one_card(cards, watch, stranger):
    cards.show(*card_lines(0, 4100), f"process 0 {stranger} 2048", f"process 0 {os.getpid()} 2048")
    gpu = watch().ask(ours=[os.getpid()], held=[uuid_of(0)])["gpus"][0]
    assert len(gpu["foreign"]) == 1
    assert f"pid {stranger} " in gpu["foreign"][0]
    assert (gpu["strangers_mib"], gpu["ours"]) == (2048, True)


def test_what_a_stranger_holds_may_not_be_told(cards, watch, stranger):
    cards.show(*card_lines(0, 4100), f"process 0 {stranger} -")
    gpu = watch().ask(held=[uuid_of(0)])["gpus"][0]
    assert (len(gpu["foreign"]), gpu["strangers_mib"], gpu["ours"]) == (1, None, False)


def test_memory_that_nobody_is_named_for_is_not_free(cards, watch):
    cards.show(*card_lines(0, 30_000), *card_lines(1, 600))
    watched = watch()
    first, second = watched.ask()["gpus"]
    assert first["foreign"] == ["30000 MiB are in use by nobody that NVML names"]
    assert second["foreign"] == []
    assert watched.ask(held=[uuid_of(0)])["gpus"][0]["foreign"] == []  # its lease waits for the memory


def test_a_desktop_is_no_stranger_while_it_is_small(cards, watch, stranger):
    cards.show(
        *card_lines(0, 500),
        f"process 0 {stranger} 400 graphics",
        *card_lines(1, 9000),
        f"process 1 {stranger} 8900 graphics",
    )
    first, second = watch().ask()["gpus"]
    assert first["foreign"] == []
    assert len(second["foreign"]) == 1


@pytest.fixture
def mps_server() -> Iterator[int]:
    """A process that is called like NVIDIA's."""
    words = ["nvidia-cuda-mps-server", "-c", "import sys; sys.stdin.read()"]
    process = subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def test_the_server_of_mps_is_no_stranger_and_its_clients_are_whose_they_are(cards, watch, stranger, mps_server):
    cards.show(
        *card_lines(0, 6_100),
        f"process 0 {mps_server} 60",
        f"process 0 {stranger} 4000 mps",
        f"process 0 {os.getpid()} 2000 mps",
    )
    sheet = watch().ask(ours=[os.getpid()], held=[uuid_of(0)])
    told = {process["pid"]: (process["mps"], process["ours"]) for process in sheet["cards"][0]["processes"]}
    assert told == {mps_server: ("server", False), stranger: ("client", False), os.getpid(): ("client", True)}
    (sentence,) = sheet["gpus"][0]["foreign"]
    assert sentence.startswith(f"pid {stranger} (")
    assert sentence.endswith("MPS client) holds 4000 MiB")


def test_a_server_of_mps_that_holds_memory_holds_that_of_its_clients(cards, watch, mps_server):
    # Before Volta only the server is listed: on the card that we hold for our engines, elsewhere for others'.
    cards.show(*card_lines(0, 9_000), *card_lines(1, 9_000), *(f"process {n} {mps_server} 8900" for n in (0, 1)))
    ours, others = watch().ask(held=[uuid_of(0)])["gpus"]
    assert ours["foreign"] == []
    (sentence,) = others["foreign"]
    assert "(nvidia-cuda-mps-server" in sentence
    assert sentence.endswith("MPS server) holds 8900 MiB")


def test_a_card_in_mig_mode_cannot_be_used_and_the_others_can(cards, watch):
    # Who may not see the instances may not see the memory either.
    cards.show(*card_lines(0, mig=1), *card_lines(1, mig=0), "fail nvmlDeviceGetMemoryInfo_v2 0 4")
    cut, whole = watch().ask()["cards"]
    assert (cut["mig"], cut["trusted"], whole["mig"], whole["trusted"]) == (True, False, False, True)
    assert cut["why"].startswith("it is in MIG mode, and parts of a card are not leased: `nvidia-smi -i 0 -mig 0`")


def test_in_a_container_the_hosts_pids_are_judged_by_memory_and_it_says_so(cards, watch, stranger):
    cards.show(
        *card_lines(0, 20_000),
        f"process 0 {NOBODY} 19000",
        *card_lines(1, 20_000),
        f"process 1 {stranger} 19000",  # the host's number, and by chance one of ours
        *card_lines(2),
    )
    sheet = watch(contained=True).ask(ours=[stranger], held=[uuid_of(0)])
    held, taken, free = sheet["cards"]
    assert held["foreign"] == []
    assert taken["foreign"] == ["20000 MiB are in use by somebody who cannot be told from inside this container"]
    assert free["foreign"] == []
    assert [gpu["ours"] for gpu in sheet["gpus"]] == [None] * 3
    assert all("judged by memory alone" in card["note"] for card in sheet["cards"])


def test_in_a_container_that_sees_its_pids_they_are_believed(cards, watch, stranger):
    cards.show(*card_lines(0, 20_000), f"process 0 {stranger} 19996")
    sheet = watch(contained=True).ask(ours=[stranger], held=[uuid_of(0)])
    assert sheet["cards"][0]["note"] == ""
    assert sheet["cards"][0]["processes"][0]["ours"]


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{'3f2a9c' * 10}abcd.scope\n", "docker 3f2a9c3f2a9c"),
        (f"4:memory:/docker/{'3f2a9c' * 10}abcd\n", "docker 3f2a9c3f2a9c"),
        (f"0::/machine.slice/libpod-{'0123ab' * 10}abcd.scope/container\n", "podman 0123ab0123ab"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'ab' * 32}.scope\n", "containerd abababababab"),
        (f"1:cpu:/kubepods/burstable/pod12/{'ab' * 32}\n", "kubernetes abababababab"),
        ("0::/lxc.payload.batch/system.slice\n", "lxc batch"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "slurm job 4711"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("", None),
    ],
)
def test_the_container_is_read_from_the_cgroup(cgroup, container):
    assert container_in(cgroup) == container


# --- NVML fails ---


def test_one_card_that_falls_off_the_bus_is_untrusted_and_the_others_go_on(cards, watch, stranger):
    cards.show(*TWO)
    watched = watch()
    watched.ask()
    cards.show(*TWO, "lost 0", f"process 1 {stranger} 512")
    sheet = watched.until(lambda seen: not seen["gpus"][0]["trusted"] and seen["gpus"][1]["foreign"])
    lost, other = sheet["gpus"]
    assert (lost["id"], lost["why"]) == (uuid_of(0), "GPU is lost")
    assert other["trusted"]
    assert sheet["why"] == ""
    cards.show(*TWO)
    assert watched.until(lambda seen: seen["gpus"][0]["trusted"])["gpus"][0]["why"] == ""


def test_a_card_that_is_listed_no_more_stays_known_and_does_not_lend_its_index(cards, watch):
    cards.show(*TWO)
    watched = watch()
    watched.ask()
    cards.show(*card_lines(1))
    gone, moved = watched.until(lambda seen: not seen["gpus"][0]["trusted"])["gpus"]
    assert (gone["id"], gone["index"], gone["why"]) == (uuid_of(0), 0, "NVML does not list it any more")
    assert (moved["id"], moved["index"], moved["trusted"]) == (uuid_of(1), 0, True)


def test_a_card_that_was_never_read_is_there_and_untrusted(cards, watch):
    cards.show(*TWO, "lost 0")
    first, second = watch().ask()["gpus"]
    assert (first["id"], first["trusted"], first["why"]) == ("unreadable-0", False, "GPU is lost")
    assert second["trusted"]


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"])
def test_what_must_be_known_and_fails_makes_that_card_untrusted(cards, watch, call):
    cards.show(*TWO, f"fail {call} 1 999")
    first, second = watch().ask()["gpus"]
    assert first["trusted"]
    assert (second["trusted"], second["why"]) == (False, "Unknown Error")


def test_what_may_fail_is_none(cards, watch):
    cards.show(*card_lines(0, **FULL), "fail nvmlDeviceGetPowerUsage 0 999")
    card = watch().ask()["cards"][0]
    assert (card["trusted"], card["power_w"], card["power_cap_w"]) == (True, None, 700.0)


def test_nvml_that_fails_as_a_whole_leaves_no_card_trusted_and_comes_back(cards, watch):
    cards.show(*TWO)
    watched = watch()
    watched.ask()
    cards.show(*TWO, "fail nvmlDeviceGetCount_v2 * 999")
    sheet = watched.until(lambda seen: seen["why"])
    assert [gpu["trusted"] for gpu in sheet["gpus"]] == [False, False]
    assert all("NVML fails: Unknown Error" in gpu["why"] for gpu in sheet["gpus"])
    cards.show(*TWO)
    assert watched.until(lambda seen: not seen["why"])["gpus"][0]["trusted"]


def test_a_driver_that_is_unloaded_and_loaded_again(cards, watch):
    cards.show(*TWO)
    watched = watch()
    watched.ask()
    cards.remove()
    sheet = watched.until(lambda seen: seen["why"])
    assert (sheet["source"], [gpu["trusted"] for gpu in sheet["gpus"]]) == ("nvml", [False, False])
    cards.show(*TWO)
    watched.until(lambda seen: all(gpu["trusted"] for gpu in seen["gpus"]))


def test_a_call_that_hangs_goes_stale_names_itself_and_comes_back(cards, watch):
    cards.show(*TWO)
    watched = watch(stale_s=0.5)
    watched.until(lambda seen: seen["gpus"][0]["trusted"])
    cards.show(*TWO, "hang nvmlDeviceGetUtilizationRates 1 while")
    sheet = watched.until(lambda seen: "nvmlDeviceGetUtilizationRates" in seen["why"])
    assert [gpu["trusted"] for gpu in sheet["gpus"]] == [False, False]
    cards.show(*TWO)
    watched.until(lambda seen: all(gpu["trusted"] for gpu in seen["gpus"]))


def test_a_start_that_hangs_is_bounded_shows_no_card_and_comes_back(cards, watch):
    cards.show(*TWO, "hang nvmlInitWithFlags * while")
    watched = watch(start_s=0.1)
    sheet = watched.ask()
    assert sheet["gpus"] == []
    assert sheet["why"] == "NVML has not answered yet: it hangs in nvmlInit"
    cards.show(*TWO)
    assert len(watched.until(lambda seen: seen["gpus"])["gpus"]) == 2


def test_a_call_that_hangs_for_ever_does_not_keep_the_process(cards, watch):
    cards.show(*TWO, "hang nvmlDeviceGetUUID * ever")
    watched = watch(start_s=0.1)
    assert watched.ask()["gpus"] == []
    assert watched.end() == 0


def test_a_start_that_is_slow_is_waited_for(cards, watch):
    cards.show(*TWO, "hang nvmlInitWithFlags * 0.3")
    assert len(watch(start_s=60).ask()["gpus"]) == 2


def test_a_call_that_failed_is_not_said_to_hang(cards, watch):
    # The last call of a reading fails, and then the thread rests for longer than an answer counts.
    cards.show(*TWO, "fail nvmlDeviceGetGraphicsRunningProcesses_v3 * 3")
    watched = watch(poll_s=60, stale_s=0.1)
    sheet = watched.until(lambda seen: seen["why"])
    assert sheet["why"].startswith("NVML has said nothing for ")
    assert "hangs" not in sheet["why"]


def test_nvml_that_fails_names_the_call(cards, watch):
    cards.show(*TWO, "fail nvmlDeviceGetCount_v2 * 999")
    assert watch().ask()["why"] == "NVML fails: Unknown Error (nvmlDeviceGetCount)"


def test_the_log_has_a_line_per_change_and_none_per_reading(cards, watch):
    cards.show(*TWO)
    watched = watch(stale_s=0.5)
    watched.ask()
    cards.show(*TWO, "lost 1")
    watched.until(lambda seen: not seen["gpus"][1]["trusted"])
    cards.show(*TWO, "hang nvmlDeviceGetUUID * while")
    age_s = watched.until(lambda seen: "hangs" in seen["why"])["age_s"]
    watched.until(lambda seen: seen["age_s"] > age_s + 0.5)  # many looks later it is no news
    cards.show(*TWO, "fail nvmlDeviceGetCount_v2 * 999")
    watched.until(lambda seen: "fails" in seen["why"])
    cards.show(*TWO)
    watched.until(lambda seen: all(gpu["trusted"] for gpu in seen["gpus"]))
    lines = watched.logged()
    rest = iter([(line["level"], line["event"], line.get("gpu")) for line in lines])
    for line in (
        ("info", "NVML answers", None),
        ("warning", "a card is not trusted", uuid_of(1)),
        ("warning", "NVML does not answer: no card is trusted", None),
        ("warning", "NVML does not answer: no card is trusted", None),
        ("info", "NVML answers", None),
        ("info", "a card is trusted again", uuid_of(1)),
    ):
        assert line in rest, lines
    assert len([line for line in lines if "it hangs in nvmlDeviceGetUUID" in line.get("why", "")]) == 1
    assert len([line for line in lines if "Unknown Error (nvmlDeviceGetCount)" in line.get("why", "")]) == 1


def test_who_waits_for_a_card_is_not_kept_until_the_next_reading_is_due(cards, watch):
    cards.show(*TWO)
    watched = watch(poll_s=600)
    watched.ask()
    cards.show(*card_lines(0, 2048), *card_lines(1))
    watched.until(lambda seen: seen["gpus"][0]["memory_used_mib"] == 2048, nudge=True)


# --- without NVML ---


def test_without_a_driver_there_are_no_cards_and_it_says_so(cards, watch):
    sheet = watch().ask()  # the library is there, its file is not
    assert (sheet["source"], sheet["gpus"]) == ("none", [])
    assert sheet["why"].startswith("NVML fails: Driver Not Loaded")


def test_declared_cards_are_free_and_say_that_they_are_declared():
    inventory = open_inventory(Gpus(kind="none", count=2))
    assert [(gpu.id, gpu.trusted, gpu.foreign) for gpu in inventory.read(())] == [
        ("gpu-0", True, ()),
        ("gpu-1", True, ()),
    ]
    assert inventory.sheet().source == "declared"
    inventory.close()


def test_the_hosts_memory_and_disk(tmp_path):
    host = look_at_host(tmp_path)
    assert 0 < host.ram_available_bytes <= host.ram_total_bytes
    assert host.disk_free_bytes is not None
    assert look_at_host(tmp_path / "gone").disk_free_bytes is None


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": "64000000", "memory.current": "60000000", "memory.stat": CACHE},
        {
            "memory/memory.limit_in_bytes": "64000000",
            "memory/memory.usage_in_bytes": "60000000",
            "memory/memory.stat": f"active_file 1\ninactive_file 1\n{V1_CACHE}",
        },
    ],
)
def test_in_a_container_its_own_limit_is_what_there_is(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    host = look_at_host(tmp_path, tmp_path)
    assert host.ram_limit_bytes == 64_000_000
    # 60 MB are charged, and 30 MB of those are files, which make room.
    assert host.ram_available_bytes == 34_000_000
    assert host.ram_total_bytes == look_at_host(tmp_path).ram_total_bytes


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"memory.max": "max", "memory.current": "60000000"},
        {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "60000000"},
        {"memory.max": "64000000"},  # what is charged cannot be read: nothing is made up
    ],
)
def test_without_a_limit_there_is_what_the_host_has(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    host = look_at_host(tmp_path, tmp_path)
    assert host.ram_limit_bytes is None
    assert host.ram_available_bytes > 64_000_000
