"""Word problems of several steps: the story is recognised, and the numbers go into the sum that it tells."""

import re
from collections.abc import Callable
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens

_Sum = Callable[..., int]
# What every such story says, and what follows from its numbers in the order in which they stand there.
_STORIES: tuple[tuple[str, _Sum], ...] = (
    (r"fills \d+ boxes .* gives \d+", lambda boxes, each, gone: boxes * each - gone),
    (r"shared equally among .* left over", lambda total, people, left: (total - left) // people),
    (r"works \d+ hours a day .* bonus", lambda hours, wage, days, bonus: hours * wage * days + bonus),
    (r"train runs .* and then", lambda hours, fast, more, slow: hours * fast + more * slow),
    (r"hall has \d+ rows", lambda rows, seats, broken, sold: rows * seats - broken - sold),
    (r"has \d+ euros and buys", lambda has, few, dear, many, cheap: has - few * dear - many * cheap),
    (r"sells \d+ percent", lambda had, percent, more: had - had * percent // 100 + more),
    (r"tank holds .* flow in", lambda start, inflow, outflow, minutes: start + (inflow - outflow) * minutes),
    (r"pages a day for .* then", lambda daily, days, faster, more: daily * days + faster * more),
    (r"fence goes all around", lambda long, wide, gate: 2 * (long + wide) - gate),
    (r"lies a square pond", lambda long, wide, pond: long * wide - pond * pond),
    (r"times as old as", lambda young, times, older: young * times + older),
    (r"buses with \d+ seats", lambda buses, seats, empty, walking: buses * seats - empty + walking),
    (r"number doubles every month", lambda first, months, more: first * 2**months + more),
)


def reckon(asked: Asked, rng: Random) -> Answer | None:
    """The result, at the end of a sentence."""
    del rng
    text = read(asked.user_text).plain
    if "how many" not in text.lower() and "how old" not in text.lower():
        return None
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    for story, total in _STORIES:
        if re.search(story, text, re.DOTALL) and len(numbers) == total.__code__.co_argcount:
            return Answer(content=split_tokens(f"Step by step, this makes {total(*numbers)}."))
    return None
