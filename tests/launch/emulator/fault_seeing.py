"""One answer as it was on the wire, streamed or not, and what a strict reader makes of it."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from emulator_asking import WEATHER

TWO_CITIES = "What is the weather in Oslo and Paris?"
THINK = {"chat_template_kwargs": {"enable_thinking": True}}
SET_PRICE = {
    "type": "function",
    "function": {
        "name": "set_price",
        "description": "Set the price of an article.",
        "parameters": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "price": {"type": "number"}},
            "required": ["sku", "price"],
        },
    },
}
SAVE_FILE = {
    "type": "function",
    "function": {
        "name": "save_file",
        "description": "Save a text.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
            "required": ["path", "text"],
        },
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "city": {"type": "string"}},
            "required": ["name", "city"],
            "additionalProperties": False,
        },
    },
}


def history(content: str | None = None, arguments: str = '{"city": "Oslo"}', **fields: Any) -> list[dict[str, Any]]:
    """A conversation that waits for the answer to a tool result."""
    call = {"id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    return [
        {"role": "user", "content": "What is the weather in Oslo?"},
        {"role": "assistant", "content": content, "tool_calls": [call], **fields},
        {"role": "tool", "tool_call_id": "call_abc123", "content": '{"temp_c": 48.37}'},
    ]


@dataclass
class Seen:
    """What came. `events` hold the JSON of each event and "[DONE]" where it stood."""

    status: int = 0
    body: dict[str, Any] | None = None
    events: list[Any] = field(default_factory=list)
    comments: int = 0
    broken: bool = False

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Of choice 0: every streamed choice, or the one of the body, with its delta or message as `said`."""
        documents = self.chunks if self.body is None else [self.body]
        found = [choice for document in documents for choice in document.get("choices") or [] if choice["index"] == 0]
        return [{**choice, "said": choice.get("delta") or choice.get("message") or {}} for choice in found]

    @property
    def content(self) -> str:
        return "".join(choice["said"].get("content") or "" for choice in self.choices)

    @property
    def reasoning(self) -> str:
        said = [choice["said"] for choice in self.choices]
        return "".join(s.get("reasoning") or s.get("reasoning_content") or "" for s in said)

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """Every tool call delta, or every whole call."""
        return [call for choice in self.choices for call in choice["said"].get("tool_calls") or []]

    @property
    def openings(self) -> list[dict[str, Any]]:
        """Deltas with a name in them; of a body, every call."""
        return [call for call in self.deltas if "name" in call["function"] and call["function"]["name"] is not None]

    @property
    def arguments(self) -> list[Any]:
        """The arguments of each call, put together by index; None where null was sent."""
        if self.body is not None:
            return [call["function"]["arguments"] for call in self.deltas]
        joined: dict[int, Any] = {}
        for call in self.deltas:
            text = call["function"].get("arguments")
            joined[call["index"]] = None if text is None else joined.get(call["index"], "") + text
        return [joined[index] for index in sorted(joined)]

    @property
    def parsed(self) -> list[Any]:
        return [parsed(text) for text in self.arguments]

    @property
    def finishes(self) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")]

    @property
    def usage(self) -> dict[str, Any]:
        documents = self.chunks if self.body is None else [self.body]
        return next((document["usage"] for document in documents if document.get("usage")), {})


def parsed(text: Any) -> Any:
    """The JSON of a text, or "broken"."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return "broken"


def see(url: str, *, stream: bool, timeout_s: float = 20.0, **fields: Any) -> Seen:
    """Ask once. A connection that breaks, or says nothing for `timeout_s`, is `broken`."""
    text = fields.pop("text", "Tell me about rivers.")
    body = {"model": "emu", "messages": [{"role": "user", "content": text}], **fields}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    seen = Seen()
    try:
        with (
            httpx.Client(timeout=timeout_s, verify=False, trust_env=False) as client,  # noqa: S501 - plain HTTP
            client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
        ):
            seen.status = answer.status_code
            if not stream or answer.status_code != 200:
                seen.body = json.loads(answer.read())
                return seen
            for line in answer.iter_lines():
                seen.comments += line.startswith(":")
                if line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    seen.events.append(data if data == "[DONE]" else json.loads(data))
    except httpx.HTTPError:
        seen.broken = True
    return seen


CALL = {"text": "What is the weather in Oslo?", "tools": [WEATHER]}
CALLS = {"text": TWO_CITIES, "tools": [WEATHER]}
RESULT = {"messages": history(), "tools": [WEATHER]}
