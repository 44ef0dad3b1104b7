"""One gate's run: the request it was given, its clock, its questions to the engine, its checks and its verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from gates import invariants, retry, waivers
from gates.capability import Capability, read_capability
from gates.contract import Check, Verdict, VerdictKind, combined
from gates.endpoint import Endpoint
from gates.errors import GateUsageError
from gates.evidence import Evidence
from gates.redact import Redactor
from gates.reply import Reply, error_text, read_reply
from gates.teller import Teller
from gates.waivers import Mode, Seen, Waiver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.contract import GateRequest
    from gates.toolwire import Breach
    from gates.wire import Exchange

# Ten times what the longest answer that a gate asks for takes on the wire.
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


class DeadlineError(Exception):
    """The gate's own time is up. It still gives a verdict on what it saw; the text, if any, says what it waited for."""


class WrongModelError(Exception):
    """The endpoint does not serve the model: nothing more can be asked, and that is a failure."""


class CannotJudgeError(Exception):
    """The gate cannot do its work (a key is missing, say): its verdict is `error`, and the engine is not to blame."""


@dataclass(frozen=True)
class Answer:
    """A question, the bytes that came back, their meaning, and the rules they break."""

    body: Mapping[str, Any]
    exchange: Exchange
    reply: Reply
    breaches: tuple[Breach, ...]

    @property
    def certain(self) -> tuple[Breach, ...]:
        """Breaches that only a server can commit: one is enough."""
        return tuple(breach for breach in self.breaches if not breach.by_model)

    @property
    def first_problem(self) -> str | None:
        """What makes this answer no answer at all, or a wrong one whatever was asked; transport comes first.

        A leak or a swallowed call is left to whoever asked: a missing call says more in words of its own.
        """
        broken = next((breach.sentence for breach in self.breaches if breach.rule == "P08"), None)
        if broken is None and not self.reply.answered:
            return self.reply.breaches[0].sentence
        spoiled = (b for b in self.breaches if b.by_model and b.rule not in invariants.SAID_BY_OTHERS)
        return broken or next((breach.sentence for breach in spoiled), None)


