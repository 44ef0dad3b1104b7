"""The gate contract, version 1: what a judge is asked, and how it answers.

A gate is any program. It reads one `GateRequest` as JSON on stdin, may write progress as JSON lines on stderr, and
writes one `Verdict` as the last JSON document on stdout. `docs/gates.md` describes the same for people who write a
gate in another language; the two must not drift apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

CONTRACT: Final = 1
MAX_DOCUMENT_BYTES: Final = 8 * 1024 * 1024
_SHOWN_CHARS: Final = 120
_MAX_CANDIDATE_LINES: Final = 20_000


class VerdictKind(StrEnum):
    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    VerdictKind.PASS: 0,
    VerdictKind.FAIL: 10,
    VerdictKind.INCONCLUSIVE: 11,
    VerdictKind.ERROR: 12,
}
_DECIDING_ORDER: Final = (VerdictKind.FAIL, VerdictKind.ERROR, VerdictKind.INCONCLUSIVE)


def combined(verdicts: Iterable[VerdictKind]) -> VerdictKind:
    """Any fail fails; else a broken judge is an error; else one that could not tell is inconclusive; else pass."""
    seen = set(verdicts)
    return next((kind for kind in _DECIDING_ORDER if kind in seen), VerdictKind.PASS)


def sendable(value: Any) -> Any:
    """Plain data without half characters: JSON may spell a lone surrogate, but no file, socket or database takes it."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case Mapping():
            return {sendable(key): sendable(each) for key, each in value.items()}
        case list() | tuple():
            return [sendable(each) for each in value]
    return value


class _Record(BaseModel):
    # Unknown keys are ignored: a later minor addition must not break a gate that somebody wrote last year.
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _sendable(cls, data: Any) -> Any:
        """What engines say is quoted in sentences: it must survive the wire."""
        return sendable(data)


class Deployment(_Record):
    """A release as it stands on its cards, for gates that keep measurements or look earlier ones up.

    Empty is what nobody knew. `metrics_urls`: a page for each engine server, which together count everything; whether
    an engine shows one is for the gate to find out. `start` names this start of the engines: a restarted release has
    another. `hardware`: plain data; `gpus` (a list of names), `driver`, `host`.
    """

    topology: str = ""
    release: str = ""
    """`name@digest8`."""
    digest: str = ""
    engine_version: str = ""
    flags: tuple[str, ...] = ()
    """The engine's own, of each instance."""
    instances: int = 1
    start: str = ""
    hardware: Mapping[str, Any] = Field(default_factory=dict)
    metrics_urls: tuple[str, ...] = ()


def start_of(attempts: Iterable[str]) -> str:
    """The name of a start of several engine servers, from those of each one's: one that is started anew changes it."""
    return "+".join(sorted(attempts))


class GateRequest(_Record):
    """What a gate is asked. Times in seconds; `endpoint` is a base URL with or without ``/v1``."""

    contract: int = CONTRACT
    gate: str
    endpoint: str
    model: str
    api_key_env: str | None = None
    profile: Mapping[str, Any] = Field(default_factory=dict)
    capability: Mapping[str, Any] = Field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None
    deadline_s: float = Field(gt=0, allow_inf_nan=False)
    evidence_dir: str
    engine: str | None = None
    metrics_url: str | None = None
    live_endpoint: str | None = None
    """Where production answers meanwhile, for what is asked of both; None when nothing is live."""
    live_model: str | None = None
    candidate: Deployment | None = None
    """What is judged; None where only an endpoint is known."""
    live: Deployment | None = None
    """What is live meanwhile; None when nothing is."""
    ledger: str | None = None
    """The file in which this box keeps its measurements (`gates.ledger`), for gates that measure; None: there is none.
    A gate whose verdict hangs on whether it can be written is broken."""

    def to_json(self) -> str:
        return self.model_dump_json()


