"""Group J: tool calls while many others are being answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gates.acceptance.check import Check, Overall, needs
from gates.acceptance.mixed_load import CALLS, SEQUENTIAL, Level, mixed_load
from gates.acceptance.survey import Surveyed, failed, passed
from gates.statistics import fisher_worse

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer

MAX_RUNNING: Final = 64
"""How many requests an engine runs at once where nobody says otherwise; twice as many make some of them wait."""
LEVELS: Final = (SEQUENTIAL, 8, 32, 2 * MAX_RUNNING)
ALPHA: Final = 0.01


async def _under_load(asker: Asker, surroundings: Surroundings) -> Surveyed:
    return judge(await mixed_load(asker, surroundings.seed, LEVELS))


def judge(load: Mapping[int, Level]) -> Surveyed:
    """The levels against the lowest one, each and all together, and the ids of all their calls."""
    figures = {str(level.concurrency): level.by_kind() for level in load.values()}
    base, *loaded = load.values()
    shared = shared_id([answer for level in load.values() for _, one in level.tries for answer in one.answers])
    if shared is not None:
        return failed(f"two answers hold a call with the same id, {shared}", levels=figures)
    base_right, base_n = base.counts(CALLS)
    for levels in [[level] for level in loaded] + [loaded]:
        counts = [level.counts(CALLS) for level in levels]
        right, n = sum(right for right, _ in counts), sum(n for _, n in counts)
        # Several looks at the same data share the one error that is allowed.
        if fisher_worse(right, n, base_right, base_n) < ALPHA / (len(loaded) + 1):
            worst = levels[0].failures(CALLS)[0] if levels[0].failures(CALLS) else loaded[-1].failures(CALLS)[0]
            where = " and ".join(str(level.concurrency) for level in levels)
            return failed(
                f"at concurrency {where} {right} of {n} were right, alone {base_right} of {base_n}: {worst.problem}",
                *[answer.exchange for answer in worst.answers],
                levels=figures,
            )
    right, n = (sum(column) for column in zip(*(level.counts(CALLS) for level in loaded), strict=True))
    return passed(f"{right} of {n} right under load, {base_right} of {base_n} alone", levels=figures)


def shared_id(answers: Sequence[Answer]) -> str | None:
    """A call id that two answers share. Ids made of the tool's name (`functions.get_weather:0`) may come again."""
    ids = Counter(call.id for answer in answers for call in answer.reply.calls if call.id and call.name not in call.id)
    return next((call_id for call_id, n in ids.items() if n > 1), None)


CHECKS: Final = (
    Check(
        id="J24",
        name="calls under load",
        asks=f"Calls of every kind, several at once, at concurrency {', '.join(map(str, LEVELS))}.",
        holds="no more failures than alone, and no call id twice",
        catches="calls that lose their arguments or the state of another request when many run at once",
        rule=Overall(f"Fisher's exact test against the answers given alone, one-sided, p < {ALPHA:g} in all"),
        survey=_under_load,
        needs=needs(tools=True),
        exclusive=True,
    ),
)
