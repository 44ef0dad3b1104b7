"""Rollouts as the report tells them: outcome, gates with their evidence, figures against live, dark seconds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.records import GateResult, Kind, Phase, Rollout
from ..core.route import Counted
from .dark import dark, dark_back, left_s, switched_s
from .figures import compared_with, figures, ratios
from .material import Material
from .records import Finding, GatePart, RolloutPart, UsersPart

WITHDRAWN: Final = "withdrawn"
_MOST_FINDINGS: Final = 8
_TONES: Final[Mapping[Phase, str]] = {
    Phase.PROMOTED: "good",
    Phase.MEASURED: "good",
    Phase.REFUSED: "bad",
    Phase.REJECTED: "bad",
    Phase.FAILED: "bad",
    Phase.ROLLBACK_FAILED: "bad",
    Phase.ROLLED_BACK: "unsure",
    Phase.INCONCLUSIVE: "unsure",
    Phase.ABORTED: "unsure",
    Phase.SKIPPED: "quiet",
    Phase.SUPERSEDED: "quiet",
}


def rollout_part(rollout: Rollout, material: Material) -> RolloutPart:
    local = material.local_or_none
    counted = material.counted.get(rollout.id)
    return RolloutPart(
        id=rollout.id,
        kind=rollout.kind.value,
        release=rollout.release,
        asked_by=rollout.asked_by,
        note=rollout.options.note,
        again_for=rollout.again_for,
        phase=rollout.phase.value,
        outcome=outcome(rollout, material),
        tone=tone(rollout),
        over=rollout.ended_wall_s is not None,
        why=rollout.why,
        of_this_night=rollout.night == material.night.id,
        trial=rollout.options.trial,
        sweep=rollout.options.sweep,
        strategy=rollout.strategy,
        proposed=material.local(rollout.created_wall_s),
        began=local(material.began_s(rollout)),
        switched=local(switched_s(rollout, material)),
        ended=local(rollout.ended_wall_s),
        gates=tuple(_gate(result, material) for result in rollout.gates),
        compared=ratios(rollout.gates),
        compared_with=compared_with(rollout.gates),
        figures=figures(rollout.gates, baseline_results(rollout, material)),
        dark=dark(rollout, material),
        users=users_part(counted, material, material.began_s(rollout)) if counted else None,
        bake=f"{rollout.bake.samples} samples, the last: {rollout.bake.last}" if rollout.bake.samples else "",
        command=f"cutover show {rollout.id}",
        left=local(left_s(rollout, material)),
        dark_back=dark_back(rollout, material),
    )


def outcome(rollout: Rollout, material: Material) -> str:
    """One or two words; finer than the phase where something was skipped."""
    match rollout.phase, rollout.kind:
        case Phase.MEASURED, Kind.MEASURE:
            return "live measured"
        case Phase.SKIPPED, Kind.MEASURE:
            return "left out"
        case Phase.SKIPPED, _:
            yielded = material.lines("TryAgain", rollout.id)
            return "yielded" if yielded else "out of time" if rollout.night else "expired"
        case Phase.ABORTED, _ if material.began_s(rollout) is None:
            return WITHDRAWN
    return rollout.phase.words


def why(rollout: Rollout, material: Material) -> str:
    """The last sentence about it; of what was taken back before it had begun, by whom."""
    withdrawn = outcome(rollout, material) == WITHDRAWN and rollout.abort_by
    return f"{WITHDRAWN} by {rollout.abort_by}" if withdrawn else rollout.why


def tone(rollout: Rollout) -> str:
    """`good`, `bad`, `unsure`, `quiet`; `open` for what is not over."""
    if rollout.phase is Phase.ROLLED_BACK and rollout.kind is Kind.ROLLBACK:
        return "good"  # that is what was asked for
    return _TONES.get(rollout.phase, "open")


def baseline_results(rollout: Rollout, material: Material) -> tuple[GateResult, ...]:
    """What live showed in the same night; nothing for the measurement of live itself."""
    night = material.state.nights.get(rollout.night, material.night)
    measured = material.state.rollouts.get(night.baseline)
    return measured.gates if measured is not None and measured.id != rollout.id else ()


def users_part(counted: Counted, material: Material, begins_s: float | None) -> UsersPart:
    """`begins_s`: where the counting was to begin; said where the log does not go back so far."""
    known = material.log_since
    late = known is not None and begins_s is not None and known > begins_s
    return UsersPart(
        requests=counted.requests,
        held=counted.held,
        released=counted.released,
        timed_out=counted.timed_out,
        left=counted.left,
        refused=counted.refused,
        cut=counted.cut,
        errors_5xx=counted.errors_5xx,
        lost=counted.lost,
        longest_wait_s=round(counted.longest_wait_s, 3),
        since=material.local(known) if late and known is not None else None,
    )


def lasted(rollout: Rollout, material: Material) -> tuple[float, float]:
    """From its turn until users are served as before, or better: the dark of a trial outlives its verdict."""
    begin_s = material.began_s(rollout)
    end_s = material.now.wall_s if rollout.ended_wall_s is None else rollout.ended_wall_s
    found = dark(rollout, material)
    until = found.until.timestamp() if found is not None and found.until is not None else end_s
    return rollout.created_wall_s if begin_s is None else begin_s, max(end_s, until)


def first_served_s(material: Material) -> float:
    """From when on users could expect an answer: the opening, or the first switch where nothing was live until then."""
    opens_s = material.night.opens_wall_s
    switches = [e for e in material.lines("RecordSwitch") if e.wall_s >= opens_s]
    first = material.state.rollouts.get(switches[0].rollout) if switches else None
    return switches[0].wall_s if first is not None and first.before[0] is None else opens_s


def _gate(result: GateResult, material: Material) -> GatePart:
    report = material.reports.get(result.run)
    evidence = f"{material.gates_dir}/{result.run}/evidence"
    return GatePart(
        name=result.gate,
        run=result.run,
        verdict=result.verdict,
        sentence=result.sentence,
        observe=result.observe,
        evidence=evidence if result.index >= 0 else "",
        kept=report is not None,
        findings=tuple(_finding(check, evidence) for check in _failed(report))[:_MOST_FINDINGS],
    )


def _failed(report: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Checks that did not pass; a gate of somebody else may write anything, or nothing, here."""
    listed = report.get("checks") if report is not None else None
    checks = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
    return [check for check in checks if check.get("verdict") != "pass" and not check.get("skipped")]


def _finding(check: Mapping[str, Any], evidence_dir: str) -> Finding:
    listed = check.get("evidence")
    paths = [str(path) for path in listed] if isinstance(listed, list) else []
    return Finding(
        id=str(check.get("id", "")),
        verdict=str(check.get("verdict", "")),
        sentence=str(check.get("sentence", "")),
        evidence=tuple(path if path.startswith("/") else f"{evidence_dir}/{path}" for path in paths),
    )
