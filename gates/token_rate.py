"""What this engine counts for what it sends, learned from the answers of one run; and the answers that do not fit.

`completion_tokens` is counted where tokens are made. What the wire loses or doubles afterwards (a call, a thought, an
answer) leaves a count that does not fit what came. No tokeniser is at hand, and none is needed: the answers of a run
say themselves how many tokens a word, a digit, a sign, a call and a thought cost here, markers included. That is a
linear regression which single odd answers do not move (Tukey's biweight by iterated weighted least squares: A. E.
Beaton, J. W. Tukey, Technometrics 16 (1974)). Pure: nothing is asked here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from operator import mul
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.reply import Reply
    from gates.trial import Answer

FEWEST: Final = 150
"""Answers from which a rate can be learned."""
UNSEEN_SHARE: Final = 0.25
UNSEEN_TOKENS: Final = 12
"""Less than a quarter of the count, or than these, is what tokenisers, stop strings and draft tokens differ by."""
_SPREADS: Final = 6.0
_ROUNDS: Final = 12
_BIWEIGHT: Final = 4.685
"""95 % as efficient as least squares where nothing is odd."""
_STEADY_TOKENS: Final = 10.0
"""Noise grows with the root of the count, and short answers have some of it too."""
_FOREIGN_SHARE: Final = 0.05
_WORD: Final = re.compile(r"[A-Za-z]+")
_SIGN: Final = re.compile(r"[^\w\s]", re.ASCII)
_DIGIT: Final = re.compile(r"[0-9]")


@dataclass(frozen=True)
class TokenRate:
    """`costs` in tokens, one for each of `_amounts`; `spread` of the counts around them, in roots of tokens."""

    costs: tuple[float, ...]
    spread: float

    def unaccounted(self, answer: Answer) -> float | None:
        """Tokens that were counted and did not come; negative: what came was not counted. 0: fits, or nearly.

        None where nothing can be said: no count, an answer that broke off, letters of many kinds.
        """
        amounts = _amounts(answer)
        if amounts is None:
            return None
        used = _used(answer.reply)
        beyond = used - _sum(self.costs, amounts)
        limit = max(UNSEEN_TOKENS, UNSEEN_SHARE * used, _SPREADS * self.spread * _unit(used))
        return beyond if abs(beyond) > limit else 0.0


def learn(answers: Sequence[Answer]) -> TokenRate | None:
    """From all answers of a run, whatever they are about. None when fewer than `FEWEST` of them say something."""
    seen = [(amounts, _used(a.reply)) for a in answers if (amounts := _amounts(a)) is not None]
    if len(seen) < FEWEST:
        return None
    rows, used = [amounts for amounts, _ in seen], [count for _, count in seen]
    units = [_unit(count) for count in used]
    weights = [1.0] * len(seen)
    spread = 0.0
    for _ in range(_ROUNDS):
        costs = _least_squares(rows, used, [w / unit**2 for w, unit in zip(weights, units, strict=True)])
        off = [(u - _sum(costs, row)) / unit for row, u, unit in zip(rows, used, units, strict=True)]
        spread = 1.4826 * median(abs(each) for each in off)
        if spread == 0:
            break
        weights = [max(0.0, 1 - (each / (_BIWEIGHT * spread)) ** 2) ** 2 for each in off]
    return TokenRate(costs, spread)


def _amounts(answer: Answer) -> tuple[float, ...] | None:
    """What an answer consists of: itself, a thought, calls, values in them, words, letters, digits, signs, others."""
    reply = answer.reply
    usage = reply.usage
    if not (reply.answered and reply.complete) or usage is None or not usage.completion_tokens or reply.others:
        return None
    if reply.finish_reason == "length" and answer.body.get("tools"):
        return None  # an unfinished call may be withheld
    texts = [reply.content, reply.reasoning]
    values = 0
    for call in reply.calls:
        try:
            leaves = _leaves(json.loads(call.arguments))
        except (ValueError, RecursionError):
            return None
        values += len(leaves)
        texts += [call.name, *leaves]
    text = "\n".join(texts)
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    if foreign > _FOREIGN_SHARE * len(text):
        return None  # a letter costs anything from a third of a token to three of them
    words = _WORD.findall(text)
    return (
        1.0,
        float(bool(reply.reasoning)),
        float(len(reply.calls)),
        float(values),
        float(len(words)),
        float(sum(map(len, words))),
        float(len(_DIGIT.findall(text))),
        float(len(_SIGN.findall(text)) - foreign),
        float(foreign),
    )


def _leaves(value: Any) -> list[str]:
    """Keys and values as text. How a call is written around them is the model's own format, not what is sent."""
    match value:
        case dict():
            return [leaf for key, each in value.items() for leaf in (str(key), *_leaves(each))]
        case list():
            return [leaf for each in value for leaf in _leaves(each)]
        case str():
            return [value]
        case _:
            return [json.dumps(value)]


def _used(reply: Reply) -> float:
    """The count, without the thoughts that an engine keeps to itself and says so."""
    assert reply.usage is not None  # noqa: S101 - `_amounts` has looked
    hidden = 0 if reply.reasoning else reply.usage.reasoning_tokens or 0
    return float((reply.usage.completion_tokens or 0) - hidden)


def _unit(used: float) -> float:
    return float((max(used, 0.0) + _STEADY_TOKENS) ** 0.5)


def _sum(costs: Sequence[float], amounts: Sequence[float]) -> float:
    return float(sum(map(mul, costs, amounts)))


def _least_squares(
    rows: Sequence[Sequence[float]], wanted: Sequence[float], weights: Sequence[float]
) -> tuple[float, ...]:
    """Weighted, by the normal equations; a little ridge keeps amounts that never vary (no call at all) harmless."""
    columns = [*zip(*rows, strict=True), wanted]
    weighted = [[*map(mul, weights, column)] for column in columns[:-1]]
    table = [[_sum(scaled, column) for column in columns] for scaled in weighted]
    for i in range(len(table)):
        table[i][i] += 1e-6 * (table[i][i] + 1)
    return _solved(table)


def _solved(table: list[list[float]]) -> tuple[float, ...]:
    """Gauss and Jordan; the table is positive definite, so the diagonal serves as pivots."""
    size = len(table)
    for i in range(size):
        pivot = table[i][i]
        table[i] = [each / pivot for each in table[i]]
        for j in range(size):
            if j != i and table[j][i]:
                factor = table[j][i]
                table[j] = [a - factor * b for a, b in zip(table[j], table[i], strict=True)]
    return tuple(row[size] for row in table)
