"""smg's gRPC router: it renders and parses by itself, so the answer is its own; null fields are skipped."""

from collections.abc import Sequence
from typing import Any

from ..request import Asked
from .chat import Chat
from .framing import compact, hex_id, letters_id
from .written import Usage, Written


class SmgChat(Chat):
    """Reasoning in `reasoning_content`, ids `call_<24>`, no null but that of a finish reason still to come."""

    neutral_tail = ',"finish_reason":null}]}'
    usage_tail = ',"finish_reason":null}],"usage":%s}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, f"chatcmpl-{hex_id(32)}")

    def first_delta(self) -> str:
        return '{"role":"assistant"}'

    def delta(self, *, content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("content", content), ("reasoning_content", reasoning), ("tool_calls", calls))
        return "{" + ",".join(f'"{name}":{text}' for name, text in fields if text) + "}"

    def last_delta(self) -> str:
        return "{}"

    def finish_tail(self, finish: str, matched: str | None, usage: str | None) -> str:
        stop = "" if matched is None else f',"matched_stop":{compact(matched).decode()}'
        numbers = "" if usage is None else f',"usage":{usage}'
        return f',"finish_reason":"{finish}"{stop}}}]{numbers}}}'

    def call_id(self) -> str:
        return f"call_{letters_id(24)}"

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        return f'[{{"index":{index},"id":{call_id},"type":"function","function":{{"name":{name},"arguments":""}}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        return f'[{{"index":{index},"function":{{"arguments":{text}}}}}]'

    def usage(self, usage: Usage) -> dict[str, Any]:
        numbers: dict[str, Any] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        if usage.cached_tokens is not None:
            numbers["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
        if usage.reasoning_tokens:
            numbers["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
        return numbers

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        document: dict[str, Any] = {
            "id": self.request_id,
            "object": "chat.completion",
            "created": self.created,
            "model": self._asked.model,
            "choices": [self._choice(number, written) for number, written in enumerate(choices)],
        }
        if usage is not None:
            document["usage"] = self.usage(usage)
        return compact(document)

    def _choice(self, number: int, written: Written) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        if written.content:
            message["content"] = written.content
        if written.reasoning:
            message["reasoning_content"] = written.reasoning
        if written.complete_calls:
            message["tool_calls"] = [
                {"id": self.call_id(), "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in written.complete_calls
            ]
        choice = {"index": number, "message": message, "finish_reason": written.finish}
        return choice if written.matched is None else {**choice, "matched_stop": written.matched}
