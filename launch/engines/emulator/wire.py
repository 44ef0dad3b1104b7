"""The wire format of one answer: server-sent events or one JSON body, as vLLM 0.32 or SGLang 0.5.23 write them."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from json.encoder import encode_basestring as quoted
from random import SystemRandom
from typing import Any, Protocol

from .request import Asked
from .settings import Dialect
from .tokens import Piece

_identities = SystemRandom()
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
EOS_TOKEN_ID = 151645


def framed(event: bytes) -> bytes:
    """One HTTP chunk around one event, as the real servers send them."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def hex_id(digits: int) -> str:
    return f"{_identities.getrandbits(4 * digits):0{digits}x}"


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int | None  # None: the engine does not report them


@dataclass(slots=True)
class Written:
    """What the answer amounted to, for the body that is not streamed."""

    reasoning: str = ""
    content: str = ""
    calls: list[list[str]] | None = None  # name, arguments

    def add(self, piece: Piece) -> None:
        match piece.kind:
            case "reasoning":
                self.reasoning += piece.text
            case "content":
                self.content += piece.text
            case "call":
                self.calls = [*(self.calls or []), [piece.text, ""]]
            case "arguments" if self.calls:
                self.calls[-1][1] += piece.text


class Wire(Protocol):
    """Writes one answer. All results are bytes for the socket, event framing included."""

    request_id: str

    def opening(self) -> bytes:
        """What comes just before the first token."""

    def events(self, group: list[Piece]) -> bytes:
        """The event(s) of tokens that leave together."""

    def closing(self, finish: str, usage: Usage | None) -> bytes:
        """What comes after the last token, up to and including [DONE]; `usage` if the client wants it."""

    def body(self, written: Written, finish: str, usage: Usage | None) -> bytes:
        """The whole answer as one JSON document."""

    def finish_of_calls(self) -> str:
        """The finish_reason of an answer that ends with calls."""


def wire_for(asked: Asked, dialect: Dialect) -> Wire:
    if not asked.chat:
        return _TextWire(asked, dialect)
    return _VllmChat(asked) if dialect is Dialect.VLLM else _SglangChat(asked)


def error_body(message: str, kind: str, status: int, param: str | None, dialect: Dialect) -> bytes:
    """An error as the dialect writes it: vLLM wraps it in `error` as OpenAI does, SGLang does not."""
    if dialect is Dialect.VLLM:
        return compact({"error": {"message": message, "type": kind, "param": param, "code": status}})
    return compact({"object": "error", "message": message, "type": kind, "param": param, "code": status})


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


class _Chat:
    """What both dialects of chat completions share. Fixed parts of an event are encoded once per request."""

    neutral_tail: str

    def __init__(self, asked: Asked, request_id: str) -> None:
        self.request_id = request_id
        self._asked = asked
        self._created = int(time.time())
        envelope = f'"object":"chat.completion.chunk","created":{self._created},"model":{quoted(asked.model)}'
        self._envelope = f'data: {{"id":"{request_id}",{envelope},"choices":['
        self._head = self._envelope + '{"index":0,"delta":'
        self._call_ids: list[str] = []

    def opening(self) -> bytes:
        return self._event(self.delta(role='"assistant"', content='""'))

    def events(self, group: list[Piece]) -> bytes:
        return b"".join(self._event(delta) for delta in self._deltas(group))

    def closing(self, finish: str, usage: Usage | None) -> bytes:
        last = f"{self._head}{self.last_delta()}{self.finish_tail(finish)}\n\n"
        events = [framed(last.encode())]
        if usage is not None:
            numbers = json.dumps(self.usage(usage), separators=(",", ":"))
            events.append(framed(f'{self._envelope}],"usage":{numbers}}}\n\n'.encode()))
        return b"".join([*events, framed(DONE), LAST_CHUNK])

    def _event(self, delta: str) -> bytes:
        return framed(f"{self._head}{delta}{self.neutral_tail}\n\n".encode(errors="replace"))

    def _deltas(self, group: list[Piece]) -> Iterator[str]:
        for (kind, call), pieces in groupby(group, key=lambda piece: (piece.kind, piece.call)):
            text = quoted("".join(piece.text for piece in pieces))
            match kind:
                case "content":
                    yield self.delta(content=text)
                case "reasoning":
                    yield self.delta(reasoning=text)
                case "call":
                    self._call_ids.append(self.call_id())
                    yield self.delta(calls=self.call_opening(call, quoted(self._call_ids[-1]), text))
                case "arguments":
                    yield self.delta(calls=self.call_arguments(call, text))

    # The dialect's own part.

    def delta(self, *, role: str = "", content: str = "", reasoning: str = "", calls: str = "") -> str:
        raise NotImplementedError

    def last_delta(self) -> str:
        raise NotImplementedError

    def finish_tail(self, finish: str) -> str:
        raise NotImplementedError

    def call_id(self) -> str:
        raise NotImplementedError

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        raise NotImplementedError

    def call_arguments(self, index: int, text: str) -> str:
        raise NotImplementedError

    def usage(self, usage: Usage) -> dict[str, Any]:
        raise NotImplementedError


