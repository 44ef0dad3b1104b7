"""SGLang 0.5.23: every field in every delta, null where there is nothing."""

from collections.abc import Sequence
from typing import Any

from ..request import Asked
from .chat import Chat
from .framing import compact, hex_id
from .written import Usage, Written

EOS_TOKEN_ID = 151645


class SglangChat(Chat):
    """Reasoning in `reasoning_content`, explicit nulls in continuation deltas, `matched_stop`."""

    neutral_tail = ',"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}'
    usage_tail = ',"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":%s}'

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked, hex_id(32))

    def first_delta(self) -> str:
        return '{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null}'

    def delta(self, *, content: str = "", reasoning: str = "", calls: str = "") -> str:
        fields = (("content", content), ("reasoning_content", reasoning), ("tool_calls", calls))
        return '{"role":null,' + ",".join(f'"{name}":{text or "null"}' for name, text in fields) + "}"

    def last_delta(self) -> str:
        return self.delta()

    def finish_tail(self, finish: str, matched: str | None, usage: str | None) -> str:
        stop = compact(_matched(finish, matched)).decode()
        return f',"logprobs":null,"finish_reason":"{finish}","matched_stop":{stop}}}],"usage":{usage or "null"}}}'

    def call_id(self) -> str:
        return f"call_{hex_id(24)}"

    def call_opening(self, index: int, call_id: str, name: str) -> str:
        function = f'{{"name":{name},"arguments":""}}'
        return f'[{{"id":{call_id},"index":{index},"type":"function","function":{function}}}]'

    def call_arguments(self, index: int, text: str) -> str:
        function = f'{{"name":null,"arguments":{text}}}'
        return f'[{{"id":null,"index":{index},"type":"function","function":{function}}}]'

    def usage(self, usage: Usage) -> dict[str, Any]:
        return {**super().usage(usage), "reasoning_tokens": usage.reasoning_tokens}

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        document = {
            "id": self.request_id,
            "object": "chat.completion",
            "created": self.created,
            "model": self._asked.model,
            "choices": [self._choice(number, written) for number, written in enumerate(choices)],
            "usage": self.usage(usage) if usage else None,
            "metadata": {"weight_version": "default"},
        }
        return compact(document)

    def _choice(self, number: int, written: Written) -> dict[str, Any]:
        calls = [
            {"id": self.call_id(), "index": index, "type": "function", "function": {"name": name, "arguments": text}}
            for index, (name, text) in enumerate(written.complete_calls)
        ]
        message = {
            "role": "assistant",
            "content": written.content or None,
            "reasoning_content": written.reasoning or None,
            "tool_calls": calls or None,
        }
        return {
            "index": number,
            "message": message,
            "logprobs": None,
            "finish_reason": written.finish,
            "matched_stop": _matched(written.finish, written.matched),
        }


def _matched(finish: str, matched: str | None) -> str | int | None:
    """The stop string, or the token that ends an answer, or nothing where a limit did."""
    return matched if matched is not None else EOS_TOKEN_ID if finish in ("stop", "tool_calls") else None