@dataclass
class Trial:
    """Built by `open_trial`. Checks are added in the order in which they are decided."""

    request: GateRequest
    endpoint: Endpoint
    capability: Capability
    evidence: Evidence
    teller: Teller
    ends_at_s: float
    started_at: datetime
    started_s: float
    checks: list[Check] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    measurements: dict[str, Any] = field(default_factory=dict)
    retries: int = 0
    waivers: tuple[Waiver, ...] = ()
    pause: Callable[[float], None] = time.sleep
    """Waits so many seconds."""

    def remaining_s(self) -> float:
        return self.ends_at_s - time.monotonic()

    def ask(self, body: Mapping[str, Any], *, timeout_s: float) -> Answer:
        """Ask the engine, and again where nobody listens yet or it has no room (`gates.retry`).

        Raises `DeadlineError`, `CannotJudgeError` and `WrongModelError`.
        """
        exchange = self.asked(body, timeout_s=timeout_s, limit_bytes=_MAX_ANSWER_BYTES)
        self.guard(exchange)
        reply = read_reply(exchange, streamed=bool(body.get("stream")))
        answer = Answer(body, exchange, reply, invariants.breaches(reply, body, self.capability))
        self.answers.append(answer)
        return answer

    def asked(
        self,
        body: Mapping[str, Any],
        *,
        timeout_s: float,
        limit_bytes: int,
        worth: Callable[[Exchange], bool] = retry.unreached_or_busy,
    ) -> Exchange:
        """What comes back, unjudged; what is `worth` it is asked again. Raises `DeadlineError`."""
        attempt = 0
        while True:
            allowed_s = self._allowed_s(timeout_s)
            with self.teller.request(self.request.endpoint):
                exchange = self.endpoint.chat(body, timeout_s=allowed_s, limit_bytes=limit_bytes)
            wait_s = retry.pause_s(exchange, attempt, self.remaining_s(), datetime.now(UTC), worth)
            if wait_s is None:
                return exchange
            attempt += 1
            self.retries += 1
            self.pause(wait_s)

    def check(
        self,
        check_id: str,
        verdict: VerdictKind,
        sentence: str,
        *,
        rule: str = "",
        exchanges: list[Exchange] | None = None,
        measurements: Mapping[str, Any] | None = None,
        warn: bool = False,
    ) -> None:
        """Decide one check. `exchanges` become its evidence. A failure that a waiver covers is shown and passes."""
        sentence = self.evidence.redactor.text(sentence)
        files = self.evidence.write(check_id, rule or sentence, sentence, exchanges) if exchanges else []
        waiver = self._waiver(check_id, verdict, sentence, measurements or {})
        if waiver is not None:
            verdict, warn = VerdictKind.PASS, True
        self._add(
            Check(
                id=check_id,
                verdict=verdict,
                sentence=sentence,
                evidence=files,
                measurements=self.evidence.redactor.plain(measurements or {}),
                rule=rule,
                warn=warn,
                waived=waiver.words if waiver is not None else None,
            )
        )

    def account_for_waivers(self) -> None:
        """Say what became of every waiver, used or not."""
        if not self.waivers:
            return
        seen = [
            Seen(check.id, check.verdict is VerdictKind.FAIL or check.waived is not None, check.sentence, _mode(check))
            for check in self.checks
            if not check.skipped
        ]
        notices = waivers.account(self.waivers, seen, self.started_at.date())
        self.measurements["waivers"] = [
            {"check": notice.waiver.check, "state": notice.state, "sentence": notice.sentence} for notice in notices
        ]

    def _waiver(
        self, check_id: str, verdict: VerdictKind, sentence: str, measurements: Mapping[str, Any]
    ) -> Waiver | None:
        seen = Seen(check_id, verdict is VerdictKind.FAIL, sentence, _mode_of(measurements))
        return waivers.waiving(seen, self.waivers, self.started_at.date())

    def skip(self, check_id: str, why: str) -> None:
        """A check that does not apply: shown, never counted."""
        self._add(
            Check(
                id=check_id,
                verdict=VerdictKind.INCONCLUSIVE,
                sentence=f"skipped: {self.evidence.redactor.text(why)}",
                skipped=True,
            )
        )

    def say(self, sentence: str) -> None:
        """A line of progress."""
        self.progress_line({"sentence": self.evidence.redactor.text(sentence)})

    def verdict(self, passed: str, *, nothing: str = "") -> Verdict:
        """The verdict on all checks so far; `passed` is the sentence when nothing speaks against the engine.

        `nothing`: why nothing that was asked for was decided, where the gate knows it. Then, and when every check was
        skipped or there is none, nothing speaks for the engine either: it could not be told.
        """
        decided = [check.verdict for check in self.checks if not check.skipped]
        kind = combined(decided)
        if kind is not VerdictKind.PASS:
            sentence = self._why(kind)
        elif nothing or not decided:
            kind, sentence = VerdictKind.INCONCLUSIVE, f"nothing was decided: {nothing or skipped_words(self.checks)}"
        else:
            sentence = passed
        if self.retries:
            self.measurements["retries"] = self.retries
        return Verdict(
            gate=self.request.gate,
            verdict=kind,
            sentence=self.evidence.redactor.text(sentence),
            checks=self.checks,
            measurements=self.evidence.redactor.plain(self.measurements),
            started_at=self.started_at.isoformat(timespec="milliseconds"),
            duration_s=round(time.monotonic() - self.started_s, 3),
        )

    def _why(self, kind: VerdictKind) -> str:
        reasons = [
            f"{check.id}: {check.sentence}" for check in self.checks if check.verdict is kind and not check.skipped
        ]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        lost = f"; {self.evidence.problem}" if self.evidence.problem else ""
        return f"{reasons[0]}{more}{lost}"

    def _allowed_s(self, timeout_s: float) -> float:
        remaining_s = self.remaining_s()
        if remaining_s <= 0:
            raise DeadlineError
        return min(timeout_s, remaining_s)

    def guard(self, exchange: Exchange) -> None:
        """Raises for an answer after which nothing more can be asked: no key, no such model, no time."""
        if exchange.status in (401, 403):
            raise CannotJudgeError(needs_key(exchange.status, self.request.api_key_env, self.endpoint.api_key))
        patience_s = min(10.0, max(0.1, self.remaining_s()))
        hint = refusal_hint(exchange, self.endpoint, self.request.model, timeout_s=patience_s)
        if hint is not None:
            raise WrongModelError(hint)
        if exchange.failure is not None and exchange.failure.layer == "timeout" and self.remaining_s() <= 0:
            # The gate's own end cut the wait short: this says nothing about the engine.
            raise DeadlineError

    def _add(self, check: Check) -> None:
        self.checks.append(check)
        self.progress_line(
            {
                "check": check.id,
                "verdict": check.verdict,
                "sentence": check.sentence,
                "skipped": check.skipped,
                "warn": check.warn,
                "waived": check.waived,
                "rule": check.rule,
                "evidence": check.evidence,
            }
        )

    def progress_line(self, fields: Mapping[str, Any]) -> None:
        """One JSON line on stderr; the gate's name and its time are added."""
        self.teller.line(fields)


