"""The values a user's message offers for a tool's arguments: quoted text, names, numbers, identifiers."""

import re
from dataclasses import dataclass, field

from .vocabulary import word_list

_QUOTED = re.compile(r"“([^”]*)”|「([^」]*)」|`([^`]+)`|\"((?:[^\"\\]|\\.)*)\"|(?<!\w)'([^'\n]+)'(?!\w)")
# Capitalised words in a row, with the little words of names between them: Rio de Janeiro, Frankfurt am Main.
_NAME = re.compile(
    r"[^\W\d_a-z][\w\u2019-]*"
    r"(?:(?:[ ](?:de|da|do|dos|del|la|le|les|el|al|van|von|der|den|am|an|sur|upon|of)){0,2}[ ][^\W\d_a-z][\w\u2019-]*)*"
)
_NUMBER = re.compile(r"(?<![\w.-])[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?(?![\w])")
_IDENTIFIER = re.compile(r"(?<!\w)(?=[\w./:-]*\d)[A-Za-z0-9][\w./:-]*[\w](?!\w)|(?<!\w)\d(?!\w)")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(r"(?<![\w/])(?:~|\.{1,2})?/[\w./-]*\w|(?<![\w/])[\w-]+\.[A-Za-z]\w{0,4}(?!\w)")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?")
_URI = re.compile(r"https?://[^\s\"'<>]+")
_REFERENCE = re.compile(r"\[ref [^\]]*\]")
_AFTER_PREPOSITION = re.compile(r"\b(?:in|for|at|of|from|to|about|near)\s+(?:the\s+)?([\w\u2019-]+)", re.IGNORECASE)
_PLACED = re.compile(r"(?<!\w)(?:in|en|à|em|a|w|we|v|ve|в|i|på|te|for|für|στην?|στο)$", re.IGNORECASE)
_LIST_JOINT = re.compile(r"\s*(?:,|;|&|/|,?\s*\b(?:and|or|und|et|y|e|i|en|och|и)\b)\s*")
# Capitals that start sentences rather than name something.
_NO_NAMES = frozenset(
    word_list(
        "a am an and answer ask book call can check compare could create delete do explain find first for get give "
        "hello hey hi how i if in is it json just let list look make me my no not note now of ok on one open please "
        "read record remember run save say search send set show store tell the then they this to tool use using we "
        "what what's when where which who why will with would write yes you your celsius fahrenheit"
    )
)


