"""Faults as they were asked for: read from the command line, drawn for each request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from random import Random
from typing import ClassVar, TypeVar

from launch.errors import LaunchError

from .condition import CONDITIONS, COUNTING, Situation
from .entry import Fault
from .vocabulary import BY_NAME

_Entry = TypeVar("_Entry")


class FaultError(LaunchError):
    """A fault on the command line that does not exist or is not spelled right."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class FaultSetting:
    """One fault as it was asked for: its numbers, its share of the requests, its conditions."""

    fault: Fault
    values: tuple[float, ...]
    fraction: float = 1.0
    conditions: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "FaultSetting":
        """Read `NAME[=VALUE[:VALUE]][@FRACTION][+CONDITION[=N]]...`; raises `FaultError`."""
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise FaultError(
                f"fault {text!r} is not spelled NAME[=VALUE][@FRACTION][+CONDITION], e.g. slow=3@0.5+stream"
            )
        fault = _known(match["name"].replace("_", "-"), BY_NAME, f"fault {text!r}: there is no fault")
        fraction = _number(match["fraction"], f"fault {text!r}: the fraction") if match["fraction"] else 1.0
        if not 0 < fraction <= 1:
            raise FaultError(f"fault {text!r}: the fraction {fraction:g} must be above 0 and at most 1")
        asked = tuple(_condition(word, text) for word in match["conditions"].split("+")[1:])
        if not fault.stage.per_request and (asked or fraction != 1):
            raise FaultError(f"fault {text!r} concerns the whole engine: it takes no fraction and no condition")
        always = tuple(_condition(word, fault.name) for word in fault.only)
        return cls(fault, _values(fault, match["value"], text), fraction, always + asked)

    def applies(self, situation: Situation, rng: Random) -> bool:
        """Whether this request is hit. Draws from `rng` in any case, so that conditions do not shift later draws."""
        drawn = rng.random() < self.fraction
        return drawn and all(CONDITIONS[name](situation, n) for name, n in self.conditions)

    def asks_about(self, condition: str) -> bool:
        """Whether it depends on this condition."""
        return any(name == condition for name, _ in self.conditions)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of one engine."""

    settings: tuple[FaultSetting, ...]
    seed: int
    _standing: Mapping[str, FaultSetting] = field(init=False)

    def __post_init__(self) -> None:
        standing = {s.fault.name: s for s in self.settings if not s.fault.stage.per_request}
        object.__setattr__(self, "_standing", standing)

    def standing(self, name: str) -> FaultSetting | None:
        """A fault of the whole engine, if it was asked for."""
        if BY_NAME[name].stage.per_request:
            raise KeyError(name)
        return self._standing.get(name)

    def holds(self, name: str) -> bool:
        """Whether this fault was asked for, for whatever requests."""
        return any(setting.fault.name == name for setting in self.settings)

    def asks_about(self, condition: str) -> bool:
        """Whether any fault depends on this condition: some are costly to know."""
        return any(setting.asks_about(condition) for setting in self.settings)

    def strike(self, situation: Situation) -> dict[str, FaultSetting]:
        """The faults that hit this request, by name; the same for the same seed and request number."""
        if not self.settings:
            return {}
        rng = Random(f"{self.seed}/{situation.number}")  # noqa: S311 - must be repeatable, guards nothing
        drawn = [(s, s.applies(situation, rng)) for s in self.settings if s.fault.stage.per_request]
        return {setting.fault.name: setting for setting, hit in drawn if hit}


_SPELLING = re.compile(
    r"(?P<name>[a-z0-9_-]+)(?:=(?P<value>[^@+]*))?(?:@(?P<fraction>[^+]*))?(?P<conditions>(?:\+[^+]+)*)"
)


def _known(name: str, table: Mapping[str, _Entry], complaint: str) -> _Entry:
    if name in table:
        return table[name]
    near = get_close_matches(name, table, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; --list-faults shows them all"
    raise FaultError(f"{complaint} {name!r}{hint}")


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FaultError(f"{what} must be a number, not {text!r}") from None


def _condition(word: str, text: str) -> tuple[str, float]:
    if "@" in word:
        raise FaultError(f"fault {text!r}: the fraction stands before the conditions, NAME@FRACTION+CONDITION")
    name, given, number = word.partition("=")
    _known(name, CONDITIONS, f"fault {text!r}: there is no condition")
    if bool(given) != (name in COUNTING):
        form = f"+{name}=N" if name in COUNTING else f"+{name}"
        raise FaultError(f"fault {text!r}: the condition is spelled {form}")
    return name, _number(number, f"fault {text!r}: condition {name!r}") if given else 0.0


def _values(fault: Fault, given: str | None, text: str) -> tuple[float, ...]:
    words = given.split(":") if given else []
    if len(words) > len(fault.parameters):
        raise FaultError(f"fault {text!r} has too many values; it is spelled {fault.spelling}")
    values: list[float] = []
    for position, parameter in enumerate(fault.parameters):
        if position < len(words):
            value = _number(words[position], f"fault {text!r}: {parameter.name}")
            if not value > 0:
                raise FaultError(f"fault {text!r}: {parameter.name} must be above 0, not {value:g}")
        elif parameter.default is not None:
            value = parameter.default
        else:
            raise FaultError(f"fault {text!r} needs a value for {parameter.name}; it is spelled {fault.spelling}")
        values.append(value)
    return tuple(values)
