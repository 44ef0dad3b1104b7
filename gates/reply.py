"""What an exchange with a chat endpoint means: text, calls, end, accounting, and every broken rule of the protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gates.sse import StrayLine, events
from gates.toolwire import Breach, ToolCall, ToolStream

if TYPE_CHECKING:
    from gates.wire import Exchange

FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter")
REASONING_FIELDS: Final = ("reasoning_content", "reasoning")


@dataclass(frozen=True)
class Usage:
    """What the engine counted."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True)
class Reply:
    """A chat answer. Times are monotonic seconds; a token event is one that carried text or a piece of a call."""

    streamed: bool
    model: str | None = None
    content: str = ""
    reasoning: str = ""
    reasoning_field: str | None = None
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    token_times_s: tuple[float, ...] = ()
    breaches: tuple[Breach, ...] = ()
    answered: bool = True
    """False when there is no chat answer at all: transport failed, an HTTP error, something that is not JSON."""

    def message(self) -> dict[str, Any]:
        """The assistant message exactly as received, to be sent back in a history."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if self.reasoning and self.reasoning_field:
            message[self.reasoning_field] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.calls
            ]
        return message


def read_reply(exchange: Exchange, *, streamed: bool) -> Reply:
    """Never raises, whatever the server sent."""
    if exchange.status is not None and exchange.status != 200:
        return _refusal(exchange, streamed=streamed)
    if exchange.failure is not None and not (streamed and exchange.pieces):
        return Reply(streamed, breaches=(Breach("P08", exchange.failure.sentence),), answered=False)
    if exchange.content_type == "text/html":
        sentence = "the server answered with an HTML page; this is no OpenAI-compatible endpoint"
        return Reply(streamed, breaches=(Breach("P08", sentence),), answered=False)
    return _StreamReader().read(exchange) if streamed else _read_whole(exchange)


def error_text(body: bytes) -> str:
    """The message in an error body, in any of the usual spellings, on one line and short."""
    text = body.decode("utf-8", errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _short(text)
    for key in ("error", "message", "detail"):
        value = document.get(key) if isinstance(document, dict) else None
        if isinstance(value, dict):
            value = value.get("message")
        if value:
            return _short(str(value))
    return _short(text)


def _refusal(exchange: Exchange, *, streamed: bool) -> Reply:
    said = "an HTML page" if exchange.content_type == "text/html" else error_text(exchange.body)
    sentence = f"HTTP {exchange.status}" + (f": {said}" if said else "")
    return Reply(streamed, breaches=(Breach("P08", sentence),), answered=False)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + " …"


def _decoded(data: bytes, breaches: list[Breach]) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        breaches.append(Breach("O04", f"the answer is not valid UTF-8 ({where})"))
        return data.decode("utf-8", errors="replace")


def _usage(value: object, breaches: list[Breach]) -> Usage | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        breaches.append(Breach("P07", "usage is not an object"))
        return None
    counts = [_count(value.get(key)) for key in ("prompt_tokens", "completion_tokens")]
    if None in counts:
        breaches.append(Breach("P07", "usage lacks prompt_tokens or completion_tokens"))
    details = value.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(counts[0], counts[1], cached)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object, where: str, breaches: list[Breach]) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    breaches.append(Breach("P06", f"{where} is neither a string nor null"))
    return ""


def _reasoning(message: dict[str, Any], breaches: list[Breach]) -> tuple[str, str | None]:
    texts = {name: _text(message.get(name), name, breaches) for name in REASONING_FIELDS}
    given = [name for name in REASONING_FIELDS if texts[name]]
    if len(given) > 1 and texts[given[0]] != texts[given[1]]:
        breaches.append(Breach("P06", "reasoning and reasoning_content are both present and differ"))
    return (texts[given[0]], given[0]) if given else ("", None)


def _finish_breaches(finish: object, calls: tuple[ToolCall, ...], rule: str) -> list[Breach]:
    if finish is None:
        return [Breach(rule, "there is no finish_reason")]
    if finish not in FINISH_REASONS:
        return [Breach(rule, f"finish_reason is {finish!r}; expected one of {', '.join(FINISH_REASONS)}")]
    if finish == "tool_calls" and not calls:
        return [Breach(rule, "finish_reason is tool_calls and there is no call")]
    if finish == "stop" and calls:
        return [Breach(rule, f"finish_reason is stop and there are {len(calls)} tool calls")]
    return []


def _read_whole(exchange: Exchange) -> Reply:
    breaches: list[Breach] = []
    try:
        document = json.loads(_decoded(exchange.body, breaches))
        if document.get("error"):
            return Reply(
                False, breaches=(Breach("P08", f"HTTP 200 with an error: {error_text(exchange.body)}"),), answered=False
            )
        choice = document["choices"][0]
        message = choice["message"]
        finish = choice.get("finish_reason")
        reasoning, reasoning_field = _reasoning(message, breaches)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        breaches.append(Breach("P06", "the answer is not a chat completion: no choices[0].message in it"))
        return Reply(False, breaches=tuple(breaches), answered=False)
    if message.get("role") != "assistant":
        breaches.append(Breach("P06", f"the message's role is {message.get('role')!r}, not 'assistant'"))
    calls = _whole_calls(message.get("tool_calls"), breaches)
    usage = _usage(document.get("usage"), breaches)
    breaches += _finish_breaches(finish, calls, "P06")
    if usage is None:
        breaches.append(Breach("P07", "the answer carries no usage"))
    return Reply(
        streamed=False,
        model=document.get("model") if isinstance(document.get("model"), str) else None,
        content=_text(message.get("content"), "content", breaches),
        reasoning=reasoning,
        reasoning_field=reasoning_field,
        calls=calls,
        finish_reason=finish if isinstance(finish, str) else None,
        usage=usage,
        token_times_s=(exchange.ended_at_s,),
        breaches=tuple(breaches),
    )


def _whole_calls(value: object, breaches: list[Breach]) -> tuple[ToolCall, ...]:
    if not value:
        return ()
    calls: list[ToolCall] = []
    for position, entry in enumerate(value if isinstance(value, list) else [value]):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(function, dict):
            breaches.append(Breach("P06", f"tool call {position} is not an object with a function"))
            continue
        call_id, name, arguments = entry.get("id"), function.get("name"), function.get("arguments")
        if not isinstance(call_id, str) or not call_id or call_id in {call.id for call in calls}:
            breaches.append(Breach("P06", f"tool call {position} has no id of its own ({call_id!r})"))
        if not isinstance(name, str) or not name:
            breaches.append(Breach("P06", f"tool call {position} has no function name"))
        if not isinstance(arguments, str):
            breaches.append(Breach("P06", f"arguments of tool call {position} are not a string"))
        calls.append(ToolCall(*(v if isinstance(v, str) else "" for v in (call_id, name, arguments))))
    return tuple(calls)


@dataclass
class _StreamReader:
    breaches: list[Breach] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    reasoning_field: str | None = None
    tools: ToolStream = field(default_factory=ToolStream)
    token_times_s: list[float] = field(default_factory=list)
    finishes: list[object] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    model: str | None = None
    role_seen: bool = False
    usage: Usage | None = None
    done: bool = False
    error: bool = False
    chunks: int = 0

    def read(self, exchange: Exchange) -> Reply:
        if exchange.content_type != "text/event-stream":
            self._breach("P01", f"the stream's content type is {exchange.content_type or 'absent'!r}")
        for event in events(exchange.pieces):
            if isinstance(event, StrayLine):
                self._breach("P01", f"a line that is no server-sent event: {event.line[:80]!r}")
            else:
                self._event(event.at_s, event.data)
        if exchange.failure is not None:
            self._breach("P08", exchange.failure.sentence)
        elif not self.error:
            self._judge_end()
        return self._reply()

    def _event(self, at_s: float, data: bytes) -> None:
        if self.done:
            self._breach("P01", "something follows [DONE]")
            return
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk = json.loads(_decoded(data, self.breaches))
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._breach("P01", f"an event is not a JSON object: {data[:80]!r}")
        elif chunk.get("error") or chunk.get("object") == "error":
            self.error = True
            self._breach("P08", f"an error inside the stream: {error_text(data)}")
        else:
            self._chunk(at_s, chunk)

    def _chunk(self, at_s: float, chunk: dict[str, Any]) -> None:
        self.chunks += 1
        self.ids.add(str(chunk.get("id")))
        if chunk.get("object") != "chat.completion.chunk":
            self._breach("P01", f"a chunk's object is {chunk.get('object')!r}, not 'chat.completion.chunk'")
        self.model = self.model or (chunk["model"] if isinstance(chunk.get("model"), str) else None)
        self.usage = _usage(chunk.get("usage"), self.breaches) or self.usage
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._breach("P01", "a chunk has no list of choices")
            return
        for choice in choices:
            if not isinstance(choice, dict) or not isinstance(choice.get("delta") or {}, dict):
                self._breach("P01", "a choice is not an object with a delta")
                continue
            self._delta(at_s, choice.get("delta") or {})
            if choice.get("finish_reason") is not None:
                self.finishes.append(choice["finish_reason"])

    def _delta(self, at_s: float, delta: dict[str, Any]) -> None:
        role = delta.get("role")
        self.role_seen = self.role_seen or role == "assistant"
        if role not in ("assistant", "", None):
            self._breach("P02", f"a delta's role is {role!r}")
        content = _text(delta.get("content"), "delta.content", self.breaches)
        reasoning, spelled = _reasoning(delta, self.breaches)
        self.reasoning_field = self.reasoning_field or spelled
        called = self.tools.add(delta["tool_calls"]) if delta.get("tool_calls") else False
        if content or reasoning or called:
            if self.finishes:
                self._breach("P03", "text or a call follows the finish_reason")
            self.token_times_s.append(at_s)
        self.content.append(content)
        self.reasoning.append(reasoning)

    def _judge_end(self) -> None:
        if not self.done:
            self._breach("P01", "the stream ended without [DONE]")
        if not self.chunks:
            self._breach("P08", "the stream held no chunk at all")
            return
        if len(self.ids) > 1:
            self._breach("P01", f"the chunks of one answer carry {len(self.ids)} different ids")
        if not self.role_seen:
            self._breach("P02", "no delta has the role 'assistant'")
        if len(self.finishes) > 1:
            self._breach("P03", f"{len(self.finishes)} finish_reasons came; expected one")
        if self.usage is None:
            self._breach("P07", "usage was asked for (stream_options.include_usage) and never came")
        self.breaches += _finish_breaches(self.finishes[-1] if self.finishes else None, self.tools.calls(), "P03")
        self.tools.finish()

    def _reply(self) -> Reply:
        finish = self.finishes[-1] if self.finishes else None
        return Reply(
            streamed=True,
            model=self.model,
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            reasoning_field=self.reasoning_field,
            calls=self.tools.calls(),
            finish_reason=finish if isinstance(finish, str) else None,
            usage=self.usage,
            token_times_s=tuple(self.token_times_s),
            breaches=_distinct((*self.breaches, *self.tools.breaches)),
            answered=self.chunks > 0,
        )

    def _breach(self, rule: str, sentence: str) -> None:
        self.breaches.append(Breach(rule, sentence))


def _distinct(breaches: tuple[Breach, ...]) -> tuple[Breach, ...]:
    # A rule that every chunk of a stream breaks is one finding.
    return tuple(dict.fromkeys(replace(breach) for breach in breaches))
