"""Sweeps as people see them: arms in order, with ratios to live between bounds, and what is left."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..core.night_records import Sweep
from ..core.policy import Policy
from ..core.queue import why_not_yet
from ..core.ranking import Ranked, Ranking, Standing, rank
from ..core.records import Phase, State
from ..core.seen import Seen
from .sweep_desk import ArmSheet, SweepSheet
from .views import SCHEMA, is_withdrawn, outcome, why


def sweeps(state: State, limit: int) -> dict[str, Any]:
    """The newest, oldest first."""
    newest = list(state.sweeps.values())[-limit:]
    return {"schema": SCHEMA, "sweeps": [_head(sweep, rank(state, sweep), state) for sweep in newest]}


def sweep(state: State, record: Sweep, seen: Seen | None, policy: Policy) -> dict[str, Any]:
    ranking = rank(state, record)
    return {
        "schema": SCHEMA,
        **_head(record, ranking, state),
        "waits_for": _waits_for(state, record, seen, policy),
        "arms": [_arm(arm, record, state) for arm in ranking.arms],
    }


def _head(record: Sweep, ranking: Ranking, state: State) -> dict[str, Any]:
    """`leads`: who would be the pick by what is known so far; `pick` is only there once it is decided."""
    standings = [arm.standing for arm in ranking.arms]
    return {
        "id": record.id,
        "name": record.name,
        "asked_by": record.asked_by,
        "created": record.created_wall_s,
        "on_success": record.on_success.value,
        "decided": record.decided_wall_s,
        "pick": record.pick or None,
        "why": record.why or _so_far(record, ranking, state),
        "leads": ranking.pick or None,
        "followed_by": record.followed_by or None,
        "against": ranking.against or None,
        "arms_together": ranking.arms_together,
        "left": ranking.left,
        "standings": {kind.value: standings.count(kind) for kind in Standing if kind in standings},
    }


def _so_far(record: Sweep, ranking: Ranking, state: State) -> str:
    """What is known before it is decided; before an arm is over nothing is, and that must not read like a verdict."""
    arms = len(ranking.arms)
    if ranking.left < arms:
        return f"so far, with {ranking.left} of {arms} arms to come: {ranking.why}"
    tries = [state.rollouts[arm.rollout] for arm in record.arms]
    runs = sum(arm.standing is Standing.RUNS for arm in ranking.arms)
    if runs or any(each.again_for for each in tries):
        return f"no arm is over yet: {runs} of {arms} run{'s' * (runs == 1)}"
    window = tries[0].options.window
    waits = f"{arms} arms wait" if arms > 1 else "its arm waits"
    return f"not begun: {waits} for " + (f"window {window}" if window else "their turn" if arms > 1 else "its turn")


def _arm(arm: Ranked, record: Sweep, state: State) -> dict[str, Any]:
    settings = next(each.settings for each in record.arms if each.name == arm.arm)
    rollout = state.rollouts[arm.rollout]
    return {
        "name": arm.arm,
        "settings": dict(settings),
        "release": arm.release,
        "rollout": arm.rollout,
        "phase": rollout.phase.value,
        "outcome": outcome(rollout),
        "night": arm.night or None,
        "standing": arm.standing.value,
        "rank": arm.rank,
        "tied": arm.tied,
        "figures": [{**asdict(figure), "standing": figure.standing.value} for figure in arm.figures],
        "why": why(rollout) if is_withdrawn(rollout) else arm.why,
    }


def _waits_for(state: State, record: Sweep, seen: Seen | None, policy: Policy) -> str:
    """What the next arm waits for; empty where none waits, or its turn has come."""
    waiting = next((r for arm in record.arms if (r := state.rollouts[arm.rollout]).phase is Phase.QUEUED), None)
    if waiting is None or seen is None:
        return ""
    if state.freeze is not None:
        return f"frozen by {state.freeze.by}: {state.freeze.why}"
    active = state.active
    return why_not_yet(waiting, state, seen, policy) or (f"{active.id} is {active.phase.words}" if active else "")


def sheet(found: SweepSheet) -> dict[str, Any]:
    """What a sweep would be."""
    return {
        "name": found.name,
        "combinations": found.combinations,
        "on_success": found.on_success.value,
        "gates": [step["name"] for step in found.profile],
        "arms": [_arm_sheet(arm) for arm in found.arms],
        "notes": list(found.notes),
    }


def _arm_sheet(arm: ArmSheet) -> dict[str, Any]:
    return {
        "name": arm.name,
        "settings": dict(arm.settings),
        "topology": arm.topology,
        "release": arm.release.id if arm.release else None,
        "refused": arm.refused or None,
    }
