"""A sweep at a terminal: arms in order, each with its interval as a bar against live."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .terminal import clock

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Document = Mapping[str, Any]

WIDTH = 25
_NAMED_MAX = 4
_STYLES = {
    "better": "green",
    "worse": "red",
    "failed": "red",
    "not compared": "yellow",
    "not tried": "yellow",
    "runs": "cyan",
    "waits": "dim",
}


def draw_sweep(sweep: Document) -> Iterator[RenderableType]:
    from rich.text import Text

    yield _head(sweep)
    yield _arms(sweep)
    if any(arm["figures"] for arm in sweep["arms"]):
        yield Text(_legend(sweep), style="dim")
    yield from _whys(sweep["arms"])
    if sweep["waits_for"]:
        yield Text(f"the next arm waits: {sweep['waits_for']}", style="cyan")
    if sweep["followed_by"]:
        yield Text(f"{sweep['followed_by']} proposes the pick: `cutover show {sweep['followed_by']}`")
    elif sweep["pick"]:
        release = next(arm["release"] for arm in sweep["arms"] if arm["name"] == sweep["pick"])
        yield Text(f"it can be proposed: `cutover release show {release}` has its topology")


def _head(sweep: Document) -> Text:
    from rich.text import Text

    text = Text.assemble((f"{sweep['id']} sweep {sweep['name']}  ", "bold"), _state(sweep))
    text.append(f"\n{sweep['why']}")
    ended = f", decided {clock(sweep['decided'])}" if sweep["decided"] is not None else ""
    return text.append(
        f"\nasked by {sweep['asked_by']} at {clock(sweep['created'])}{ended}; on success: {sweep['on_success']}", "dim"
    )


def _state(sweep: Document) -> Text:
    from rich.text import Text

    if sweep["decided"] is None:
        return Text(f"{sweep['left']} of {sum(sweep['standings'].values())} arms to come", "cyan")
    return Text(f"pick: {sweep['pick']}", "green") if sweep["pick"] else Text("no pick", "yellow")


def _arms(sweep: Document) -> Table:
    from rich.table import Table
    from rich.text import Text

    metrics: Sequence[Document] = next((arm["figures"] for arm in sweep["arms"] if arm["figures"]), [])
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "arm", "rollout", ""):
        table.add_column(name, no_wrap=name != "arm", overflow="fold")
    for position, metric in enumerate(metrics):
        table.add_column(metric["name"], no_wrap=True)
        if not position:
            table.add_column(Text("worse", "dim") + Text("better".rjust(WIDTH - 5), "dim"), no_wrap=True)
    scale = _scale([arm["figures"][0] for arm in sweep["arms"] if arm["figures"]])
    for arm in sweep["arms"]:
        style = _STYLES.get(arm["standing"], "")
        cells: list[Text | str] = [str(arm["rank"] or "")]
        picked = arm["name"] == (sweep["pick"] or sweep["leads"])
        cells.append(Text(arm["name"], style="bold" if picked else ""))
        cells.append(arm["rollout"])
        cells.append(Text(arm["standing"] + (", tied" if arm["tied"] and not picked else ""), style=style))
        for position, figure in enumerate(arm["figures"]):
            cells.append(_ratio(figure))
            if not position:
                cells.append(Text(interval(*_gains(figure), *scale), style=_STYLES.get(figure["standing"], "")))
        table.add_row(*cells)
    return table


def _whys(arms: Sequence[Document]) -> Iterator[Text]:
    """What there is to be said besides figures, once where it is the same for several."""
    from rich.text import Text

    for why in dict.fromkeys(arm["why"] for arm in arms if arm["why"]):
        of = [arm for arm in arms if arm["why"] == why]
        names = ", ".join(arm["name"] for arm in of[:_NAMED_MAX])
        more = f" and {len(of) - _NAMED_MAX} more" if len(of) > _NAMED_MAX else ""
        yield Text(f"{names}{more}: {why}", style=_STYLES.get(of[0]["standing"], ""))


def _legend(sweep: Document) -> str:
    together = sweep["arms_together"]
    said = f"ratios to {sweep['against']} (│), 95 %, one-sided"
    return f"{said}; bounds hold for {together} arms together" if together > 1 else said


def _ratio(figure: Document) -> str:
    low, middle, high = (f"{figure[key] - 1:+.1%}" for key in ("low", "ratio", "high"))
    return f"{middle:>7} ({low} to {high})"


def _gains(figure: Document) -> tuple[float, float, float]:
    """Low, middle and high of the logarithm, turned so that more is better."""
    low, middle, high = (math.log(figure[key]) for key in ("low", "ratio", "high"))
    return (low, middle, high) if figure["higher_is_better"] else (-high, -middle, -low)


def _scale(figures: Sequence[Document]) -> tuple[float, float]:
    """From the least bound to the largest, with live in between."""
    bounds = [bound for figure in figures for bound in _gains(figure)]
    return min([0.0, *bounds]), max([0.0, *bounds])


def interval(low: float, middle: float, high: float, least: float, most: float) -> str:
    """``  │  ━━●━━ ``: an interval on a scale on which live is at 0."""
    span = (most - least) or 1.0

    def place(value: float) -> int:
        return round((value - least) / span * (WIDTH - 1))

    cells = [" "] * WIDTH
    cells[place(low) : place(high) + 1] = ["━"] * (place(high) - place(low) + 1)
    cells[place(0.0)] = "┿" if cells[place(0.0)] == "━" else "│"
    cells[place(middle)] = "●"
    return "".join(cells)


def draw_sheet(sheet: Document) -> Iterator[RenderableType]:
    """What a sweep would be."""
    from rich.table import Table
    from rich.text import Text

    refused = sum(arm["refused"] is not None for arm in sheet["arms"])
    text = f"{len(sheet['arms'])} arms of {sheet['combinations']} combinations"
    text += f", {refused} refused" if refused else ""
    yield Text(f"{text}; gates {', '.join(sheet['gates'])}; on success: {sheet['on_success']}", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("arm", "would be tried as"):
        table.add_column(name, overflow="fold")
    for arm in sheet["arms"]:
        fate = Text(f"refused: {arm['refused']}", "red") if arm["refused"] else Text(arm["release"])
        table.add_row(arm["name"], fate)
    yield table
    yield Text("nothing was filed", style="dim")


def draw_sweeps(sweeps: Sequence[Document]) -> Table:
    """As the API lists them (oldest first), newest on top."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for sweep in reversed(sweeps):
        head = Text.assemble(f"{sweep['name']}  ", _state(sweep))
        head.append(f"  by {sweep['asked_by']} at {clock(sweep['created'])}", "dim")
        grid.add_row(Text(sweep["id"], "bold"), head.append(f"\n{sweep['why']}"))
    return grid
