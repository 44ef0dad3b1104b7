"""What every gate that chats does with the rules of `invariants`: one check per rule, over all answers it received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gates import invariants
from gates.contract import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.toolwire import Breach
    from gates.trial import Answer, Trial

_SILENT_AFTER: Final = 2


def gone_silent(trial: Trial) -> bool:
    """The last answers did not come, or not whole: more questions would only burn the deadline."""
    last = trial.answers[-_SILENT_AFTER:]
    return len(last) == _SILENT_AFTER and all(any(b.rule == "P08" for b in answer.breaches) for answer in last)


LEAKS: Final = frozenset({"P11"})


def check_invariants(
    trial: Trial, *, at_once: frozenset[str] = LEAKS, reruns: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Zero tolerance: one breach that only a server can commit fails its rule.

    So does one of the rules `at_once`, even where a model could have done it: a gate that asks a handful of questions
    and nothing twice has no better evidence. `reruns` are further measurements by rule: what came of asking again.
    """
    decided = {check.id for check in trial.checks}
    for rule, must_hold in invariants.RULES.items():
        guilty = [
            (answer, breach)
            for answer in trial.answers
            for breach in answer.breaches
            if breach.rule == rule and (rule in at_once or not breach.by_model)
        ]
        if guilty:
            sentence = f"{guilty[0][1].sentence} ({_share(guilty, trial)})"
            figures = {"hits": len({id(answer) for answer, _ in guilty}), "answers": len(trial.answers)}
            figures |= (reruns or {}).get(rule, {})
            sentence += f"; at fault: {figures['layer']}" if "layer" in figures else ""
            exchanges = [guilty[0][0].exchange]
            trial.check(rule, VerdictKind.FAIL, sentence, rule=must_hold, exchanges=exchanges, measurements=figures)
        elif (rule in at_once or rule not in {*invariants.BY_MODEL_ONLY, *decided}) and any(
            answer.reply.answered for answer in trial.answers
        ):
            answered = sum(answer.reply.answered for answer in trial.answers)
            trial.check(rule, VerdictKind.PASS, f"{must_hold}: {answered} of {answered} answers")


def _share(guilty: list[tuple[Answer, Breach]], trial: Trial) -> str:
    return f"{len({id(answer) for answer, _ in guilty})} of {len(trial.answers)} answers"
