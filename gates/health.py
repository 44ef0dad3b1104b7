"""Health at the application layer: an engine is up when tokens come out of it.

`probe` is what the daemon calls every few seconds; the gate `health` is the same with evidence. A 200 on a health
page proves that a web server runs, nothing more.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from gates.contract import VerdictKind
from gates.counters import Counters, read_counters
from gates.endpoint import Endpoint, model_names
from gates.reply import Reply, read_reply
from gates.replyparts import refusal_text
from gates.retry import busy
from gates.strict import StrictModel, read_model
from gates.textrules import one_sign_only
from gates.trial import needs_key, refusal_hint

if TYPE_CHECKING:
    from gates.contract import Verdict
    from gates.trial import Trial
    from gates.wire import Exchange

__all__ = ["Counters", "HealthSettings", "Probe", "probe", "read_counters", "run"]

ProbeLayer = Literal["ok", "host", "port", "http", "generation", "output", "identity", "timeout"]
_MAX_PROBE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class Probe:
    """What one probe saw. `layer` is where it ended; times in seconds from the moment the request was written.

    `output`: tokens came, in good form, and they are garbage. Such an engine is not busy: it is broken.
    """

    ok: bool
    layer: ProbeLayer
    sentence: str
    ttft_s: float | None = None
    total_s: float | None = None
    completion_tokens: int | None = None
    model: str | None = None
    finish_reason: str | None = None


def probe(
    endpoint: str,
    model: str,
    *,
    timeout_s: float,
    api_key: str | None = None,
    max_tokens: int = 8,
    stream: bool = True,
) -> Probe:
    """Make the engine generate and read what comes out. One connection, a few milliseconds of CPU, thread-safe.

    Raises `GateUsageError` when `endpoint` is no http URL; never for anything the network or the engine does.
    """
    server = Endpoint.at(endpoint, api_key)
    body = probe_body(model, max_tokens=max_tokens, stream=stream)
    exchange = server.chat(body, timeout_s=timeout_s, limit_bytes=_MAX_PROBE_BYTES)
    return _judge(exchange, server, model, stream=stream, timeout_s=timeout_s)


def probe_body(model: str, *, max_tokens: int, stream: bool) -> dict[str, Any]:
    """A small question that no cache has seen: the nonce comes first."""
    nonce = secrets.token_hex(4)
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": f"[{nonce}] Say hello in one short sentence."}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _judge(exchange: Exchange, server: Endpoint, model: str, *, stream: bool, timeout_s: float) -> Probe:
    total_s = exchange.total_s
    refused = _refused(exchange, server, model, timeout_s)
    if refused is not None:
        return refused
    reply = read_reply(exchange, streamed=stream)
    ttft_s = reply.token_times_s[0] - exchange.sent_at_s if reply.token_times_s and stream else None

    def ended(layer: ProbeLayer, sentence: str) -> Probe:
        tokens = reply.usage.completion_tokens if reply.usage else None
        return Probe(layer == "ok", layer, sentence, ttft_s, total_s, tokens, reply.model, reply.finish_reason)

    text = reply.content + reply.reasoning
    if exchange.failure is not None:
        so_far = f"{len(reply.token_times_s)} pieces of text, then " if reply.token_times_s else ""
        return ended(exchange.failure.layer, so_far + exchange.failure.sentence)
    error = next((breach for breach in reply.breaches if breach.rule == "P08"), None)
    if error is not None:
        return ended("generation", error.sentence)
    if not reply.answered:
        return ended("http", reply.breaches[0].sentence)
    if reply.model not in (None, "", model):
        return ended("identity", f"the answer comes from model {reply.model!r}; {model!r} was asked")
    if not text.strip() and not reply.calls:
        return ended("generation", f"the engine answered HTTP 200 and no token came out ({_end(reply)})")
    if reply.finish_reason is None:
        return ended("generation", "tokens came, but the answer was cut off: there is no finish_reason")
    garbage = one_sign_only(text)
    if garbage is not None:
        return ended("output", f"the engine writes {garbage}")
    tokens = reply.usage.completion_tokens if reply.usage else None
    counted = f"{tokens} tokens" if tokens is not None else "an answer"
    return ended("ok", f"{counted} in {total_s:.2f} s ({_end(reply)})")


def _refused(exchange: Exchange, server: Endpoint, model: str, timeout_s: float) -> Probe | None:
    failure = exchange.failure
    if exchange.status is None:
        layer = failure.layer if failure else "http"
        sentence = failure.sentence if failure else "no answer"
        return Probe(ok=False, layer=layer, sentence=sentence, total_s=exchange.total_s)
    if exchange.status == 200:
        if exchange.content_type != "text/html":
            return None
        sentence = "HTTP 200 with an HTML page; this is no OpenAI-compatible endpoint"
        return Probe(ok=False, layer="http", sentence=sentence, total_s=exchange.total_s)
    if exchange.status in (401, 403):
        sentence = needs_key(exchange.status, "the given variable", server.api_key)
        return Probe(ok=False, layer="http", sentence=sentence, total_s=exchange.total_s)
    unknown = refusal_hint(exchange, server, model, timeout_s=max(0.5, timeout_s - exchange.total_s))
    if unknown:
        return Probe(ok=False, layer="identity", sentence=unknown, total_s=exchange.total_s)
    return Probe(ok=False, layer="http", sentence=refusal_text(exchange), total_s=exchange.total_s)


def _end(reply: Reply) -> str:
    return f"finish_reason {reply.finish_reason}" if reply.finish_reason else "no finish_reason"


class HealthSettings(StrictModel):
    """Settings of the gate `health`."""

    timeout_s: float = Field(default=60.0, gt=0)
    """Longest wait for one probe."""
    max_tokens: int = Field(default=16, gt=0)
    probes: int = Field(default=2, gt=0)
    """Probes in each mode, streamed and whole."""


def run(trial: Trial) -> Verdict:
    """The gate: the model is listed, generates streamed and whole, and its own counters move."""
    settings = read_model(HealthSettings, trial.request.profile, "settings of gate health")
    before = _counters(trial)
    alive = True
    for number in range(settings.probes):
        for stream in (True, False):
            if alive:
                alive = _check_probe(trial, settings, number, stream=stream)
    if alive:
        _check_listed(trial)
        _check_counters(trial, before)
    return trial.verdict(f"{trial.request.model} generates, streamed and whole")


def _check_probe(trial: Trial, settings: HealthSettings, number: int, *, stream: bool) -> bool:
    check_id = f"generates.{'stream' if stream else 'whole'}.{number + 1}"
    model, timeout_s = trial.request.model, settings.timeout_s
    body = probe_body(model, max_tokens=settings.max_tokens, stream=stream)
    # A refused connection is what this gate is there to see; a full queue is not.
    exchange = trial.asked(body, timeout_s=timeout_s, limit_bytes=_MAX_PROBE_BYTES, worth=busy)
    patience_s = min(timeout_s, trial.remaining_s() + exchange.total_s)
    seen = _judge(exchange, trial.endpoint, model, stream=stream, timeout_s=patience_s)
    if exchange.status in (401, 403):
        verdict, sentence = (
            VerdictKind.ERROR,
            needs_key(exchange.status, trial.request.api_key_env, trial.endpoint.api_key),
        )
    else:
        verdict = VerdictKind.PASS if seen.ok else VerdictKind.FAIL
        sentence = seen.sentence if seen.ok else f"{seen.layer}: {seen.sentence}"
    numbers = {"ttft_s": seen.ttft_s, "total_s": seen.total_s, "completion_tokens": seen.completion_tokens}
    trial.check(
        check_id,
        verdict,
        sentence,
        rule="a small question is answered with tokens, an end and the model's own name",
        exchanges=[exchange],
        measurements=numbers,
    )
    return seen.ok


def _check_listed(trial: Trial) -> None:
    exchange = trial.endpoint.get("/v1/models", timeout_s=max(0.5, min(10.0, trial.remaining_s())))
    served = model_names(exchange.body)
    model = trial.request.model
    listed = model in served
    sentence = (
        f"/v1/models lists {model}" if listed else f"/v1/models lists {', '.join(served) or 'nothing'}, not {model}"
    )
    trial.check(
        "P17.listed",
        VerdictKind.PASS if listed else VerdictKind.FAIL,
        sentence,
        rule="the served name is listed",
        exchanges=[exchange],
    )


def _counters(trial: Trial) -> Counters | None:
    if trial.request.metrics_url is None:
        return None
    return read_counters(trial.request.metrics_url, timeout_s=max(0.5, min(10.0, trial.remaining_s())))


def _check_counters(trial: Trial, before: Counters | None) -> None:
    if trial.request.metrics_url is None:
        trial.skip("counters", "no metrics URL was given")
        return
    after = _counters(trial)
    until_s = time.monotonic() + min(5.0, trial.remaining_s())
    while before and after and not after.moved_since(before) and time.monotonic() < until_s:
        time.sleep(0.2)
        after = _counters(trial)
    if before is None or after is None:
        trial.check("counters", VerdictKind.INCONCLUSIVE, f"no known counters at {trial.request.metrics_url}")
    elif after.moved_since(before):
        trial.check("counters", VerdictKind.PASS, "the engine's own counters moved with the probes")
    else:
        trial.check(
            "counters", VerdictKind.INCONCLUSIVE, "tokens came out, yet these counters did not move: whose are they?"
        )
