"""Sweeps of which an arm was tried in the night: the ranking of `core.ranking`, with verdicts and figures. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..core.night_records import Sweep
from ..core.ranking import Figure, Ranked, Ranking, rank
from .figures import figures, ratios, says
from .material import Material
from .records import ArmPart, Ratio, SweepPart
from .rollouts import baseline_results, outcome, tone, why


def sweep_parts(material: Material) -> tuple[SweepPart, ...]:
    return tuple(_sweep(sweep, material) for sweep in material.state.sweeps.values() if _is_tonight(sweep, material))


def _is_tonight(sweep: Sweep, material: Material) -> bool:
    night, rollouts = material.night, material.state.rollouts
    decided = sweep.decided_wall_s is not None and night.opens_wall_s <= sweep.decided_wall_s <= material.ends_s
    return decided or any(arm.rollout in rollouts and rollouts[arm.rollout].night == night.id for arm in sweep.arms)


def _sweep(sweep: Sweep, material: Material) -> SweepPart:
    ranking = rank(material.state, sweep)
    return SweepPart(
        id=sweep.id,
        name=sweep.name,
        asked_by=sweep.asked_by,
        on_success=sweep.on_success.value,
        against=ranking.against,
        arms=tuple(_arm(arm, material) for arm in ranking.arms),
        left=ranking.left,
        decided=material.local_or_none(sweep.decided_wall_s),
        pick=sweep.pick,
        why=sweep.why or _so_far(ranking),
        followed_by=sweep.followed_by,
    )


def _so_far(ranking: Ranking) -> str:
    if ranking.left == len(ranking.arms):
        return f"no arm is over yet, {ranking.left} are to come"
    return f"so far, with {ranking.left} of {len(ranking.arms)} arms to come: {ranking.why}"


def _arm(arm: Ranked, material: Material) -> ArmPart:
    rollout = material.state.rollouts[arm.rollout]
    return ArmPart(
        name=arm.arm,
        release=arm.release,
        rollout=arm.rollout,
        outcome=outcome(rollout, material),
        tone=tone(rollout),
        standing=arm.standing.value,
        rank=arm.rank,
        why=arm.why or why(rollout, material),
        night=arm.night,
        compared=_wider(ratios(rollout.gates), arm.figures),
        figures=figures(rollout.gates, baseline_results(rollout, material)),
    )


def _wider(compared: tuple[Ratio, ...], ranked: tuple[Figure, ...]) -> tuple[Ratio, ...]:
    """With the bounds that hold for all arms together; those that were not ranked keep their own."""
    known = {figure.metric: figure for figure in ranked}
    return tuple(_with_bounds(ratio, known.get(ratio.metric)) for ratio in compared)


def _with_bounds(ratio: Ratio, figure: Figure | None) -> Ratio:
    if figure is None:
        return ratio
    told = says(figure.low, figure.high, higher=ratio.higher_is_better)
    return replace(ratio, low=figure.low, high=figure.high, says=told)
