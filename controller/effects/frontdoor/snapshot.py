"""What the front door's runtime socket says at one moment, read into records."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.route import HoldSeen, Mode, SlotSeen, SlotState
from .errors import DoorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .runtime import RuntimeSocket

BACKENDS = ("engines", "preview")
WAY_BACK = "again"  # the server that leads back into the hold; no slot
MAPS = ("ctl", "attempt", "health")
_MAINTENANCE = 0x01 | 0x02 | 0x20 | 0x40  # forced, inherited, resolution, host name; not 0x04: "disabled" in the file
_DRAIN = 0x08 | 0x10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``slots`` by (backend, slot number); ``maps`` by the name of the map, then by key."""

    pid: int
    slots: Mapping[tuple[str, int], SlotSeen]
    maps: Mapping[str, Mapping[str, str]]
    held: int
    server_state: str  # `show servers state`, verbatim
    hold: HoldSeen

    @property
    def mode(self) -> Mode:
        return Mode(self.maps["ctl"].get("mode", Mode.OPEN))

    def serving(self, backend: str) -> tuple[SlotSeen, ...]:
        """Every slot that is not in maintenance, and those that are but still have a stream to finish."""
        return tuple(
            slot
            for (name, _), slot in sorted(self.slots.items())
            if name == backend and (slot.state is not SlotState.MAINT or slot.in_flight)
        )


def take_snapshot(runtime: RuntimeSocket) -> Snapshot:
    info = dict(line.split(": ", 1) for line in runtime.ask("show info").splitlines() if ": " in line)
    server_state = runtime.ask("show servers state")
    statistics = runtime.ask("show stat -1 4 -1")
    maps = {name: _read_map(runtime.ask(f"show map ../{name}.map")) for name in MAPS}
    held = dict(re.findall(r"(\w+)=([\d.]+)", runtime.ask("show held")))
    try:
        slots = _read_slots(server_state, statistics)
        seen = Snapshot(int(info["Pid"]), slots, maps, int(held.get("held", 0)), server_state, _read_hold(held))
        Mode(seen.mode)  # told here, not to whoever looks later
    except (LookupError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise DoorError(f"the front door's answer is not what HAProxy 2.8 gives: {error!r}") from error
    return seen


def _read_hold(told: Mapping[str, str]) -> HoldSeen:
    """Also of a door that an earlier version started, which tells less."""
    counts = {name: int(told.get(name, 0)) for name in ("released", "timed_out", "refused", "full", "left")}
    return HoldSeen(float(told.get("oldest_s", 0)), **counts)


def columns(server_state: str) -> list[str]:
    """The names of the columns of `show servers state`; the lines below carry them in this order."""
    named = [line for line in server_state.splitlines() if line.startswith("# be_id")]
    return named[0][2:].split()


def rows(server_state: str) -> list[dict[str, str]]:
    """One per slot."""
    names = columns(server_state)
    lines = [line.split() for line in server_state.splitlines() if line and not line.startswith("#")]
    found = [dict(zip(names, fields, strict=True)) for fields in lines if len(fields) > 1]  # the first is the version
    return [row for row in found if row["srv_name"] != WAY_BACK]


def _read_slots(server_state: str, statistics: str) -> dict[tuple[str, int], SlotSeen]:
    measured = {(row["# pxname"], row["svname"]): row for row in csv.DictReader(statistics.splitlines())}
    return {
        (row["be_name"], _number(row)): _read_slot(row, measured[row["be_name"], row["srv_name"]])
        for row in rows(server_state)
    }


def _number(row: Mapping[str, str]) -> int:
    return int(row["srv_name"].removeprefix("s"))


def _read_slot(row: Mapping[str, str], measured: Mapping[str, str]) -> SlotSeen:
    state = admin_state(int(row["srv_admin_state"]))
    return SlotSeen(
        number=_number(row),
        port=int(row["srv_port"]),
        state=state,
        up=state is not SlotState.MAINT and _checked(measured),
        in_flight=int(measured["scur"]) + int(measured["qcur"]),
    )


def admin_state(bits: int) -> SlotState:
    if bits & _MAINTENANCE:
        return SlotState.MAINT
    return SlotState.DRAIN if bits & _DRAIN else SlotState.READY


def _checked(measured: Mapping[str, str]) -> bool:
    """Whether a check has succeeded on this address since the slot left maintenance.

    A slot that becomes ready takes traffic at once, as "UP 1/2", even on a dead port, and shows the result of its
    former address's last check; only full health ("UP", or "DRAIN") together with a good result says more.
    """
    if measured["status"] not in ("UP", "DRAIN") or not measured["check_status"].removeprefix("* ").startswith("L7OK"):
        return False
    full = int(measured["check_rise"]) + int(measured["check_fall"]) - 1
    return int(measured["check_health"]) == full


def _read_map(answer: str) -> dict[str, str]:
    """Lines of `show map`: address, key, value."""
    if answer.startswith("Unknown map"):
        raise DoorError("the front door that runs is not ours: it has none of our maps; stop it by its own means")
    fields = (line.split(" ", 2) for line in answer.splitlines())
    return {parts[1]: parts[2] for parts in fields if len(parts) == 3}
