"""The run of the gate `throughput`: warm up, measure rung by rung, judge."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gates import load_client
from gates.contract import VerdictKind
from gates.load_client import ClientCost, LoadClient, SelfCheck
from gates.strict import StrictModel, read_model
from gates.throughput.judge import Judgement, against_baseline, against_ceiling, against_floor
from gates.throughput.measure import Cell, Request, read_request, summary
from gates.throughput.prompts import unique_prompt
from gates.trial import CannotJudgeError, needs_key, refusal_hint

if TYPE_CHECKING:
    from gates.contract import Verdict
    from gates.trial import Trial
    from gates.wire import Exchange

_MAX_CORE_SHARE: Final = 0.7
_MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
_COMPARED: Final = (("decode_tok_per_s", "decode per user"), ("aggregate_tok_per_s", "aggregate"))


class Rung(StrictModel):
    """One concurrency. A floor or ceiling that is not given is not judged."""

    concurrency: int = Field(gt=0, le=4096)
    rounds: int = Field(default=5, gt=0)
    min_decode_tok_per_s: float | None = Field(default=None, gt=0)
    """Per user, after the first token."""
    min_aggregate_tok_per_s: float | None = Field(default=None, gt=0)
    max_ttft_s: float | None = Field(default=None, gt=0)


class ThroughputSettings(StrictModel):
    """Settings of the gate `throughput`."""

    ladder: tuple[Rung, ...] = Field(default=(Rung(concurrency=1), Rung(concurrency=4)), min_length=1, strict=False)
    max_tokens: int = Field(default=128, ge=16)
    prompt_words: int = Field(default=150, gt=0)
    ignore_eos: bool = True
    """Ask the engine not to stop early; engines that do not know the key stop when they like."""
    min_rounds: int = Field(default=3, gt=0)
    margin: float = Field(default=0.05, gt=0, lt=1)
    """How much slower than the baseline is still accepted."""
    session_sd: float = Field(default=0.01, ge=0)
    """Assumed spread between two starts of the same engine."""
    max_client_error: float = Field(default=0.10, gt=0)
    """Above this share the client was too slow for its numbers to mean anything."""
    max_cached_share: float = Field(default=0.5, gt=0, le=1)
    request_timeout_s: float = Field(default=120.0, gt=0)

    def comparable(self) -> dict[str, Any]:
        """What two measurements must share to be compared."""
        return {"max_tokens": self.max_tokens, "prompt_words": self.prompt_words, "ignore_eos": self.ignore_eos}


def run(trial: Trial) -> Verdict:
    settings = read_model(ThroughputSettings, trial.request.profile, "settings of gate throughput")
    trial.measurements["settings"] = settings.comparable()
    cells = load_client.run(lambda: _measure(trial, settings))
    for rung, cell in zip(settings.ladder, cells, strict=False):
        trial.measurements[f"c{rung.concurrency}"] = numbers = summary(cell)
        _judge(trial, settings, rung, cell, numbers)
    for rung in settings.ladder[len(cells) :]:
        if cells and not cells[-1].samples:
            trial.skip(f"c{rung.concurrency}", f"c{cells[-1].concurrency} gave no sample")
        else:
            trial.check(f"c{rung.concurrency}", VerdictKind.INCONCLUSIVE, "not measured: the time was up")
    return trial.verdict(_headline(trial.measurements))


async def _measure(trial: Trial, settings: ThroughputSettings) -> list[Cell]:
    client = LoadClient(trial.endpoint, limit_bytes=_MAX_ANSWER_BYTES)
    cells: list[Cell] = []
    try:
        for rung in settings.ladder:
            if trial.remaining_s() <= 0 or (cells and not cells[-1].samples):
                break
            cells.append(await _measure_rung(trial, settings, rung, client))
    finally:
        client.close()
    return cells


async def _measure_rung(trial: Trial, settings: ThroughputSettings, rung: Rung, client: LoadClient) -> Cell:
    async def wave(max_tokens: int) -> list[Exchange]:
        bodies = [_body(trial.request.model, settings, max_tokens) for _ in range(rung.concurrency)]
        deadline_s = time.monotonic() + min(settings.request_timeout_s, max(0.0, trial.remaining_s()))
        return await client.wave(bodies, deadline_s=deadline_s)

    # The first request of a shape compiles, and the first of a connection connects: neither is what users see.
    warmup = tuple(read_request(exchange) for exchange in await wave(16))
    rounds: list[tuple[Request, ...]] = []
    if all(request.problem for request in warmup):
        return Cell(rung.concurrency, (warmup,), ClientCost(0.0, 0.0))
    async with SelfCheck() as check:
        for number in range(rung.rounds):
            if trial.remaining_s() <= 0 or (rounds and all(r.problem for r in rounds[-1])):
                break
            exchanges = await wave(settings.max_tokens)
            rounds.append(tuple(read_request(exchange) for exchange in exchanges))
            trial.say(f"c{rung.concurrency}: round {number + 1} of {rung.rounds}")
    return Cell(rung.concurrency, tuple(rounds), check.cost())


def _body(model: str, settings: ThroughputSettings, max_tokens: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": unique_prompt(settings.prompt_words)}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.ignore_eos:
        body["ignore_eos"] = True
    return body


def _judge(trial: Trial, settings: ThroughputSettings, rung: Rung, cell: Cell, numbers: Mapping[str, Any]) -> None:
    name = f"c{rung.concurrency}"
    if not _judge_requests(trial, name, cell, numbers):
        return
    if not _judge_measurement(trial, settings, name, rung, cell):
        return
    for check_id, judgement in _floors(rung, cell):
        trial.check(f"{name}.{check_id}", judgement.verdict, judgement.sentence)
    _judge_baseline(trial, settings, name, cell)


def _judge_requests(trial: Trial, name: str, cell: Cell, numbers: Mapping[str, Any]) -> bool:
    """Every request has to end as it should; what was cut or refused is no speed."""
    failed = [request for request in cell.requests if request.problem and not request.no_usage]
    total = len(cell.requests)
    if failed:
        exchange = failed[0].exchange
        if exchange.status in (401, 403):
            key = needs_key(exchange.status, trial.request.api_key_env, trial.endpoint.api_key)
            raise CannotJudgeError(key)
        hint = refusal_hint(exchange, trial.endpoint, trial.request.model, timeout_s=10.0)
        # An answer that only the gate's own end cut short proves nothing; a served error does.
        cut = exchange.failure is not None and exchange.failure.layer == "timeout" and trial.remaining_s() <= 0
        trial.check(
            f"{name}.requests",
            VerdictKind.INCONCLUSIVE if cut else VerdictKind.FAIL,
            f"{hint or failed[0].problem} ({len(failed)} of {total} requests)",
            rule="every request ends with a finish_reason, usage and [DONE]",
            exchanges=[exchange],
        )
        return False
    if not total:
        trial.check(f"{name}.requests", VerdictKind.INCONCLUSIVE, "not measured: the time was up")
        return False
    silent = next((request for request in cell.requests if request.no_usage), None)
    if silent is not None:
        trial.check(
            f"{name}.requests",
            VerdictKind.INCONCLUSIVE,
            "the engine sends no usage with its streams, so nobody can count its tokens: speed cannot be measured",
            rule="tokens are what usage says",
            exchanges=[silent.exchange],
        )
        return False
    first = [cell.requests[0].exchange]
    trial.check(
        f"{name}.requests",
        VerdictKind.PASS,
        f"{total} of {total} requests complete",
        rule="every request ends with a finish_reason, usage and [DONE]",
        exchanges=first,
        measurements=numbers,
    )
    return True


def _judge_measurement(trial: Trial, settings: ThroughputSettings, name: str, rung: Rung, cell: Cell) -> bool:
    """Is this a measurement at all?"""
    rates = cell.per_round("decode_tok_per_s")
    needed = min(settings.min_rounds, rung.rounds)
    cached = summary(cell).get("cached_share")
    problem = None
    if cell.client_error > settings.max_client_error:
        problem = f"the client's event loop was late by {cell.client_error:.0%} of a request's decode time"
    elif cell.cost.core_share > _MAX_CORE_SHARE:
        problem = f"the client used {cell.cost.core_share:.0%} of a core; it may have been the bottleneck"
    elif len(rates) < needed:
        problem = f"{len(rates)} rounds long enough to time; {needed} are needed"
    elif cached is not None and cached > settings.max_cached_share:
        problem = f"{cached:.0%} of the prompt tokens came out of a cache, though no prompt was sent twice"
    verdict = VerdictKind.INCONCLUSIVE if problem else VerdictKind.PASS
    trial.check(f"{name}.measurement", verdict, problem or f"{len(rates)} rounds, client error {cell.client_error:.1%}")
    return problem is None


def _floors(rung: Rung, cell: Cell) -> list[tuple[str, Judgement]]:
    judged = []
    error, lag_s = cell.client_error, cell.cost.lag_p99_s
    if rung.min_decode_tok_per_s is not None:
        rates = cell.per_round("decode_tok_per_s")
        judged.append(
            ("decode_floor", against_floor("decode per user", rates, rung.min_decode_tok_per_s, error, "tok/s"))
        )
    if rung.min_aggregate_tok_per_s is not None:
        rates = cell.per_round("aggregate_tok_per_s")
        judged.append(
            ("aggregate_floor", against_floor("aggregate", rates, rung.min_aggregate_tok_per_s, error, "tok/s"))
        )
    if rung.max_ttft_s is not None:
        judged.append(
            ("ttft_ceiling", against_ceiling("first token after", cell.per_round("ttft_s"), rung.max_ttft_s, lag_s))
        )
    return judged


def _judge_baseline(trial: Trial, settings: ThroughputSettings, name: str, cell: Cell) -> None:
    baseline = (trial.request.baseline or {}).get("measurements")
    if not isinstance(baseline, Mapping) or not isinstance(baseline.get(name), Mapping):
        trial.skip(f"{name}.baseline", f"no baseline measurement of {name} was given")
        return
    if baseline.get("settings") != settings.comparable():
        sentence = f"the baseline was measured with {baseline.get('settings')}, this with {settings.comparable()}"
        trial.check(f"{name}.baseline", VerdictKind.INCONCLUSIVE, sentence)
        return
    for metric, spoken in _COMPARED:
        judgement = against_baseline(
            f"{name} {spoken}",
            cell.per_round(metric),
            _rounds(baseline[name], metric),
            margin=settings.margin,
            session_sd=settings.session_sd,
            client_error=cell.client_error,
            rounds=settings.min_rounds,
        )
        trial.check(f"{name}.{metric}.baseline", judgement.verdict, judgement.sentence)


def _rounds(numbers: Mapping[str, Any], metric: str) -> list[float]:
    entry = numbers.get(metric)
    values = entry.get("rounds") if isinstance(entry, Mapping) else None
    if not isinstance(values, list):
        return []
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _headline(measurements: Mapping[str, Any]) -> str:
    parts = []
    for name, numbers in measurements.items():
        if name.startswith("c") and isinstance(numbers, Mapping) and "decode_tok_per_s" in numbers:
            rate, together = numbers["decode_tok_per_s"]["median"], numbers["aggregate_tok_per_s"]["median"]
            if rate is not None and together is not None:
                parts.append(f"{name} {rate:.1f} tok/s each, {together:.1f} together")
    return "; ".join(parts) or "measured"
