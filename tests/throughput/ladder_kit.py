"""Ladders made of chosen numbers: for the rules that judge and explain them, and for benchmarks/throughput_rule.py."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gates.contract import VerdictKind
from gates.throughput.decide.noninferiority import Decision, decide
from gates.throughput.decide.rule import LOOKS, Rule
from gates.throughput.records import AGGREGATE, DECODE, GAP, HIGHER_IS_BETTER, TTFT, Cell, CellKey, Run


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a simulation that can be repeated, not a secret


CHAT = {"prompt_tokens": 200, "max_tokens": 256}


def cell(
    concurrency: int, rounds: Mapping[str, Sequence[float]], *, workload: str = "chat", requests: int = 0, **more: Any
) -> Cell:
    return Cell(CellKey(workload, concurrency), requests or 6 * concurrency, rounds, **more)


def run(*cells: Cell, engine: Mapping[str, Any] | None = None, workload: Mapping[str, Any] | None = None) -> Run:
    names = dict.fromkeys(each.key.workload for each in cells)
    described = dict.fromkeys(names, workload or CHAT)
    return Run("2026-11-29T03:00:00Z", 60.0, "emu", described, cells, engine or {})


def flat(ladder: Sequence[int], metric: str, value: float, rounds: int = 3) -> Run:
    """The same value in every round of every cell."""
    return run(*(cell(c, {metric: [value] * rounds}) for c in ladder))


def ladder_of_steps(
    step_s: Callable[[int], float],
    ladder: Sequence[int],
    rng: random.Random,
    *,
    noise: float = 0.03,
    rounds: int = 3,
    slots: int = 10**9,
    engine: Mapping[str, Any] | None = None,
) -> Run:
    """What an engine of that step time shows: a first token after 20 ms and a step, 256 tokens, the rest waits.

    Each round of each metric has its own noise, but rate and step time of one round share it, as they do in life.
    """
    cells = []
    for streams in ladder:
        running = min(streams, slots)
        values: dict[str, list[float]] = {DECODE: [], AGGREGATE: [], TTFT: [], GAP: []}
        for _ in range(rounds):
            step = step_s(running) * math.exp(rng.gauss(0, noise))
            waiting = 256 * step * (streams - running) / streams
            values[GAP].append(step)
            values[DECODE].append(1 / step)
            values[AGGREGATE].append(running / step * math.exp(rng.gauss(0, noise / 2)))
            values[TTFT].append((0.02 + step + waiting) * math.exp(rng.gauss(0, noise)))
        cells.append(cell(streams, values))
    return run(*cells, engine=engine)


@dataclass
class Noise:
    """How simulated rounds scatter, each in logarithms: `sd` per round, `starts` per start of an engine, and one round
    in ten slowed by 5 to 25 % with `heavy`.
    """

    sd: float = 0.03
    starts: float = 0.01
    heavy: bool = False

    def round(self, rng: random.Random) -> float:
        value = rng.gauss(0, self.sd)
        return value + math.log(1 - rng.uniform(0.05, 0.25)) if self.heavy and rng.random() < 0.1 else value


@dataclass
class Engine:
    """One start of a simulated engine: its cells' true levels, measured round by round. `levels`: logarithms."""

    rng: random.Random
    levels: Sequence[float]
    noise: Noise
    metrics: Sequence[str] = (DECODE,)
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        luck = self.rng.gauss(0, self.noise.starts)
        self.levels = [level + luck for level in self.levels]
        self.rounds = {metric: [[] for _ in self.levels] for metric in self.metrics}

    def measured(self, rounds: int) -> Run:
        cells = []
        for number, level in enumerate(self.levels):
            values = {}
            for metric in self.metrics:
                seen, sign = self.rounds[metric][number], 1 if HIGHER_IS_BETTER[metric] else -1
                while len(seen) < rounds:
                    seen.append(100 * math.exp(sign * (level + self.noise.round(self.rng))))
                values[metric] = tuple(seen)
            cells.append(cell(number + 1, values))
        return run(*cells)


@dataclass
class Restarted:
    """Several starts of a simulated engine, each measured for the first look once and for all."""

    starts: Sequence[Engine]

    def measured(self, _: int) -> Run:
        runs = [start.measured(LOOKS[0]) for start in self.starts]
        return run(
            *(cell(cells[0].key.concurrency, _joined(cells)) for cells in zip(*(r.cells for r in runs), strict=True))
        )


def _joined(cells: Sequence[Cell]) -> dict[str, list[float]]:
    return {metric: [value for each in cells for value in each.rounds[metric]] for metric in cells[0].rounds}


def sequentially(candidate: Engine, baseline: Engine | Restarted, rule: Rule) -> tuple[Decision, int]:
    """As a gate does it: look, measure more, look again. The decision, and the rounds a side that it took."""
    rounds = LOOKS[0]
    while True:
        decision = decide(candidate.measured(rounds), baseline.measured(rounds), rule)
        if decision.next_look is None:
            return decision, rounds
        assert decision.next_look > rounds
        rounds = decision.next_look


@dataclass(frozen=True)
class Rates:
    """Shares of simulated comparisons by verdict, and the mean of the rounds a side."""

    passed: float
    failed: float
    inconclusive: float
    rounds: float


def rates(
    changes: Sequence[float], noise: Noise, rule: Rule, *, draws: int, seed: int, metrics: Sequence[str] = (DECODE,)
) -> Rates:
    """`changes`: per cell, what the candidate truly is against the baseline: -0.05 is 5 % slower.

    The baseline is measured over as many starts as the `rule` says.
    """
    rng = seeded(seed)
    rule = replace(rule, metrics=tuple(metrics))
    verdicts, taken = [], 0
    for _ in range(draws):
        candidate = Engine(rng, [math.log1p(change) for change in changes], noise, metrics)
        starts = [Engine(rng, [0.0] * len(changes), noise, metrics) for _ in range(rule.baseline_starts)]
        decision, rounds = sequentially(candidate, starts[0] if len(starts) == 1 else Restarted(starts), rule)
        verdicts.append(decision.verdict)
        taken += rounds
    kinds = (VerdictKind.PASS, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE)
    return Rates(*(verdicts.count(kind) / draws for kind in kinds), taken / draws)
