"""From what the front door does to what it should do: the commands in between, in an order that never leaves a gap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...core.route import Mode, Route, Slot, SlotState
from .errors import DoorSettingsError
from .settings import LONGEST_RETRY_AFTER_S, DoorSettings
from .snapshot import BACKENDS, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,199}")
_HEALTH_PATH = re.compile(r"/[A-Za-z0-9._~/?&=-]*")
_LAST_PORT = 65535
NOBODY = "-"  # the attempt of a slot that has none
DEFAULT_HEALTH_PATH = "/health"


def check_route(route: Route, slots: int) -> None:
    """Raises :class:`DoorSettingsError`; one sentence per mistake."""
    by_number: dict[int, Slot] = {}
    for backend, wished in zip(BACKENDS, (route.public, route.preview), strict=True):
        numbers = [slot.number for slot in wished]
        if len(numbers) != len(set(numbers)):
            raise DoorSettingsError(f"the route names a slot of `{backend}` twice: {numbers}")
        for slot in wished:
            if not 1 <= slot.number <= slots:
                raise DoorSettingsError(f"the route names slot {slot.number}; the front door has slots 1 to {slots}")
            if not 1 <= slot.port <= _LAST_PORT:  # HAProxy would take its last 16 bits: somebody else's port
                raise DoorSettingsError(f"slot {slot.number}: port {slot.port} is none; expected 1 to {_LAST_PORT}")
            for what, value, expected in (
                ("attempt", slot.attempt, _ATTEMPT),
                ("health path", slot.health_path, _HEALTH_PATH),
            ):
                if not expected.fullmatch(value):  # they become words of a command line
                    raise DoorSettingsError(f"slot {slot.number}: {what} {value!r} does not match {expected.pattern}")
            other = by_number.setdefault(slot.number, slot)
            if (other.port, other.attempt, other.health_path) != (slot.port, slot.attempt, slot.health_path):
                raise DoorSettingsError(
                    f"the route gives slot {slot.number} to {other.attempt} and to {slot.attempt}; a slot is one "
                    "process, in the public and in the preview backend"
                )


def control_values(route: Route | None, settings: DoorSettings) -> dict[str, str]:
    """The map that the configuration and hold.lua read. Without a route nothing is live: the door says so at once."""
    mode, retry_after_s = (route.mode, route.retry_after_s) if route else (Mode.REFUSE, settings.retry_after_s)
    return {
        "mode": mode.value,
        "reason": "switching" if route and route.public else "none_live",
        "retry_after": str(max(1, min(retry_after_s, LONGEST_RETRY_AFTER_S))),
        "hold_s": f"{settings.hold_s:g}",
        "hold_max": str(settings.hold_max),
    }


def changes(route: Route, seen: Snapshot, settings: DoorSettings) -> list[str]:
    """The commands, empty when nothing differs.

    Order: doors that close come first (hold, refuse), then every slot that becomes ready, then those that stop taking
    requests, then doors that open. A slot that gets another process passes through maintenance, because only that makes
    HAProxy forget the health of the former one.
    """
    check_route(route, settings.slots)
    control = _set_map("ctl", control_values(route, settings), seen.maps["ctl"])
    commands = control if route.mode is not Mode.OPEN else []
    wished = {
        (backend, slot.number): slot
        for backend, slots in zip(BACKENDS, (route.public, route.preview), strict=True)
        for slot in slots
    }
    for backend, number in wished.keys() - seen.slots.keys():  # it was started when there were to be fewer
        there = max((slot for name, slot in seen.slots if name == backend), default=0)
        raise DoorSettingsError(
            f"the route names slot {number}; the front door that runs has slots 1 to {there}, and more when it is "
            "started again, which ends the requests in it"
        )
    by_state: dict[SlotState, list[str]] = {state: [] for state in SlotState}
    for key, slot in wished.items():
        by_state[slot.state] += _settle(key, slot, seen)
    for key, slot_seen in seen.slots.items():
        if key not in wished and slot_seen.state is not SlotState.MAINT:
            by_state[SlotState.MAINT].append(f"{_server(key)} state maint")
    commands = commands + by_state[SlotState.READY] + by_state[SlotState.DRAIN] + by_state[SlotState.MAINT]
    return commands + (control if route.mode is Mode.OPEN else [])


def _settle(key: tuple[str, int], slot: Slot, seen: Snapshot) -> list[str]:
    before = seen.slots[key]
    state = before.state
    commands = []
    name = f"s{slot.number}"
    maps = _set_map("attempt", {name: slot.attempt}, seen.maps["attempt"])
    maps += _set_map("health", {name: slot.health_path}, seen.maps["health"])
    if maps or before.port != slot.port:
        if state is not SlotState.MAINT:
            commands.append(f"{_server(key)} state maint")
            state = SlotState.MAINT
        commands += maps
    if before.port != slot.port:
        commands.append(f"{_server(key)} addr 127.0.0.1 port {slot.port}")
    if state is not slot.state:
        commands.append(f"{_server(key)} state {slot.state.value}")
    return commands


def _set_map(name: str, wished: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    differs = {key: value for key, value in wished.items() if seen.get(key) != value}
    return [f"{'set' if key in seen else 'add'} map ../{name}.map {key} {value}" for key, value in differs.items()]


def _server(key: tuple[str, int]) -> str:
    return f"set server {key[0]}/s{key[1]}"
