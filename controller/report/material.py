"""What a report is made of: everything that was looked up before, so that making it asks nobody. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Any

from ..core.night_records import Night, NightState
from ..core.policy import Policy
from ..core.records import ACTIVE, Kind, Now, Phase, Rollout, State
from ..core.route import Counted
from ..core.seen import Seen
from ..core.window import Schedule
from ..store.journal import Entry

_PHASES = frozenset(phase.value for phase in Phase if phase is not Phase.QUEUED)


@dataclass(frozen=True)
class Material:
    """`entries`: the journal's lines of the night. `reports`: whole verdicts by gate run, where they are still there.

    `counted`: what users met, by rollout id, and under the night's id in all of it; `log_since`: the front door's log
    goes back so far. `waits`: what each one that did not begin was last seen to wait for, while the window was open.
    """

    state: State
    night: Night
    now: Now
    policy: Policy
    seen: Seen | None = None
    entries: tuple[Entry, ...] = ()
    reports: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    counted: Mapping[str, Counted] = field(default_factory=dict)
    log_since: float | None = None
    waits: Mapping[str, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    gates_dir: str = "gates"

    def lines(self, action: str, rollout: str = "") -> Sequence[Entry]:
        """The lines of that action, of one rollout or of all, in order."""
        return self._by_action.get((action, rollout), ())

    @cached_property
    def _by_action(self) -> Mapping[tuple[str, str], Sequence[Entry]]:
        """Of action and rollout, and under "" of all of them: a night of hundreds has tens of thousands of lines."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            for rollout in {entry.rollout, ""}:
                found.setdefault((entry.action, rollout), []).append(entry)
        return found

    @property
    def schedule(self) -> Schedule | None:
        """None where the window is not configured any more."""
        return self.policy.schedules.get(self.night.window)

    @property
    def zone(self) -> tzinfo:
        return self.schedule.zone if self.schedule else UTC

    @property
    def zone_name(self) -> str:
        return (self.schedule.zone_name or str(self.schedule.zone)) if self.schedule else "UTC"

    @property
    def is_open(self) -> bool:
        return self.night.state is NightState.OPEN

    @property
    def ends_s(self) -> float:
        """When what belongs to the night ends: now, while it goes on."""
        if self.night.state is NightState.MISSED:
            return self.night.closes_wall_s
        return self.now.wall_s if self.night.ended_wall_s is None else self.night.ended_wall_s

    def local(self, wall_s: float) -> datetime:
        return datetime.fromtimestamp(wall_s, self.zone)

    def local_or_none(self, wall_s: float | None) -> datetime | None:
        return None if wall_s is None else self.local(wall_s)

    def began_s(self, rollout: Rollout) -> float | None:
        """When its turn came, by the clock on the wall; None: it never did.

        Where the journal's lines do not have it, the phases' own seconds say it: a phase that a reboot ended is in none
        of them, and it looks shorter.
        """
        if not any(phase in _PHASES for phase in rollout.times) and rollout.phase not in ACTIVE:
            return None
        accepted = self.lines("Accept", rollout.id)
        if accepted:
            return accepted[0].wall_s
        spent_s = sum(seconds for phase, seconds in rollout.times.items() if phase in _PHASES)
        if rollout.ended_wall_s is not None:
            return max(rollout.created_wall_s, rollout.ended_wall_s - spent_s)
        in_it_s = self.now.boot_s - rollout.phase_since_s if rollout.phase_boot_id == self.now.boot_id else 0.0
        return max(rollout.created_wall_s, self.now.wall_s - spent_s - max(0.0, in_it_s))

    def rollouts(self) -> tuple[Rollout, ...]:
        """What began in the night, and what else happened meanwhile (a rollback by hand), in order."""
        turns = {e.rollout: e.seq for e in self.lines("Accept")}
        begun = [(began, r) for r in self.state.rollouts.values() if (began := self.began_s(r)) is not None]
        mine = [(began, r) for began, r in begun if r.night == self.night.id or self._is_meanwhile(began, r)]
        order = sorted(mine, key=lambda pair: (pair[0], turns.get(pair[1].id, 0), pair[1].id))
        return tuple(rollout for _, rollout in order)

    def _is_meanwhile(self, began_s: float, rollout: Rollout) -> bool:
        if self.night.state is NightState.MISSED or rollout.night:
            return False
        lasted = rollout.ended_wall_s is None or rollout.ended_wall_s > self.night.opens_wall_s
        return began_s < self.ends_s and lasted


def is_for(rollout: Rollout, night: Night) -> bool:
    """Whether it waited for this window."""
    return rollout.options.window == night.window and rollout.kind is not Kind.MEASURE
