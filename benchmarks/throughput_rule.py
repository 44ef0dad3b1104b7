"""How often is the rule of docs/throughput-statistics.md wrong? Simulated ladders, judged as real ones are.

    python benchmarks/throughput_rule.py                       # 4,000 draws per entry: half an hour on two cores
    python benchmarks/throughput_rule.py --draws 500 --jobs 2

Prints Markdown: PASS / FAIL / inconclusive in percent and the mean of the rounds a side, for an engine that truly
changed so much (rows) under different noise (columns); the same for ladders of few cells and for several metrics at
once; and how often a cliff is named. The standard error of a rate p is sqrt(p (1 - p) / draws).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "throughput")]

from ladder_kit import Noise, Rates, ladder_of_steps, rates, seeded  # noqa: E402 - the path above leads there

from gates.throughput.decide.rule import Rule  # noqa: E402
from gates.throughput.decide.spread import Spread  # noqa: E402
from gates.throughput.explain.cliff import find  # noqa: E402
from gates.throughput.records import AGGREGATE, DECODE, TTFT  # noqa: E402

CELLS = 18
NO_SPREAD = {DECODE: Spread(0.0)}


@dataclass(frozen=True)
class Column:
    name: str
    noise: Noise
    rule: Rule


COLUMNS = (
    Column("3 % noise, starts alike", Noise(0.03, 0.0), Rule(spreads=NO_SPREAD)),
    Column("3 % heavy tail, starts alike", Noise(0.025, 0.0, heavy=True), Rule(spreads=NO_SPREAD)),
    Column("3 % noise, starts 1 %", Noise(0.03, 0.01), Rule()),
    Column("starts 2 %, taken for none", Noise(0.03, 0.02), Rule(spreads=NO_SPREAD)),
    Column("starts 2 %, known, margin 10 %", Noise(0.03, 0.02), Rule(margin=0.10, spreads={DECODE: Spread(0.02)})),
)
CHANGES: dict[str, Callable[[int], float]] = {
    "none": lambda _: 0.0,
    "all -2 %": lambda _: -0.02,
    "all -3 %": lambda _: -0.03,
    "all -5 %": lambda _: -0.05,
    "all -8 %": lambda _: -0.08,
    "all -10 %": lambda _: -0.10,
    "one of 18 cells -15 %": lambda cell: -0.15 if cell == 0 else 0.0,
    "one of 18 cells -20 %": lambda cell: -0.20 if cell == 0 else 0.0,
    "the third with most streams -10 %": lambda cell: -0.10 if cell % 3 == 2 else 0.0,
    "the third with most streams -20 %": lambda cell: -0.20 if cell % 3 == 2 else 0.0,
}
FEW = (1, 4, 8, 12)
LAWS: dict[str, Callable[[int], float]] = {
    "8 ms × (1 + 1 % per sequence)": lambda c: 0.008 * (1 + 0.01 * c),
    "11.3 ms + 4.83 ms × sequences": lambda c: 0.0113 + 0.00483 * c,
    "16 ms + 1 ms × sequences": lambda c: 0.016 + 0.001 * c,
}
RUNGS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Job:
    change: str
    cells: int
    column: Column
    metrics: Sequence[str]
    draws: int
    seed: int


def run(job: Job) -> Rates:
    changes = [CHANGES[job.change](cell) for cell in range(job.cells)]
    return rates(changes, job.column.noise, job.column.rule, draws=job.draws, seed=job.seed, metrics=job.metrics)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    standard = COLUMNS[2]
    with ProcessPoolExecutor(options.jobs) as pool:

        def table(corner: str, heads: Sequence[str], rows: dict[str, list[Job]]) -> None:
            every = [job for jobs in rows.values() for job in jobs]
            seen = dict(zip(map(id, every), pool.map(run, every), strict=True))
            print(f"\n| {corner} | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
            for name, jobs in rows.items():
                print(f"| {name} | {' | '.join(entry(seen[id(job)]) for job in jobs)} |", flush=True)

        def job(change: str, column: Column, cells: int = CELLS, metrics: Sequence[str] = (DECODE,)) -> Job:
            return Job(change, cells, column, metrics, options.draws, options.seed)

        print(f"PASS / FAIL / inconclusive in %, mean rounds a side; {options.draws} draws, {CELLS} cells, margin 5 %")
        names = [column.name for column in COLUMNS]
        table("true change", names, {name: [job(name, column) for column in COLUMNS] for name in CHANGES})
        few = ("none", "all -5 %", "all -10 %")
        heads = [f"{count} cell{'s' * (count > 1)}" for count in FEW]
        table("few cells", heads, {name: [job(name, standard, count) for count in FEW] for name in few})
        families = {"one metric": (DECODE,), "three metrics": (DECODE, AGGREGATE, TTFT)}
        table(
            "metrics",
            list(families),
            {name: [job(name, standard, metrics=each) for each in families.values()] for name in few},
        )
    cliffs(options.draws)


def entry(seen: Rates) -> str:
    return f"{100 * seen.passed:.1f}/{100 * seen.failed:.1f}/{100 * seen.inconclusive:.1f}, {seen.rounds:.1f}"


def cliffs(draws: int) -> None:
    """How often the planted cliff, and only it, is named; and how often one is where there is none."""
    print(
        "\n| step time | ×3 beyond 8 | ×1.7 beyond 8 | ×1.3 beyond 8 | clean, a cliff is named |\n|---|---|---|---|---|"
    )
    for name, law in LAWS.items():
        planted = [
            sum(_named(law, factor, seed) == [(8, 16)] for seed in range(draws)) / draws for factor in (3, 1.7, 1.3)
        ]
        false = sum(bool(_named(law, 1, seed)) for seed in range(draws)) / draws
        print(f"| {name} | {' | '.join(f'{share:.2%}' for share in (*planted, false))} |", flush=True)


def _named(law: Callable[[int], float], factor: float, seed: int) -> list[tuple[int, int]]:
    measured = ladder_of_steps(lambda c: law(c) * (factor if c > 8 else 1), RUNGS, seeded(seed))
    return [(cliff.below, cliff.above) for cliff in find(measured, "chat").cliffs]


if __name__ == "__main__":
    main()
