"""What the engine says about itself: its limits before a run, its counters beside every cell.

The client counts what it sent, the engine what it finished. Where the two do not agree somebody else was there, or
requests were lost on the way; either is said.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gates.counters import Counters, parse_counters
from gates.endpoint import Endpoint
from gates.throughput.records import Figure
from gates.wire import parse_location

_PAGE_TIMEOUT_S: Final = 5.0
_MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
_SETTLE_S: Final = 3.0
"""So long the engine may take to count what it has just finished."""
_POLL_S: Final = 0.05
_TOKEN_SHARE: Final = 0.02
_PROBE_TOKENS: Final = 8
_PROBE_TOKENS_PER_S: Final = 10.0
_PROBE_PROMPTS: Final = 10
_PROBES_PER_S: Final = 1.0
_PROBES_AT_ONCE: Final = 2
"""A daemon asks each engine for a few tokens every few seconds, itself and through its front door: that is no load. One
slow user already generates more. A probe's prompt has so many times its answer's tokens, the chat template's included.
"""
_LIMIT_FLAGS: Final = ("--max-num-seqs", "--max-running-requests", "--parallel", "-np")
_CONTEXT_FLAGS: Final = ("--max-model-len", "--context-length", "--ctx-size", "-c")
_KV_FLAGS: Final = ("--kv-cache-dtype", "--cache-type-k")
_CAPTURE_FLAGS: Final = ("--cudagraph-capture-sizes", "--cuda-graph-sizes", "--cuda-graph-bs")


@dataclass(frozen=True)
class EngineFacts:
    """None is what nobody says. `limit`: the most sequences at once; `captures`: batch sizes with captured graphs."""

    name: str | None = None
    version: str | None = None
    limit: int | None = None
    context_tokens: int | None = None
    captures: tuple[int, ...] = ()
    kv_format: str | None = None
    flags: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """What is known of it, for `records.Run.engine`."""
        known = {
            "name": self.name,
            "version": self.version,
            "limit": self.limit,
            "context_tokens": self.context_tokens,
            "captures": list(self.captures),
            "kv_format": self.kv_format,
            "flags": list(self.flags),
        }
        return {key: value for key, value in known.items() if value not in (None, [])}

    def or_else(self, other: EngineFacts) -> EngineFacts:
        """The facts of `other` where there are none here."""
        missing = {name: getattr(other, name) for name in self.__dataclass_fields__ if not getattr(self, name)}
        return replace(self, **missing)


def facts_of_flags(flags: Sequence[str], *, instances: int = 1) -> EngineFacts:
    """What native flags of vLLM, SGLang or llama.cpp say, as `--flag value` or `--flag=value`.

    Several `instances` behind one endpoint run so many times as many sequences.
    """
    words = [part for flag in flags for part in (flag.split("=", 1) if flag.startswith("--") else (flag,))]
    limit, context = _number(words, _LIMIT_FLAGS), _number(words, _CONTEXT_FLAGS)
    kv_format = next((_after(words, flag)[0] for flag in _KV_FLAGS if _after(words, flag)), None)
    return EngineFacts(
        limit=limit * instances if limit else None,
        context_tokens=context,
        captures=_captures(words),
        kv_format=kv_format,
        flags=tuple(flags),
    )


def look_at(
    endpoint: Endpoint, model: str, metrics_urls: Sequence[str], ends_at_s: float
) -> tuple[EngineFacts, tuple[str, ...]]:
    """What the endpoint's own pages say, and the URLs of metrics pages of a known engine: the given ones, else its own.

    A front door shows less than the engines behind it: what it does not say is asked of the server of the first page.
    A page that it does not have costs one 404; after one that never comes no further one is waited for.
    """
    pages = _Pages(endpoint, ends_at_s)
    facts = _facts(pages, model)
    shown = pages.metrics(metrics_urls)
    behind = parse_location(shown[0])[0] if shown else endpoint.target
    if behind.base == endpoint.target.base:
        return facts, shown
    own = _facts(_Pages(Endpoint(behind, endpoint.api_key), ends_at_s), model)
    return facts.or_else(replace(own, limit=own.limit * len(shown) if own.limit else None)), shown


def _facts(pages: _Pages, model: str) -> EngineFacts:
    served = _card(pages.get("/v1/models"), model)
    info = pages.get("/get_server_info") or pages.get("/server_info")
    props = {} if info else pages.get("/props")
    version = pages.get("/version").get("version")
    owner = served.get("owned_by")
    settings = props.get("default_generation_settings")
    shape = _integer(settings.get("n_ctx")) if isinstance(settings, dict) else None
    return EngineFacts(
        name=owner if isinstance(owner, str) else None,
        version=next((str(v) for v in (info.get("version"), version, props.get("build_info")) if v), None),
        limit=_running_limit(info) or _integer(props.get("total_slots")),
        context_tokens=_integer(served.get("max_model_len")) or _integer(info.get("context_length")) or shape,
        captures=_sizes(info.get("cuda_graph_bs")),
        kv_format=info["kv_cache_dtype"] if isinstance(info.get("kv_cache_dtype"), str) else None,
    )


@dataclass
class _Pages:
    endpoint: Endpoint
    ends_at_s: float
    silent: bool = False

    def get(self, path: str) -> Mapping[str, Any]:
        """The JSON object at `path`; empty for anything else."""
        timeout_s = self._timeout_s()
        if self.silent or timeout_s <= 0:
            return {}
        exchange = self.endpoint.get(path, timeout_s=timeout_s, limit_bytes=4 * 1024 * 1024)
        self.silent = exchange.failure is not None and exchange.failure.layer == "timeout"
        return _object(exchange.body) if exchange.status == 200 else {}

    def metrics(self, given: Sequence[str]) -> tuple[str, ...]:
        """All of the given pages, else the server's own; none where one of them cannot be read."""
        timeout_s = self._timeout_s()
        if (self.silent and not given) or timeout_s <= 0:
            return ()
        urls = tuple(given) or (f"{self.endpoint.target.base}/metrics",)
        return urls if read_pages(urls, self.endpoint.api_key, timeout_s=timeout_s) is not None else ()

    def _timeout_s(self) -> float:
        return min(_PAGE_TIMEOUT_S, self.ends_at_s - time.monotonic())


