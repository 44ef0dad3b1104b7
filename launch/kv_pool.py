"""How large an engine's KV pool is, as the engine itself says: in its log at its start, else among its metrics.

Which words to look for belongs to the engine (`launch.engines.base.Engine.kv_pool_log`, `kv_pool_metrics`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from launch.attempt_log import parts_oldest_first
from launch.engines.base import PoolMetric

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def tokens_in_log(run_dir: Path, pattern: re.Pattern[str]) -> int | None:
    """Tokens that the pool has room for; the least where several ranks or replicas say so; None: not said."""
    found = [int(match["tokens"].replace(",", "")) for line in _lines(run_dir) if (match := pattern.search(line))]
    return min(found) if found else None


def tokens_on_page(page: str, metrics: Sequence[PoolMetric]) -> int | None:
    """The same from a Prometheus page; the first of `metrics` that the page has is taken."""
    samples = [match for line in page.splitlines() if (match := _SAMPLE.match(line))]
    for metric in metrics:
        values = (_value(match, metric.labels) for match in samples if match["name"] == metric.name)
        found = [value for value in values if value]
        if found:
            return min(found)
    return None


def _value(sample: re.Match[str], labels: tuple[str, ...]) -> int | None:
    given = dict(_LABEL.findall(sample["labels"] or ""))
    words = [given.get(label, "") for label in labels] or [sample["value"]]
    try:
        product = math.prod(float(word) for word in words)
    except ValueError:
        return None  # vLLM writes None for what it does not know
    return int(product) if math.isfinite(product) else None


def _lines(run_dir: Path) -> Iterator[str]:
    for part in parts_oldest_first(run_dir):
        try:
            with part.open(encoding="utf-8", errors="replace") as file:
                yield from file
        except FileNotFoundError:
            continue
