"""vLLM: 0.32 as it is, and 0.11 as it was."""

from collections.abc import Sequence
from typing import Any

from ..request import Asked
from .chat import Chat
from .framing import compact, hex_id
from .written import Usage, Written


class VllmChat(Chat):
    """Version 0.32: `reasoning`; a named choice finishes with `stop`, as at OpenAI."""

    reasoning_field = "reasoning"
    id_digits = 16
    neutral_tail = ',"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    usage_tail = ',"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":%s}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, f"chatcmpl-{hex_id(32)}")

    def finish_of_calls(self) -> str:
        return "stop" if self._asked.choice.mode == "named" else "tool_calls"

    def first_delta(self) -> str:
        return '{"role":"assistant","content":""}'

    def delta(self, *, content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("content", content), (self.reasoning_field, reasoning), ("tool_calls", calls))
        return "{" + ",".join(f'"{name}":{text}' for name, text in fields if text) + "}"

    def last_delta(self) -> str:
        return '{"content":""}'

    def finish_tail(self, finish: str, matched: str | None, usage: str | None) -> str:
        stop = compact(matched).decode()
        numbers = "" if usage is None else f',"usage":{usage}'
        return f',"logprobs":null,"finish_reason":"{finish}","stop_reason":{stop},"token_ids":null}}]{numbers}}}'

    def call_id(self) -> str:
        return f"chatcmpl-tool-{hex_id(self.id_digits)}"

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        function = f'{{"name":{name},"arguments":""}}'
        return f'[{{"id":{call_id},"type":"function","index":{index},"function":{function}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        return f'[{{"index":{index},"function":{{"arguments":{text}}}}}]'

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        document = {
            "id": self.request_id,
            "object": "chat.completion",
            "created": self.created,
            "model": self._asked.model,
            "choices": [self._choice(number, written) for number, written in enumerate(choices)],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": self.usage(usage) if usage else None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }
        return compact(document)

    def _choice(self, number: int, written: Written) -> dict[str, Any]:
        return {
            "index": number,
            "message": self.message(written),
            "logprobs": None,
            "finish_reason": written.finish,
            "stop_reason": written.matched,
            "token_ids": None,
        }

    def message(self, written: Written) -> dict[str, Any]:
        """The message of one choice; `tool_calls` is absent where there are none."""
        calls = written.complete_calls
        forced = self._asked.choice.mode in ("required", "named")
        empty = "" if calls and forced else None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": written.content or empty,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            self.reasoning_field: written.reasoning or None,
        }
        if calls:
            message["tool_calls"] = [
                {"id": self.call_id(), "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in calls
            ]
        return message


class VllmOldChat(VllmChat):
    """Up to version 0.11: `reasoning_content`, `tool_calls: []`, `stop` beside forced calls that are not streamed."""

    reasoning_field = "reasoning_content"
    id_digits = 32

    def finish_of_calls(self) -> str:
        forced = self._asked.choice.mode in ("required", "named")
        return "stop" if forced and not self._asked.streamed else "tool_calls"

    def message(self, written: Written) -> dict[str, Any]:
        return {"tool_calls": [], **super().message(written)}