class Check(_Record):
    """One thing that was looked at. A skipped check decides nothing and is never counted as passed."""

    id: str
    verdict: VerdictKind
    sentence: str
    evidence: list[str] = Field(default_factory=list)
    measurements: Mapping[str, Any] = Field(default_factory=dict)
    skipped: bool = False
    rule: str = ""
    """What must hold, in words."""
    warn: bool = False
    """Something was found that people should see and that does not block: the verdict stays `pass`."""
    waived: str | None = None
    """Why a finding does not block, and until when; the verdict stays `pass`."""


class Verdict(_Record):
    """What a gate answers. `started_at` is ISO 8601 in UTC."""

    contract: int = CONTRACT
    gate: str
    verdict: VerdictKind
    sentence: str
    checks: list[Check] = Field(default_factory=list)
    measurements: Mapping[str, Any] = Field(default_factory=dict)
    started_at: str = ""
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    def to_json(self) -> str:
        return self.model_dump_json()


class _StrictVerdict(Verdict):
    # In an answer from outside the version is not optional: it is what tells a verdict from any other JSON object.
    contract: int


def parse_request(text: bytes | str) -> GateRequest:
    """The request on stdin. Raises `ValueError` whose text is one sentence."""
    try:
        request = GateRequest.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"The gate request on stdin is not valid: {first_problem(error)}.") from None
    if request.contract != CONTRACT:
        raise ValueError(f"The gate request is of contract {request.contract}; this gate speaks contract {CONTRACT}.")
    return request


def parse_verdict(stdout: bytes, gate: str = "") -> Verdict:
    """The last JSON document of a gate's stdout. No, broken or foreign JSON is a verdict `error` that says so."""
    if len(stdout) > MAX_DOCUMENT_BYTES:
        return broken(gate, f"The gate wrote {len(stdout)} bytes to stdout; at most {MAX_DOCUMENT_BYTES} are read.")
    document = _last_document(stdout.decode("utf-8", errors="replace"))
    if document is None:
        begins = _begins(stdout)
        return broken(gate, f"The gate's stdout does not end in a JSON object, so there is no verdict{begins}.")
    try:
        verdict = _StrictVerdict.model_validate(document)
    except ValidationError as error:
        return broken(gate, f"The gate's last JSON document is not a verdict: {first_problem(error)}.")
    if verdict.contract != CONTRACT:
        return broken(gate, f"The verdict is of contract {verdict.contract}; expected {CONTRACT}.")
    if gate and verdict.gate != gate:
        return broken(gate, f"The verdict is signed by gate {verdict.gate!r}; {gate!r} was asked.")
    return Verdict.model_validate(verdict.model_dump())


def _begins(stdout: bytes) -> str:
    said = " ".join(stdout[:4000].decode("utf-8", errors="replace").split())
    return f"; it begins: {said[:_SHOWN_CHARS]!r}" if said else ""


def broken(gate: str, sentence: str) -> Verdict:
    """The verdict about a gate that could not give one."""
    return Verdict(gate=gate or "unknown", verdict=VerdictKind.ERROR, sentence=sentence)


def first_problem(error: ValidationError) -> str:
    """The first thing pydantic found, as `where: what`."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def _last_document(text: str) -> dict[str, Any] | None:
    # A document starts a line and nothing but blanks follows it. Going backwards finds the whole of a pretty-printed
    # one, and a verdict that was cut off in the middle is not mistaken for one of its own checks.
    decoder = json.JSONDecoder()
    lines_seen = 0
    end = len(text)
    while end > 0 and lines_seen < _MAX_CANDIDATE_LINES:
        start = text.rfind("\n", 0, end) + 1
        lines_seen += 1
        begin = start + len(text[start:end]) - len(text[start:end].lstrip())
        if text.startswith("{", begin):
            found = _document_at(decoder, text, begin)
            if found is not None:
                return found
        end = start - 1
    return None


def _document_at(decoder: json.JSONDecoder, text: str, begin: int) -> dict[str, Any] | None:
    try:
        value, stop = decoder.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not text[stop:].strip() else None
