"""Before a request is read: its size, and, over TCP, whom it calls and whose token it brings."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request
from fastapi.responses import JSONResponse

from ..errors import ExitCode
from .peers import SCOPE_KEY
from .tokens import Failures, Tokens

MAX_BODY_BYTES = 512 * 1024  # a topology of the largest allowed size, every character of it escaped
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
HTTP_STATUS = {
    ExitCode.FAILED: 500,
    ExitCode.USAGE: 422,
    ExitCode.NOT_FOUND: 404,
    ExitCode.NOT_ALLOWED: 403,
    ExitCode.REFUSED: 409,
}


def told(sentence: object, exit_code: int, status: int | None = None) -> JSONResponse:
    """Every error of the API has this shape."""
    body = {"error": str(sentence), "exit_code": int(exit_code)}
    return JSONResponse(body, status or HTTP_STATUS.get(ExitCode(exit_code), 500))


def too_large(request: Request) -> JSONResponse | None:
    size = request.headers.get("content-length", "0")
    decimal = size.isascii() and size.isdecimal() and len(size) < 20
    if decimal and int(size) <= MAX_BODY_BYTES and "transfer-encoding" not in request.headers:
        return None
    sentence = f"the body must say its length and be of at most {MAX_BODY_BYTES} bytes; it says {size[:40]}"
    return told(sentence, ExitCode.USAGE, 413)


class Door:
    """Of the TCP listener. A connection over the Unix socket has its person already and passes.

    The host is looked at although a page in somebody's browser has no token: a name that leads here by DNS rebinding is
    refused before anything else is. `hosts` are the names of a proxy that stands in front.
    """

    def __init__(self, tokens: Tokens, failures: Failures, hosts: Iterable[str] = ()) -> None:
        self._tokens = tokens
        self._hosts = frozenset(name.lower() for name in (*LOCAL_HOSTS, *hosts))
        self._failures = failures

    def refusal(self, request: Request) -> JSONResponse | None:
        """None: go on, and `request.state` has the person."""
        state = request.state._state  # noqa: SLF001 - lifespan state of the connection
        if SCOPE_KEY in state:
            return None
        if _host(request.headers.get("host", "")) not in self._hosts:
            return told("this name is not ours: see `api_hosts`", ExitCode.USAGE, 421)
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        person = self._tokens.person(secret.strip()) if scheme.lower() == "bearer" else None
        if person is not None:
            state[SCOPE_KEY] = person
            return None
        wait_s = self._failures.wait_s()
        if wait_s:
            answer = told("too many requests without a valid token", ExitCode.NOT_ALLOWED, 429)
            answer.headers["Retry-After"] = str(wait_s)
            return answer
        answer = told("a valid token is needed: Authorization: Bearer …", ExitCode.NOT_ALLOWED, 401)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _host(text: str) -> str:
    """The name without its port."""
    if text.startswith("["):
        return text.partition("]")[0].lower() + "]"
    return text.partition(":")[0].lower()
