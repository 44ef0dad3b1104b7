"""A run as one HTML page that needs nothing else: throughput and latency against concurrency as SVG, and the table.

Whatever an engine said is hostile: the template escapes every value, and the page forbids itself to run or load
anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, StrictUndefined

from gates.errors import GateUsageError
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Run
from gates.throughput.views import HEADINGS, about, failures_in_words, middle, problems, row, span, waits, worst_wait
from gates.visible import visible

if TYPE_CHECKING:
    from gates.throughput.command import Benched

_TEMPLATE: Final = Path(__file__).with_name("bench.html")
_WIDTH: Final = 420
_HEIGHT: Final = 240
_LEFT: Final = 56
_RIGHT: Final = _WIDTH - 12
_TOP: Final = 12
_BOTTOM: Final = _HEIGHT - 26
_TICKS: Final = 4


@dataclass(frozen=True)
class _Tick:
    at: float
    label: str


@dataclass(frozen=True)
class _Dot:
    x: float
    y: float
    label: str


@dataclass(frozen=True)
class _Line:
    series: int
    dots: tuple[_Dot, ...]


@dataclass(frozen=True)
class _Chart:
    """One metric against concurrency (logarithmic), from zero."""

    title: str
    lines: tuple[_Line, ...]
    x_ticks: tuple[_Tick, ...]
    y_ticks: tuple[_Tick, ...]
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    right: int = _RIGHT


def render(benched: Benched) -> str:
    """The page. Raises `ValueError` when nothing was measured."""
    run = benched.run
    if run is None:
        raise ValueError("nothing was measured, so there is nothing to draw")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        title=f"Throughput of {run.model}",
        about=about(run),
        verdict=benched.verdict,
        workloads=_workloads(run),
        charts=[chart for chart in _charts(run) if chart is not None],
        headings=HEADINGS,
        rows=[row(cell) for cell in run.cells if cell.requests],
        waits=waits(run),
        problems=problems(run),
        failures=[f"{cell.key}: {failures_in_words(cell)}" for cell in run.cells if cell.failures],
        configuration=[
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in {**run.engine, **benched.hardware, **run.workloads}.items()
        ],
        notes=benched.notes,
    )


def write_page(benched: Benched, path: Path) -> None:
    """Write the page to `path`. Raises `GateUsageError` when that cannot be done."""
    try:
        path.write_text(render(benched), encoding="utf-8", errors="replace")
    except ValueError as error:
        raise GateUsageError(f"--html {path}: {error}: {benched.verdict.sentence}") from None
    except OSError as error:
        raise GateUsageError(f"--html {path}: cannot be written ({error.strerror}).") from None


def _workloads(run: Run) -> list[str]:
    return list(dict.fromkeys(cell.key.workload for cell in run.cells))


def _charts(run: Run) -> list[_Chart | None]:
    return [
        _chart(run, AGGREGATE, "all together, tok/s", _plain),
        _chart(run, DECODE, "each user after the first token, tok/s", _plain),
        _chart(run, TTFT, "time to first token", span),
        _chart(run, GAP, "time between two chunks", span),
    ]


def _chart(run: Run, metric: str, title: str, said: Callable[[float], str]) -> _Chart | None:
    series: dict[str, list[tuple[int, float, str]]] = {}
    for cell in run.cells:
        value = middle(cell, metric)
        if value is not None and cell.problem is None:
            n = len(cell.rounds[metric])
            carried = f"median of {n} round{'s' * (n != 1)}"
            carried += f"; {wait}" if metric == TTFT and (wait := worst_wait(cell)) else ""
            series.setdefault(cell.key.workload, []).append((cell.key.concurrency, value, carried))
    points = [point for line in series.values() for point in line]
    if not points:
        return None
    concurrencies = sorted({concurrency for concurrency, _, _ in points})
    top = _round_up(max(value for _, value, _ in points))
    x, y = _across(concurrencies), _upwards(top)
    names = _workloads(run)
    lines = tuple(
        _Line(
            names.index(name),
            tuple(_Dot(x(c), y(v), f"{name} c{c}: {said(v)} ({carried})") for c, v, carried in sorted(line)),
        )
        for name, line in series.items()
    )
    return _Chart(
        title,
        lines,
        tuple(_Tick(x(c), str(c)) for c in _apart(concurrencies, x)),
        tuple(_Tick(y(v), said(v) if v else "0") for v in (top * step / _TICKS for step in range(_TICKS + 1))),
    )


def _across(concurrencies: Sequence[int]) -> Callable[[int], float]:
    low, high = math.log(concurrencies[0]), math.log(concurrencies[-1])
    room = _RIGHT - _LEFT - 24
    return lambda c: round(_LEFT + 12 + (room * (math.log(c) - low) / (high - low) if high > low else room / 2), 1)


def _upwards(top: float) -> Callable[[float], float]:
    return lambda value: round(_BOTTOM - (_BOTTOM - _TOP) * value / top, 1)


def _apart(concurrencies: Sequence[int], x: Callable[[int], float]) -> list[int]:
    """Those whose labels do not overlap."""
    shown: list[int] = []
    for concurrency in concurrencies:
        if not shown or x(concurrency) - x(shown[-1]) >= 18:
            shown.append(concurrency)
    return shown


def _round_up(value: float) -> float:
    """To 1, 2, 4, 5 or 10 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value)


def _plain(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
