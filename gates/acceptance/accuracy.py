"""Group A, accuracy: what your own data and fresh sums say, next to production. Optional, in the extended tier.

A04, *your own recorded requests*, is the gate `own-set`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates import own_judge, own_set
from gates.acceptance.check import Check, Overall, Sample, Skip, Tier
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed, undecided
from gates.acceptance.together import in_turn
from gates.acceptance.words import said, shown, unanswered
from gates.arithmetic import Problem, answer_in, problems
from gates.contract import VerdictKind
from gates.patience import RunawayError
from gates.statistics import Ruling, non_inferior, non_inferior_paired, wilson_lower

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.own_set import Item
    from gates.wire import Exchange

SUMS: Final = 200
FLOOR: Final = 0.20
"""Whoever is right less often is broken, with or without production beside it."""
SHARE_OF_PRODUCTION: Final = 0.90
WIDE: Final = 0.10
NARROW: Final = 0.05
NARROW_FROM: Final = 0.97
"""Only where production is right this often can a few hundred answers tell a loss of five points from chance."""


@dataclass(frozen=True)
class Marks:
    """How one endpoint did on a set: which items were right."""

    items: str
    """A digest of the questions: only the same ones are compared item by item."""
    right: int
    n: int
    wrong: frozenset[str] | None
    """Ids of the items that were wrong; None when only the counts are known."""

    @property
    def share(self) -> float:
        return self.right / self.n

    def figures(self) -> dict[str, Any]:
        return {"n": self.n, "right": self.right, "items": self.items, "wrong": sorted(self.wrong or ())}


@dataclass(frozen=True)
class _Set:
    """Questions by id, each asking one endpoint and saying what was wrong."""

    questions: Mapping[str, Callable[[Asker, Sample], Awaitable[str | None]]]

    @property
    def digest(self) -> str:
        return blake2b("\n".join(sorted(self.questions)).encode(), digest_size=8).hexdigest()


def compare(here: Marks, there: Marks | None, *, least_share: float = 0.0) -> tuple[Ruling | None, str]:
    """The ruling and why; None where there is nothing to compare with. `least_share` of production's in any case."""
    if here.share < FLOOR:
        return Ruling.REJECT, f"below {FLOOR:.0%}"
    if there is None:
        return None, "nothing to compare with"
    told = f"production: {there.right} of {there.n}"
    if here.share < least_share * there.share:
        return Ruling.REJECT, f"less than {least_share:.0%} of what production is right in ({told})"
    margin = NARROW if there.share >= NARROW_FROM else WIDE
    if here.items == there.items and here.wrong is not None and there.wrong is not None:
        only_there, only_here = len(here.wrong - there.wrong), len(there.wrong - here.wrong)
        ruling = non_inferior_paired(only_there, only_here, here.n, margin=margin)
    else:
        ruling = non_inferior(here.right, here.n, there.right, there.n, margin=margin)
    words = {
        Ruling.ACCEPT: told,
        Ruling.REJECT: f"worse by more than {margin:.0%} ({told})",
        Ruling.HOLD: f"cannot be told from a loss of {margin:.0%} ({told})",
    }
    return ruling, words[ruling]


async def _judged(asker: Asker, around: Surroundings, check: str, asked: _Set, *, least_share: float = 0.0) -> Surveyed:
    here, failures = await _marks(asker, around, check, asked)
    there = _known(around.before(check))
    if there is None and around.live is not None:
        there, _ = await _marks(around.live, around, check, asked)
    ruling, why = compare(here, there, least_share=least_share)
    figures = here.figures() | {"lower_bound": round(wilson_lower(here.right, here.n), 4)}
    sentence = f"right in {here.right} of {here.n}; {why}"
    match ruling:
        case Ruling.REJECT:
            first = next(iter(failures.values()))
            return failed(f"{sentence}; first: {first[0]}", *first[1], **figures)
        case Ruling.HOLD:
            return undecided(sentence, **figures)
        case _:
            return passed(sentence, **figures)


async def _marks(
    asker: Asker, around: Surroundings, check: str, asked: _Set
) -> tuple[Marks, Mapping[str, tuple[str, list[Exchange]]]]:
    """Every question once, streamed and whole in turn; what was wrong, by id."""
    wrong: dict[str, tuple[str, list[Exchange]]] = {}

    async def one(number: int, name: str) -> None:
        sample = Sample(check, number, around.seed, number % 2 == 0, greedy=True, variant=number)
        problem = await asked.questions[name](asker, sample)
        if problem is not None:
            wrong[name] = (problem, [answer.exchange for answer in asker.by_sample[check, number]])

    await in_turn(asker, (one(number, name) for number, name in enumerate(asked.questions)))
    n = len(asked.questions)
    return Marks(asked.digest, n - len(wrong), n, frozenset(wrong)), dict(sorted(wrong.items()))


