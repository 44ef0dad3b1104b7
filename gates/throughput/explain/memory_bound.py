"""The roofline of every cell of a run: the share of the memory bandwidth that its steps use."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from gates.throughput.explain.roofline import Roofline, Weights, kv_bytes_per_token, roofline
from gates.throughput.records import GAP, Cell, Figure, Run

if TYPE_CHECKING:
    from gates.throughput import settings

SHARE = "roofline_share"


def with_shares(run: Run, sizes: settings.Roofline, instances: int) -> tuple[Run, list[str]]:
    """`run` with the figure `roofline_share` in each cell that is a measurement, and a sentence for each of them.

    Streams are taken to be spread evenly over the `instances`; of those beyond the engine's limit none is in a step.
    """
    cells, said = [], []
    for cell in run.cells:
        found = _of(cell, sizes, run.engine.get("limit"), instances)
        if found is None:
            cells.append(cell)
            continue
        figure = Figure(found.share, len(cell.rounds[GAP]))
        cells.append(replace(cell, figures={**cell.figures, SHARE: figure}))
        each = " on each instance" if instances > 1 else ""
        said.append(f"{cell.key} uses {found.share:.0%} of the memory bandwidth{each}: {found.sentence}")
    return replace(run, cells=cells), said


def _of(cell: Cell, sizes: settings.Roofline, limit: object, instances: int) -> Roofline | None:
    prompt, answer = (_figure(cell, name) for name in ("prompt_tokens", "completion_tokens"))
    gaps = cell.rounds.get(GAP)
    if cell.problem is not None or not gaps or prompt is None or answer is None:
        return None
    running = min(cell.key.concurrency, limit) if isinstance(limit, int) and limit > 0 else cell.key.concurrency
    return roofline(
        Weights(sizes.weights_bytes, sizes.expert_bytes, sizes.experts, sizes.active_experts),
        _kv_bytes(sizes),
        concurrency=max(1, round(running / instances)),
        context_tokens=prompt + answer / 2,
        step_s=statistics.median(gaps),
        bandwidth_bytes_per_s=sizes.bandwidth_bytes_per_s,
    )


def _kv_bytes(sizes: settings.Roofline) -> float:
    if sizes.kv_bytes_per_token is not None:
        return sizes.kv_bytes_per_token
    shape = (sizes.layers or 0, sizes.kv_heads or 0, sizes.head_dim or 0)
    return kv_bytes_per_token(*shape, bytes_per_value=sizes.kv_bytes_per_value)


def _figure(cell: Cell, name: str) -> float | None:
    figure = cell.figures.get(name)
    return None if figure is None else figure.value
