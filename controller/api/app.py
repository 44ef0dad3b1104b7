"""The control API: FastAPI on a Unix socket. Handlers parse, authorise, file a request and answer; they never act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from fastapi import FastAPI, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from starlette.exceptions import HTTPException as StarletteHTTPException

from launch.release import diff

from ..catalogue import Catalogue
from ..config import Config
from ..core.records import Options, Phase
from ..core.seen import Seen
from ..errors import CutoverError, ExitCode, NotFoundError
from ..store.journal import Journal
from . import views, views_queue
from .admission import Door, told, too_large
from .desk import Desk, Person, require
from .peers import SCOPE_KEY
from .tokens import Tokens
from .waiting import opens

log = structlog.get_logger("api")

MAX_LOG_BYTES = 256 * 1024
MAX_WAIT_S = 30.0
NUDGE_S = 60.0  # an effect of a pass may take as long as an engine's shim to come up
NUDGE_LEAST_S = 1.0  # with less patience than a pass takes everybody who may look could call the loop dead
EVENT_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Windows:
    """What the API may look through: state, observation, files. No port to the world."""

    config: Config
    journal: Journal
    desk: Desk
    catalogue: Catalogue
    seen: Callable[[], Seen | None]
    why: Callable[[], str]
    passes: Callable[[], int]  # of the loop, that have decided
    alarms: Callable[[], list[str]]
    gate_report: Callable[[str], dict[str, Any] | None]
    night_report: Callable[[str], dict[str, Any]]  # of a night by its id, or `NotFoundError`
    inventory: Callable[[], dict[str, Any]]  # what is known of the cards, and the host's memory and disk
    log_path: Callable[[str], Path]
    version: str
    tokens: Tokens
    door: Door  # of the TCP listener


def _one_line(text: str) -> str:
    """What people write is shown between lines of ours, in a terminal too: it must not look like one of them."""
    return " ".join(text.split())


OneLine = Annotated[str, AfterValidator(_one_line)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TopologyBody(_Body):
    """A topology as text; `source` is the file name for messages."""

    topology: str = Field(max_length=65_536)
    source: str = Field(default="topology", max_length=4096)
    force: bool = False
    strategy: Literal["auto", "any", "blue-green", "rolling", "swap"] = "auto"
    require_approval: bool = False
    gates: str | None = Field(default=None, max_length=4096)
    overruled: dict[str, Annotated[OneLine, Field(max_length=500)]] = Field(default={}, max_length=50)

    def options(self) -> Options:
        """What the plan depends on."""
        return Options(
            force=self.force,
            strategy=self.strategy,
            require_approval=self.require_approval,
            gates=self.gates,
            overruled=self.overruled,
        )


class ProposeBody(TopologyBody):
    bake_s: float | None = Field(default=None, ge=0, le=7 * 86_400)
    plan_digest: str | None = Field(default=None, max_length=64)
    wait_for_free_s: float | None = Field(default=None, ge=0, le=7 * 86_400)
    note: OneLine = Field(default="", max_length=2000)
    window: str = Field(default="", max_length=32)
    priority: int = Field(default=0, ge=-1000, le=1000)
    expires_at: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)  # seconds since the epoch
    finish_by: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)
    approval_s: float | None = Field(default=None, gt=0, le=30 * 86_400)
    trial: bool = False

    def options(self) -> Options:
        return replace(
            super().options(),
            bake_s=self.bake_s,
            plan_digest=self.plan_digest,
            note=self.note,
            wait_for_free_s=self.wait_for_free_s,
            window=self.window,
            priority=self.priority,
            expires_wall_s=self.expires_at,
            finish_by_wall_s=self.finish_by,
            approval_s=self.approval_s,
            trial=self.trial,
        )


class PriorityBody(_Body):
    priority: int = Field(ge=-1000, le=1000)


class WhyBody(_Body):
    """Of a cordon: what everybody is told who wonders."""

    why: OneLine = Field(max_length=500)

    @field_validator("why")
    @classmethod
    def _said(cls, why: str) -> str:
        if not why:
            raise ValueError("a reason is needed: everybody who wonders is told it")
        return why


class FreezeBody(WhyBody):
    until: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)  # seconds since the epoch


class TokenBody(_Body):
    """A bearer token for the TCP listener."""

    name: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")
    role: Literal["view", "propose", "approve", "admin"] = "view"
    days: float = Field(default=90.0, gt=0, le=3660, allow_inf_nan=False)


def _person(request: Request) -> Person:
    person = request.state._state[SCOPE_KEY]  # noqa: SLF001 - of the connection, or put there by its token
    assert isinstance(person, Person)  # noqa: S101 - no request gets here without one
    return person


Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]


def make_app(windows: Windows) -> FastAPI:
    """The application. Errors are JSON: `{"error": sentence, "exit_code": n}` with a fitting HTTP status."""
    from .sweep_routes import add_sweeps  # it takes what is declared here

    app = FastAPI(title="Cutover", version=windows.version, docs_url=None, redoc_url=None)
    _errors(app)
    _reading(app, windows)
    _nights(app, windows)
    _asking(app, windows)
    add_sweeps(app, windows)
    _nudging(app, windows)
    _closing(app, windows)
    _releases(app, windows)
    _tokens(app, windows)

    @app.middleware("http")
    async def _admit(request: Request, call_next: Any) -> Any:
        refusal = too_large(request) or windows.door.refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await call_next(request)
        except Exception as error:
            exit_code = getattr(error, "exit_code", None)
            if isinstance(exit_code, int):
                return told(error, exit_code)
            log.exception("a request broke", method=request.method, path=request.url.path)
            return told("the daemon broke on this request; its log says how", ExitCode.FAILED)

    return app


def _errors(app: FastAPI) -> None:
    @app.exception_handler(CutoverError)
    def _ours(_: Request, error: CutoverError) -> JSONResponse:
        return told(error, error.exit_code)

    @app.exception_handler(RequestValidationError)
    def _body(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        return JSONResponse({"error": f"{place}: {said}", "exit_code": int(ExitCode.USAGE)}, 422)

    @app.exception_handler(StarletteHTTPException)
    def _route(request: Request, error: StarletteHTTPException) -> JSONResponse:
        # Unknown paths and methods, and bodies that cannot be decoded: the same shape as every other error.
        where = f"{request.method} {request.url.path}"
        known = {404: ExitCode.NOT_FOUND, 405: ExitCode.NOT_FOUND}.get(error.status_code, ExitCode.USAGE)
        return JSONResponse({"error": f"{where}: {error.detail}", "exit_code": int(known)}, error.status_code)


def _reading(app: FastAPI, windows: Windows) -> None:
    @app.get("/v1/status")
    def status() -> dict[str, Any]:
        seen, state = windows.seen(), windows.journal.state
        answer = views.status(state, seen, windows.config, windows.why(), windows.alarms())
        return {**answer, "version": windows.version}

    @app.get("/v1/gpus")
    def gpus() -> dict[str, Any]:
        return views.inventory(windows.journal.state, windows.inventory())

    @app.get("/v1/rollouts")
    def rollouts(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> dict[str, Any]:
        state = windows.journal.state
        newest = list(state.rollouts.values())[-limit:]
        return {"schema": views.SCHEMA, "rollouts": [views.rollout(state, r, windows.seen()) for r in newest]}

    @app.get("/v1/rollouts/{rollout_id}")
    def rollout(rollout_id: str) -> dict[str, Any]:
        """`waiting`: what it waits for and until when, as in the queue; null once it has begun."""
        record = windows.desk.rollout(rollout_id)
        seen, state, policy = windows.seen(), windows.journal.state, windows.config.policy
        reports = {r.run: windows.gate_report(r.run) for r in record.gates}
        return {
            "schema": views.SCHEMA,
            **views.rollout(state, record, seen),
            "waiting": views_queue.waiting(record, state, seen, policy) if record.phase is Phase.QUEUED else None,
            "approval_s": views_queue.approval_s(record, policy),
            "reports": reports,
            "events": [asdict(e) for e in windows.journal.entries(rollout=rollout_id, limit=2000)],
        }

    @app.get("/v1/queue")
    def queue() -> dict[str, Any]:
        return views_queue.queue(windows.journal.state, windows.seen(), windows.config.policy, windows.desk.now())

    @app.get("/v1/events")
    async def events(
        after: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
        rollout: str | None = None,
        wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
        limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    ) -> dict[str, Any]:
        # Not in a thread: forty people who watch must not keep one who wants to roll back from being heard.
        left_s = wait_s
        while left_s > 0 and after >= windows.journal.seq:
            await asyncio.sleep(EVENT_POLL_S)
            left_s -= EVENT_POLL_S
        newest = windows.journal.seq  # read first: what is written meanwhile is for the next call
        entries = await run_in_threadpool(windows.journal.entries, after, rollout, limit)
        last = entries[-1].seq if entries else newest
        return {"schema": views.SCHEMA, "events": [asdict(e) for e in entries], "last": last}

    @app.get("/v1/attempts")
    def attempts() -> dict[str, Any]:
        seen = windows.seen()
        everything = windows.journal.state.attempts.values()
        return {"schema": views.SCHEMA, "attempts": [views.attempt(a, seen) for a in everything]}

    @app.get("/v1/attempts/{attempt_id}/log")
    def log(attempt_id: str, offset: Annotated[int, Query(ge=-MAX_LOG_BYTES)] = -16_384) -> dict[str, Any]:
        """Bytes of the log from `offset` (negative: from its end); `next` is where to go on."""
        if attempt_id not in windows.journal.state.attempts:
            raise NotFoundError(f"there is no attempt {attempt_id}: `cutover status` and `cutover show` name them")
        path = windows.log_path(attempt_id)
        try:
            size = path.stat().st_size
            begin = max(0, size + offset) if offset < 0 else min(offset, size)
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read(MAX_LOG_BYTES)
        except FileNotFoundError:
            data, begin = b"", 0
        return {"schema": views.SCHEMA, "text": data.decode(errors="replace"), "next": begin + len(data)}


def _nights(app: FastAPI, windows: Windows) -> None:
    @app.get("/v1/nights")
    def nights(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> dict[str, Any]:
        return views_queue.nights(windows.journal.state, windows.config, limit)

    @app.get("/v1/nights/{night_id}/report")
    def night_report(night_id: str) -> dict[str, Any]:
        return windows.night_report(night_id)


def _asking(app: FastAPI, windows: Windows) -> None:
    desk = windows.desk

    def answer(rollout: Any, sentence: str = "") -> dict[str, Any]:
        state = windows.journal.state
        return {
            "schema": views.SCHEMA,
            "rollout": views.rollout(state, rollout, windows.seen()),
            "sentence": sentence,
            "seq": windows.journal.last_seq(),
        }

    @app.post("/v1/plan")
    def plan(body: TopologyBody, request: Request) -> dict[str, Any]:
        made = desk.plan(_person(request), body.topology, body.source, body.options())
        return {"schema": views.SCHEMA, "plan": made}

    @app.post("/v1/rollouts", status_code=202)
    def propose(body: ProposeBody, request: Request, key: Key = None) -> dict[str, Any]:
        filed = desk.propose(_person(request), body.topology, body.source, body.options(), key)
        return {**answer(filed.rollout, filed.sentence), "notes": list(filed.notes)}

    @app.post("/v1/rollback", status_code=202)
    def rollback(request: Request, key: Key = None) -> dict[str, Any]:
        filed = desk.rollback(_person(request), key)
        return {**answer(filed.rollout, filed.sentence), "notes": list(filed.notes)}

    @app.post("/v1/restart", status_code=202)
    def restart(request: Request, key: Key = None) -> dict[str, Any]:
        return answer(desk.restart(_person(request), key))

    @app.post("/v1/rollouts/{rollout_id}/abort", status_code=202)
    def abort(rollout_id: str, request: Request, key: Key = None) -> dict[str, Any]:
        return answer(desk.abort(_person(request), rollout_id, key))

    @app.post("/v1/rollouts/{rollout_id}/withdraw", status_code=202)
    def withdraw(rollout_id: str, request: Request, key: Key = None) -> dict[str, Any]:
        return answer(desk.withdraw(_person(request), rollout_id, key))

    @app.post("/v1/rollouts/{rollout_id}/priority")
    def reorder(rollout_id: str, body: PriorityBody, request: Request) -> dict[str, Any]:
        return answer(desk.reorder(_person(request), rollout_id, body.priority))

    @app.post("/v1/rollouts/{rollout_id}/approve", status_code=202)
    def approve(rollout_id: str, request: Request, key: Key = None) -> dict[str, Any]:
        return answer(desk.approve(_person(request), rollout_id, key))


def _nudging(app: FastAPI, windows: Windows) -> None:
    desk = windows.desk

    @app.post("/v1/nudge")
    async def nudge(
        request: Request, wait_s: Annotated[float, Query(ge=NUDGE_LEAST_S, le=NUDGE_S)] = NUDGE_S
    ) -> dict[str, Any]:
        """Look now, and say what is waited for: answered after a pass that began after this was asked.

        `looked` is false where there was none for `wait_s`.
        """
        require(_person(request), "view", "nudge the daemon")
        seen, left_s = windows.passes(), wait_s
        while not (looked := windows.passes() >= seen + 2) and left_s > 0:  # the next one to end may have begun before
            desk.nudge()
            await asyncio.sleep(EVENT_POLL_S)
            left_s -= EVENT_POLL_S
        if not looked:
            log.warning("nudged, and the loop does not look", why=windows.why())
        wall_s = desk.now().wall_s
        opening = [
            {"window": name, "open": schedule.current(wall_s) is not None, "sentence": opens(schedule, wall_s)}
            for name, schedule in desk.policy.schedules.items()
        ]
        sentence = (
            windows.why() if looked else f"the daemon's loop has ended no pass for {wait_s:.0f} s: its log says why"
        )
        return {
            "schema": views.SCHEMA,
            "looked": looked,
            "sentence": sentence,
            "windows": opening,
            "alarms": windows.alarms(),
        }


def _closing(app: FastAPI, windows: Windows) -> None:
    desk = windows.desk

    @app.post("/v1/freeze")
    def freeze(body: FreezeBody, request: Request) -> dict[str, Any]:
        """`replaced`: the freeze that was there before, or null."""
        replaced = desk.freeze(_person(request), body.why, body.until)
        sentence = "frozen: queued proposals wait, people still may roll back"
        more = f"; it takes the place of the freeze of {replaced.by} ({replaced.why})" if replaced else ""
        return {
            "schema": views.SCHEMA,
            "sentence": sentence + more,
            "replaced": asdict(replaced) if replaced else None,
        }

    @app.post("/v1/unfreeze")
    def unfreeze(request: Request) -> dict[str, Any]:
        """`ended`: the freeze that was there."""
        ended = desk.unfreeze(_person(request))
        sentence = f"the queue moves again: the freeze of {ended.by} ({ended.why}) is over"
        return {"schema": views.SCHEMA, "sentence": sentence, "ended": asdict(ended)}

    @app.post("/v1/gpus/{card}/cordon")
    def cordon(card: str, body: WhyBody, request: Request) -> dict[str, Any]:
        gpu = desk.cordon(_person(request), card, body.why)
        return {"schema": views.SCHEMA, "gpu": gpu, "sentence": f"nobody gets {gpu} until `cutover uncordon {card}`"}

    @app.post("/v1/gpus/{card}/uncordon")
    def uncordon(card: str, request: Request) -> dict[str, Any]:
        gpu = desk.uncordon(_person(request), card)
        return {"schema": views.SCHEMA, "gpu": gpu, "sentence": f"{gpu} can be had again"}

    @app.post("/v1/stop", status_code=202)
    def stop(request: Request) -> dict[str, Any]:
        desk.stop(_person(request))
        sentence = "live drains and stops; `cutover rollback` brings it back"
        return {"schema": views.SCHEMA, "sentence": sentence, "seq": windows.journal.last_seq()}


def _releases(app: FastAPI, windows: Windows) -> None:
    catalogue = windows.catalogue

    @app.get("/v1/releases")
    def releases() -> dict[str, Any]:
        known = windows.journal.state.releases
        listed = [
            views.release(known[name]) if name in known else {"id": name, "name": name.partition("@")[0]}
            for name in catalogue.ids()
        ]
        return {"schema": views.SCHEMA, "releases": listed}

    @app.get("/v1/releases/{release_id}")
    def release(release_id: str) -> dict[str, Any]:
        frozen = catalogue.find(release_id)
        return {
            "schema": views.SCHEMA,
            "id": frozen.id,
            "digest": frozen.digest,
            "topology": frozen.topology.to_yaml(),
            "scripts": dict(frozen.scripts),
            "manifest": dict(frozen.manifest),
        }

    @app.get("/v1/releases/{one}/diff/{other}")
    def difference(one: str, other: str) -> dict[str, Any]:
        found = diff(catalogue.find(one), catalogue.find(other))
        return {"schema": views.SCHEMA, "text": found.text(), "diff": found.to_json()}


def _tokens(app: FastAPI, windows: Windows) -> None:
    tokens = windows.tokens

    @app.get("/v1/tokens")
    def listed(request: Request) -> dict[str, Any]:
        require(_person(request), "admin", "see the tokens")
        return {"schema": views.SCHEMA, "tokens": tokens.listed()}

    @app.post("/v1/tokens", status_code=201)
    def create(body: TokenBody, request: Request) -> dict[str, Any]:
        """`secret` is told here and never again."""
        person = _person(request)
        require(person, "admin", "create a token")
        token, secret = tokens.create(body.name, body.role, body.days, person.name)
        log.info("token created", token=token["id"], name=body.name, role=body.role, by=person.name)
        return {"schema": views.SCHEMA, "token": token, "secret": secret}

    @app.post("/v1/tokens/{token_id}/revoke")
    def revoke(token_id: str, request: Request) -> dict[str, Any]:
        person = _person(request)
        require(person, "admin", "revoke a token")
        tokens.revoke(token_id)
        log.info("token revoked", token=token_id, by=person.name)
        return {"schema": views.SCHEMA, "sentence": f"{token_id} opens nothing any more"}
