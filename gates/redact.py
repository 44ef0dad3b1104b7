"""The API key is written and said nowhere: not whole, not in another spelling, and not as what a cut left of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gates.contract import Check, Verdict
    from gates.wire import Exchange, Failure

BLACK: Final = "[api key]"
_TELLING: Final = 8
"""So many characters of the key in a row are taken for a part of it, wherever they stand."""
_AT_A_CUT: Final = 4
"""So many are enough where an excerpt begins or ends: sentences quote answers, and cut what they quote."""
_BORDERS: Final = frozenset("'\"`…()[]{}<>,; \n\\")
# One character as it is, as JSON spells it (once or within another JSON text) and as a URL does.
_SPELT: Final = re.compile(
    r"\\+u00(?P<json>[0-9A-Fa-f]{2})|%(?:25)*(?P<url>[0-9A-Fa-f]{2})|\\+(?P<bare>[!-~])|.", re.DOTALL
)


@dataclass(frozen=True)
class Redactor:
    """Takes the key out of anything that is written or said."""

    api_key: str | None

    def text(self, text: str) -> str:
        """A sentence or another text that may quote an answer and may have been cut anywhere."""
        if not self.api_key:
            return text
        return _without_parts(_whole(self.api_key).sub(BLACK, text), self.api_key)

    def plain(self, value: Any) -> Any:
        """Plain data, such as measurements: its texts may quote the engine."""
        if not self.api_key:
            return value
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.plain(key): self.plain(each) for key, each in value.items()}
            case list() | tuple():
                return [self.plain(each) for each in value]
        return value

    def data(self, data: bytes) -> bytes:
        """A body as it came; what broke off within the key ends before it."""
        if not self.api_key:
            return data
        text = _whole(self.api_key).sub(BLACK, data.decode("latin-1"))
        end = _without_parts(text[-len(self.api_key) * 8 :], self.api_key)
        return (text[: -len(self.api_key) * 8] + end).encode("latin-1")

    def verdict(self, verdict: Verdict) -> Verdict:
        """What a gate says. Paths of evidence stay: they are opened."""
        if not self.api_key:
            return verdict
        checks = [self._check(check) for check in verdict.checks]
        said = {"sentence": self.text(verdict.sentence), "measurements": self.plain(verdict.measurements)}
        return verdict.model_copy(update={**said, "checks": checks})

    def _check(self, check: Check) -> Check:
        said = {"sentence": self.text(check.sentence), "rule": self.text(check.rule)}
        return check.model_copy(update={**said, "measurements": self.plain(check.measurements)})

    def failure(self, failure: Failure | None) -> Failure | None:
        return replace(failure, sentence=self.text(failure.sentence)) if failure is not None else None

    def spelt_in(self, exchange: Exchange) -> bool:
        """Whether a client that puts the answer together reads the key, though no piece of the wire holds it whole."""
        from gates.reply import read_reply

        if not self.api_key:
            return False
        reply = read_reply(exchange, streamed=True)
        said = (
            part
            for each in (reply, *reply.others)
            for part in (each.content, each.reasoning, *(text for c in each.calls for text in (c.name, c.arguments)))
        )
        return any(_whole(self.api_key).search(text) for text in said)


@lru_cache(maxsize=8)
def _whole(key: str) -> re.Pattern[str]:
    """The key, each character in any spelling."""
    return re.compile("".join(_any_spelling(character) for character in key))


def _any_spelling(character: str) -> str:
    code = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{ord(character):02x}")
    return rf"(?:{re.escape(character)}|\\+(?:u00{code}|{re.escape(character)})|%(?:25)*{code})"


def _without_parts(text: str, key: str) -> str:
    """`text` without what a cut left of the key."""
    units = list(_SPELT.finditer(text))
    read = "".join(map(_read, units))
    key = "".join(map(_read, _SPELT.finditer(key)))
    parts, at = [], 0
    for begin, end in _joined(sorted({*_telling(read, key), *_at_cuts(read, key)})):
        start, stop = units[begin].start(), units[end - 1].end()
        parts += [text[at:start], BLACK]
        at = stop
    return "".join([*parts, text[at:]])


def _read(unit: re.Match[str]) -> str:
    """The character that one spelling stands for."""
    code = unit["json"] or unit["url"]
    return chr(int(code, 16)) if code else unit["bare"] or unit[0]


def _telling(read: str, key: str) -> Iterator[tuple[int, int]]:
    grams = {key[at : at + _TELLING] for at in range(len(key) - _TELLING + 1)}
    for at in range(len(read) - _TELLING + 1):
        if read[at : at + _TELLING] in grams:
            yield at, at + _TELLING


def _at_cuts(read: str, key: str) -> Iterator[tuple[int, int]]:
    """Beginnings of the key before a border, and ends of it after one."""
    for begin in _found(read, key[:_AT_A_CUT]):
        end = begin + next((n for n in range(len(key)) if read[begin + n : begin + n + 1] != key[n]), len(key))
        if end == len(read) or read[end] in _BORDERS:
            yield begin, end
    for at in _found(read, key[-_AT_A_CUT:]):
        end = at + len(key[-_AT_A_CUT:])
        length = next((n for n in range(len(key)) if end - n < 1 or read[end - n - 1] != key[-n - 1]), len(key))
        if end == length or read[end - length - 1] in _BORDERS:
            yield end - length, end


def _found(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