def _known(before: Mapping[str, Any]) -> Marks | None:
    """What production showed earlier."""
    n, right, items, wrong = (before.get(key) for key in ("n", "right", "items", "wrong"))
    if not isinstance(n, int) or not isinstance(right, int) or not 0 <= right <= n or not n:
        return None
    listed = isinstance(wrong, list) and len(wrong) == n - right
    return Marks(str(items), right, n, frozenset(map(str, wrong or ())) if listed else None)


# --- the sets ---------------------------------------------------------------------------------------------------------


async def _own_tasks(asker: Asker, around: Surroundings) -> Surveyed:
    items = [item for item in _own_items(asker) if not item.expect.no_tool]
    return await _judged_by_file(asker, around, "A01", _own(items, "has something to do or to say"))


async def _own_refrains(asker: Asker, around: Surroundings) -> Surveyed:
    items = [item for item in _own_items(asker) if item.expect.no_tool]
    return await _judged_by_file(asker, around, "A02", _own(items, "expects no_tool"))


async def _judged_by_file(asker: Asker, around: Surroundings, check: str, asked: _Set) -> Surveyed:
    try:
        return await _judged(asker, around, check, asked)
    except RunawayError as error:
        return Surveyed(VerdictKind.ERROR, str(error))


def _own_items(asker: Asker) -> Sequence[Item]:
    path = asker.trial.request.profile.get("accuracy_set")
    if not path:
        raise Skip("no data: the setting accuracy_set names no file")
    items = asker.shared.get("accuracy_set")
    if items is None:
        items = asker.shared["accuracy_set"] = own_set.read(Path(path))
    found: Sequence[Item] = items
    return found


def _own(items: Sequence[Item], kind: str) -> _Set:
    if not items:
        raise Skip(f"no request of the accuracy set {kind}")
    return _Set({item.id: _asking(item) for item in items})


def _asking(item: Item) -> Callable[[Asker, Sample], Awaitable[str | None]]:
    async def ask(asker: Asker, sample: Sample) -> str | None:
        body = asker.body(sample, item.messages) | item.body()
        answer = await asker.send(sample, body)
        return own_judge.judged(item, answer.reply)

    return ask


async def _sums(asker: Asker, around: Surroundings) -> Surveyed:
    seed = f"{around.seed}/A03"
    asked = {f"{seed}/{number}": _solving(problem) for number, problem in enumerate(problems(seed, SUMS))}
    return await _judged(asker, around, "A03", _Set(asked), least_share=SHARE_OF_PRODUCTION)


def _solving(problem: Problem) -> Callable[[Asker, Sample], Awaitable[str | None]]:
    async def ask(asker: Asker, sample: Sample) -> str | None:
        answer = await asker.chat(sample, problem.text)
        missing = unanswered(answer)
        if missing or answer_in(said(answer), problem.answer):
            return missing
        return f"{problem.text!r} is {problem.answer}; the answer ends {shown(said(answer)[-80:])}"

    return ask


_AGAINST: Final = f"no worse than production by more than {WIDE:.0%} ({NARROW:.0%} from {NARROW_FROM:.0%} on)"

CHECKS: Final = (
    Check(
        id="A01",
        name="your tasks",
        asks="The requests of the file in the setting accuracy_set, but for those that expect no tool.",
        holds="the answer is what the file expects",
        catches="a loss of skill on your own work that no general question shows",
        rule=Overall(f"{_AGAINST}, and at least {FLOOR:.0%}"),
        survey=_own_tasks,
        tier=Tier.EXTENDED,
    ),
    Check(
        id="A02",
        name="your tools left alone",
        asks="The requests of the file in the setting accuracy_set that expect no tool.",
        holds="no tool is called",
        catches="a model that calls tools when it should answer",
        rule=Overall(f"{_AGAINST}, and at least {FLOOR:.0%}"),
        survey=_own_refrains,
        tier=Tier.EXTENDED,
    ),
    Check(
        id="A03",
        name="word problems",
        asks=f"{SUMS} small word problems that nobody has seen before, each with one number as its answer.",
        holds="the last number of the answer is right; an empty answer is wrong",
        catches="fluent text with damaged weights, kernels or speculation behind it: hardly any sum is right then",
        rule=Overall(f"{_AGAINST}, at least {SHARE_OF_PRODUCTION:.0%} of production's and {FLOOR:.0%}"),
        survey=_sums,
        tier=Tier.EXTENDED,
    ),
)
