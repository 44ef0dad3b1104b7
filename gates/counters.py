"""An engine's own counters, out of the Prometheus page of vLLM, SGLang or llama.cpp, in one shape.

They tell *busy* from *down*: an engine that holds a first token for minutes over a long prefill still counts steps.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gates.endpoint import Endpoint
from gates.wire import parse_location

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
_MAX_PAGE_BYTES: Final = 16 * 1024 * 1024

# Engines disagree about when they count: at each step, at a log interval, when a request ends. Together they move.
_PROGRESS: Final = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:iteration_tokens_total_count",
    "sglang:realtime_tokens_total",
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:num_requests_total",
    "llamacpp:tokens_predicted_total",
    "llamacpp:prompt_tokens_total",
    "llamacpp:n_decode_total",
)

# Names by dialect; the first that a page has is taken. A `{mode}` picks one label value.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "generation_tokens": (
        "vllm:generation_tokens_total",
        "sglang:realtime_tokens_total{mode=decode}",
        "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
    ),
    "prompt_tokens": (
        "vllm:prompt_tokens_total",
        "sglang:realtime_tokens_total{mode=prefill_compute}",
        "sglang:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
    ),
    "steps": ("vllm:iteration_tokens_total_count", "llamacpp:n_decode_total"),
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
    "cache_hits": ("vllm:prefix_cache_hits_total", "sglang:realtime_tokens_total{mode=prefill_cache}"),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "accept_length": ("sglang:spec_accept_length",),
    "finished": ("vllm:request_success_total", "sglang:num_requests_total"),
    "aborted": ("vllm:request_success_total{finished_reason=abort}", "sglang:num_aborted_requests_total"),
    "corrupted": ("vllm:corrupted_requests_total",),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
}


@dataclass(frozen=True)
class Counters:
    """What the page says; None where it says nothing. Counters count since the engine's start."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    steps: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    cache_hits: float | None = None
    drafted: float | None = None
    """Tokens that speculation proposed; `accepted` of them were kept."""
    accepted: float | None = None
    accept_length: float | None = None
    """Tokens per step of speculation, as a gauge: 1 means that nothing was accepted, 0 that nothing is known."""
    finished: float | None = None
    """Requests that ended, however; `aborted` of them because the client went away or the engine gave up."""
    aborted: float | None = None
    corrupted: float | None = None
    """Requests in whose logits NaN was seen, where the engine looks for it."""
    kv_usage: float | None = None
    progress: float = 0.0
    """Every token and step counter of the page together: it grows whenever the engine works."""

    def moved_since(self, before: Counters) -> bool:
        """Did the engine work between the two readings? A smaller count is a restarted engine, which also moved."""
        return self.progress != before.progress


def read_counters(metrics_url: str, *, timeout_s: float) -> Counters | None:
    """Counters of the page at `metrics_url`; None when it cannot be read or is no page of a known engine.

    Raises `GateUsageError` when `metrics_url` is no URL.
    """
    target, path = parse_location(metrics_url)
    exchange = Endpoint(target).get(path, timeout_s=timeout_s, limit_bytes=_MAX_PAGE_BYTES)
    if exchange.status != 200 or exchange.failure is not None:
        return None
    return parse_counters(exchange.body.decode("utf-8", errors="replace"))


def parse_counters(page: str) -> Counters | None:
    """Counters of a page's text; None when it names none that we know."""
    wanted = {name.partition("{")[0] for names in _NAMES.values() for name in names} | set(_PROGRESS)
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in _samples(page, wanted):
        samples.setdefault(name, []).append((labels, value))
    if not samples:
        return None
    progress = sum(_first_total(samples, (name,)) or 0.0 for name in _PROGRESS)
    return Counters(**{field: _first_total(samples, names) for field, names in _NAMES.items()}, progress=progress)


def _samples(page: str, wanted: set[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is None or match[1] not in wanted:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            yield match[1], dict(_LABEL.findall(match[2] or "")), value


def _first_total(samples: dict[str, list[tuple[dict[str, str], float]]], names: tuple[str, ...]) -> float | None:
    for name in names:
        bare, _, rest = name.partition("{")
        label, _, value = rest.rstrip("}").partition("=")
        chosen = [(labels, v) for labels, v in samples.get(bare, []) if not label or labels.get(label) == value]
        if chosen:
            return _total(chosen)
    return None


def _total(samples: list[tuple[dict[str, str], float]]) -> float:
    # Tensor-parallel ranks report the same work each: the largest of them counts once. Data-parallel ranks add up.
    groups: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in samples:
        key = frozenset(item for item in labels.items() if item[0] not in _RANKS)
        groups[key] = max(value, groups.get(key, value))
    return sum(groups.values())
