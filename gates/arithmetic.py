"""Small word problems with one whole number as their answer, made from templates by a seed.

A broken kernel can write fluent text and be wrong in nearly every sum. Nobody has seen these problems before, the
answer never stands in the question, and no single answer is right more often than by chance.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

ASKED: Final = "Work it out, and end your answer with the result as one whole number."
MAX_PROBLEMS: Final = 10_000
_LEAST_ANSWER: Final = 100
"""Smaller answers are found by chance, and as a step on the way to another."""


class Problem(NamedTuple):
    """The text to ask, and the answer."""

    text: str
    answer: int


def problems(seed: int | str, n: int) -> tuple[Problem, ...]:
    """`n` different problems, all templates in turn; the same for the same seed, whatever `n`. Raises `ValueError`."""
    if not 0 <= n <= MAX_PROBLEMS:
        raise ValueError(f"the templates make up to {MAX_PROBLEMS} problems; {n} were asked for")
    random = Random(str(seed))  # noqa: S311 - must be repeatable: live and candidate answer the same
    found: dict[str, Problem] = {}
    while len(found) < n:
        template = TEMPLATES[len(found) % len(TEMPLATES)]
        problem = template(random)
        if problem.answer >= _LEAST_ANSWER and problem.answer not in _numbers(problem.text):
            found.setdefault(problem.text, Problem(f"{problem.text} {ASKED}", problem.answer))
    return tuple(found.values())


def answer_in(text: str, answer: int) -> bool:
    """Is the last number in `text` the answer? Thousands may be grouped, words and signs may stand around it.

    An empty text is wrong. A number with decimals is the answer only when they are all zero.
    """
    plain = _with_plain_digits(text)
    # A blank may group digits or stand between two numbers: `12 345` is read both ways.
    return any(_last_number(reading, plain) == answer for reading in (_TOGETHER, _WITH_BLANKS))


_MINUS: Final = "-\u2212"
_GROUPS: Final = ",.'\u2019_\u00a0\u2009\u202f"
"""What stands between groups of digits, from the English comma to the narrow blank of the French."""
_TOGETHER: Final = re.compile(rf"(?<!\w)[{_MINUS}]?\d+(?:[{_GROUPS}]\d+)*")
_WITH_BLANKS: Final = re.compile(
    rf"(?<!\w)[{_MINUS}]?(?:\d{{1,3}}(?: \d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[{_GROUPS}]\d+)*)"
)
_INTEGER: Final = re.compile(rf"(\d{{1,3}}(?:([ {_GROUPS}])\d{{3}}(?:\2\d{{3}})*)?|\d+)(?:[.,]0+)?")
_LATEX_COMMA: Final = re.compile(r"\{,\}|\\[,;!]")
_MAX_DIGITS: Final = 18


def _with_plain_digits(text: str) -> str:
    # Digits of other scripts and full-width ones count as what they are; LaTeX groups by `{,}` and `\,`.
    digits = "".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text)
    return _LATEX_COMMA.sub(",", digits)


def _last_number(reading: re.Pattern[str], text: str) -> int | None:
    last = deque(reading.finditer(text), maxlen=1)
    number = last[0].group() if last else ""
    written = _INTEGER.fullmatch(number.lstrip(_MINUS))
    digits = re.sub(r"\D", "", written[1]) if written else ""
    if not 0 < len(digits) <= _MAX_DIGITS:
        return None
    return int(digits) if number[0] not in _MINUS else -int(digits)


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


_PEOPLE: Final = ("Amara", "Bjarne", "Chiyo", "Dalia", "Emeka", "Farida", "Goran", "Hana", "Ilse", "Jomar", "Kirsi")
_THINGS: Final = ("lemons", "bolts", "postcards", "buttons", "candles", "tiles", "seedlings", "marbles", "envelopes")


def _boxes(r: Random) -> Problem:
    who, things = r.choice(_PEOPLE), r.choice(_THINGS)
    boxes, each, gone = r.randint(12, 38), r.randint(13, 29), r.randint(21, 97)
    text = f"{who} fills {boxes} boxes with {each} {things} each and then gives {gone} {things} away."
    return Problem(f"{text} How many {things} are left?", boxes * each - gone)


def _shared(r: Random) -> Problem:
    things, people, each, left = r.choice(_THINGS), r.randint(6, 19), r.randint(104, 296), r.randint(2, 5)
    total = people * each + left
    text = f"{total} {things} are shared equally among {people} schools until only {left} {things} are left over."
    return Problem(f"{text} How many {things} does each school get?", each)


def _wages(r: Random) -> Problem:
    who, hours, wage, days = r.choice(_PEOPLE), r.randint(6, 9), r.randint(14, 31), r.randint(4, 12)
    bonus = r.randint(35, 180)
    text = f"{who} works {hours} hours a day for {wage} euros an hour, {days} days long, and gets a bonus of {bonus}"
    return Problem(f"{text} euros at the end. How many euros is that in all?", hours * wage * days + bonus)


def _train(r: Random) -> Problem:
    first, second, hours, more = r.randint(72, 138), r.randint(61, 119), r.randint(3, 7), r.randint(2, 6)
    text = f"A train runs {hours} hours at {first} km per hour and then {more} hours at {second} km per hour."
    return Problem(f"{text} How many kilometres does it run?", first * hours + second * more)


def _rows(r: Random) -> Problem:
    rows, seats, broken, sold = r.randint(17, 34), r.randint(18, 36), r.randint(11, 48), r.randint(101, 240)
    text = f"A hall has {rows} rows of {seats} seats. {broken} seats are broken and {sold} are sold."
    return Problem(f"{text} How many seats can still be sold?", rows * seats - broken - sold)


def _change(r: Random) -> Problem:
    who, dear, cheap = r.choice(_PEOPLE), r.randint(23, 58), r.randint(7, 19)
    many, few, note = r.randint(5, 14), r.randint(3, 9), r.choice((2000, 2500, 3000))
    spent = few * dear + many * cheap
    text = f"{who} has {note} euros and buys {few} chairs for {dear} euros each and {many} cups for {cheap} euros each."
    return Problem(f"{text} How many euros are left?", note - spent)


def _percent(r: Random) -> Problem:
    things, hundreds, percent, more = r.choice(_THINGS), r.randint(6, 48), r.randint(12, 46), r.randint(15, 90)
    text = (
        f"A shop has {hundreds * 100} {things}. It sells {percent} percent of them and then receives {more} new ones."
    )
    return Problem(f"{text} How many {things} does it have now?", hundreds * (100 - percent) + more)


def _tank(r: Random) -> Problem:
    start, inflow, outflow, minutes = r.randint(310, 890), r.randint(31, 58), r.randint(11, 27), r.randint(12, 45)
    text = f"A tank holds {start} litres. Every minute {inflow} litres flow in and {outflow} litres flow out."
    return Problem(
        f"{text} How many litres does it hold after {minutes} minutes?", start + (inflow - outflow) * minutes
    )


def _pages(r: Random) -> Problem:
    who, daily, days, faster, more = (
        r.choice(_PEOPLE),
        r.randint(14, 33),
        r.randint(5, 13),
        r.randint(35, 52),
        r.randint(3, 9),
    )
    text = f"{who} reads {daily} pages a day for {days} days, then {faster} pages a day for {more} days, and is done."
    return Problem(f"{text} How many pages does the book have?", daily * days + faster * more)


def _fence(r: Random) -> Problem:
    long, wide, gate = r.randint(68, 145), r.randint(31, 66), r.randint(3, 9)
    text = (
        f"A field is {long} metres long and {wide} metres wide. A fence goes all around, but for a gate {gate} metres"
    )
    return Problem(f"{text} wide. How many metres of fence are needed?", 2 * (long + wide) - gate)


def _garden(r: Random) -> Problem:
    long, wide, pond = r.randint(23, 57), r.randint(14, 38), r.randint(6, 11)
    text = (
        f"A garden is {long} metres long and {wide} metres wide. In it lies a square pond, {pond} metres on each side."
    )
    return Problem(f"{text} How many square metres of garden are not pond?", long * wide - pond * pond)


def _ages(r: Random) -> Problem:
    young, times, older = r.randint(28, 59), r.randint(3, 6), r.randint(13, 49)
    text = f"A bridge is {young} years old. The mill is {times} times as old as the bridge, and the church is {older}"
    return Problem(f"{text} years older than the mill. How old is the church?", young * times + older)


def _buses(r: Random) -> Problem:
    buses, seats, empty, walking = r.randint(7, 18), r.randint(38, 59), r.randint(3, 29), r.randint(16, 85)
    text = (
        f"{buses} buses with {seats} seats each are full but for {empty} seats, and {walking} more people come on foot."
    )
    return Problem(f"{text} How many people come in all?", buses * seats - empty + walking)


def _doubling(r: Random) -> Problem:
    first, weeks, more = r.randint(13, 47), r.randint(3, 5), r.randint(17, 88)
    text = f"A club has {first} members. Their number doubles every month for {weeks} months; then {more} more people"
    return Problem(f"{text} join. How many members does it have?", first * 2**weeks + more)


TEMPLATES: Final[tuple[Callable[[Random], Problem], ...]] = (
    _boxes,
    _shared,
    _wages,
    _train,
    _rows,
    _change,
    _percent,
    _tank,
    _pages,
    _fence,
    _garden,
    _ages,
    _buses,
    _doubling,
)
"""Each makes a problem of two to four steps; the numbers alone tell one of its problems from another."""
