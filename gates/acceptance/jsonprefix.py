"""Is a text the beginning of a JSON object? What a call that was cut must be."""

from __future__ import annotations

import json
from typing import Final

# What may be missing behind any place of an object: the rest of a string, a key's value, a literal, an escape.
_NUMBERS: Final = ("0", "")
_LITERALS: Final = tuple(word[i:] for word in ("true", "false", "null") for i in range(len(word)))
_ESCAPES: Final = ("", "n", "0", "00", "000", "0000")
_VALUES: Final = (*_NUMBERS, *_LITERALS)
_COMPLETIONS: Final = (
    *_VALUES,
    *(f":{value}" for value in ("0",)),
    '"":0',
    *(f'{escape}"' for escape in _ESCAPES),
    *(f'{escape}":0' for escape in _ESCAPES),
)


def begins_an_object(text: str) -> bool:
    """True for the empty text too: nothing had come yet."""
    stripped = text.strip()
    if not stripped:
        return True
    if not stripped.startswith("{"):
        return False
    closing = _closing(stripped)
    return closing is not None and any(_parses(stripped + missing + closing) for missing in _COMPLETIONS)


def _closing(text: str) -> str | None:
    """The brackets that are open at the end, closed in order; None when one is closed that was not open."""
    stack: list[str] = []
    quoted = escaped = False
    for sign in text:
        if quoted:
            quoted = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[":
            stack.append("}" if sign == "{" else "]")
        elif sign in "}]" and (not stack or stack.pop() != sign):
            return None
    return "".join(reversed(stack))


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
