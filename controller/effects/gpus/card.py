"""What is known of one card, and of all of them. None is always "the card, or NVML, does not tell"."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.seen import Gpu, OnCard


@dataclass(frozen=True, slots=True)
class Process:
    """One process on a card, as NVML lists it and /proc explains it."""

    pid: int
    memory_mib: int | None
    graphics: bool = False  # a desktop's context: it draws, it does not compute
    mps: str | None = None  # `server`: of the Multi-Process Service; `client`: it computes through one
    visible: bool = True  # False: there is no such pid here
    user: str | None = None
    command: str | None = None  # the program and what it runs; its other arguments may be secrets
    container: str | None = None
    ours: bool = False

    @property
    def sentence(self) -> str:
        """Who it is and what it holds."""
        words = [self.command or "a process that cannot be looked at"] if self.visible else ["not visible from here"]
        words += [word for word in (self.user, self.container, self.mps and f"MPS {self.mps}") if word]
        memory = "memory that NVML does not tell" if self.memory_mib is None else f"{self.memory_mib} MiB"
        return f"pid {self.pid} ({', '.join(words)}) holds {memory}"


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. Powers in watts, clocks in MHz, memory in MiB; `nvlink` and `switch` hold ids of other cards."""

    id: str  # UUID; `gpu-0` in a declared inventory; `unreadable-0` for a card that never told its UUID
    index: int
    name: str = ""
    bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None  # (7, 0) is a V100
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    utilisation_percent: int | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    persistence: bool | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    ecc: bool | None = None
    ecc_corrected: int | None = None  # since the driver was loaded
    ecc_uncorrected: int | None = None
    rows_pending: bool | None = None  # rows of bad memory wait for a reset to be replaced
    rows_failed: bool | None = None  # a row could not be replaced: the card has no spare ones left there
    pages_retired: int | None = None  # before Ampere: bad pages that are not used any more
    pages_pending: bool | None = None  # … and that still are, until a reset
    mig: bool | None = None  # cut into instances, which have UUIDs of their own
    last_xid: int | None = None  # newest Xid error since the daemon looks
    nvlink: tuple[str, ...] = ()  # reached over NVLink, direct or through an NVSwitch
    switch: tuple[str, ...] = ()  # behind the same PCIe switch
    processes: tuple[Process, ...] = ()
    foreign: tuple[str, ...] = ()
    strangers_mib: int | None = None  # what the processes that are not ours hold; None: not told
    ours: bool | None = None  # whether a process of ours is listed; None: nobody can tell whose they are
    trusted: bool = True
    why: str = ""  # why it is not trusted
    note: str = ""  # how it was judged, when not by pids
    by_memory: bool = False  # pids mean nothing here

    def gpu(self) -> Gpu:
        """The part that decisions are made from."""
        return Gpu(
            id=self.id,
            index=self.index,
            memory_total_mib=self.memory_total_mib,
            memory_used_mib=self.memory_used_mib,
            foreign=self.foreign,
            strangers_mib=self.strangers_mib,
            ours=self.ours,
            trusted=self.trusted,
            name=self.name,
            why=self.why,
            nvlink=self.nvlink,
            switch=self.switch,
            compute_capability=self.compute_capability,
            processes=None if self.by_memory else tuple(OnCard(p.pid, p.memory_mib) for p in self.processes),
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """The whole inventory at one moment."""

    source: str  # nvml | declared | none (NVML is not on this box)
    cards: tuple[Card, ...]
    driver: str | None = None
    why: str = ""  # what keeps the inventory as a whole from being known
    age_s: float | None = None  # since NVML last answered; None: never, or nothing to ask
