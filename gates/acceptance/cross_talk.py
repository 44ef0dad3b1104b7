"""Group O, load: answers stay right, and everybody's own, when many are answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance.check import Check, Overall
from gates.acceptance.mixed_load import ALPHA, CALLS, Level, against_alone, mixed_load, questions, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings, Surveyed


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    load = await mixed_load(asker, around.seed)
    kinds = [kind for kind in questions(asker.capability) if kind not in CALLS]
    return told(judge(load.levels, kinds), load)


def judge(load: Mapping[int, Level], kinds: Sequence[str]) -> Surveyed:
    """Each level, and all together, against the answers given alone. Foreign codes are a rule for every answer."""
    return against_alone(load, kinds)


CHECKS: Final = (
    Check(
        id="O06",
        name="load and cross-talk",
        asks="Codes to repeat, sums, prose of many lengths and objects: the same load as of J24.",
        holds="no answer holds another request's code, and no more are wrong than alone",
        catches="answers that go to the wrong user, and engines that write garbage only when many run at once",
        rule=Overall(
            f"no foreign code at all; Fisher's exact test against the answers given alone, p < {ALPHA:g} in all"
        ),
        survey=_survey,
        exclusive=True,
    ),
)
