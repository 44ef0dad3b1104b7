"""An answer before it has a wire format: what is thought, said and called."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .tokens import Piece, split_tokens


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. `arguments` is the JSON text as the model writes it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Reasoning and content are tokens, produced lazily and read once."""

    reasoning: Iterable[str] = ()
    content: Iterable[str] = ()
    calls: tuple[Call, ...] = ()

    def pieces(self) -> Iterator[Piece]:
        """The answer token by token, in the order in which a model writes it."""
        for token in self.reasoning:
            yield Piece("reasoning", token)
        for token in self.content:
            yield Piece("content", token)
        for number, call in enumerate(self.calls):
            yield Piece("call", call.name, number)
            for token in split_tokens(call.arguments):
                yield Piece("arguments", token, number)
