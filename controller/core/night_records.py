"""The records of what happens by night: windows that were open, and sweeps. Changed only by `core.moves`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class NightState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MISSED = "missed"  # nobody was awake: what waited for it waits for the next one, and is never run late


@dataclass(frozen=True, slots=True)
class Night:
    """One opening of a window, under the local date on which it opens."""

    id: str  # nightly@2026-11-30
    window: str
    date: str
    opens_wall_s: float
    closes_wall_s: float
    closes_boot_s: float = 0.0  # the same on the clock of the box, while that is the boot in which it opened
    boot_id: str = ""
    state: NightState = NightState.OPEN
    seen_wall_s: float = 0.0  # when the daemon noticed it
    ended_wall_s: float | None = None
    why: str = ""
    baseline: str = ""  # the rollout that measured live in it, or was to
    said: tuple[str, ...] = ()  # what the morning has to be told besides: who waited, and for what


class OnSuccess(StrEnum):
    """What becomes of the best arm of a sweep."""

    REPORT = "report"
    ASK = "ask"  # it is proposed, and waits for approval before its cutover
    SWITCH = "switch"  # it is proposed


@dataclass(frozen=True, slots=True)
class Arm:
    """One combination of a sweep's matrix, frozen as a release of its own."""

    name: str  # kv-cache-dtype=fp8,num-speculative-tokens=2
    release: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rollout: str = ""  # that tries it


@dataclass(frozen=True, slots=True)
class Sweep:
    """A matrix of candidates, each tried on freed GPUs and never switched to."""

    id: str  # s0001
    name: str
    asked_by: str
    created_wall_s: float
    on_success: OnSuccess
    arms: tuple[Arm, ...]
    decided_wall_s: float | None = None
    pick: str = ""  # name of an arm; empty: no arm is better, or not decided
    why: str = ""
    followed_by: str = ""  # the rollout that proposes the pick
    against: str = ""  # the release that was live when it was decided
