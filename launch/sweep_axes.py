"""An axis of a sweep: what it sets in a topology, and how its values are called.

An axis is a flag of the engine, for flags are what people vary: the format of the KV cache, sequences at once, tokens
of speculation, captured batch sizes. A flag is set in place (or after the others), is there or not (``true``;
``false`` or ``null``), or has several words (a list). ``flag.key`` sets a key inside a flag whose value is a JSON
object, as vLLM's ``--speculative-config``. What is not a flag and is varied all the same has four names of its own,
each of which replaces that key of the topology as a whole: `model` (another quantisation), `command` (another build),
`instances` (TP4 instead of TP2x2) and `router`; and ``env.NAME`` sets one variable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.engines.base import flag_name, flag_value
from launch.render import grouped

REPLACED = ("model", "command", "instances", "router")
"""Keys of a topology that an axis of this name replaces as a whole."""
ENV = "env."
_FLAG = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_.-]*)?")
_LABEL_MAX = 32


class AxisError(Exception):
    """What is wrong with an axis or one of its values, without the place."""


@dataclass(frozen=True)
class Axis:
    """`name` as it was written; the values in their order, the most conservative first if their author is wise."""

    name: str
    values: tuple[Any, ...]

    @property
    def flag(self) -> str:
        """``--kv-cache-dtype``; empty where the axis is none."""
        if self.name in REPLACED or self.name.startswith(ENV):
            return ""
        return self.name if self.name.startswith("-") else f"--{self.name}"

    @property
    def target(self) -> str:
        """What it sets, in one spelling, so that two axes that set the same are seen to."""
        return (flag_name(self.flag) or self.flag) if self.flag else self.name

    def labels(self) -> tuple[str, ...]:
        """A short name for each value; ``#2`` where it has none that is short and its own."""
        short = [_label(value) for value in self.values]
        often = Counter(short)
        return tuple(text if text and often[text] == 1 else f"#{position}" for position, text in enumerate(short, 1))

    def check(self) -> None:
        """Raises `AxisError` for a name that is no axis, and for a value that it cannot have."""
        if self.flag and not _FLAG.fullmatch(self.name):
            raise AxisError(
                f"{self.name!r} is no axis; an axis is a flag of the engine (kv-cache-dtype), a key inside a JSON flag "
                f"(speculative-config.num_speculative_tokens), env.NAME, or {', '.join(REPLACED)}"
            )
        seen: set[str] = set()
        for value in self.values:
            written = json.dumps(value, sort_keys=True)
            if written in seen:
                raise AxisError(f"the value {shown(value)} is there twice; keep one")
            seen.add(written)
            if wrong := self._wrong(value):
                raise AxisError(wrong)

    def _wrong(self, value: Any) -> str:
        """Why this axis cannot have this value; empty: it can. What replaces a key is checked with its topology."""
        if self.name in REPLACED:
            return ""
        if self.name.startswith(ENV):
            ok = value is None or isinstance(value, str)
            return "" if ok else f"{shown(value)} is not a word; null takes the variable away"
        words = value if isinstance(value, list) else [value]
        if not words or not all(word is None or isinstance(word, str | bool) for word in words):
            return f"{shown(value)} is not accepted; a value is a word, a list of words, true, false or null"
        if isinstance(value, list) and not all(isinstance(word, str) for word in words):
            return f"{shown(value)} is not a list of words; true, false and null stand alone"
        dashed = next((word for word in words if isinstance(word, str) and flag_name(word)), None)
        return "" if dashed is None else f"{dashed!r} would be read as another flag; give that one an axis of its own"


def apply(document: dict[str, Any], axis: Axis, value: Any) -> None:
    """Set `axis` to `value` in the plain data of a topology. Raises `AxisError` where the engine has no such thing."""
    if axis.name in REPLACED:
        _put(document, axis.name, value)
    elif axis.name.startswith(ENV):
        environment = dict(document.get("env", {}))
        _put(environment, axis.name.removeprefix(ENV), value)
        document["env"] = environment
    elif "." in axis.flag:
        document["flags"] = _with_key(document, axis, value)
    else:
        document["flags"] = with_flag(document.get("flags", []), axis.flag, value)


def with_flag(flags: Sequence[str], flag: str, value: Any) -> list[str]:
    """`flags` with this one set, in its place or after the others; ``false`` and ``null`` take it away."""
    lines = list(_set(grouped(flags), flag, _words(flag, value)))
    return [word for line in lines for word in line]


def _set(lines: Iterator[Any], flag: str, words: Sequence[str]) -> Iterator[Sequence[str]]:
    placed = not words
    for line in lines:
        if flag_name(line[0]) != flag_name(flag):
            yield line
        elif not placed:
            yield words
            placed = True
    if not placed:
        yield words


def _words(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    return [flag, *value] if isinstance(value, list) else [flag, value]


def _with_key(document: Mapping[str, Any], axis: Axis, value: Any) -> list[str]:
    """Inside the JSON of its flag; where there is none a piece of it, which vLLM puts together itself."""
    flags = document.get("flags", [])
    whole, _, path = axis.flag.partition(".")
    try:
        held = json.loads(flag_value(flags, flag_name(whole) or whole) or "")
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        if document.get("engine") != "vllm":
            raise AxisError(f"flags have no {whole} with a JSON object in which {path} could be set")
        return with_flag(flags, axis.flag, value)
    *parents, last = path.split(".")
    inner = held
    for key in parents:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise AxisError(f"{key} in the JSON of {whole} is no object, so {path} cannot be set in it")
    _put(inner, last, _as_json(value))
    # What would be left of it says nothing, and engines refuse an empty one.
    return with_flag(flags, whole, json.dumps(held, ensure_ascii=False) if held else None)


def _as_json(value: Any) -> Any:
    """A word as vLLM reads it in a piece: as JSON where it is some, else as text."""
    if isinstance(value, list):
        return [_as_json(word) for word in value]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _put(mapping: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _label(value: Any) -> str:
    if value is None or value is False:
        return "off"
    if value is True:
        return "on"
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        return ""
    text = "+".join(words).rstrip("/").rsplit("/", 1)[-1]
    is_plain = text.isprintable() and not set(text) & set("{},=")  # it stands in tables and sentences
    return text if len(text) <= _LABEL_MAX and is_plain else ""


def shown(value: Any) -> str:
    """A value as it is written in the file, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
