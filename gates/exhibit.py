"""One evidence file as a person reads it: the question, the answer event by event with times, and what it adds up to.

Evidence comes from engines and from foreign gates: everything in it is hostile, and anything may be missing.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gates.contract import sendable
from gates.reply import read_reply
from gates.sse import Event, events
from gates.wire import Exchange, Failure, Piece

if TYPE_CHECKING:
    from pathlib import Path

    from gates.quotes import Quotes
    from gates.reply import Reply

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_MAX_TEXT: Final = 20_000
_MAX_EVENT: Final = 2_000
_MAX_EXCHANGES: Final = 4
_HEAD, _HITS, _TAIL = 40, 60, 25


@dataclass(frozen=True)
class Arrival:
    """One server-sent event as received; `at_s` in seconds since the request was written, `carries` in words."""

    at_s: float
    carries: str
    raw: str
    offending: bool = False
    left_out: int = 0
    """So many events are not shown before this one."""


@dataclass(frozen=True)
class Shown:
    """One exchange. A streamed answer has `arrivals`, a whole one `body`; `reply` is what a client makes of it."""

    title: str
    request: str
    response: str
    failure: str = ""
    arrivals: tuple[Arrival, ...] = ()
    body: str = ""
    reply: Reply | None = None
    note: str = ""


@dataclass(frozen=True)
class Exhibit:
    """What one file shows. `problem`: why it cannot be shown; `text`: a file that is not of our format, as it is."""

    name: str
    problem: str = ""
    sentence: str = ""
    exchanges: tuple[Shown, ...] = ()
    text: str = ""
    note: str = ""


def read_exhibit(path: Path, name: str, quotes: Quotes) -> Exhibit:
    """Never raises. `name` is how the page calls the file; `quotes` says which events are the offending ones."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            return Exhibit(name, problem="this is no file")
        if size > MAX_FILE_BYTES:
            return Exhibit(name, problem=f"{size} bytes; at most {MAX_FILE_BYTES} are shown")
        data = path.read_bytes()
    except OSError as error:
        return Exhibit(name, problem=f"cannot be read: {error.strerror}")
    try:
        document = _document(data)
        return _foreign(name, data) if document is None else _ours(name, document, quotes)
    except RecursionError:
        return Exhibit(name, problem="nested too deeply to be shown")


def _ours(name: str, document: Mapping[str, Any], quotes: Quotes) -> Exhibit:
    exchanges = document["exchanges"]
    return Exhibit(
        name,
        sentence=str(document.get("sentence", "")),
        exchanges=tuple(_shown(exchange, quotes) for exchange in exchanges[:_MAX_EXCHANGES]),
        note=f"{len(exchanges) - _MAX_EXCHANGES} more exchanges in the file" if len(exchanges) > _MAX_EXCHANGES else "",
    )


