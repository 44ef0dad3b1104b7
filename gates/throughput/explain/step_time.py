"""The law of the step time: so much for a step, so much for each sequence in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gates.throughput.records import GAP, Run

_MIN_POINTS: Final = 3
"""Any two points lie on a line."""
_POOR: Final = 0.10
"""Above this residual the line is no law. Rounds of 3 % noise leave about 2 %."""


@dataclass(frozen=True)
class Line:
    """``value = intercept + slope * x``"""

    intercept: float
    slope: float

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def least_squares(points: Sequence[tuple[float, float]]) -> Line:
    """The line with the least squared *relative* residuals through two or more points of unlike x; y above 0.

    Relative, because the noise of a step time is a share of it: absolute residuals would let the largest decide alone.
    """
    weights = [1 / (y * y) for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    return Line(mean_y - slope * mean_x, slope)


@dataclass(frozen=True)
class StepTime:
    """``step = base_s + per_sequence_s * sequences`` for one workload, fitted to `n` rungs.

    `residual`: root mean square of the relative residuals, with n - 2 degrees of freedom (0.02 is 2 %); `worst`: the
    concurrency that lies farthest off, and by which share. All None when fewer than three rungs carry a step time.
    """

    workload: str
    n: int
    sentence: str
    base_s: float | None = None
    per_sequence_s: float | None = None
    residual: float | None = None
    worst: tuple[int, float] | None = None

    @property
    def words(self) -> str:
        """The sentence without the workload, behind one that names it already."""
        return self.sentence.removeprefix(f"{self.workload}: ")

    def predicted_s(self, sequences: int) -> float | None:
        """The step time that the law gives for so many sequences; None without a law."""
        if self.base_s is None or self.per_sequence_s is None:
            return None
        return self.base_s + self.per_sequence_s * sequences


def fit(run: Run, workload: str) -> StepTime:
    """Least squares over the rungs of `workload` that are measurements, up to the engine's own limit.

    Beyond the limit (`run.engine["limit"]`) requests wait and the steps hold no more sequences, so those rungs would
    bend the line. The step time is the median time between two chunks of one stream, median over the rounds.
    """
    limit = run.engine.get("limit")
    points = sorted(
        (float(cell.key.concurrency), median(cell.rounds[GAP]))
        for cell in run.cells
        if cell.key.workload == workload
        and cell.problem is None
        and cell.rounds.get(GAP)
        and min(cell.rounds[GAP]) > 0
        and not (isinstance(limit, int) and cell.key.concurrency > limit)
    )
    return fit_points(workload, points)


def fit_points(workload: str, points: Sequence[tuple[float, float]]) -> StepTime:
    """The same from pairs of concurrency and step time in seconds."""
    n = len(points)
    if len({x for x, _ in points}) < _MIN_POINTS:
        return StepTime(workload, n, f"{workload}: {n} rungs carry a step time; a law needs {_MIN_POINTS}")
    line = least_squares(points)
    off = [(int(x), y / line.at(x) - 1) for x, y in points]
    residual = math.sqrt(sum(((y - line.at(x)) / y) ** 2 for x, y in points) / (n - 2))
    worst = max(off, key=lambda each: abs(each[1]))
    sign = "+" if line.slope >= 0 else "-"
    if residual > _POOR:
        # Numbers of a law that does not hold would be quoted without the words that deny it.
        sentence = (
            f"{workload}: step times of {n} rungs are no fixed time and so much for each sequence: "
            f"c{worst[0]} lies {worst[1]:+.0%} off the best line"
        )
    else:
        sentence = (
            f"{workload}: step time = {line.intercept * 1000:.2f} ms {sign} {abs(line.slope) * 1000:.3g} ms × "
            f"sequences, residual {residual:.1%} over {n} rungs"
        )
    return StepTime(workload, n, sentence, line.intercept, line.slope, residual, worst)
