"""llama.cpp's server: fields only where there is something, `timings` at the end, name and first brace in one delta."""

import time
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any

from ..request import Asked
from ..tokens import Piece
from .chat import Chat
from .framing import LAST_CHUNK, compact, event, letters_id
from .written import Usage, Written

FINGERPRINT = "b7083-emulated"


class LlamacppChat(Chat):
    """Arguments that max_tokens cut are handed over as they are, with finish `length`, as this server does."""

    neutral_tail = ',"finish_reason":null}]}'
    usage_tail = ',"finish_reason":null}],"usage":%s}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, f"chatcmpl-{letters_id(32)}")
        self._started_ns = time.monotonic_ns()
        self._unopened: dict[int, tuple[int, str]] = {}  # choice → a call whose first delta waits for arguments

    def envelope(self) -> str:
        return f'{super().envelope()},"system_fingerprint":"{FINGERPRINT}"'

    def _deltas(self, group: list[Piece], choice: int) -> Iterator[str]:
        for piece in group:
            if piece.kind == "arguments" and choice in self._unopened:
                call, name = self._unopened.pop(choice)
                yield self._opened(call, name, piece.text)
            elif piece.kind == "call":
                yield from self._late(choice)
                self._unopened[choice] = (piece.call, piece.text)
            else:
                yield self._delta(*piece)

    def _late(self, choice: int) -> Iterator[str]:
        """The first delta of a call that got no arguments."""
        if choice in self._unopened:
            yield self._opened(*self._unopened.pop(choice), "")

    def _opened(self, call: int, name: str, arguments: str) -> str:
        call_id = letters_id(32)
        self._call_ids.append(call_id)
        function = f'{{"name":{quoted(name)},"arguments":{quoted(arguments)}}}'
        return self.delta(calls=f'[{{"index":{call},"id":"{call_id}","type":"function","function":{function}}}]')

    def finishing(self, finish: str, choice: int = 0, matched: str | None = None, usage: Usage | None = None) -> bytes:
        late = b"".join(self._event(delta, choice) for delta in self._late(choice))
        return late + super().finishing(finish, choice, matched, usage)

    def failure(self, message: str, kind: str, status: int) -> bytes:
        del kind
        return event({"error": {"code": status, "message": message, "type": "server_error"}}) + LAST_CHUNK

    def first_delta(self) -> str:
        return '{"role":"assistant","content":null}'

    def delta(self, *, content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("content", content), ("reasoning_content", reasoning), ("tool_calls", calls))
        return "{" + ",".join(f'"{name}":{text}' for name, text in fields if text) + "}"

    def last_delta(self) -> str:
        return "{}"

    def finish_tail(self, finish: str, matched: str | None, usage: str | None) -> str:
        del matched
        numbers = "" if usage is None else f',"usage":{usage}'
        return f',"finish_reason":"{finish}"}}]{numbers}}}'

    def call_id(self) -> str:
        return letters_id(32)

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        return f'[{{"index":{index},"id":{call_id},"type":"function","function":{{"name":{name},"arguments":""}}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        return f'[{{"index":{index},"function":{{"arguments":{text}}}}}]'

    def usage(self, usage: Usage) -> dict[str, Any]:
        return {
            "completion_tokens": usage.completion_tokens,
            "prompt_tokens": usage.prompt_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        }

    def usage_extra(self, usage: Usage) -> str:
        return f',"timings":{compact(self._timings(usage)).decode()}'

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        document: dict[str, Any] = {
            "choices": [self._choice(number, written) for number, written in enumerate(choices)],
            "created": self.created,
            "model": self._asked.model,
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion",
        }
        if usage is not None:
            document["usage"] = self.usage(usage)
        document["id"] = self.request_id
        if usage is not None:
            document["timings"] = self._timings(usage)
        return compact(document)

    def _choice(self, number: int, written: Written) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        if written.reasoning:
            message["reasoning_content"] = written.reasoning
        message["content"] = written.content or (None if written.calls else "")
        if written.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": arguments}, "id": self.call_id()}
                for name, arguments in written.calls
            ]
        return {"finish_reason": written.finish, "index": number, "message": message}

    def _timings(self, usage: Usage) -> dict[str, Any]:
        took_ms = (time.monotonic_ns() - self._started_ns) / 1e6
        cached = usage.cached_tokens or 0
        return {
            "cache_n": cached,
            "prompt_n": usage.prompt_tokens - cached,
            "predicted_n": usage.completion_tokens,
            "predicted_ms": round(took_ms, 3),
            "predicted_per_second": round(usage.completion_tokens / max(took_ms, 0.001) * 1000, 3),
        }