def shortened(text: str, limit: int = _MAX_TEXT) -> str:
    """`text`, or its beginning and end with a note of how much lies between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"


def _document(data: bytes) -> dict[str, Any] | None:
    """A file of `gates.evidence`, else None."""
    try:
        document = json.loads(data)
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("exchanges"), list):
        return None
    clean = sendable(document)
    assert isinstance(clean, dict)  # noqa: S101 - a mapping stays one
    return clean


def _foreign(name: str, data: bytes) -> Exhibit:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Exhibit(name, problem=f"{len(data)} bytes that are no text")
    return Exhibit(name, text=shortened(text))


def _shown(written: Any, quotes: Quotes) -> Shown:
    if not isinstance(written, Mapping):
        return Shown("an exchange that cannot be read", "", "", note=shortened(repr(written), _MAX_EVENT))
    request, response = _mapping(written.get("request")), _mapping(written.get("response"))
    exchange, cut = _exchange(request, response)
    asked = request.get("body")
    streamed = bool(_mapping(asked).get("stream"))
    answered = exchange.status == 200 and bool(exchange.pieces)
    arrivals = _arrivals(exchange, quotes) if streamed and answered else ()
    return Shown(
        title=f"{request.get('method', '?')} {request.get('path', '?')}",
        request=shortened(_pretty(asked)),
        response=_response_line(exchange),
        failure=exchange.failure.sentence if exchange.failure else "",
        arrivals=arrivals,
        body="" if arrivals else shortened(_pretty_text(exchange.body)),
        reply=_reply(exchange, streamed=streamed) if answered else None,
        note=cut,
    )


def _exchange(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[Exchange, str]:
    """The exchange as it was recorded, and a note when the file does not hold all of it."""
    pieces, cut = [], ""
    for piece in _items(response.get("pieces")):
        if "cut" in _mapping(piece):
            cut = str(piece["cut"])
        else:
            pieces.append(Piece(_number(_mapping(piece).get("at_s")), _data(_mapping(piece))))
    failure = _mapping(response.get("failure"))
    status = response.get("status")
    exchange = Exchange(
        method=str(request.get("method")),
        path=str(request.get("path")),
        request_body=b"",
        sent_at_s=0.0,
        ended_at_s=_number(response.get("total_s")),
        status=status if isinstance(status, int) else None,
        headers=tuple(
            (str(pair[0]), str(pair[1]))
            for pair in _items(response.get("headers"))
            if isinstance(pair, list) and len(pair) == 2
        ),
        pieces=tuple(pieces),
        failure=Failure("http", str(failure.get("sentence", ""))) if failure else None,
    )
    return exchange, cut


def _data(piece: Mapping[str, Any]) -> bytes:
    if isinstance(piece.get("text"), str):
        return bytes(piece["text"], "utf-8", "replace")
    try:
        return base64.b64decode(str(piece.get("base64", "")))
    except (binascii.Error, ValueError):
        return b""


def _response_line(exchange: Exchange) -> str:
    status = f"HTTP {exchange.status}" if exchange.status is not None else "no HTTP answer"
    size = sum(len(piece.data) for piece in exchange.pieces)
    kind = f", {exchange.content_type}" if exchange.content_type else ""
    return f"{status}{kind}, {size} bytes in {exchange.total_s:.3f} s"


def _reply(exchange: Exchange, *, streamed: bool) -> Reply:
    reply = read_reply(exchange, streamed=streamed)
    calls = tuple(replace(call, arguments=shortened(call.arguments)) for call in reply.calls)
    return replace(reply, content=shortened(reply.content), reasoning=shortened(reply.reasoning), calls=calls)


def _arrivals(exchange: Exchange, quotes: Quotes) -> tuple[Arrival, ...]:
    received, texts = [], []
    for one in events(exchange.pieces):
        is_event = isinstance(one, Event)
        raw = (one.data if isinstance(one, Event) else one.line).decode("utf-8", "replace")
        carried = _carried(raw) if is_event else None
        words = _in_words(carried) if carried is not None else ("" if is_event else "a line that is no event")
        received.append(Arrival(one.at_s, words or _plain_words(raw), raw, offending=bool(quotes.spans(raw))))
        texts.append(dict(carried or ()))
    for number in _hit(texts, quotes):
        received[number] = replace(received[number], offending=True)
    return _few(received)


def _hit(texts: list[dict[str, str]], quotes: Quotes) -> set[int]:
    """The events whose text is part of a quoted piece: it may be spread over many of them."""
    hits: set[int] = set()
    for channel in {
        key for text in texts for key in text if key in ("content", "reasoning") or key.endswith("arguments")
    }:
        starts, whole = [], ""
        for text in texts:
            starts.append(len(whole))
            whole += text.get(channel, "")
        for begin, end in quotes.spans(whole):
            hits |= {
                number
                for number, start in enumerate(starts)
                if start < end and start + len(texts[number].get(channel, "")) > begin
            }
    return hits


def _few(received: list[Arrival]) -> tuple[Arrival, ...]:
    """The first, the last, and the offending ones, each shortened; how many lie between is said."""
    last = len(received) - 1
    hits = [number for number, one in enumerate(received) if one.offending][:_HITS]
    chosen = sorted({*range(min(_HEAD, last + 1)), *hits, *range(max(0, last - _TAIL + 1), last + 1)})
    shown, before = [], -1
    for number in chosen:
        one = received[number]
        shown.append(replace(one, raw=shortened(one.raw, _MAX_EVENT), left_out=number - before - 1))
        before = number
    return tuple(shown)


def _carried(raw: str) -> list[tuple[str, str]] | None:
    """What a chunk carries, as pairs of channel and text; None when it is no chunk."""
    try:
        chunk = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    choices = _mapping(chunk).get("choices")
    if not isinstance(choices, list):
        return None
    found: list[tuple[str, str]] = []
    for choice in choices:
        delta = _mapping(_mapping(choice).get("delta"))
        found += _of_delta(delta)
        if _mapping(choice).get("finish_reason") is not None:
            found.append(("finish_reason", str(choice["finish_reason"])))
    usage = _mapping(_mapping(chunk).get("usage"))
    if usage:
        found.append(("usage", f"{usage.get('prompt_tokens')} + {usage.get('completion_tokens')} tokens"))
    return found


def _of_delta(delta: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("content", delta["content"])] if isinstance(delta.get("content"), str) and delta["content"] else []
    spelled = next((key for key in ("reasoning_content", "reasoning") if isinstance(delta.get(key), str)), None)
    if spelled and delta[spelled]:
        found.append(("reasoning", delta[spelled]))
    for call in _items(delta.get("tool_calls")):
        function = _mapping(_mapping(call).get("function"))
        name = f"call {_mapping(call).get('index', '?')}"
        if function.get("name"):
            found.append((f"{name} name", str(function["name"])))
        if function.get("arguments"):
            found.append((f"{name} arguments", str(function["arguments"])))
    return found


def _in_words(carried: list[tuple[str, str]]) -> str:
    return "; ".join(f"{channel} {text}" for channel, text in carried) or "nothing"


def _plain_words(raw: str) -> str:
    return "the end" if raw.strip() == "[DONE]" else "no chunk"


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _pretty_text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    try:
        return json.dumps(sendable(json.loads(text)), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0
