"""Stop strings: they end an answer where they would appear, and do not appear themselves."""

from collections.abc import Iterable, Iterator

from .tokens import Piece


class Stops:
    """Watches the kinds of pieces it is told to; `matched` is the string that ended the answer."""

    def __init__(self, strings: tuple[str, ...], kinds: frozenset[str] = frozenset({"content"})) -> None:
        self.matched: str | None = None
        self._strings = strings
        self._kinds = kinds

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces up to the first stop string. Those that may be the beginning of one are held back."""
        held: list[Piece] = []
        for piece in pieces:
            if piece.kind not in self._kinds:
                yield from held
                held.clear()
                yield piece
                continue
            held.append(piece)
            text = "".join(p.text for p in held)
            found = min(((text.find(s), s) for s in self._strings if s in text), default=None)
            if found is not None:
                self.matched = found[1]
                yield from _up_to(held, found[0])
                return
            keep = self._beginning(text)
            while held and len(text) - len(held[0].text) >= keep:
                text = text[len(held[0].text) :]
                yield held.pop(0)
        yield from held

    def _beginning(self, text: str) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._strings)) - 1)
        return next((n for n in range(longest, 0, -1) if any(s.startswith(text[-n:]) for s in self._strings)), 0)


def _up_to(pieces: list[Piece], length: int) -> Iterator[Piece]:
    for piece in pieces:
        if length <= 0:
            return
        yield piece._replace(text=piece.text[:length])
        length -= len(piece.text)
