"""One choice of an answer while it is spoken: token by token, up to its end, a stop string or the limit."""

from collections.abc import Iterator
from itertools import islice

from .request import Asked
from .stops import Stops
from .tokens import Piece
from .wire import Wire, Written


class Voice:
    """`take` gives the next tokens; `finish` is None until the last one is out."""

    def __init__(self, choice: int, pieces: Iterator[Piece], asked: Asked, wire: Wire) -> None:
        self.choice = choice
        self.finish: str | None = None
        self.produced_tokens = 0
        self.reasoning_tokens = 0
        self.written = Written()
        self._asked = asked
        self._wire = wire
        self._stops = Stops(asked.stop) if asked.stop else None
        self._pieces = self._stops.watch(pieces) if self._stops is not None else pieces
        self._called = False
        self._next_piece: Piece | None = None
        self._begun = False

    @property
    def matched(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.matched if self._stops is not None else None

    def take(self, wanted: int) -> list[Piece]:
        """Up to so many tokens; afterwards `finish` says whether they were the last ones."""
        if not self._begun:
            self._begun = True
            self._next_piece = next(self._pieces, None)
        group: list[Piece] = []
        room = min(wanted, self._asked.max_tokens - self.produced_tokens)
        if self._next_piece is not None and room > 0:
            group = [self._next_piece, *islice(self._pieces, room - 1)]
            self._next_piece = next(self._pieces, None)
        self.produced_tokens += len(group)
        kinds = [piece.kind for piece in group]
        self.reasoning_tokens += kinds.count("reasoning")
        self._called = self._called or "call" in kinds
        if not self._asked.streamed:
            self.written.add(group)
        if self.produced_tokens >= self._asked.max_tokens:
            # Also when nothing is left to say: the token that ends an answer has no room any more.
            self._end("length")
        elif self._next_piece is None:
            self._end(self._wire.finish_of_calls() if self._called else "stop")
        return group

    def _end(self, finish: str) -> None:
        self.finish = self.written.finish = finish
        self.written.matched = self.matched
        self.written.cut_call = self._next_piece is not None and self._next_piece.kind == "arguments"
