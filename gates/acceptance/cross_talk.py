"""Group O, load: answers stay right, and everybody's own, when many are answered at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gates.acceptance.check import Check, Overall
from gates.acceptance.load import ALPHA, MAX_RUNNING
from gates.acceptance.mixed_load import CALLS, SEQUENTIAL, Level, mixed_load, questions
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed
from gates.statistics import fisher_worse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.acceptance.asker import Asker
    from gates.acceptance.tries import Try

LEVELS: Final = (SEQUENTIAL, 8, 32, MAX_RUNNING, 2 * MAX_RUNNING)


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    load = await mixed_load(asker, around.seed, LEVELS)
    kinds = [kind for kind in questions(asker.capability) if kind not in CALLS]
    return judge(load, kinds)


def judge(load: Mapping[int, Level], kinds: Sequence[str]) -> Surveyed:
    """Each level, and all together, against the answers given alone. Foreign codes are a rule for every answer."""
    figures = {str(level.concurrency): level.by_kind() for level in load.values()}
    base, *loaded = load.values()
    base_right, base_n = base.counts(kinds)
    for levels in [*([level] for level in loaded), loaded]:
        right, n = _sum(levels, kinds)
        # Several looks at the same data share the one error that is allowed.
        if fisher_worse(right, n, base_right, base_n) < ALPHA / (len(loaded) + 1):
            worst: Try = next(one for level in levels for one in level.failures(kinds))
            where = " and ".join(str(level.concurrency) for level in levels)
            return failed(
                f"at concurrency {where} {right} of {n} were right, alone {base_right} of {base_n}: {worst.problem}",
                *(answer.exchange for answer in worst.answers),
                levels=figures,
            )
    right, n = _sum(loaded, kinds)
    return passed(f"{right} of {n} right under load, {base_right} of {base_n} alone", levels=figures)


def _sum(levels: Sequence[Level], kinds: Sequence[str]) -> tuple[int, int]:
    counts = [level.counts(kinds) for level in levels]
    return sum(right for right, _ in counts), sum(n for _, n in counts)


CHECKS: Final = (
    Check(
        id="O06",
        name="load and cross-talk",
        asks=f"Codes to repeat, sums, prose of many lengths and objects, at concurrency {', '.join(map(str, LEVELS))}.",
        holds="no answer holds another request's code, and no more are wrong than alone",
        catches="answers that go to the wrong user, and engines that write garbage only when many run at once",
        rule=Overall(
            f"no foreign code at all; Fisher's exact test against the answers given alone, p < {ALPHA:g} in all"
        ),
        survey=_survey,
        exclusive=True,
    ),
)
