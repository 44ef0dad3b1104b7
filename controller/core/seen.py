"""One observation of the world, taken whole before a decision. A decision reads nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .actions import Action, Effect, SetRoute, aim
from .records import Now
from .route import DoorSeen, Traffic

RETRY_S = 1.0  # until what failed is tried again
LONGEST_REST_S = 5.0


class Life(StrEnum):
    """State of an attempt's process tree."""

    ABSENT = "absent"  # never started, or of an earlier boot
    RUNNING = "running"
    ENDING = "ending"  # main process gone, the rest of its tree is being ended
    EXITED = "exited"  # main process gone, and the tree proved empty
    STRAYS = "strays"  # the shim is dead, processes of the attempt live on


@dataclass(frozen=True, slots=True)
class ProcessSeen:
    life: Life
    pid: int | None = None  # of the shim
    start_ticks: int | None = None
    sentence: str = ""  # how it ended
    port_conflict: bool = False
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class ProbeSeen:
    """The newest generation probe of one target, and the streak that it belongs to."""

    ok: bool
    at_s: float  # when it ended, boot time clock
    started_at_s: float
    layer: str = "ok"  # host | process | port | http | generation | output | identity | timeout | ok
    sentence: str = ""
    ttft_s: float | None = None
    total_s: float | None = None  # the whole answer: of a fixed length, so that it can be compared
    typical_ttft_s: float | None = None  # medians of the last few that succeeded: one probe is an anecdote
    typical_total_s: float | None = None
    streak: int = 1  # how many in a row had this outcome
    streak_since_s: float = 0.0
    progress_at_s: float | None = None  # when the engine's own token counters were last seen to move
    pool_at_s: float | None = None  # … and the use of its KV pool, without a token: it prefills
    has_counters: bool = False  # whether it ever showed any


@dataclass(frozen=True, slots=True)
class SleepSeen:
    """What came of asking an engine to sleep or to wake up. `ok` is None while it has not answered."""

    wanted: str  # sleep | wake
    ok: bool | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class GateSeen:
    """A gate run that is over."""

    verdict: str
    sentence: str
    measurements: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnCard:
    """A process that a card lists."""

    pid: int
    memory_mib: int | None  # None: NVML does not tell


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """What an engine says of its KV pool."""

    tokens: int | None
    source: str  # where it says so, or why it is not known


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card of the inventory."""

    id: str  # UUID, or `gpu-0` in a declared inventory
    index: int
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    foreign: tuple[str, ...] = ()  # sentences naming processes that are not ours
    strangers_mib: int | None = None  # what the processes that are not ours hold; None: not told
    ours: bool | None = False  # whether a process of ours is listed on it; None: nobody can tell whose they are
    trusted: bool = True  # False: NVML could not tell, or memory did not come back
    name: str = ""
    why: str = ""  # why it is not trusted
    nvlink: tuple[str, ...] = ()  # ids of cards that NVLink leads to, direct or through an NVSwitch
    switch: tuple[str, ...] = ()  # ids of cards behind the same PCIe switch
    processes: tuple[OnCard, ...] | None = None  # None: nothing is listed, or pids mean nothing here (a container)
    compute_capability: tuple[int, int] | None = None  # (7, 0) is a V100


@dataclass(frozen=True, slots=True)
class Users:
    """What people ask of the public address, without the daemon's own probes."""

    in_flight: int
    per_min: float  # requests that ended in the last minute


@dataclass(frozen=True, slots=True)
class Vain:
    """What an effect came to that did nothing."""

    at_s: float  # boot time clock
    why: str
    times: int = 1  # in a row

    def rests(self, now_s: float) -> bool:
        """Longer every time: a broken world is neither hammered nor written down ten times a second."""
        return now_s - self.at_s < min(RETRY_S * 2.0 ** (self.times - 1), LONGEST_REST_S)


@dataclass(frozen=True, slots=True)
class Seen:
    now: Now
    door: DoorSeen
    door_tried_s: float | None = None  # when opening it was last tried, so that it is not tried ten times a second
    processes: Mapping[str, ProcessSeen] = field(default_factory=dict)  # by attempt id
    pids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of every process of an attempt, by its id
    kv_pools: Mapping[str, PoolSeen] = field(default_factory=dict)  # of attempts that were just started, by id
    probes: Mapping[str, ProbeSeen] = field(default_factory=dict)  # by attempt id, and `public`, `preview`
    traffic: Mapping[str, Traffic] = field(default_factory=dict)  # by attempt id; in a bake since the switch
    users: Users | None = None  # None: nobody can tell
    gates: Mapping[str, GateSeen] = field(default_factory=dict)  # finished runs, by run id
    sleeps: Mapping[str, SleepSeen] = field(default_factory=dict)  # what this daemon asked last, by attempt id
    gpus: tuple[Gpu, ...] = ()
    gpus_at_s: float | None = None  # when the cards were read; None: there is nothing to read
    releases_gone: frozenset[str] = frozenset()  # of those that could take over: their files are gone
    gpus_why: str = ""  # why nobody knows which cards there are, or how they are
    vain: Mapping[tuple[str, str], Vain] = field(default_factory=dict)  # what this daemon tried last in vain, by `aim`

    def rests(self, action: Action) -> bool:
        """Whether it failed a moment ago: until it is tried again, what comes after it has its turn."""
        tried = self.vain.get(aim(action)) if isinstance(action, Effect) else None
        return tried is not None and tried.rests(self.now.boot_s)

    @property
    def door_refuses(self) -> str:
        """Why the front door, which is there, did not take its route a moment ago; empty: it did, or is told again."""
        refused = self.route_refused
        return refused.why if refused is not None and refused.rests(self.now.boot_s) else ""

    @property
    def route_refused(self) -> Vain | None:
        """The last time that the front door did not take a route; None: it took the one after that."""
        return self.vain.get((SetRoute.__name__, ""))
