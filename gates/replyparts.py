"""What an answer consists of, and the fields that whole and streamed answers share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates.toolwire import Breach

if TYPE_CHECKING:
    from gates.toolwire import ToolCall
    from gates.wire import Exchange

FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter")
REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_MOST_TOKENS: Final = 10**9
"""No context is nearly as long: a larger count is none."""


@dataclass(frozen=True)
class Usage:
    """What the engine counted. `reasoning_tokens` are part of `completion_tokens`."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None = None


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
    complete: bool = True
    """False when the answer broke off: by the transport, or by an error inside the stream."""
    others: tuple[Reply, ...] = ()
    """The further choices in the order of their index, where more than one was asked (`n`) or came."""

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


def refusal_text(exchange: Exchange) -> str:
    """An answer whose status is not 200, in words: ``HTTP 404: the model does not exist``."""
    said = "an HTML page" if exchange.content_type == "text/html" else error_text(exchange.body)
    target = exchange.header("location")
    if exchange.status is not None and 300 <= exchange.status < 400 and target:
        said = f"it points to {_short(target)}; redirects are not followed, give the right address"
    return f"HTTP {exchange.status}" + (f": {said}" if said else "")


def decoded(data: bytes, breaches: list[Breach]) -> str:
    """`data` as text; bytes that are no UTF-8 are a breach of O04."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        breaches.append(Breach("O04", f"the answer is not valid UTF-8 ({where})"))
        return data.decode("utf-8", errors="replace")


def strange_number(text: str) -> str | None:
    """NaN or an infinity in a JSON text: Python reads it, readers of other languages refuse it (RFC 8259, 6)."""
    if "NaN" not in text and "Infinity" not in text:
        return None
    found: list[str] = []
    json.loads(text, parse_constant=found.append)
    return f"{found[0]} stands in it, which is no JSON" if found else None


def header_breaches(document: dict[str, Any], rule: str, what: str, kind: str) -> list[Breach]:
    """`object`, `id` and `created`, which typed clients cannot do without. `what` is the answer, or a chunk of it."""
    found = []
    if document.get("object") != kind:
        found.append(Breach(rule, f"{what}'s object is {document.get('object')!r}, not {kind!r}"))
    if not isinstance(document.get("id"), str) or not document["id"]:
        found.append(Breach(rule, f"{what} has no id ({document.get('id')!r:.80})"))
    created = document.get("created")
    # Some write the seconds with a fraction, which readers of numbers take; none writes a negative one.
    if isinstance(created, bool) or not isinstance(created, int | float) or not created >= 0:
        found.append(Breach(rule, f"{what} does not say when it was created ({created!r:.80})"))
    return found


def read_usage(value: object, breaches: list[Breach]) -> Usage | None:
    """None where there is no usage; a wrong shape is a breach of P07."""
    if value is None:
        return None
    if not isinstance(value, dict):
        breaches.append(Breach("P07", "usage is not an object"))
        return None
    counts = [token_count(value.get(key)) for key in ("prompt_tokens", "completion_tokens")]
    if None in counts:
        breaches.append(Breach("P07", "usage lacks prompt_tokens or completion_tokens"))
    total = value.get("total_tokens")
    if total is not None and None not in counts and (token_count(total) or 0) < sum(count or 0 for count in counts):
        said = f"total_tokens is {total!r:.40} and the two parts are {counts[0]} and {counts[1]}"
        breaches.append(Breach("P07", said))
    thought = _detail(value, "completion_tokens_details", "reasoning_tokens")
    thought = token_count(value.get("reasoning_tokens")) if thought is None else thought
    return Usage(counts[0], counts[1], _detail(value, "prompt_tokens_details", "cached_tokens"), thought)


def read_text(value: object, where: str, breaches: list[Breach]) -> str:
    """A string or null; anything else is a breach of P06."""
    if value is None or isinstance(value, str):
        return value or ""
    breaches.append(Breach("P06", f"{where} is neither a string nor null"))
    return ""


def read_reasoning(message: dict[str, Any], breaches: list[Breach]) -> tuple[str, str | None]:
    """The reasoning and the name of its field. Engines that send both names must send the same twice."""
    texts = {name: read_text(message.get(name), name, breaches) for name in REASONING_FIELDS}
    given = [name for name in REASONING_FIELDS if texts[name]]
    if len(given) > 1 and texts[given[0]] != texts[given[1]]:
        breaches.append(Breach("P06", "reasoning and reasoning_content are both present and differ"))
    return (texts[given[0]], given[0]) if given else ("", None)


def finish_breaches(finish: object, rule: str) -> list[Breach]:
    """Is there a finish_reason, and one that clients know? Whether it fits the answer is judged by `invariants`."""
    if finish is None:
        return [Breach(rule, "there is no finish_reason")]
    if finish not in FINISH_REASONS:
        return [Breach(rule, f"finish_reason is {finish!r}; expected one of {', '.join(FINISH_REASONS)}")]
    return []


def _detail(usage: dict[str, Any], group: str, key: str) -> int | None:
    details = usage.get(group)
    return token_count(details.get(key)) if isinstance(details, dict) else None


def token_count(value: object) -> int | None:
    """A number of tokens as `usage` tells it; None for anything that can be none."""
    counted = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if isinstance(value, int) and counted else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + " …"
