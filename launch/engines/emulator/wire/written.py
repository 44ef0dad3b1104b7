"""What an answer amounted to, before it is one JSON body."""

from dataclasses import dataclass, field

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

    def add(self, piece: Piece) -> None:
        """Take up one more token."""
        match piece.kind:
            case "reasoning":
                self.reasoning += piece.text
            case "content":
                self.content += piece.text
            case "call":
                self.calls.append([piece.text, ""])
            case "arguments" if self.calls:
                self.calls[-1][1] += piece.text

    @property
    def complete_calls(self) -> list[list[str]]:
        """The calls without the one that max_tokens cut."""
        return self.calls[:-1] if self.cut_call else self.calls
