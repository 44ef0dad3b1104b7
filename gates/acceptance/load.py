"""Group J: tool calls while many others are being answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gates.acceptance.check import Check, Overall, needs
from gates.acceptance.mixed_load import ALPHA, CALLS, Level, against_alone, mixed_load, told
from gates.acceptance.survey import Surveyed, failed

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings
    from gates.trial import Answer


async def _under_load(asker: Asker, surroundings: Surroundings) -> Surveyed:
    load = await mixed_load(asker, surroundings.seed)
    return told(judge(load.levels), load)


def judge(load: Mapping[int, Level]) -> Surveyed:
    """The levels against the lowest one, each and all together, and the ids of all their calls."""
    shared = shared_id([answer for level in load.values() for _, one in level.tries for answer in one.answers])
    if shared is not None:
        figures = {str(level.concurrency): level.by_kind() for level in load.values()}
        return failed(f"two answers hold a call with the same id, {shared}", levels=figures)
    return against_alone(load, CALLS)


def shared_id(answers: Sequence[Answer]) -> str | None:
    """A call id that two answers share. Ids made of the tool's name (`functions.get_weather:0`) may come again."""
    ids = Counter(call.id for answer in answers for call in answer.reply.calls if call.id and call.name not in call.id)
    return next((call_id for call_id, n in ids.items() if n > 1), None)


CHECKS: Final = (
    Check(
        id="J24",
        name="calls under load",
        asks="Calls of every kind, one at a time, 8 and 32 at once, as many as the engine runs at once, twice as many.",
        holds="no more failures than alone, and no call id twice",
        catches="calls that lose their arguments or the state of another request when many run at once",
        rule=Overall(f"Fisher's exact test against the answers given alone, one-sided, p < {ALPHA:g} in all"),
        survey=_under_load,
        needs=needs(tools=True),
        exclusive=True,
    ),
)
