"""The vocabulary of faults. A fault is one entry of `FAULTS`: its name, what it does, where it acts, what it is told.

Written on the command line as `NAME[=VALUE[:VALUE]][@FRACTION][+CONDITION[=N]]...`, for example
`garbage@0.05`, `slow=4+after-s=8`, `leak-think@0.5+stream+running=8`. A fault that only changes the answer needs
nothing but its entry and a function in `spoil.py`; the others are asked for by name where they act.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from random import Random
from types import MappingProxyType
from typing import ClassVar, TypeVar

from launch.errors import LaunchError

from . import spoil
from .answer import Answer

_Entry = TypeVar("_Entry")


class FaultError(LaunchError):
    """A fault on the command line that does not exist or is not spelled right."""

    exit_code: ClassVar[int] = 2


class Stage(StrEnum):
    """Where a fault acts. Those of `process` and `start` concern the whole engine, the others single requests."""

    START = "start"
    PROCESS = "process"
    LIFECYCLE = "lifecycle"
    TIMING = "timing"
    ANSWER = "answer"
    WIRE = "wire"
    TRANSPORT = "transport"

    @property
    def per_request(self) -> bool:
        return self in (Stage.TIMING, Stage.ANSWER, Stage.WIRE, Stage.TRANSPORT)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number a fault is told; without a default it has to be given."""

    name: str
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    stage: Stage
    what: str
    parameters: tuple[Parameter, ...] = ()
    spoils: Callable[[Answer, Random], Answer] | None = None
    only_after_tool_result: bool = False

    @property
    def spelling(self) -> str:
        """`name=FIRST:SECOND`, with defaults in brackets."""
        words = [p.name.upper() if p.default is None else f"{p.name.upper()}({p.default:g})" for p in self.parameters]
        return f"{self.name}={':'.join(words)}" if words else self.name


FAULTS: tuple[Fault, ...] = (
    Fault("never-ready", Stage.START, "listens, but answers 503 on /health and everything else for ever"),
    Fault("never-listens", Stage.START, "the process lives, but never opens its port"),
    Fault("dies-loading", Stage.START, "exits with code 1 and a traceback half way through the start"),
    Fault("ignores-term", Stage.PROCESS, "SIGTERM does nothing; only SIGKILL ends it"),
    Fault(
        "dies-under-load",
        Stage.PROCESS,
        "the process is gone, without a word, when so many requests run at once",
        (Parameter("running", 4),),
    ),
    Fault(
        "dies-after-requests",
        Stage.PROCESS,
        "the process is gone, without a word, at its Nth request",
        (Parameter("requests"),),
    ),
    Fault("exits-zero-on-crash", Stage.PROCESS, "a crash (dies-…) leaves exit code 0, as if all were well"),
    Fault(
        "sleeps-but-keeps-memory",
        Stage.LIFECYCLE,
        "/sleep answers 200 and /is_sleeping says true, but the memory is not given back",
    ),
    Fault("silent", Stage.TIMING, "accepts the request and sends headers, but no token ever comes"),
    Fault("slow", Stage.TIMING, "first token and gaps take FACTOR times as long", (Parameter("factor", 3),)),
    Fault(
        "slow-after-s",
        Stage.TIMING,
        "as good as asked for SECONDS after ready, then slow by FACTOR",
        (Parameter("seconds"), Parameter("factor", 3)),
    ),
    Fault(
        "slow-after-requests",
        Stage.TIMING,
        "as good as asked for so many REQUESTS, then slow by FACTOR",
        (Parameter("requests"), Parameter("factor", 3)),
    ),
    Fault("garbage", Stage.ANSWER, "writes junk and repetitions, twice as fast as usual", spoils=spoil.garbage),
    Fault(
        "bad-tool-arguments",
        Stage.ANSWER,
        "tool call arguments are no JSON: the end is missing",
        spoils=spoil.bad_tool_arguments,
    ),
    Fault(
        "wrong-schema-arguments",
        Stage.ANSWER,
        "tool call arguments are JSON, but not what the schema asks for",
        spoils=spoil.wrong_schema_arguments,
    ),
    Fault("leak-think", Stage.ANSWER, "<think>…</think> stands in the content", spoils=spoil.leak_think),
    Fault(
        "tool-text-in-content",
        Stage.ANSWER,
        "calls come as raw <tool_call> text in the content, tool_calls stays empty",
        spoils=spoil.tool_text_in_content,
    ),
    Fault(
        "loses-tool-result",
        Stage.ANSWER,
        "the answer after a tool result knows nothing of the result",
        spoils=spoil.loses_tool_result,
        only_after_tool_result=True,
    ),
    Fault("no-usage", Stage.WIRE, "sends no usage, streamed or not, even when asked"),
    Fault("error-500", Stage.WIRE, "answers 500 with an error body"),
    Fault("truncates", Stage.TRANSPORT, "closes the connection after so many CHUNKS", (Parameter("chunks", 5),)),
)