def skipped_words(checks: Sequence[Check]) -> str:
    """Why none of `checks` decided anything: ``J07 was skipped: the capability …``."""
    skipped = [check for check in checks if check.skipped]
    if not skipped:
        return "no check was asked"
    first = skipped[0]
    why = first.sentence.removeprefix("skipped: ")
    if len(skipped) == 1:
        return f"{first.id} was skipped: {why}"
    return f"all {len(skipped)} checks were skipped; {first.id}: {why}"


def _mode(check: Check) -> Mode | None:
    return _mode_of(check.measurements)


def _mode_of(measurements: Mapping[str, Any]) -> Mode | None:
    mode = measurements.get("mode")
    return mode if mode in ("stream", "whole") else None


def open_trial(request: GateRequest, progress: IO[str], *, age_s: float = 0.0) -> Trial:
    """Raises `GateUsageError` when the request cannot be worked on.

    `age_s` is how long the gate's process has lived: whoever set the deadline counts from its start.
    """
    api_key = api_key_of(request.api_key_env)
    now_s = time.monotonic()
    return Trial(
        request=request,
        endpoint=Endpoint.at(request.endpoint, api_key),
        capability=read_capability(request.capability),
        evidence=Evidence(Path(request.evidence_dir), Redactor(api_key), request.api_key_env),
        teller=Teller(progress, request.gate, now_s),
        ends_at_s=now_s + request.deadline_s - reserve_s(request.deadline_s) - age_s,
        started_at=datetime.now(UTC),
        started_s=now_s,
    )


def reserve_s(deadline_s: float) -> float:
    """So long before it would be ended a gate ends, so that what it saw is not lost.

    What is to be done then grows with what was asked, and so with the deadline: hundreds of answers are judged and
    written as evidence, perhaps on a machine that has other work. 2 s were too short for that once.
    """
    return max(min(2.0, deadline_s * 0.1), min(15.0, deadline_s * 0.05))


def needs_key(status: int | None, variable: str | None, api_key: str | None) -> str:
    """The sentence for 401 and 403."""
    if api_key is None:
        return f"the endpoint wants an API key (HTTP {status}); name the environment variable that holds it"
    return f"the endpoint refuses the API key in ${variable} (HTTP {status})"


def refusal_hint(exchange: Exchange, endpoint: Endpoint, model: str, *, timeout_s: float) -> str | None:
    """For an answer that says the model is not there: which models are. None for any other answer."""
    said = error_text(exchange.body)
    if exchange.status not in (400, 404) or "model" not in said.lower():
        return None
    served = endpoint.served_models(timeout_s=timeout_s)
    if model in served:
        return None
    known = f"it serves {', '.join(served[:10])}" if served else "it does not say which it serves"
    return f"the endpoint does not serve the model {model!r}; {known}"


def api_key_of(variable: str | None) -> str | None:
    """Raises `GateUsageError` where a variable is named and holds nothing."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise GateUsageError(f"The environment variable {variable} should hold the API key and is empty or not set.")
    return key
