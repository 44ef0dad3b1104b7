"""What a check leaves behind for people: the request, the answer byte by byte with its times, the rule, the sentence.

An API key is never written: the header is named instead, and a server that echoes the key back is blacked out.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates.redact import Redactor
from gates.wire import Piece

if TYPE_CHECKING:
    from gates.wire import Exchange

__all__ = ["Evidence", "Redactor"]

_MAX_PIECES_BYTES: Final = 2 * 1024 * 1024
_SPELT_OUT: Final = "the answer spells the API key over several events; its body is not kept"


@dataclass
class Evidence:
    """Numbered files in one directory."""

    directory: Path
    redactor: Redactor
    api_key_env: str | None = None
    problem: str | None = None
    """Why nothing more could be written (a full disk): evidence is lost then, the verdict is not."""
    _count: int = field(default=0)

    def write(self, check_id: str, rule: str, sentence: str, exchanges: list[Exchange]) -> list[str]:
        """One file for one finding; the paths written."""
        self._count += 1
        slug = re.sub(r"[^A-Za-z0-9]+", "-", check_id).strip("-").lower()
        path = self.directory / f"{self._count:03d}-{slug}.json"
        document = {
            "check": check_id,
            "rule": rule,
            "sentence": self.redactor.text(sentence),
            "exchanges": [self._exchange(exchange) for exchange in exchanges],
        }
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_text(
                json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", errors="replace"
            )
        except OSError as error:
            self.problem = f"evidence could not be written to {self.directory}: {error.strerror}"
            return []
        return [str(path)]

    def _exchange(self, exchange: Exchange) -> dict[str, Any]:
        key = f"Bearer (from ${self.api_key_env})" if self.redactor.api_key else None
        failure = self.redactor.failure(exchange.failure)
        return {
            "request": {
                "method": exchange.method,
                "path": exchange.path,
                "authorization": key,
                "body": _json_or_text(self.redactor.data(exchange.request_body)),
            },
            "response": {
                "status": exchange.status,
                "headers": [[name, self.redactor.text(value)] for name, value in exchange.headers],
                "pieces": self._pieces(exchange),
                "failure": vars(failure) if failure else None,
                "total_s": round(exchange.total_s, 6),
            },
        }

    def _pieces(self, exchange: Exchange) -> list[dict[str, Any]]:
        written, pieces = 0, []
        # A key that was cut by a chunk border would pass a piece-by-piece search, so such a body is kept in one piece.
        body = exchange.body if self.redactor.api_key else b""
        clean = self.redactor.data(body)
        if self.redactor.spelt_in(replace(exchange, pieces=(Piece(0.0, clean),))):
            return [{"cut": _SPELT_OUT}]
        if clean != body:
            return [_piece(exchange.total_s, clean[:_MAX_PIECES_BYTES])]
        for piece in exchange.pieces:
            written += len(piece.data)
            if written > _MAX_PIECES_BYTES:
                pieces.append({"cut": f"{len(exchange.body)} bytes came; the rest is not kept"})
                break
            pieces.append(_piece(piece.at_s - exchange.sent_at_s, piece.data))
        return pieces


def _piece(at_s: float, data: bytes) -> dict[str, Any]:
    try:
        return {"at_s": round(at_s, 6), "text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"at_s": round(at_s, 6), "base64": base64.b64encode(data).decode()}


def _json_or_text(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", errors="replace")
