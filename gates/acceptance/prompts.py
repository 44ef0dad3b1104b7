"""How long is a prompt? What an engine renders of a conversation, by its own count, with one token of answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.reply import read_reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.wire import Exchange

_BEFORE: Final = 20
_AFTER: Final = 40
"""Characters of two prompts that are shown around the place where they part."""


class RefusedError(Exception):
    """The engine gave no count; the text says what it gave. `exchange` is the evidence."""

    def __init__(self, sentence: str, exchange: Exchange) -> None:
        super().__init__(sentence)
        self.exchange = exchange


async def count(
    asker: Asker,
    sample: Sample,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    **keys: Any,
) -> int:
    """Prompt tokens of a conversation. Raises `RefusedError`."""
    answer = await asker.send(sample, one_token(asker, sample, messages, tools, **keys))
    usage = answer.reply.usage
    if answer.first_problem or usage is None or usage.prompt_tokens is None:
        raise RefusedError(answer.first_problem or "the answer does not say prompt_tokens", answer.exchange)
    return usage.prompt_tokens


async def count_if_accepted(
    asker: Asker,
    sample: Sample,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    **keys: Any,
) -> int | None:
    """The same for what an engine may refuse: None for a 4xx answer. Raises `RefusedError` for anything else."""
    body = one_token(asker, sample, messages, tools, **keys)
    exchange = await asker.raw("POST", "/v1/chat/completions", body)
    if exchange.status is not None and 400 <= exchange.status < 500:
        return None
    reply = read_reply(exchange, streamed=False)
    if not reply.answered or reply.usage is None or reply.usage.prompt_tokens is None:
        said = reply.breaches[0].sentence if reply.breaches else "the answer does not say prompt_tokens"
        raise RefusedError(said, exchange)
    return reply.usage.prompt_tokens


def one_token(
    asker: Asker,
    sample: Sample,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    **keys: Any,
) -> dict[str, Any]:
    """The body: one token of answer, greedy, whole. Tool choice is auto: others may render other tools."""
    whole = sample.asked(streamed=False)
    return asker.body(whole, messages, tools=tools, **({"max_tokens": 1, "temperature": 0} | keys))


async def rendered(asker: Asker, body: Mapping[str, Any]) -> str | None:
    """The prompt as text, from an engine that shows it: the tokenizer routes of vLLM and SGLang, or llama.cpp's.

    None from others.
    """
    shown = {key: body[key] for key in ("model", "messages", "tools", "chat_template_kwargs") if key in body}
    prompt = _field(await asker.raw("POST", "/apply-template", shown), "prompt")
    if isinstance(prompt, str):
        return prompt
    tokens = _field(await asker.raw("POST", "/tokenize", shown), "tokens")
    if not isinstance(tokens, list) or not tokens:
        return None
    # SGLang leaves the template's own markers out unless told otherwise, and calls the prompt a text.
    asked = {"model": body.get("model"), "tokens": tokens, "skip_special_tokens": False}
    exchange = await asker.raw("POST", "/detokenize", asked)
    return next((back for key in ("prompt", "text") if isinstance(back := _field(exchange, key), str)), None)


def parting(mine: str, theirs: str) -> tuple[str, str]:
    """How two prompts go on where they part, each after a little of what they share."""
    at = next((i for i, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), len(mine))
    return _excerpt(mine, at), _excerpt(theirs, at)


def _excerpt(text: str, at: int) -> str:
    return text[max(0, at - _BEFORE) : at + _AFTER]


def _field(exchange: Exchange, key: str) -> Any:
    if exchange.status != 200 or exchange.failure is not None:
        return None
    try:
        document = json.loads(exchange.body)
    except (ValueError, RecursionError):
        return None
    return document.get(key) if isinstance(document, dict) else None
