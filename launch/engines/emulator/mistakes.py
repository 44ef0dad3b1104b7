"""Mistakes of a model, as opposed to faults of a server: the wire is right, the answer is not."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

BEHAVIOURS = ("calls", "copies", "parallel", "no-call", "results", "structured", "answers")


def read_right(words: Iterable[str]) -> Mapping[str, float]:
    """`0.95` and `calls=0.8` as a table; the behaviour "" stands for all that are not named. Raises `ValueError`."""
    table: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if name and name not in BEHAVIOURS:
            raise ValueError(f"--right {word}: there is no behaviour {name!r}; there are {', '.join(BEHAVIOURS)}")
        try:
            table[name] = float(number)
        except ValueError:
            raise ValueError(f"--right {word}: {number!r} is no number; write 0.95 or calls=0.95") from None
        if not 0 <= table[name] <= 1:
            raise ValueError(f"--right {word}: a share is between 0 and 1")
    return MappingProxyType(table)
