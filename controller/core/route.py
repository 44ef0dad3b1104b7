"""What the front door should serve, and what it says it serves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SlotState(StrEnum):
    """Administrative state of a slot, in HAProxy's own words."""

    READY = "ready"
    DRAIN = "drain"
    MAINT = "maint"


class Mode(StrEnum):
    """What happens to a request while nothing can serve: pass, wait, or a 503 with Retry-After."""

    OPEN = "open"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a release at the front door: an instance's port, or the port of the release's router."""

    number: int  # 1 … slots of the configuration; the same number in the public and in the preview backend
    port: int  # on 127.0.0.1
    health_path: str  # what the front door's own check asks for: /health, or /readiness for smg
    release: str
    attempt: str
    state: SlotState = SlotState.READY


@dataclass(frozen=True, slots=True)
class Route:
    """The whole wish: every slot that is not named here is in maintenance."""

    generation: int  # of the commit that made it; only shown, the journal decides
    public: tuple[Slot, ...] = ()
    preview: tuple[Slot, ...] = ()
    mode: Mode = Mode.OPEN
    retry_after_s: int = 30  # SDKs ignore more than 60


@dataclass(frozen=True, slots=True)
class SlotSeen:
    """One slot as the front door reports it."""

    number: int
    port: int
    state: SlotState
    up: bool  # its own check has succeeded on this very address (status exactly UP, no fraction)
    in_flight: int


@dataclass(frozen=True, slots=True)
class HoldSeen:
    """How long the request waits that has waited longest, and how waits ended since the front door's process began."""

    oldest_s: float = 0.0
    released: int = 0
    timed_out: int = 0
    refused: int = 0  # sent away because the mode became `refuse`
    full: int = 0  # never waited: too many did
    left: int = 0


@dataclass(frozen=True, slots=True)
class DoorSeen:
    """One observation of the front door. `alive` is False when its runtime socket does not answer."""

    alive: bool
    pid: int | None = None
    started_at_s: float | None = None  # boot time clock
    public: tuple[SlotSeen, ...] = ()
    preview: tuple[SlotSeen, ...] = ()
    mode: Mode = Mode.OPEN
    held: int = 0
    hold: HoldSeen = HoldSeen()
    why: str = ""  # when not alive: what was tried and what it said


def differs(route: Route, door: DoorSeen) -> bool:
    """Whether the front door serves something else than `route`; a slot that nobody wants must be in maintenance."""
    if door.mode is not route.mode:
        return True
    for wanted, have in ((route.public, door.public), (route.preview, door.preview)):
        slots = {slot.number: slot for slot in wanted}
        for slot_seen in have:
            slot = slots.pop(slot_seen.number, None)
            if slot is None:
                if slot_seen.state is not SlotState.MAINT:
                    return True
            elif slot_seen.state is not slot.state or slot_seen.port != slot.port:
                return True
        if slots:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the front door's access log says of one attempt since a point in time.

    `first_byte_s` holds up to the last 512 times to the response header, seconds, oldest first: an engine that sends
    its headers before its first token (vLLM does) makes these small, so they are compared with like, never read alone.
    """

    attempt: str
    requests: int = 0
    errors_5xx: int = 0
    truncated: int = 0  # the engine closed a response that had begun
    client_left: int = 0
    first_byte_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """What users met at the public address between two moments, by the front door's access log.

    `requests` has the daemon's own probes and gates in it, which come by the same way.
    """

    requests: int = 0
    held: int = 0  # waited at the door, however it ended
    released: int = 0  # … and were served then
    timed_out: int = 0  # … for as long as anybody may: 503
    left: int = 0  # … and gave up
    refused: int = 0  # 503 at once: nothing was to be waited for, or too many waited
    cut: int = 0  # an answer that had begun ended before its end
    errors_5xx: int = 0  # from an engine, or because none took it
    longest_wait_s: float = 0.0

    @property
    def lost(self) -> int:
        """Requests that got no whole answer, and whose client was there to hear it."""
        return self.timed_out + self.refused + self.cut + self.errors_5xx
