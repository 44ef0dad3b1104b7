"""What a topology tells its engine, read in the way in which that engine reads it.

vLLM (``FlexibleArgumentParser``) takes dashes and underscores alike, unambiguous beginnings of a flag, and JSON options
in pieces (``--compilation-config.mode 3``). SGLang is plain argparse: dashes only, beginnings too. llama-server takes
dashes and underscores, whole flags only, no ``--flag=value``, and ``LLAMA_ARG_…`` from the environment where the flag
is not given. In all three the last one counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.engines.base import flag_name

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([kKmMgGtT]?)(i?)")
ON = frozenset({"on", "1", "true", "yes", "y", "enabled"})
OFF = frozenset({"off", "0", "false", "no", "n", "disabled"})

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_WHOLE = frozenset({"--data-parallel-size", "--speculative-draft-model"})
"""Flags of their own although another one that is asked for here begins like them (vLLM 0.32.0, SGLang 0.5.23)."""


@dataclass(frozen=True)
class Told:
    """Flags and environment of one instance. `abbreviates` and `joins` (``--flag=value``) are the engine's habits."""

    flags: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    abbreviates: bool = True
    joins: bool = True
    capitals_are_binary: bool = True
    """``1M`` is 1024 x 1024, as in vLLM; else a million, as in SGLang, where ``1Mi`` is the other."""
    env_prefix: str = ""
    """``LLAMA_ARG_``: an option that no flag gives comes from the variable of its (long) name; empty: never."""

    def values(self, *names: str) -> tuple[str, ...] | None:
        """The words given to the last of `names`: ``--sizes 1 2 4``; () for a bare switch; None where it is missing."""
        found: tuple[str, ...] | None = None
        for position, name in self._named():
            if self._means(name, names):
                found = self._words(position)
        return found if found is not None else self._from_env(names)

    def value(self, *names: str) -> str | None:
        """The last value given to one of `names`; None without one."""
        words = self.values(*names)
        return words[0] if words else None

    def number(self, *names: str) -> int | None:
        """A whole number given to one of `names`, ``128k`` included; None when there is none, ``auto`` or ``-1``."""
        return whole_number(self.value(*names), capitals_are_binary=self.capitals_are_binary)

    def has(self, *names: str) -> bool:
        """True where one of `names` is given, and no ``--no-…`` of it after that."""
        given = False
        for _, name in self._named():
            if self._means(name, names):
                given = True
            elif name.startswith("--no-") and f"--{name[5:]}" in names:
                given = False
        words = None if given else self._from_env(names)
        return given or (words is not None and words[0].lower() not in OFF)

    def mapping(self, *names: str) -> dict[str, Any]:
        """A JSON option. Its pieces (``--option.key value``) stand for the whole where there are any, as in vLLM."""
        pieces: dict[str, Any] = {}
        for position, word in enumerate(self.flags):
            flag, dot, rest = word.split("=", 1)[0].partition(".")
            if dot and (name := flag_name(flag)) is not None and self._means(name, names):
                _put(pieces, rest, word.split("=", 1)[1] if "=" in word else "".join(self.flags[position + 1 :][:1]))
        return pieces or _object(self.value(*names))

    def switched_on(self, variable: str) -> bool:
        """True where the environment sets `variable` to something that means yes."""
        return self.env.get(variable, "").strip().lower() in ON

    def _named(self) -> Iterator[tuple[int, str]]:
        for position, word in enumerate(self.flags):
            name = flag_name(word)
            if name is not None:
                yield position, name

    def _means(self, name: str, names: Sequence[str]) -> bool:
        if name in names:
            return True
        whole = not self.abbreviates or not name.startswith("--") or name in _WHOLE
        return not whole and any(one.startswith(name) for one in names)

    def _words(self, position: int) -> tuple[str, ...]:
        flag = self.flags[position]
        if self.joins and "=" in flag:
            return (flag.split("=", 1)[1],)
        words = []
        for word in self.flags[position + 1 :]:
            if flag_name(word) is not None:
                break
            words.append(word)
        return tuple(words)

    def _from_env(self, names: Sequence[str]) -> tuple[str, ...] | None:
        if not self.env_prefix:
            return None
        for name in names:
            value = self.env.get(self.env_prefix + name.lstrip("-").upper().replace("-", "_"))
            if value is not None:
                return (value,)
        return None


def whole_number(text: str | None, *, capitals_are_binary: bool = True) -> int | None:
    """``131072``, ``128k`` (thousands), ``128K`` and ``128Ki`` (1024s); None for anything else, as ``auto``, ``-1``."""
    match = _NUMBER.fullmatch(text.strip()) if text is not None else None
    if match is None:
        return None
    figure, unit, binary = match.groups()
    base = 1024 if binary or (capitals_are_binary and unit.isupper()) else 1000
    return int(float(figure) * base ** _POWERS[unit.lower()])


def whole_numbers(listed: Any) -> list[int]:
    """The whole numbers of a list, as flags and JSON give them; [] for anything that is no list."""
    if not isinstance(listed, (list, tuple)):
        return []
    return [number for word in listed if (number := whole_number(str(word))) is not None]


def _put(pieces: dict[str, Any], path: str, text: str) -> None:
    """``a.b`` → {"a": {"b": …}}; a ``+`` at its end appends to a list, its words split at commas."""
    appends = path.endswith("+")
    *parents, last = path.removesuffix("+").split(".")
    for key in parents:
        child = pieces.setdefault(key, {})
        if not isinstance(child, dict):
            return
        pieces = child
    if appends:
        before = pieces.get(last)
        pieces[last] = [*(before if isinstance(before, list) else ()), *text.split(",")]
        return
    try:
        pieces[last] = json.loads(text)
    except (ValueError, RecursionError):
        pieces[last] = text


def _object(text: str | None) -> dict[str, Any]:
    try:
        document = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
