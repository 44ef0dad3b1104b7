"""Which path does what, in each dialect."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from .connection import Connection, Request
from .engine import Engine
from .log import log_crash
from .metrics import render_metrics
from .request import Asked, BadRequest, prompt_of, read_chat, read_completion, read_object
from .settings import Dialect, Settings, Thinking
from .tokens import prompt_pieces, token_id
from .wire import compact, error_body

_Handler = Callable[[Connection, Request], None]
VERSIONS = {
    Dialect.VLLM: "0.32.0",
    Dialect.VLLM_OLD: "0.11.0",
    Dialect.SGLANG: "0.5.23",
    Dialect.LLAMACPP: "b7083",
    Dialect.SMG: "1.13.0",
}

_HEALTH = frozenset({"/health", "/ping", "/health_generate"})
_ENDLESS = 2**40


class Routes:
    """Serves one request: finds its handler, turns refusals into error bodies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dialect = engine.settings.dialect
        self._table = self._common() | (self._own(self._dialect))
        self._paths = {path for _, path in self._table}

    def serve(self, connection: Connection, request: Request) -> None:
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._table.get((method, request.path))
        if handler is None:
            self._unknown(connection, request)
        elif not self._engine.ready or self._engine.fault("never-ready"):
            self._json(connection, {"detail": "Service Unavailable"}, HTTPStatus.SERVICE_UNAVAILABLE)
        elif self._locked(request):
            self._json(connection, {"error": "Unauthorized"}, HTTPStatus.UNAUTHORIZED)
        elif self._engine.dead and request.path in _HEALTH:
            self._json(connection, {"detail": "Service Unavailable"}, HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._handled(handler, connection, request)

    def _handled(self, handler: _Handler, connection: Connection, request: Request) -> None:
        try:
            handler(connection, request)
        except BadRequest as refusal:
            kind = "NotFoundError" if refusal.status == HTTPStatus.NOT_FOUND else "BadRequestError"
            body = error_body(str(refusal), kind, refusal.status, refusal.param, self._dialect)
            connection.respond(refusal.status, body)
        except Exception as error:  # noqa: BLE001 - our own mistake must answer 500, not leave the client waiting
            log_crash(f"{type(error).__name__}: {error}")
            body = error_body(str(error), "InternalServerError", 500, None, self._dialect)
            connection.respond(HTTPStatus.INTERNAL_SERVER_ERROR, body)

    def _locked(self, request: Request) -> bool:
        key = self._engine.settings.api_key
        return (
            key is not None
            and request.path.startswith("/v1")
            and (request.headers.get("authorization") != f"Bearer {key}")
        )

    def _unknown(self, connection: Connection, request: Request) -> None:
        known = request.path in self._paths
        status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
        self._json(connection, {"detail": status.phrase}, status)

    # the tables

    def _common(self) -> dict[tuple[str, str], _Handler]:
        return {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): lambda c, _: c.respond(HTTPStatus.OK, b""),
            ("GET", "/ping"): lambda c, _: c.respond(HTTPStatus.OK, b""),
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/server_info"): self._server_info,
        }

    def _own(self, dialect: Dialect) -> dict[tuple[str, str], _Handler]:
        match dialect:
            case Dialect.VLLM | Dialect.VLLM_OLD:
                return self._vllm()
            case Dialect.LLAMACPP:
                return self._llamacpp()
            case _:
                # smg's router stands before a worker of SGLang's: life and death are that worker's.
                return self._sglang()

    def _vllm(self) -> dict[tuple[str, str], _Handler]:
        return {
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/sleep"): self._sleep,
            ("POST", "/wake_up"): self._wake,
            ("GET", "/is_sleeping"): lambda c, _: self._json(c, {"is_sleeping": self._engine.sleep_level > 0}),
        }

    def _sglang(self) -> dict[tuple[str, str], _Handler]:
        return {
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/release_memory_occupation"): self._release_memory,
            ("POST", "/resume_memory_occupation"): self._wake,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/get_model_info"): self._model_info,
            ("GET", "/health_generate"): lambda c, _: c.respond(HTTPStatus.OK, b""),
        }

    def _llamacpp(self) -> dict[tuple[str, str], _Handler]:
        return {
            ("POST", "/tokenize"): self._tokenize_content,
            ("POST", "/apply-template"): self._apply_template,
            ("GET", "/props"): self._props,
        }

    # the handlers

    def _chat(self, connection: Connection, request: Request) -> None:
        self._generate(connection, request, read_chat)

    def _completion(self, connection: Connection, request: Request) -> None:
        self._generate(connection, request, read_completion)

    def _generate(self, connection: Connection, request: Request, read: Callable[[bytes, Settings], Asked]) -> None:
        asked, refusal = self._read(bytes(request.body), read)
        if asked.streamed and request.version == "1.0":
            raise BadRequest("a stream needs HTTP/1.1: HTTP/1.0 has no chunks", "stream")
        self._engine.submit(connection, asked, request.arrived_ns, refusal)

    def _read(self, body: bytes, read: Callable[[bytes, Settings], Asked]) -> tuple[Asked, BadRequest | None]:
        """The request; if it is only too long and a fault may take it, with the refusal that it would get."""
        try:
            return read(body, self._engine.settings), None
        except BadRequest as refusal:
            if not self._engine.takes_too_long:
                raise
            return read(body, replace(self._engine.settings, max_model_len=_ENDLESS)), refusal

    def _tokenize(self, connection: Connection, request: Request) -> None:
        settings = self._engine.settings
        fields = read_object(bytes(request.body))
        tokens = prompt_pieces(prompt_of(fields, settings))
        shown = [token.decode(errors="replace") for token in tokens] if fields.get("return_token_strs") else None
        document = {
            "count": len(tokens),
            "max_model_len": settings.max_model_len,
            "tokens": list(map(token_id, tokens)),
        }
        self._json(connection, {**document, "token_strs": shown} if self._dialect.is_vllm else document)

    def _tokenize_content(self, connection: Connection, request: Request) -> None:
        content = read_object(bytes(request.body)).get("content")
        if not isinstance(content, str):
            raise BadRequest("content must be a string", "content")
        self._json(connection, {"tokens": list(map(token_id, prompt_pieces(content.encode(errors="replace"))))})

    def _apply_template(self, connection: Connection, request: Request) -> None:
        prompt = prompt_of(read_object(bytes(request.body)), self._engine.settings)
        self._json(connection, {"prompt": prompt.decode(errors="replace")})

    def _props(self, connection: Connection, request: Request) -> None:
        del request
        settings = self._engine.settings
        self._json(
            connection,
            {
                "total_slots": settings.slots,
                "model_path": settings.models[0],
                "default_generation_settings": {"n_ctx": settings.max_model_len},
                "build_info": f"{VERSIONS[self._dialect]}-emulated",
            },
        )

    def _models(self, connection: Connection, request: Request) -> None:
        del request
        owner = "vllm" if self._dialect.is_vllm else self._dialect.value
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._engine.created,
                "owned_by": owner,
                "root": self._engine.settings.models[0],
                "parent": None,
                "max_model_len": self._engine.settings.max_model_len,
            }
            for name in self._engine.settings.models
        ]
        self._json(connection, {"object": "list", "data": cards})

    def _version(self, connection: Connection, request: Request) -> None:
        del request
        self._json(connection, {"version": f"{VERSIONS[self._dialect]}+emulated"})

    def _metrics(self, connection: Connection, request: Request) -> None:
        del request
        connection.respond(HTTPStatus.OK, render_metrics(self._engine), "text/plain; version=0.0.4; charset=utf-8")

    def _sleep(self, connection: Connection, request: Request) -> None:
        level = request.query.get("level", ["1"])[0]
        if level not in ("1", "2"):
            raise BadRequest(f"the sleep level is 1 or 2, not {level!r}", "level")
        self._engine.sleep(int(level))
        connection.respond(HTTPStatus.OK, b"")

    def _release_memory(self, connection: Connection, request: Request) -> None:
        del request
        self._engine.sleep(1)
        self._json(connection, None)

    def _wake(self, connection: Connection, request: Request) -> None:
        del request
        self._engine.wake()
        connection.respond(HTTPStatus.OK, b"" if self._dialect.is_vllm else b"null")

    def _model_info(self, connection: Connection, request: Request) -> None:
        del request
        settings = self._engine.settings
        self._json(connection, {"model_path": settings.models[0], "is_generation": True})

    def _server_info(self, connection: Connection, request: Request) -> None:
        del request
        settings, timing = self._engine.settings, self._engine.settings.timing
        self._json(
            connection,
            {
                "version": f"{VERSIONS[self._dialect]}+emulated",
                "model_path": settings.models[0],
                "served_model_name": settings.models[0],
                "tp_size": settings.tensor_parallel,
                "context_length": settings.max_model_len,
                "max_total_num_tokens": settings.kv_tokens,
                "max_running_requests": settings.slots,
                "vram_mib": self._engine.vram_mib,
                "has_thinking": settings.thinking is not Thinking.NEVER,
                "ttft_ms": timing.ttft_ms,
                "itl_ms": timing.itl_ms,
                "tokens_per_chunk": timing.tokens_per_chunk,
                "random_seed": settings.seed,
                "faults": [setting.fault.name for setting in settings.faults],
                "struck": self._engine.counters.struck,
            },
        )

    @staticmethod
    def _json(connection: Connection, value: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        connection.respond(status, compact(value))
