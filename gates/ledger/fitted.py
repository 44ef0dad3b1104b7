"""A table as lines: columns that have no room are left out and named, what is shown is never cut."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from gates.report_terminal import printable

PIPED_WIDTH: Final = 160
"""Where nobody says how wide the reader is."""


@dataclass(frozen=True)
class Heading:
    """`text` in one or more lines; words stand `left`, numbers right."""

    text: str
    left: bool = False

    @property
    def name(self) -> str:
        return " ".join(self.text.split())


@dataclass(frozen=True)
class Line:
    """A row of texts, with the rich style of all of them or one for each."""

    cells: Sequence[str]
    styles: Sequence[str] | str = ""

    def style(self, number: int) -> str:
        return self.styles if isinstance(self.styles, str) else self.styles[number]


def fitted(
    headings: Sequence[Heading],
    lines: Sequence[Line],
    *,
    width: int,
    first_out: Sequence[int] = (),
    gap: int = 1,
    elsewhere: str = "a wider terminal, --markdown and --json have them",
) -> Iterator[Text]:
    """`first_out`: what a narrow reader does without, by number, the first one first. What has no room even then
    stands in longer lines.
    """
    clean = [Line([printable(cell) for cell in line.cells], line.styles) for line in lines]
    widths = [
        max(cell_len(part) for part in (*heading.text.split("\n"), *(line.cells[number] for line in clean)))
        for number, heading in enumerate(headings)
    ]
    kept, gone = list(range(len(headings))), []
    for number in first_out:
        if sum(widths[k] for k in kept) + gap * (len(kept) - 1) <= width:
            break
        kept.remove(number)
        gone.append(headings[number].name)

    def line(cells: Sequence[Text]) -> Text:
        padded = [_padded(cell, widths[k], left=headings[k].left) for k, cell in zip(kept, cells, strict=True)]
        joined = Text(" " * gap).join(padded)
        joined.rstrip()
        return joined

    height = max(heading.text.count("\n") for heading in headings) + 1
    for level in range(height):
        yield line([Text(_at(headings[k].text, level, height), "dim") for k in kept])
    for row in clean:
        yield line([Text(row.cells[k], row.style(k)) for k in kept])
    if gone:
        yield Text(f"no room here for {', '.join(dict.fromkeys(gone))}: {elsewhere}", "dim")


def _at(text: str, level: int, height: int) -> str:
    """The heading's part on this level: short ones stand at the bottom."""
    parts = text.split("\n")
    return ([""] * (height - len(parts)) + parts)[level]


def _padded(cell: Text, width: int, *, left: bool) -> Text:
    room = Text(" " * max(0, width - cell_len(cell.plain)))
    return cell + room if left else room + cell


def numbers(headings: Sequence[Heading], names: Collection[str]) -> list[int]:
    """Where the headings of these names are, in the order of `names`; a name that two have is both."""
    return [number for name in names for number, heading in enumerate(headings) if heading.name == name]