@dataclass(slots=True)
class Harvest:
    """Candidates in the order of their appearance. Taking one removes it, so that two arguments get two values."""

    text: str
    no_names: frozenset[str] = frozenset()  # lower case: capitals at the start of a sentence that name nothing
    quoted: list[str] = field(init=False)
    names: list[str] = field(init=False)
    numbers: list[str] = field(init=False)
    identifiers: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.text = _REFERENCE.sub(" ", self.text)
        self.quoted = [_unescape(next(g for g in m.groups() if g is not None)) for m in _QUOTED.finditer(self.text)]
        outside = _QUOTED.sub(" ¦ ", self.text)
        self.names = [name for match in _NAME.finditer(outside) if (name := self._trimmed(match.group()))]
        self.numbers = [match.group() for match in _NUMBER.finditer(outside)]
        self.identifiers = [match.group().rstrip(".:") for match in _IDENTIFIER.finditer(outside)]

    def take_quoted(self, *, code: bool | None = None) -> str | None:
        """The first quoted text; with `code` rather one with digits (True) or without (False)."""
        if not self.quoted:
            return None
        fitting = (n for n, text in enumerate(self.quoted) if code is None or any(map(str.isdigit, text)) == code)
        return self.quoted.pop(next(fitting, 0))

    def take_name(self) -> str | None:
        """A capitalised name, or else a word after a preposition ("in osaka")."""
        if self.names:
            return self.names.pop(self._likeliest())
        after = _AFTER_PREPOSITION.search(self.text)
        return after[1] if after and after[1].lower() not in _NO_NAMES else None

    def take_number(self, *, whole: bool) -> float | int | None:
        for text in self.numbers:
            value: float = float(text.replace(",", "."))
            if not whole or value.is_integer():
                self.numbers.remove(text)
                if re.fullmatch(r"[-+]?\d+", text):
                    return int(text)  # a float would lose the last digits of a long one
                return int(value) if whole else value
        return None

    def take_identifier(self) -> str | None:
        if not self.identifiers:
            return None
        taken = self.identifiers.pop(0)
        if taken in self.numbers:
            self.numbers.remove(taken)
        return taken

    def find(self, pattern: "re.Pattern[str]") -> str | None:
        match = pattern.search(self.text)
        return match.group() if match else None

    def email(self) -> str | None:
        return self.find(_EMAIL)

    def path(self) -> str | None:
        return self.find(_PATH)

    def date(self) -> str | None:
        return self.find(_DATE)

    def uri(self) -> str | None:
        return self.find(_URI)

    def beside(self, name: str) -> str | None:
        """The value written next to an argument's own name: `title "Lunch"`, `qty: 3`, `room = B12`."""
        words = r"[ _-]?".join(re.escape(word) for word in name_words(name))
        quoted = r"\"((?:[^\"\\]|\\.)*)\"|“([^”]*)”|'([^'\n]*)'|`([^`]*)`"
        pattern = rf"\b{words}\b\s*(?:is|are|=|:|as|of|to)?\s*(?:{quoted}|(?<=[=:\s])([-+]?[\w./@:-]*\w))"
        for match in re.finditer(pattern, self.text, re.IGNORECASE):
            quoted_groups, bare = match.groups()[:4], match[5]
            found = next((g for g in quoted_groups if g is not None), None)
            if found is not None:
                found = _unescape(found)
                if found in self.quoted:
                    self.quoted.remove(found)
                return found
            if bare and (
                any(c.isdigit() for c in bare) or re.search(rf"\b{words}\b\s*[=:]", match.group(), re.IGNORECASE)
            ):
                for pool in (self.numbers, self.identifiers, self.names):
                    if bare in pool:
                        pool.remove(bare)
                return str(bare)
        return None

    def mentions(self, word: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self.text, re.IGNORECASE) is not None

    def listed_names(self) -> list[str]:
        """Names that stand in one enumeration ("Oslo, Lima and Kyiv"); else at most the first name."""
        if not self.names:
            return []
        first = self._likeliest()
        listed = self.names[first : first + 1]
        at = self.text.find(listed[0]) + len(listed[0])
        for name in self.names[first + 1 :]:
            start = self.text.find(name, at)
            if start < 0 or not _LIST_JOINT.fullmatch(self.text[at:start]):
                break
            listed.append(name)
            at = start + len(name)
        return listed

    def listed_quotes(self) -> list[str]:
        """Quoted texts that stand in one enumeration; else nothing."""
        listed: list[str] = []
        end = -1
        for match in _QUOTED.finditer(self.text):
            if listed and not _LIST_JOINT.fullmatch(self.text[end : match.start()]):
                if len(listed) > 1:
                    break
                listed.clear()
            listed.append(_unescape(next(g for g in match.groups() if g is not None)))
            end = match.end()
        return listed if len(listed) > 1 else []

    def _likeliest(self) -> int:
        """Which of the names is the one meant: the one behind an "in", else one that does not just start a sentence."""
        before = [self.text[: self.text.find(name)].rstrip(" \"'") for name in self.names]
        placed = (n for n, text in enumerate(before) if _PLACED.search(text))
        inside = (n for n, text in enumerate(before) if text and text[-1] not in ".!?:\n")
        return next(placed, next(inside, 0))

    def _trimmed(self, text: str) -> str:
        """Without the words at either end that only look like names."""
        idle = _NO_NAMES | self.no_names
        words = text.split(" ")
        while words and (words[0].lower().removesuffix("'s") in idle or words[0][:1].islower()):
            words.pop(0)
        while words and words[-1].lower() in idle:
            words.pop()
        return " ".join(words)


def name_words(name: str) -> list[str]:
    """`attendeeName`, `attendee_name`, `attendee-name` → the words, lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.lower() for word in re.split(r"[\W_]+", spaced) if word]


def _unescape(text: str) -> str:
    return text.replace('\\"', '"')
