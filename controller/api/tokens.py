"""Bearer tokens of the TCP listener: shown once, kept as digests, with a role and an end."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import wholefile
from ..errors import CutoverError, NotFoundError, RefusedError
from .desk import ROLES, Person, by_token

PREFIX = "cutover_"
MOST_TOKENS = 100
_SECRET_BYTES = 32
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of one: `digest` is the SHA-256 of the secret, which has 256 random bits and so needs no salt."""

    id: str
    name: str
    role: str
    digest: str
    created_s: float
    expires_s: float
    by: str

    def shown(self, now_s: float) -> dict[str, Any]:
        """Without the digest."""
        told = {key: value for key, value in asdict(self).items() if key != "digest"}
        return {**told, "expired": self.expires_s <= now_s}


class Tokens:
    """The file `tokens.json`, 0600, written as a whole. Safe for many threads.

    Raises `CutoverError` when the file cannot be read: a daemon that forgot who may ask must say so, not let nobody in.
    """

    def __init__(self, file: Path, now_s: Callable[[], float]) -> None:
        self._file = file
        self._now_s = now_s
        self._lock = threading.Lock()
        self._tokens = {token.id: token for token in _read(file)}

    def create(self, name: str, role: str, days: float, by: str) -> tuple[dict[str, Any], str]:
        """The token as it is listed, and its secret, which is nowhere kept."""
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        now_s = self._now_s()
        with self._lock:
            alive = {key: token for key, token in self._tokens.items() if token.expires_s > now_s}
            if len(alive) >= MOST_TOKENS:
                raise RefusedError(f"there are {MOST_TOKENS} tokens already: `cutover token revoke` one first")
            token_id = next(new for _ in iter(int, 1) if (new := f"t{secrets.token_hex(3)}") not in self._tokens)
            token = Token(token_id, name, role, _digest(secret), now_s, now_s + days * _DAY_S, by)
            self._write({**alive, token_id: token})
        return token.shown(now_s), secret

    def revoke(self, token_id: str) -> None:
        """From the next request on it opens nothing."""
        with self._lock:
            if token_id not in self._tokens:
                raise NotFoundError(f"there is no token {token_id}: `cutover token list` names them")
            self._write({key: token for key, token in self._tokens.items() if key != token_id})

    def listed(self) -> list[dict[str, Any]]:
        now_s = self._now_s()
        with self._lock:
            return [token.shown(now_s) for token in self._tokens.values()]

    def person(self, secret: str) -> Person | None:
        """Who holds this secret; None: nobody, or not any more.

        Digests are compared, each in constant time, all of them always: how long it takes tells nothing of a secret.
        """
        given = _digest(secret)
        with self._lock:
            found = [token for token in self._tokens.values() if hmac.compare_digest(token.digest, given)]
        for token in found:
            if token.expires_s > self._now_s():
                return Person(by_token(token.name, token.id), -1, token.role)
        return None

    def _write(self, tokens: dict[str, Token]) -> None:
        """The file first: what could not be kept must not open anything either."""
        text = json.dumps({"tokens": [asdict(token) for token in tokens.values()]}, indent=1)
        try:
            wholefile.put(self._file, text, mode=0o600)
        except OSError as error:
            raise CutoverError(f"the tokens cannot be kept in {self._file}: {error.strerror}") from error
        self._tokens = tokens


class Failures:
    """How many tokens were wrong lately. Beyond `most` in `window_s` the answer is 429, for wrong ones only.

    Nobody guesses 256 bits; what this bounds is the noise. A right token is always let through, so that a stranger
    cannot lock out whoever wants to roll back.
    """

    def __init__(self, now_s: Callable[[], float], most: int = 10, window_s: float = 60.0) -> None:
        self._window_s = window_s
        self._now_s = now_s
        self._at_s: deque[float] = deque(maxlen=most)

    def wait_s(self) -> int:
        """Count one failure. Seconds until the next one is listened to; 0: this one was."""
        now_s = self._now_s()
        full = len(self._at_s) == self._at_s.maxlen
        if full and now_s - self._at_s[0] < self._window_s:
            return max(1, round(self._window_s - (now_s - self._at_s[0])))
        self._at_s.append(now_s)
        return 0


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _read(file: Path) -> list[Token]:
    try:
        return [_token(entry) for entry in json.loads(file.read_text())["tokens"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CutoverError(
            f"the tokens in {file} cannot be read ({error}); move the file away, and create them anew with "
            "`cutover token create`"
        ) from error


def _token(entry: Mapping[str, Any]) -> Token:
    token = Token(**entry)
    if token.role not in ROLES:
        raise ValueError(f"{token.role} is no role")
    return replace(token, digest=str(token.digest), expires_s=float(token.expires_s))
