"""Which tools a message asks for, and where in the message each of them gets its values."""

import re
from dataclasses import dataclass
from functools import lru_cache

from .conversation import Tool
from .filler import ID_LIKE, NAME_LIKE
from .harvest import Harvest, name_words
from .reading import MISSING, literal
from .vocabulary import word_list

_VERBS = frozenset(
    word_list(
        "get set fetch list find search query make create do run call use read write add delete update lookup look "
        "save store send current by the a an of in for to and tool function value"
    )
)
# What the tools of acceptance checks are about, in languages that users write.
_FOREIGN = {
    "weather": word_list(
        "wetter météo temps tiempo clima tempo meteo pogoda pogodę погода погоду weer väder hava καιρός"
    ),
    "time": word_list("uhrzeit heure hora ora godzina czas время tid saat ώρα"),
    "server": word_list("serveur servidor serwer сервер"),
}
_FOREIGN_SIGNS = {
    "weather": ("天气", "天気", "날씨", "الطقس", "मौसम"),
    "time": ("时间", "時刻", "時間", "시간", "الوقت"),
}
_TOLD_TO = re.compile(
    r"\b(?:use|using|call|calling|invoke|with|through|via)\b[^.?!\n]{0,30}\b(?:tools?|functions?)\b", re.IGNORECASE
)
_TOLD = re.compile(r"\b(?:call|use|invoke)\b", re.IGNORECASE)
_TOLD_NOT_TO = re.compile(
    r"\b(?:without|do not|don't|never|no need to|avoid)\b[^.?!\n]{0,25}\b(?:tools?|functions?|call(?:s|ing)?)\b"
    r"|\bno tools?\b",
    re.IGNORECASE,
)
_CHATTER = re.compile(
    r"^\W*(?:please\s+)?(?:explain|describe|define|why|who|imagine|suggest|recommend|spell|continue|repeat|reply|answer"
    r"|how (?:do|does|did|is an?|are|can|many|much|old|long|far|would|come)\b"
    r"|what (?:does|do|did|makes|causes|are|were)"
    r"|what(?:'s| is) (?:an?\b|the (?:capital|difference|meaning|purpose|opposite|chemical|largest|smallest|plural))"
    r"|when (?:did|was|were)|name (?:an?|one|two|three|the)|give me (?:an?|some|two|three)"
    r"|tell me (?:an?|about|why|how|something|some)|list (?:an?|some|two|three|four|five|the)"
    r"|write (?:an?|me|two|three|some|one)"
    r"|does|should|is it true|which (?:of|is|planet|animal|colou?r|country|language))\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"(?:\bnot|n't|\bnever|\bwithout|\binstead of|\brather than|\bexcept)\s+(?:[\w`\"']+\s+){0,2}[`\"']?$"
)
_LED = re.compile(
    r"(?:\b(?:call|use|invoke|calling|using|tool|function|named|called)\s+(?:the\s+)?(?:tool\s+|function\s+)?)$"
)


@dataclass(frozen=True, slots=True)
class Wish:
    """One tool and the part of the message that speaks of it. `named`: the message calls the tool by its name."""

    tool: Tool
    text: str
    named: bool


def wishes(tools: tuple[Tool, ...], text: str, *, obvious_only: bool = False) -> list[Wish]:
    """The calls a message asks for, in its order; none where it only talks. `obvious_only`: tools called by name."""
    return list(_wished(tools, text, obvious_only))


# Several skills look at one message, and a conversation sends the same one again with every turn.
@lru_cache(maxsize=256)
def _wished(tools: tuple[Tool, ...], text: str, obvious_only: bool) -> list[Wish]:
    if _TOLD_NOT_TO.search(text):
        return []
    named = _named(tools, text)
    told = _TOLD_TO.search(text) is not None
    if named and not told and _CHATTER.match(text) and not _TOLD.search(text) and not any(map(_has_values, named)):
        return []  # a question about a tool
    if named or obvious_only:
        return named
    if not told and _CHATTER.match(text):
        return []
    matching = _matching(tools, text, told=told)
    return [Wish(tool, text, named=False) for tool in matching if told or len(tools) == 1 or _has_something(tool, text)]


def nearest(tools: tuple[Tool, ...], text: str) -> Tool:
    """Where a call is demanded: the tool that has most to do with the message."""
    words = _stems(text)
    return max(tools, key=lambda tool: len(_stems(f"{' '.join(name_words(tool.name))} {tool.description}") & words))


def _named(tools: tuple[Tool, ...], text: str) -> list[Wish]:
    """Wishes for tools whose names the text has; each reaches from its name to the next one."""
    found = ((start, tool) for tool in tools if tool.name in text for start in _mentions(tool.name, text))
    places = sorted(found, key=lambda place: place[0])
    wished: list[Wish] = []
    for number, (start, tool) in enumerate(places):
        end = places[number + 1][0] if number + 1 < len(places) else len(text)
        wished.append(Wish(tool, text[start:end], named=True))
    if len({wish.tool.name for wish in wished}) == 1:
        # One tool: its values may stand before its name as well, and naming it twice is not calling it twice.
        given = [wish for wish in wished if _has_values(wish)]
        return given if len(given) > 1 else [Wish(wished[0].tool, text, named=True)]
    told = {wish.tool.name: wish for wish in reversed(wished)}
    for name in list(told):
        given = [wish for wish in wished if wish.tool.name == name and _has_values(wish)]
        if given:
            wished = [wish for wish in wished if wish.tool.name != name or wish in given]
        else:
            wished = [wish for wish in wished if wish.tool.name != name or wish is told[name]]
    return wished


def _mentions(name: str, text: str) -> list[int]:
    """Where the tool is named, as a tool and not as a word of the language, and not to be left alone."""
    own = re.search(r"[_\d.-]|[a-z][A-Z]", name) is not None
    places: list[int] = []
    for match in re.finditer(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
        before, after = text[max(0, match.start() - 40) : match.start()], text[match.end() : match.end() + 12]
        quoted = before[-1:] == after[:1] == "`"
        led = _LED.search(before.lower().rstrip("`\"'")) is not None or after.lower().startswith(
            (" tool", " function", " with ")
        )
        if (own or quoted or led) and not _NEGATED.search(before.lower()):
            places.append(match.start())
    return places


def _has_values(wish: Wish) -> bool:
    properties = wish.tool.schema.get("properties")
    return isinstance(properties, dict) and any(literal(wish.text, name) is not MISSING for name in properties)


def _has_something(tool: Tool, text: str) -> bool:
    """Whether the message offers values for what the tool cannot do without: who has none asks for no call."""
    harvest = Harvest(text, frozenset(name_words(f"{tool.name} {tool.description}")))
    for name in tool.schema.get("required") or []:
        words = set(name_words(name))
        if words & ID_LIKE and not (harvest.quoted or harvest.identifiers):
            return False
        if words & NAME_LIKE and not (harvest.quoted or harvest.take_name()):
            return False
        if words & {"path", "file"} and not (harvest.quoted or harvest.path()):
            return False
    return True


def _matching(tools: tuple[Tool, ...], text: str, *, told: bool) -> list[Tool]:
    words = _stems(text)
    squeezed = re.sub(r"[\W_]+", "", text.lower())
    best = [tool for tool in tools if _share(tool, words, squeezed) > 0.5]
    if best:
        return sorted(best, key=lambda tool: _first_mention(tool, text))
    described = [(len(_stems(tool.description) & words), tool) for tool in tools]
    overlap, tool = max(described, key=lambda pair: pair[0], default=(0, None))
    return [tool] if tool is not None and (overlap >= 2 or told) else []


def _share(tool: Tool, words: frozenset[str], squeezed: str) -> float:
    """Which part of the meaningful words of a tool's name the text mentions."""
    parts = name_words(tool.name)
    if len(parts) > 1 and "".join(parts) in squeezed:
        return 1.0
    meaningful = _stems(" ".join(parts))
    return len(meaningful & words) / len(meaningful) if meaningful else 0.0


def _first_mention(tool: Tool, text: str) -> int:
    places = [text.lower().find(stem) for stem in _stems(" ".join(name_words(tool.name)))]
    return min((place for place in places if place >= 0), default=len(text))


@lru_cache(maxsize=1024)
def _stems(text: str) -> frozenset[str]:
    """Words without endings and without those that say nothing about a tool's purpose."""
    lowered = text.lower()
    words = set(re.findall(r"[^\W_]{3,}", lowered))
    foreign = {word for word, others in _FOREIGN.items() if not words.isdisjoint(others)}
    foreign |= {word for word, signs in _FOREIGN_SIGNS.items() if any(sign in lowered for sign in signs)}
    return frozenset(re.sub(r"(?:ies|es|s)$", "", word) for word in words | foreign if word not in _VERBS)
