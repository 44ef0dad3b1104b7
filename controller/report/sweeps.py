"""Sweeps of which an arm was tried in the night: every arm with its verdict, and where it stands so far. Pure."""

from __future__ import annotations

from ..core.night_records import Arm, Sweep
from .figures import figures, ratios
from .material import Material
from .records import ArmPart, SweepPart
from .rollouts import baseline_results, outcome, tone


def sweep_parts(material: Material) -> tuple[SweepPart, ...]:
    return tuple(_sweep(sweep, material) for sweep in material.state.sweeps.values() if _is_tonight(sweep, material))


def _is_tonight(sweep: Sweep, material: Material) -> bool:
    night = material.night
    decided = sweep.decided_wall_s is not None and night.opens_wall_s <= sweep.decided_wall_s <= material.ends_s
    return decided or any(_is_of(arm, material) for arm in sweep.arms)


def _is_of(arm: Arm, material: Material) -> bool:
    rollout = material.state.rollouts.get(arm.rollout)
    return rollout is not None and rollout.night == material.night.id


def _sweep(sweep: Sweep, material: Material) -> SweepPart:
    arms = tuple(_arm(arm, material) for arm in sweep.arms)
    return SweepPart(
        id=sweep.id,
        name=sweep.name,
        asked_by=sweep.asked_by,
        on_success=sweep.on_success.value,
        arms=tuple(sorted(arms, key=lambda arm: arm.rank or len(arms) + 1)),
        tried=sum(arm.outcome not in {"queued", ""} for arm in arms),
        decided=material.local_or_none(sweep.decided_wall_s),
        pick=sweep.pick,
        why=sweep.why,
        followed_by=sweep.followed_by,
    )


def _arm(arm: Arm, material: Material) -> ArmPart:
    rollout = material.state.rollouts.get(arm.rollout)
    if rollout is None:
        return ArmPart(arm.name, arm.release, arm.rollout, "", "quiet", "it was never filed", False, (), ())
    return ArmPart(
        name=arm.name,
        release=arm.release,
        rollout=arm.rollout,
        outcome=outcome(rollout, material),
        tone=tone(rollout),
        why=rollout.why,
        tonight=_is_of(arm, material),
        compared=ratios(rollout.gates),
        figures=figures(rollout.gates, baseline_results(rollout, material)),
    )
