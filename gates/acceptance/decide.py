"""From tries to the verdict of a check. Pure: what was found, what production showed before, what people waived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.check import Behaviour, Deterministic, Overall, Relative, Report, Tier
from gates.contract import VerdictKind
from gates.statistics import LOOK_CONFIDENCE, Ruling, non_inferior, non_inferior_paired, wilson_lower

if TYPE_CHECKING:
    from gates.acceptance.tries import Tries

MAX_LOST: Final = 0.02
"""More questions than this without any answer: the way to the engine failed, and the behaviour was not seen."""


@dataclass(frozen=True)
class Decision:
    """The verdict on one check and its figures. `warn`: shown, does not block."""

    verdict: VerdictKind
    sentence: str
    measurements: Mapping[str, Any] = field(default_factory=dict)
    warn: bool = False


def decide(tries: Tries, tier: Tier, before: Mapping[str, Any]) -> Decision:
    """`before` is what the same check measured on production: ``{"n": int, "right": int}``, or empty.

    With ``"outcomes"``, a list of bool, production was asked the very same questions, in the same order.
    """
    n, right = len(tries.done), tries.right
    figures: dict[str, Any] = {"n": n, "right": right}
    if n:
        figures["lower_bound"] = round(wilson_lower(right, n), 4)
    if before:
        figures["production"] = {"n": before.get("n"), "right": before.get("right")}
    modes = {one.sample.mode for one in tries.failures}
    if len(modes) == 1 and len({one.sample.mode for one in tries.done}) == 2:
        figures["mode"] = next(iter(modes))
    verdict, why = _ruled(tries, tier, before)
    sentence = f"right in {right} of {n}" + (f"; {why}" if why else "")
    if tries.failures:
        sentence = f"{tries.failures[0].problem} ({_where(tries)}; {sentence})"
    if verdict is VerdictKind.FAIL and (tries.check.warns or isinstance(tries.check.rule, Report)):
        return Decision(VerdictKind.PASS, sentence, figures, warn=True)
    shown = verdict is VerdictKind.PASS and bool(tries.failures) and isinstance(tries.check.rule, Report)
    return Decision(verdict, sentence, figures, warn=shown)


def _ruled(tries: Tries, tier: Tier, before: Mapping[str, Any]) -> tuple[VerdictKind, str]:
    n = len(tries.done)
    lost = sum(one.lost for one in tries.done)
    match tries.check.rule:
        case Deterministic():
            return (VerdictKind.FAIL if tries.failures else VerdictKind.PASS), ""
        case Behaviour() if tier is not Tier.SMOKE and lost > MAX_LOST * n and lost == len(tries.failures):
            return VerdictKind.INCONCLUSIVE, f"{lost} questions got no answer at all"
        case Behaviour():
            return _behaved(tries.ruling, smoke=tier is Tier.SMOKE)
        case Relative() as rule:
            # Five tries of the smoke tier compare nothing.
            return _compared(rule, tries.outcomes(), before if tier is not Tier.SMOKE else {})
        case Report() | Overall():
            return VerdictKind.PASS, ""


def _behaved(ruling: Ruling | None, *, smoke: bool) -> tuple[VerdictKind, str]:
    if ruling is Ruling.REJECT:
        return VerdictKind.FAIL, "too many failures"
    if smoke:
        return VerdictKind.PASS, "a first look, which accepts nothing"
    if ruling is Ruling.ACCEPT:
        return VerdictKind.PASS, ""
    return VerdictKind.INCONCLUSIVE, "neither good nor bad enough to tell within the allowed number of tries"


def _compared(rule: Relative, outcomes: Sequence[bool], before: Mapping[str, Any]) -> tuple[VerdictKind, str]:
    n, right = len(outcomes), sum(outcomes)
    if rule.floor is not None and n and right / n < rule.floor:
        return VerdictKind.FAIL, f"below the floor of {rule.floor:.0%}"
    base_n, base_right = before.get("n"), before.get("right")
    if not isinstance(base_n, int) or not isinstance(base_right, int) or not 0 <= base_right <= base_n or not base_n:
        return VerdictKind.PASS, "nothing to compare with; only the floor decided" if rule.floor is not None else ""
    same = before.get("outcomes")
    if isinstance(same, list) and len(same) == n:
        only_there = sum(theirs and not ours for ours, theirs in zip(outcomes, same, strict=True))
        only_here = sum(ours and not theirs for ours, theirs in zip(outcomes, same, strict=True))
        ruling = non_inferior_paired(only_there, only_here, n, margin=rule.margin, confidence=LOOK_CONFIDENCE)
        compared = f"production: {base_right} of the same {base_n}"
    else:
        ruling = non_inferior(right, n, base_right, base_n, margin=rule.margin, confidence=LOOK_CONFIDENCE)
        compared = f"production: {base_right} of {base_n}"
    if ruling is Ruling.REJECT:
        return VerdictKind.FAIL, f"worse than before by more than {rule.margin:.0%} ({compared})"
    if ruling is Ruling.HOLD:
        return VerdictKind.INCONCLUSIVE, f"cannot be told from a loss of {rule.margin:.0%} ({compared})"
    return VerdictKind.PASS, compared


def _where(tries: Tries) -> str:
    """In one mode only? That names the parser."""
    modes = {one.sample.mode for one in tries.failures}
    asked = {one.sample.mode for one in tries.done}
    thinking = {one.sample.thinking for one in tries.failures}
    words = [
        f"only {modes.pop()}" if len(modes) == 1 and len(asked) == 2 else "in every mode" if len(asked) == 2 else ""
    ]
    if len(thinking) == 1 and (position := thinking.pop()) is not None:
        words.append(f"thinking {'on' if position else 'off'}")
    return ", ".join(word for word in words if word) or "as asked"