BY_NAME: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in FAULTS})


@dataclass(frozen=True, slots=True)
class Situation:
    """What a condition may ask about a request at the moment it is accepted."""

    number: int
    since_ready_s: float
    running: int
    streamed: bool
    thinking: bool
    has_tools: bool
    turn: int
    woken: bool
    after_tool_result: bool


CONDITIONS: Mapping[str, Callable[[Situation, float], bool]] = MappingProxyType(
    {
        "stream": lambda s, _: s.streamed,
        "no-stream": lambda s, _: not s.streamed,
        "thinking": lambda s, _: s.thinking,
        "no-thinking": lambda s, _: not s.thinking,
        "tools": lambda s, _: s.has_tools,
        "woken": lambda s, _: s.woken,
        "turn": lambda s, n: s.turn >= n,
        "running": lambda s, n: s.running >= n,
        "after-s": lambda s, n: s.since_ready_s >= n,
        "after-requests": lambda s, n: s.number > n,
    }
)
_COUNTING = frozenset({"turn", "running", "after-s", "after-requests"})


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
        fault = _known(match["name"], BY_NAME, f"fault {text!r}: there is no fault")
        fraction = _number(match["fraction"], f"fault {text!r}: the fraction") if match["fraction"] else 1.0
        if not 0 < fraction <= 1:
            raise FaultError(f"fault {text!r}: the fraction {fraction:g} must be above 0 and at most 1")
        conditions = tuple(_condition(word, text) for word in match["conditions"].split("+")[1:])
        if not fault.stage.per_request and (conditions or fraction != 1):
            raise FaultError(f"fault {text!r} concerns the whole engine: it takes no fraction and no condition")
        return cls(fault, _values(fault, match["value"], text), fraction, conditions)

    def applies(self, situation: Situation, rng: Random) -> bool:
        """Whether this request is hit. Draws from `rng` in any case, so that conditions do not shift later draws."""
        drawn = rng.random() < self.fraction
        if self.fault.only_after_tool_result and not situation.after_tool_result:
            return False
        return drawn and all(CONDITIONS[name](situation, n) for name, n in self.conditions)


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

    def strike(self, situation: Situation) -> dict[str, FaultSetting]:
        """The faults that hit this request, by name; the same for the same seed and request number."""
        if not self.settings:
            return {}
        rng = Random(f"{self.seed}/{situation.number}")  # noqa: S311 - must be repeatable, guards nothing
        drawn = [(s, s.applies(situation, rng)) for s in self.settings if s.fault.stage.per_request]
        return {setting.fault.name: setting for setting, hit in drawn if hit}


def describe_faults() -> str:
    """The vocabulary as a table of text, for `--list-faults`."""
    width = max(len(fault.spelling) for fault in FAULTS)
    lines = [f"{fault.spelling:<{width}}  {fault.stage:<9}  {fault.what}" for fault in FAULTS]
    words = [f"{name}=N" if name in _COUNTING else name for name in CONDITIONS]
    lines += ["", "NAME[=VALUE[:VALUE]][@FRACTION][+CONDITION[=N]]; conditions: " + ", ".join(words)]
    lines += ["Fractions and conditions choose single requests (stages timing, answer, wire, transport)."]
    return "\n".join(lines)


_SPELLING = re.compile(
    r"(?P<name>[a-z0-9-]+)(?:=(?P<value>[^@+]*))?(?:@(?P<fraction>[^+]*))?(?P<conditions>(?:\+[^+]+)*)"
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
    name, given, number = word.partition("=")
    _known(name, CONDITIONS, f"fault {text!r}: there is no condition")
    if bool(given) != (name in _COUNTING):
        form = f"+{name}=N" if name in _COUNTING else f"+{name}"
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
            if value <= 0:
                raise FaultError(f"fault {text!r}: {parameter.name} must be above 0, not {value:g}")
        elif parameter.default is not None:
            value = parameter.default
        else:
            raise FaultError(f"fault {text!r} needs a value for {parameter.name}; it is spelled {fault.spelling}")
        values.append(value)
    return tuple(values)
