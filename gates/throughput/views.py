"""A run for people at a terminal: the table, and bars of throughput and latency against concurrency."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from gates.ledger.fitted import PIPED_WIDTH, Heading, Line, fitted, numbers
from gates.report_terminal import printable
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Cell, Run

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR_CELLS: Final = 40
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_PLOTS: Final = (
    (AGGREGATE, "all together, tok/s"),
    (DECODE, "each user, tok/s"),
    (TTFT, "first token after, the usual one"),
)
HEADINGS: Final = (
    "workload", "users", "requests", "rounds", "prompt", "answer", "first token", "p95", "worst", "each tok/s",
    "end to end", "together", "step", "p99", "longest", "stalls", "tok/chunk", "cached", "failed",
)  # fmt: skip
_FIRST_OUT: Final = (
    "stalls", "longest", "tok/chunk", "p99", "cached", "end to end", "p95", "step", "answer", "prompt", "rounds",
    "requests", "worst",
)  # fmt: skip
"""What a narrow terminal does without, the first one first."""


def drawn_run(run: Run, notes: Sequence[str] = (), *, width: int = PIPED_WIDTH) -> Iterator[RenderableType]:
    """The run as a table, with a line below it for everything that is no measurement. `width`: of the terminal."""
    yield Text(printable(about(run)), style="bold")
    yield from _table([cell for cell in run.cells if cell.requests], width)
    for sentence in waits(run):
        yield Text(printable(sentence))
    for sentence in problems(run):
        yield Text(printable(sentence), style="yellow")
    for cell in run.cells:
        if cell.failures:
            yield Text(printable(f"{cell.key}: {failures_in_words(cell)}"), style="red")
    for note in notes:
        yield Text(printable(note), style="dim")


def _table(cells: Sequence[Cell], width: int) -> Iterator[Text]:
    """With as many columns as the terminal has room for: half a number is worse than none."""
    headings = [Heading(text, left=not number) for number, text in enumerate(HEADINGS)]
    lines = [Line(row(cell), _style(cell)) for cell in cells]
    first_out = numbers(headings, _FIRST_OUT)
    elsewhere = "a wider terminal, --html and --json have them"
    yield from fitted(headings, lines, width=width, first_out=first_out, gap=2, elsewhere=elsewhere)


def problems(run: Run) -> list[str]:
    """Why cells are no measurement; those that share a reason share a line."""
    shared: dict[str, list[str]] = {}
    for cell in run.cells:
        if cell.problem is not None:
            shared.setdefault(cell.problem, []).append(str(cell.key))
    return [f"{', '.join(keys)}: {problem}" for problem, keys in shared.items()]


def waits(run: Run) -> list[str]:
    """Beyond the engine's limit the median hides whoever queued: how many had no place, and the longest wait."""
    limit, said = run.engine.get("limit"), []
    for cell in run.cells:
        worst = cell.figures.get("ttft_max_s")
        if isinstance(limit, int) and cell.key.concurrency > limit and worst is not None and worst.value is not None:
            streams = f"{cell.key.concurrency - limit} of {cell.key.concurrency} streams find no place"
            wait = f"the longest wait for a first token was {span(worst.value)} (n {worst.n})"
            said.append(f"{cell.key} is beyond the engine's limit of {limit}: {streams} at a time, {wait}")
    return said


def worst_wait(cell: Cell) -> str:
    """`longest 2.38 s (n 60)`; empty where nobody knows."""
    worst = cell.figures.get("ttft_max_s")
    return "" if worst is None or worst.value is None else f"longest {span(worst.value)} (n {worst.n})"


def about(run: Run) -> str:
    """Model, engine and when, on one line."""
    engine = " ".join(str(run.engine[key]) for key in ("name", "version") if run.engine.get(key))
    limit = f", at most {run.engine['limit']} sequences at once" if run.engine.get("limit") else ""
    where = f" at {run.engine['endpoint']}" if run.engine.get("endpoint") else ""
    return f"{run.model}{where}: {engine or 'engine unknown'}{limit}; {run.started_at}, {run.duration_s:.0f} s"


def row(cell: Cell) -> tuple[str, ...]:
    """One cell by `HEADINGS`; a dash where the sample does not carry the number.

    What rounds are compared by (first token, each, together, step) is the median of the rounds, as in plot and ledger.
    """
    return (
        printable(cell.key.workload),
        str(cell.key.concurrency),
        str(cell.requests),
        str(max((len(values) for values in cell.rounds.values()), default=0)),
        _number(_figure(cell, "prompt_tokens")),
        _number(_figure(cell, "completion_tokens")),
        span(middle(cell, TTFT)),
        span(_figure(cell, "ttft_p95_s")),
        span(_figure(cell, "ttft_max_s")),
        _number(middle(cell, DECODE)),
        _number(_figure(cell, "end_to_end_tok_per_s_p50")),
        _number(middle(cell, AGGREGATE)),
        span(middle(cell, GAP)),
        span(_figure(cell, "gap_p99_s")),
        span(_figure(cell, "longest_stall_s")),
        _share(_figure(cell, "stall_share")),
        _number(_figure(cell, "tokens_per_chunk")),
        _share(_figure(cell, "cached_share")),
        str(sum(cell.failures.values()) or ""),
    )


def failures_in_words(cell: Cell) -> str:
    """``3 of 24 requests failed: 2 × HTTP 503, 1 × timeout``"""
    listed = ", ".join(f"{count} × {kind}" for kind, count in cell.failures.items())
    return f"{sum(cell.failures.values())} of {cell.requests} requests failed: {listed}"


def drawn_plot(run: Run) -> Iterator[RenderableType]:
    """Bars against concurrency, a block for each workload and metric."""
    for workload in dict.fromkeys(cell.key.workload for cell in run.cells):
        cells = [cell for cell in run.cells if cell.key.workload == workload and cell.problem is None]
        for metric, title in _PLOTS:
            points = [(cell, value) for cell in cells if (value := middle(cell, metric)) is not None]
            if points:
                yield Text(f"\n{printable(workload)}: {title}", style="bold")
                yield from _bars(points, times=metric == TTFT)


def _bars(points: Sequence[tuple[Cell, float]], *, times: bool) -> Iterator[Text]:
    most = max(value for _, value in points)
    for cell, value in points:
        said, besides = (span(value), f" {worst_wait(cell)}") if times else (_number(value), "")
        name = f"c{cell.key.concurrency}"
        yield Text.assemble((f"{name:>6} ", "dim"), f"{said:>9} ", (bar(value / most), "cyan"), (besides, "dim"))


def bar(share: float) -> str:
    """A bar of so much of the full width, to an eighth of a character."""
    eighths = round(share * _BAR_CELLS * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def middle(cell: Cell, metric: str) -> float | None:
    """The median of the rounds; None without any."""
    values = cell.rounds.get(metric, ())
    return statistics.median(values) if values else None


def span(seconds: float | None) -> str:
    """`12.3 ms`, `1.20 s`; a dash for None."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _figure(cell: Cell, name: str) -> float | None:
    figure = cell.figures.get(name)
    return figure.value if figure is not None else None


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return (
        f"{value:.0f}" if value >= 1000 or value == round(value) else f"{value:.3g}" if value < 10 else f"{value:.1f}"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _style(cell: Cell) -> str:
    if cell.failures:
        return "red"
    return "yellow" if cell.problem is not None else ""
