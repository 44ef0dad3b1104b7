"""Runs as a bench leaves them, for the tests of the ledger and of its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Cell, CellKey, Figure, Run

HARDWARE: Mapping[str, Any] = {"gpus": ["RTX 3090", "RTX 3090"], "driver": "550.54", "host": "box1"}
CHAT: Mapping[str, Any] = {"prompt_tokens": 200, "answer_tokens": 256, "prefix": "cold", "prompts": "different"}
LONG: Mapping[str, Any] = {**CHAT, "prompt_tokens": 8000}


def cell(workload: str, concurrency: int, rate: float, *, rounds: int = 5, problem: str | None = None) -> Cell:
    """A cell whose rounds lie evenly around `rate` (tok/s per user), 0.4 % apart."""
    rates = [rate * (1 + 0.004 * (number - (rounds - 1) / 2)) for number in range(rounds)]
    return Cell(
        key=CellKey(workload, concurrency),
        requests=2 * rounds * concurrency,
        rounds={
            DECODE: rates,
            AGGREGATE: [concurrency * each for each in rates],
            TTFT: [20 / each for each in rates],
            GAP: [1 / each for each in rates],
        },
        figures={"tokens_per_chunk": Figure(1.7, 900), "ttft_p99_s": Figure(None, 12)},
        failures={"refused": 0},
        problem=problem,
    )


def run(
    release: str = "qwen-tp2@1a2b3c4d",
    rate: float = 100.0,
    *,
    at: str = "2026-11-20T02:00:00Z",
    cells: Sequence[Cell] | None = None,
    workloads: Mapping[str, Mapping[str, Any]] | None = None,
    **engine: Any,
) -> Run:
    """A ladder of six cells. `engine` overrides what is known of the engine."""
    return Run(
        started_at=at,
        duration_s=61.5,
        model="qwen3.8-27b",
        workloads=workloads or {"chat": CHAT, "long": LONG},
        cells=cells
        if cells is not None
        else [cell(name, c, rate / (1 + 0.1 * c)) for name in ("chat", "long") for c in (1, 4, 8)],
        engine={
            "name": "sglang",
            "version": "0.5.2",
            "release": release,
            "kv_format": "fp8_e5m2",
            "flags": ["--tp-size", "2"],
            "limit": 8,
            **engine,
        },
    )
