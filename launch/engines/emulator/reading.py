"""How the pseudo model reads a message: its nonce, the blocks it is to copy, the plain words around them, literals.

Prompts that are meant to be unmistakable follow a convention: values stand as JSON literals behind the name of their
property (`sku "00123", price -4.75`), text to copy stands between a line `<<<` and a line `>>>`.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_REFERENCE = re.compile(r"\[ref ([^\]\n]{1,40})\]")
_BLOCK = re.compile(r"^<<<[ \t]*\r?\n(.*?)^>>>[ \t]*$", re.DOTALL | re.MULTILINE)
_INLINE_BLOCK = re.compile(r"<<<(?! and | to )(.+?)>>>", re.DOTALL)
_LITERAL_START = frozenset('"-0123456789tfn[{')
_NUMBER_GOES_ON = re.compile(r"[\w:/%-]|\.\d")
_decoder = json.JSONDecoder()
MISSING = object()


@dataclass(frozen=True, slots=True)
class Question:
    """A message. `plain` is its text without nonce and blocks."""

    plain: str
    blocks: tuple[str, ...]
    reference: str

    @property
    def focus(self) -> str:
        """The plain words with the middle left out where they are very long: there the task is not."""
        if len(self.plain) <= 6000:
            return self.plain
        return f"{self.plain[:2000]}\n{self.plain[-3000:]}"


@lru_cache(maxsize=32)
def read(text: str) -> Question:
    """Take a message apart."""
    reference = _REFERENCE.search(text)
    blocks = [match[1].removesuffix("\n").removesuffix("\r") for match in _BLOCK.finditer(text)]
    plain = _BLOCK.sub("\n", text)
    if not blocks:
        blocks = [match[1] for match in _INLINE_BLOCK.finditer(text)]
        plain = _INLINE_BLOCK.sub(" ", text)
    return Question(_REFERENCE.sub(" ", plain).strip(), tuple(blocks), reference[1] if reference else "")


def literal(text: str, name: str) -> Any:
    """The JSON literal behind a property's name, or `MISSING`."""
    words = re.escape(name).replace("_", "[ _-]?").replace(r"\-", "[ _-]?")
    pattern = rf"(?<![\w-]){words}(?![\w-])[\"'`]?\s*(?:is|are|=|:|as|of|to|exactly|set to)?\s*(?=[\"\d\[{{tfn-])"
    for match in re.finditer(pattern, text, re.IGNORECASE):
        value = literal_at(text, match.end())
        if value is not MISSING:
            return value
    return MISSING


def literal_at(text: str, start: int) -> Any:
    """The JSON literal that begins exactly here, or `MISSING`."""
    return _decoded(text, start)[0]


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """The literal that begins here and where it ends."""
    if start >= len(text) or text[start] not in _LITERAL_START:
        return MISSING, start
    try:
        value, end = _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return MISSING, start
    if text[start] not in '"[{' and _NUMBER_GOES_ON.match(text, end):
        return MISSING, start  # the beginning of a date, a code, a word
    return value, end


def pairs(text: str) -> dict[str, Any]:
    """Every `name literal` in the text, for an object whose schema nobody gave."""
    found: dict[str, Any] = {}
    at = 0
    for match in re.finditer(r"[\"'`]?([A-Za-z_][\w-]*)[\"'`]?(?:\s*[=:]\s*|\s+)(?=[\"\d\[{tfn-])", text):
        if match.start() < at:
            continue
        value, end = _decoded(text, match.end())
        if value is not MISSING:
            found[match[1]] = value
            at = end
    return found
