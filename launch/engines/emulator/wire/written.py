"""What an answer amounted to, before it is one JSON body."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from ..tokens import Piece


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts of a whole request, all its choices together."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int | None  # None: the engine does not report them


@dataclass(slots=True)
class Written:
    """One choice of an answer that is not streamed. `cut_call`: its last call lacks the end of its arguments."""

    reasoning: str = ""
    content: str = ""
    calls: list[list[str]] = field(default_factory=list)  # name, arguments
    cut_call: bool = False
    finish: str = "stop"
    matched: str | None = None  # the stop string that ended it

    def add(self, group: Iterable[Piece]) -> None:
        """Take up more tokens."""
        for kind, pieces in groupby(group, key=attrgetter("kind")):
            match kind:
                case "reasoning":
                    self.reasoning += "".join(piece.text for piece in pieces)
                case "content":
                    self.content += "".join(piece.text for piece in pieces)
                case "call":
                    self.calls += [[piece.text, ""] for piece in pieces]
                case "arguments" if self.calls:
                    self.calls[-1][1] += "".join(piece.text for piece in pieces)

    @property
    def complete_calls(self) -> list[list[str]]:
        """The calls without the one that max_tokens cut."""
        return self.calls[:-1] if self.cut_call else self.calls