class _VllmChat(_Chat):
    neutral_tail = ',"logprobs":null,"finish_reason":null,"token_ids":null}]}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, f"chatcmpl-{hex_id(32)}")

    def finish_of_calls(self) -> str:
        return "stop" if self._asked.choice.mode == "named" else "tool_calls"

    def delta(self, *, role: str = "", content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("role", role), ("content", content), ("reasoning", reasoning), ("tool_calls", calls))
        return "{" + ",".join(f'"{name}":{text}' for name, text in fields if text) + "}"

    def last_delta(self) -> str:
        return '{"content":""}'

    def finish_tail(self, finish: str) -> str:
        return f',"logprobs":null,"finish_reason":"{finish}","stop_reason":null,"token_ids":null}}]}}'

    def call_id(self) -> str:
        return f"chatcmpl-tool-{hex_id(16)}"

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        function = f'{{"name":{name},"arguments":""}}'
        return f'[{{"id":{call_id},"type":"function","index":{index},"function":{function}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        return f'[{{"index":{index},"function":{{"arguments":{text}}}}}]'

    def usage(self, usage: Usage) -> dict[str, Any]:
        details = None if usage.cached_tokens is None else {"cached_tokens": usage.cached_tokens}
        return {
            "prompt_tokens": usage.prompt_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "completion_tokens": usage.completion_tokens,
            "prompt_tokens_details": details,
        }

    def body(self, written: Written, finish: str, usage: Usage | None) -> bytes:
        forced = self._asked.choice.mode in ("required", "named")
        empty = "" if written.calls and forced else None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": written.content or empty,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": written.reasoning or None,
        }
        if written.calls:
            message["tool_calls"] = [
                {"id": self.call_id(), "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in written.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        document = {
            "id": self.request_id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._asked.model,
            "choices": [{**choice, "token_ids": None}],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": self.usage(usage) if usage else None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }
        return compact(document)


class _SglangChat(_Chat):
    neutral_tail = ',"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, hex_id(32))

    def finish_of_calls(self) -> str:
        return "tool_calls"

    def delta(self, *, role: str = "", content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("role", role), ("content", content), ("reasoning_content", reasoning), ("tool_calls", calls))
        return "{" + ",".join(f'"{name}":{text or "null"}' for name, text in fields) + "}"

    def last_delta(self) -> str:
        return self.delta()

    def finish_tail(self, finish: str) -> str:
        matched = EOS_TOKEN_ID if finish == "stop" else "null"
        return f',"logprobs":null,"finish_reason":"{finish}","matched_stop":{matched}}}],"usage":null}}'

    def call_id(self) -> str:
        return f"call_{hex_id(24)}"

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        function = f'{{"name":{name},"arguments":""}}'
        return f'[{{"id":{call_id},"index":{index},"type":"function","function":{function}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        function = f'{{"name":null,"arguments":{text}}}'
        return f'[{{"id":null,"index":{index},"type":"function","function":{function}}}]'

    def usage(self, usage: Usage) -> dict[str, Any]:
        details = None if usage.cached_tokens is None else {"cached_tokens": usage.cached_tokens}
        return {
            "prompt_tokens": usage.prompt_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "completion_tokens": usage.completion_tokens,
            "prompt_tokens_details": details,
            "reasoning_tokens": usage.reasoning_tokens,
        }

    def body(self, written: Written, finish: str, usage: Usage | None) -> bytes:
        calls = [
            {"id": self.call_id(), "index": index, "type": "function", "function": {"name": name, "arguments": text}}
            for index, (name, text) in enumerate(written.calls or [])
        ]
        message = {
            "role": "assistant",
            "content": written.content,
            "reasoning_content": written.reasoning or None,
            "tool_calls": calls or None,
        }
        matched = EOS_TOKEN_ID if finish == "stop" else None
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "matched_stop": matched}
        document = {
            "id": self.request_id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._asked.model,
            "choices": [choice],
            "usage": self.usage(usage) if usage else None,
            "metadata": {"weight_version": "default"},
        }
        return compact(document)


class _TextWire:
    """Text completions; the two engines differ here only in names nobody reads."""

    def __init__(self, asked: Asked, dialect: Dialect) -> None:
        self.request_id = f"cmpl-{hex_id(32)}"
        self._asked = asked
        self._created = int(time.time())
        self._stop_field = "stop_reason" if dialect is Dialect.VLLM else "matched_stop"

    def opening(self) -> bytes:
        return b""

    def events(self, group: list[Piece]) -> bytes:
        return self._event("".join(piece.text for piece in group), None)

    def closing(self, finish: str, usage: Usage | None) -> bytes:
        events = [self._event("", finish)]
        if usage is not None:
            events.append(framed(b"data: " + compact({**self._envelope(), "choices": [], **_usage(usage)}) + b"\n\n"))
        return b"".join([*events, framed(DONE), LAST_CHUNK])

    def body(self, written: Written, finish: str, usage: Usage | None) -> bytes:
        choices = [self._choice(written.content, finish)]
        return compact({**self._envelope(), "choices": choices, **(_usage(usage) if usage else {})})

    def finish_of_calls(self) -> str:
        return "stop"

    def _event(self, text: str, finish: str | None) -> bytes:
        return framed(b"data: " + compact({**self._envelope(), "choices": [self._choice(text, finish)]}) + b"\n\n")

    def _choice(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, self._stop_field: None}

    def _envelope(self) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": "text_completion",
            "created": self._created,
            "model": self._asked.model,
        }


def _usage(usage: Usage) -> dict[str, Any]:
    total = usage.prompt_tokens + usage.completion_tokens
    numbers = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return {"usage": {**numbers, "total_tokens": total}}
