"""A text that matches a regular expression, for strings whose schema has one."""

import re
from random import Random
from typing import Any

_LONGEST_TRIED = 40  # characters: matching a bomb against more may take for ever
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_REPEATS = 8


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text; always in a dialect of patterns that Python does not speak."""
    try:
        return len(text) <= _LONGEST_TRIED and re.search(pattern, text) is not None
    except re.error:
        return True


def sample(pattern: str) -> str:
    """The same text for the same pattern. Look-arounds are passed over."""
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]  # noqa: SLF001 - the parser has no public door
    except re.error:
        return "text"
    return _of(parsed, Random(pattern), {})  # noqa: S311 - must be repeatable, guards nothing


def _of(parts: Any, rng: Random, groups: dict[int, str]) -> str:
    return "".join(_part(str(kind), value, rng, groups) for kind, value in parts)


def _part(kind: str, value: Any, rng: Random, groups: dict[int, str]) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return next(c for c in _LETTERS if ord(c) != value)
        case "ANY":
            return rng.choice(_LETTERS)
        case "IN":
            return _one_of(value, rng)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = value
            count = max(int(least), min(int(most), 1)) if least <= _MOST_REPEATS else int(least)
            return "".join(_of(repeated, rng, groups) for _ in range(count))
        case "SUBPATTERN":
            groups[value[0] or 0] = found = _of(value[-1], rng, groups)
            return found
        case "ATOMIC_GROUP":
            return _of(value, rng, groups)
        case "BRANCH":
            return _of(value[1][0], rng, groups)
        case "GROUPREF":
            return groups.get(value, "")
        case _:
            return ""  # anchors and look-arounds take no room


def _one_of(options: Any, rng: Random) -> str:
    if str(options[0][0]) == "NEGATE":
        wanted = [c for c in f"{_LETTERS}0 -" if not any(_holds(option, c) for option in options[1:])]
        return wanted[0] if wanted else "\u00a7"
    kind, value = options[0]
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(rng.randint(value[0], value[1]))
        case _:
            return {"CATEGORY_DIGIT": str(rng.randrange(10)), "CATEGORY_SPACE": " "}.get(
                str(value), rng.choice(_LETTERS)
            )


def _holds(option: Any, character: str) -> bool:
    kind, value = option
    match str(kind):
        case "LITERAL":
            return ord(character) == int(value)
        case "RANGE":
            return int(value[0]) <= ord(character) <= int(value[1])
        case _:
            tests = {"CATEGORY_DIGIT": str.isdigit, "CATEGORY_SPACE": str.isspace, "CATEGORY_WORD": str.isalnum}
            return tests.get(str(value), str.isprintable)(character)