def read_pages(urls: Sequence[str], key: str | None, *, timeout_s: float) -> Counters | None:
    """The counters of all `urls` together; None when one of them cannot be read: a sum without it would be wrong.

    `key`: the endpoint's, which some engines want for their metrics as well.
    """
    pages: list[Counters] = []
    for url in urls:
        page = _read_page(url, key, timeout_s)
        if page is None:
            return None
        pages.append(page)
    return together(pages) if pages else None


def _read_page(url: str, key: str | None, timeout_s: float) -> Counters | None:
    target, path = parse_location(url)
    exchange = Endpoint(target, key).get(path, timeout_s=timeout_s, limit_bytes=_MAX_PAGE_BYTES)
    if exchange.status != 200 or exchange.failure is not None:
        return None
    return parse_counters(exchange.body.decode("utf-8", errors="replace"))


def together(pages: Sequence[Counters]) -> Counters:
    """Several engines as one. What one of them does not count is not known of all; of speculation the mean is taken."""
    if len(pages) == 1:
        return pages[0]
    added: dict[str, Any] = {}
    for name in Counters.__dataclass_fields__:
        values = [getattr(page, name) for page in pages]
        known = [value for value in values if value is not None]
        added[name] = sum(known) if len(known) == len(values) else None
    lengths = [page.accept_length for page in pages if page.accept_length]
    fullest = max((page.kv_usage for page in pages if page.kv_usage is not None), default=None)
    known_lengths = statistics.fmean(lengths) if lengths else None
    return Counters(**added | {"accept_length": known_lengths, "kv_usage": fullest})


@dataclass(frozen=True)
class Tally:
    """What the client sent in one span of time: `counted` ended well, with `tokens` together; `failed` did not."""

    counted: int = 0
    failed: int = 0
    tokens: int = 0
    prompt_tokens: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass
