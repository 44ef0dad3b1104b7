"""What a fault is: one entry of the vocabulary, and the few functions through which it acts."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..answer import Answer
    from ..prompt import Segment
    from ..request import Asked
    from .edit import Edit


class Group(StrEnum):
    """What a fault spoils. The first two are the engine's life; the others are what gates look for in answers."""

    LIFE = "life"
    TIMING = "timing"
    ARGS = "args"
    NAMES = "name/id/index"
    CALLS = "calls"
    CHOICE = "choice/finish"
    TRANSPORT = "transport"
    PROMPT = "prompt"
    THINKING = "thinking"
    TEXT = "text"
    VARIANTS = "healthy variants"


class Stage(StrEnum):
    """Where a fault acts. Those of `start`, `process` and `lifecycle` concern the whole engine, the others requests."""

    START = "start"
    PROCESS = "process"
    LIFECYCLE = "lifecycle"
    TIMING = "timing"
    PROMPT = "prompt"
    ANSWER = "answer"
    WIRE = "wire"
    TRANSPORT = "transport"

    @property
    def per_request(self) -> bool:
        return self not in (Stage.START, Stage.PROCESS, Stage.LIFECYCLE)


class Harm(StrEnum):
    """What a good gate makes of it."""

    BLOCK = "block"
    WARN = "warn"
    HEALTHY = "healthy"


class Need(StrEnum):
    """What requests have to bring along before a fault shows."""

    SLEEP = "sleep and wake"
    CONCURRENCY = "requests at the same time"
    WARM_PREFIX = "a prompt seen before"
    SAMPLING = "a temperature that is not 0"
    PARALLEL = "two calls in one answer"
    CALL = "a call"
    HISTORY = "tool turns in the history"
    SYSTEMS = "several system messages"
    REASONING_HISTORY = "reasoning in the history"
    THINKING = "thinking switched on"
    SWITCH = "a thinking switch"
    SCHEMA = "a response_format"
    FORCED = "tool_choice required or named"
    NONE = "tool_choice none"
    ONE_CALL_ONLY = "parallel_tool_calls false"
    TOOL_LIST = "several tools"
    CHOICES = "n of 2 or more"
    NUMBER = "a number among the arguments"
    OUTER_SPACES = "a string argument with outer spaces"
    MARKUP = "a text with <, >, & or a quote"
    ENTITY = "a string argument with &lt; or &amp; in it"
    BIG_INTEGER = "an integer argument beyond 2^53"
    NON_ASCII = "a non-ASCII string argument"
    TRUNCATION = "a max_tokens that cuts a call"
    STOP = "a stop string"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number a fault is told; without a default it has to be given."""

    name: str
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may know of the request it strikes."""

    asked: "Asked"
    rng: Random
    values: tuple[float, ...]
    others: tuple["Asked", ...]
    """Requests that run at the same moment; with none, the one accepted last, if any."""
    thinks_by_habit: bool
    """Where the thinking switch stands when a request does not touch it."""
    think: Callable[["Asked"], "Answer"]
    """The model: what it would answer to another request."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One word of the vocabulary.

    `reads` changes the prompt, for the model and for the count of its tokens, `asks` the request, `spoils` the
    answer, `edits` what is written to the wire. Without any of them it is asked for by name where it acts.
    `only` are conditions that always hold, spelled as on the command line.
    """

    name: str
    group: Group
    stage: Stage
    what: str
    parameters: tuple[Parameter, ...] = ()
    reads: "Callable[[tuple[Segment, ...]], tuple[Segment, ...]] | None" = None
    asks: "Callable[[Scene], Asked] | None" = None
    spoils: "Callable[[Answer, Scene], Answer] | None" = None
    edits: "type[Edit] | None" = None
    only: tuple[str, ...] = ()
    harm: Harm = Harm.BLOCK
    needs: tuple[Need, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def spelling(self) -> str:
        """`name=FIRST:SECOND`, with defaults in brackets."""
        words = [p.name.upper() if p.default is None else f"{p.name.upper()}({p.default:g})" for p in self.parameters]
        return f"{self.name}={':'.join(words)}" if words else self.name

    @property
    def healthy(self) -> bool:
        """Whether a gate must let it pass, with a warning or without."""
        return self.harm is not Harm.BLOCK
