"""Text completions; the engines differ here only in names nobody reads."""

import time
from collections.abc import Sequence
from typing import Any

from ..request import Asked
from ..settings import Dialect
from ..tokens import Piece
from .framing import DONE, LAST_CHUNK, compact, event, framed, hex_id
from .written import Usage, Written


class TextWire:
    """Writes the answer to POST /v1/completions."""

    def __init__(self, asked: Asked, dialect: Dialect) -> None:
        self.request_id = f"cmpl-{hex_id(32)}"
        self._asked = asked
        self._created = int(time.time())
        self._stop_field = "stop_reason" if dialect.is_vllm else "matched_stop"

    def opening(self, choice: int = 0) -> bytes:
        del choice
        return b""

    def events(self, group: list[Piece], choice: int = 0, usage: Usage | None = None) -> bytes:
        text = "".join(piece.text for piece in group)
        return event({**self._envelope(), "choices": [self._choice(choice, text)], **_usage(usage)})

    def finishing(self, finish: str, choice: int = 0, matched: str | None = None, usage: Usage | None = None) -> bytes:
        return event({**self._envelope(), "choices": [self._choice(choice, "", finish, matched)], **_usage(usage)})

    def closing(self, usage: Usage | None) -> bytes:
        last = b"" if usage is None else event({**self._envelope(), "choices": [], **_usage(usage)})
        return last + framed(DONE) + LAST_CHUNK

    def failure(self, message: str, kind: str, status: int) -> bytes:
        error = compact({"error": {"message": message, "type": kind, "param": None, "code": status}})
        return framed(b"data: " + error + b"\n\n") + framed(DONE) + LAST_CHUNK

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        listed = [
            self._choice(n, written.content, written.finish, written.matched) for n, written in enumerate(choices)
        ]
        return compact({**self._envelope(), "choices": listed, **_usage(usage)})

    def finish_of_calls(self) -> str:
        return "stop"

    def _choice(self, number: int, text: str, finish: str | None = None, matched: str | None = None) -> dict[str, Any]:
        return {"index": number, "text": text, "logprobs": None, "finish_reason": finish, self._stop_field: matched}

    def _envelope(self) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self._created,
            "model": self._asked.model,
        }


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    total = usage.prompt_tokens + usage.completion_tokens
    numbers = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return {"usage": {**numbers, "total_tokens": total}}