class EngineWatch:
    """The engine's counters over the rounds of one cell. No `pages`: nothing is known, nothing is judged."""

    pages: tuple[str, ...] = ()
    quiet_s: float = 10.0
    key: str | None = field(default=None, repr=False)
    tally: Tally = field(default_factory=Tally)
    problem: str | None = None
    """Whose load it was beside ours, and how that is known."""
    _sums: dict[str, float] = field(default_factory=dict)
    _before: Counters | None = None
    _accept_length: float | None = None
    _patient: bool = True
    _opened_s: float = 0.0

    async def open(self, ends_at_s: float, *, abandoned: bool) -> None:
        """Read the counters before a round, once nothing runs any more; what does not leave is somebody else's, or one
        that we have `abandoned`, where there was any.
        """
        if not self.pages:
            return
        quiet_by_s = min(time.monotonic() + self.quiet_s, ends_at_s)
        self._before = await _read(self.pages, self.key)
        while (busy := _busy(self._before)) and time.monotonic() < quiet_by_s:
            await asyncio.sleep(_POLL_S * 4)
            self._before = await _read(self.pages, self.key)
        self._opened_s = time.monotonic()
        if busy:
            whose = "of somebody else, or given up by us," if abandoned else "of somebody else"
            self.blame(f"foreign load: {busy:.0f} requests {whose} run on the engine")

    def blame(self, problem: str | None) -> None:
        """Keep the first sentence about somebody else's load."""
        self.problem = self.problem or problem

    async def close(self, tally: Tally) -> None:
        """Read them after it, once the engine has counted what we know to be finished."""
        self.tally = self.tally.plus(tally)
        before = self._before
        if not self.pages or before is None:
            return
        span_s = time.monotonic() - self._opened_s
        settled_by_s = time.monotonic() + (_SETTLE_S if self._patient else 0.0)
        after = await _read(self.pages, self.key)
        while after is not None and _short(before, after, tally) and time.monotonic() < settled_by_s:
            await asyncio.sleep(_POLL_S)
            after = await _read(self.pages, self.key)
        if after is None:
            return
        # A page of one engine of several never counts all of ours: waiting for it once is enough.
        self._patient = self._patient and not _short(before, after, tally)
        self._add(before, after)
        self.blame(foreign_load(before, after, tally, span_s, engines=len(self.pages)))

    def figures(self) -> dict[str, Figure]:
        """Sums over the cell; only what the engine counts. `n`: requests that the cell sent."""
        sent = self.tally.counted + self.tally.failed
        known = {f"engine_{name}": Figure(value, sent) for name, value in self._sums.items()}
        hits, drafted = self._sums.get("cache_hits"), self._sums.get("drafted")
        if hits is not None and self.tally.prompt_tokens:
            known["engine_prefix_hit_share"] = Figure(hits / self.tally.prompt_tokens, sent)
        if drafted:
            known["engine_accepted_share"] = Figure(self._sums.get("accepted", 0.0) / drafted, round(drafted))
        if self._accept_length:
            known["engine_accept_length"] = Figure(self._accept_length, sent)
        return known

    @property
    def beyond(self) -> float:
        """Requests that the engine finished and we did not send: too small to be a load where nobody is blamed."""
        sent = self.tally.counted + self.tally.failed
        return max(0.0, self._sums.get("finished", 0.0) - sent)

    @property
    def missing(self) -> float:
        """Requests that were answered and that the engine's page does not count."""
        finished = self._sums.get("finished")
        return 0.0 if finished is None else max(0.0, self.tally.counted - finished)

    def _add(self, before: Counters, after: Counters) -> None:
        for name in ("finished", "aborted", "preemptions", "cache_hits", "prompt_tokens", "generation_tokens"):
            self._count(name, getattr(before, name), getattr(after, name))
        for name in ("drafted", "accepted"):
            self._count(name, getattr(before, name), getattr(after, name))
        self._accept_length = after.accept_length or self._accept_length

    def _count(self, name: str, before: float | None, after: float | None) -> None:
        if before is not None and after is not None:
            self._sums[name] = self._sums.get(name, 0.0) + after - before


