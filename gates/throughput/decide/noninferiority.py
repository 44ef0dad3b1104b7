"""Not slower than live: every metric of the rule, on the whole ladder, and what is to be said besides."""

from __future__ import annotations

from dataclasses import dataclass

from gates.contract import VerdictKind, combined
from gates.throughput.decide.family import FamilyDecision, judge
from gates.throughput.decide.pairs import failures, pairing
from gates.throughput.decide.rule import Rule
from gates.throughput.records import Run


@dataclass(frozen=True)
class Decision:
    """Candidate against baseline. `notes`: everything that was left out or is to be known, one sentence each.

    `next_look`: measure until each side has so many rounds and ask again; None: the verdict can no longer change.
    """

    verdict: VerdictKind
    sentence: str
    families: tuple[FamilyDecision, ...] = ()
    notes: tuple[str, ...] = ()
    next_look: int | None = None


def decide(candidate: Run, baseline: Run, rule: Rule | None = None) -> Decision:
    """Is the candidate slower than the baseline by more than `rule` allows? To be asked at each look, on all rounds.

    A failed request of the candidate fails it, without statistics. Cells that should compare and do not, block a pass.
    To pass, every metric has to: whoever is slower in one passes no more often than that one lets it, so nothing is
    corrected for their number (R. L. Berger, Technometrics 24 (1982) 295). Raises `ValueError` when a run holds a cell
    twice.
    """
    rule = rule or Rule()
    notes = [f"baseline {each}; only its whole rounds count" for each in failures(baseline)]
    failed = failures(candidate)
    if failed:
        return Decision(VerdictKind.FAIL, f"the candidate failed requests: {'; '.join(failed)}", (), tuple(notes))
    refused = rule.refusal()
    if refused is not None:
        return Decision(VerdictKind.INCONCLUSIVE, f"the rule is refused: {refused}", (), tuple(notes))
    families = []
    for metric in rule.metrics:
        paired = pairing(candidate, baseline, metric)
        notes.extend((*paired.notes, *paired.blocking, rule.spread(metric).sentence))
        families.append(judge(metric, paired, rule))
    verdict = combined(family.verdict for family in families)
    deciding = [family.sentence for family in families if family.verdict is verdict]
    # One failed family fails the whole for good, whatever the others still hope for.
    looks = [] if verdict is VerdictKind.FAIL else [f.next_look for f in families if f.next_look is not None]
    return Decision(
        verdict, "; ".join(deciding), tuple(families), tuple(dict.fromkeys(notes)), min(looks, default=None)
    )
