"""The daemon's API over its Unix socket: a refusal becomes an exception with the daemon's sentence and exit code."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from ..errors import CutoverError, ExitCode, NotAllowedError
from .terminal import cleaned

PATIENCE_S = 30.0  # how long a daemon that is being restarted may stay away from somebody who waits
_PAUSE_S = 0.3
_READ_TIMEOUT_S = 120.0  # a proposal is frozen before it is answered: model files are hashed
_LOOK_TIMEOUT_S = 20.0  # who looks is answered at once by a daemon that is well, and must hear soon of one that is not
_LONG_POLL_S = 20.0


class NoDaemonError(CutoverError):
    """Nobody answers on the control socket."""


class ToldError(CutoverError):
    """The daemon said no; the exit code is its own."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class Client:
    """`patient` after the first answer of somebody who waits: then a daemon that goes away is waited for.

    `say` hears, once per absence, that it is waited for. Texts come without control characters.
    """

    def __init__(self, socket: Path, source: str, look_timeout_s: float = _LOOK_TIMEOUT_S) -> None:
        self._look_timeout_s = look_timeout_s
        self.socket = socket
        self.source = source
        self.patient = False
        self.say: Callable[[str], None] = lambda _: None
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)),
            base_url="http://cutover",
            timeout=httpx.Timeout(5.0, read=_READ_TIMEOUT_S),
            trust_env=False,
        )

    def get(self, path: str, **params: str | float) -> dict[str, Any]:
        patience_s = self._look_timeout_s + float(params.get("wait_s", 0.0))
        return self._ask("GET", path, params=params, timeout=httpx.Timeout(5.0, read=patience_s))

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, keyed: bool = True) -> dict[str, Any]:
        """File something. `keyed` requests carry a key of their own, so that asking again files nothing twice."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} if keyed else {}
        return self._ask("POST", path, json=dict(body or {}), headers=headers)

    def events(self, after: int, rollout: str | None, wait_s: float) -> tuple[list[dict[str, Any]], int]:
        """Journal lines after `after`, waiting up to `wait_s` for one; and where to go on."""
        params: dict[str, str | float] = {"after": after, "wait_s": round(max(0.0, min(wait_s, _LONG_POLL_S)), 3)}
        if rollout is not None:
            params["rollout"] = rollout
        answer = self.get("/v1/events", **params)
        return answer["events"], int(answer["last"])

    def _ask(self, method: str, path: str, **rest: Any) -> dict[str, Any]:
        keyed = "Idempotency-Key" in rest.get("headers", {})
        give_up_at_s: float | None = None
        wait_for_it = self.patient
        while True:
            try:
                return self._answer(self._http.request(method, path, **rest))
            except httpx.TransportError as error:
                broke_off = not isinstance(error, httpx.ConnectError | httpx.TimeoutException)
                wait_for_it = wait_for_it or (keyed and broke_off)
                now_s = time.monotonic()
                if give_up_at_s is None:
                    give_up_at_s = now_s + PATIENCE_S
                    if wait_for_it:
                        self.say(f"the daemon does not answer: trying again for {PATIENCE_S:.0f} s")
                if not wait_for_it or now_s >= give_up_at_s:
                    raise self._nobody(error) from error
                time.sleep(_PAUSE_S)

    def _nobody(self, error: httpx.TransportError) -> CutoverError:
        if isinstance(error, httpx.ReadTimeout):
            return NoDaemonError(
                f"the daemon on {self.socket} took the request and did not answer in time: it hangs, or the box has no "
                "time for it; users are served without it, and what was asked may still be done"
            )
        if _exists(self.socket) and not os.access(self.socket, os.R_OK | os.W_OK):
            return NotAllowedError(
                f"this user may not talk to the daemon on {self.socket}; join the group of the socket (`socket_group`)"
            )
        return NoDaemonError(
            f"no daemon answers on {self.socket} (from {self.source}); start it with `cutover serve` or "
            "`systemctl start cutover`, or name another with --config or --socket"
        )

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        try:
            document = cleaned(response.json())
        except ValueError:
            document = None
        if response.is_success and isinstance(document, dict):
            return document
        if isinstance(document, dict) and isinstance(document.get("error"), str):
            exit_code = document.get("exit_code")
            raise ToldError(document["error"], exit_code if isinstance(exit_code, int) else ExitCode.FAILED)
        raise ToldError(
            f"the daemon on {self.socket} answered {response.request.method} {response.request.url.path} "
            f"with HTTP {response.status_code}; its log says why",
            ExitCode.FAILED,
        )


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # in a folder that this user may not search
    return True