async def _read(pages: Sequence[str], key: str | None) -> Counters | None:
    return await asyncio.to_thread(read_pages, pages, key, timeout_s=_PAGE_TIMEOUT_S)


def _busy(counters: Counters | None) -> float:
    return (counters.running or 0.0) + (counters.waiting or 0.0) if counters else 0.0


def _short(before: Counters, after: Counters, tally: Tally) -> bool:
    """The engine has not counted yet what we saw end, or something still runs: a probe ends within a moment."""
    uncounted = before.finished is not None and _grown(before.finished, after.finished) < tally.counted
    return uncounted or (_busy(after) > 0 and not tally.failed)


def foreign_load(before: Counters, after: Counters, tally: Tally, span_s: float, *, engines: int = 1) -> str | None:
    """What so many `engines` did for others between two readings, `span_s` apart, when that was more than probes."""
    if _busy(after) and not tally.failed:
        return f"foreign load: {_busy(after):.0f} requests run on the engine after ours have all ended"
    beyond = _grown(before.finished, after.finished) - tally.counted - tally.failed
    probes = engines * (_PROBES_PER_S * span_s + _PROBES_AT_ONCE)
    if tally.failed:
        # What the failed ones cost nobody knows; how many there were is known.
        return _of_requests(beyond) if beyond > probes else None
    generated = _grown(before.generation_tokens, after.generation_tokens) - tally.tokens
    read = _grown(before.prompt_tokens, after.prompt_tokens) - tally.prompt_tokens
    allowed = engines * (_PROBE_TOKENS_PER_S * span_s + _PROBES_AT_ONCE * _PROBE_TOKENS)
    if generated > max(_TOKEN_SHARE * tally.tokens, allowed):
        return f"foreign load: the engine generated {generated:.0f} tokens more than came to us"
    if read > max(_TOKEN_SHARE * tally.prompt_tokens, _PROBE_PROMPTS * allowed):
        return f"foreign load: the engine read {read:.0f} tokens of prompts more than ours"
    counted_tokens = None not in (before.generation_tokens, after.generation_tokens)
    return _of_requests(beyond) if beyond > 0 and not counted_tokens else None


def _of_requests(beyond: float) -> str:
    return f"foreign load: the engine finished {beyond:.0f} requests more than we sent"


def _grown(before: float | None, after: float | None) -> float:
    """By how much a counter grew; 0 where it is not counted."""
    return after - before if before is not None and after is not None else 0.0


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _card(page: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    cards = page.get("data")
    found = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    return next((card for card in found if card.get("id") == model), {})


def _running_limit(info: Mapping[str, Any]) -> int | None:
    """What SGLang settled on, which is less than it was asked for where memory is short; per data-parallel rank."""
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    per_rank = _integer(first.get("effective_max_running_requests_per_dp"))
    return per_rank * (_integer(info.get("dp_size")) or 1) if per_rank else _integer(info.get("max_running_requests"))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _sizes(value: object) -> tuple[int, ...]:
    found = [_integer(size) for size in value] if isinstance(value, list) else []
    return tuple(sorted({size for size in found if size is not None}))


def _after(words: Sequence[str], flag: str) -> list[str]:
    """The words that belong to `flag`; those of its last occurrence count, as engines have it."""
    places = [place for place, word in enumerate(words) if word == flag]
    values = []
    for word in words[places[-1] + 1 :] if places else ():
        if word.startswith("-"):
            break
        values.append(word)
    return values


def _number(words: Sequence[str], flags: Sequence[str]) -> int | None:
    for flag in flags:
        values = _after(words, flag)
        if values and values[0].isdigit() and int(values[0]) > 0:
            return int(values[0])
    return None


def _captures(words: Sequence[str]) -> tuple[int, ...]:
    for flag in _CAPTURE_FLAGS:
        sizes = {
            int(word) for value in _after(words, flag) for word in value.replace(",", " ").split() if word.isdigit()
        }
        if sizes:
            return tuple(sorted(sizes))
    for value in (*_after(words, "--compilation-config"), *_after(words, "-cc"), *_after(words, "-O")):
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and (found := _sizes(document.get("cudagraph_capture_sizes"))):
            return found
    return ()
