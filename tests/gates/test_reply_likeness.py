"""Chunks that differ in their text alone are read without a parser; nothing else about them may differ for that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gate_kit import DONE, END, FIRST, chunk, event, streamed
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.reply import read_reply

TEXTS = ["a", " b", '"', "\\", "\n", "\\n", "é", "日本", "🙂", "\x7f", " ", "", '","x":"', "a\tb", "\u2028", "}]}"]


def unlike(number: int, text: str, name: str = "content", finish: str | None = None) -> bytes:
    """The same chunk as `chunk` writes, but no two neighbours with the same bytes around the text."""
    document = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {name: text}, "finish_reason": finish}],
    }
    return event(document | {"number": number})


@settings(deadline=None)
@given(texts=st.lists(st.sampled_from(TEXTS) | st.text(max_size=5), max_size=12), ascii_only=st.booleans())
def test_text_is_the_same_with_and_without_likeness(texts: list[str], ascii_only: bool):
    texts = [text.encode(errors="replace").decode() for text in texts]

    def raw(text: str) -> bytes:
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
        return event(json.dumps(body | {"choices": choices}, ensure_ascii=ascii_only).encode())

    finish = chunk({}, "stop")
    alike = read_reply(streamed(FIRST, *map(raw, texts), finish, END), streamed=True)
    apart = read_reply(streamed(FIRST, *(unlike(n, text) for n, text in enumerate(texts)), finish, END), streamed=True)
    assert alike == apart
    assert alike.content == "".join(texts)
    assert len(alike.token_times_s) == sum(map(bool, texts))


@pytest.mark.parametrize("name", ["content", "reasoning", "reasoning_content"])
def test_reasoning_and_content_go_where_they_belong(name: str):
    pieces = [chunk({name: text}) for text in ("one", " two", " three")]
    reply = read_reply(streamed(FIRST, *pieces, chunk({}, "stop"), END), streamed=True)
    assert (reply.content, reply.reasoning)[name != "content"] == "one two three"
    assert len(reply.token_times_s) == 3


def broken(*parts: bytes) -> set[str]:
    return {breach.rule for breach in read_reply(streamed(*parts), streamed=True).breaches}


@pytest.mark.parametrize(
    ("rule", "parts"),
    [
        ("P03", [chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), chunk({"content": "c"}), END]),
        ("T07", [chunk({"reasoning": "a"}), chunk({"content": "b"}), chunk({"reasoning": "c"}), chunk({}, "stop")]),
        ("P01", [chunk({"content": "a"}), chunk({}, "stop"), chunk(usage={"prompt_tokens": 1, "completion_tokens": 1}),
                 DONE, chunk({"content": "b"})]),
        ("P01", [chunk({"content": "a"}), chunk({"content": "b"}, id="c2"), chunk({}, "stop"), END]),
        ("P01", [chunk({"content": "a"}), chunk({"content": "b"}).replace(b'"b"', b'"b'), chunk({}, "stop"), END]),
        ("O04", [chunk({"content": "a"}), chunk({"content": "b"}).replace(b'"b"', b'"\xff"'), chunk({}, "stop"), END]),
    ],
)  # fmt: skip
def test_rules_hold_for_chunks_that_look_like_the_last_one(rule: str, parts: list[bytes]):
    assert rule in broken(FIRST, *parts)


def test_choices_do_not_mix_although_their_chunks_look_alike():
    def of(index: int, text: str, finish: str | None = None) -> bytes:
        choice: dict[str, Any] = {"index": index, "delta": {"content": text} if text else {}, "finish_reason": finish}
        return chunk(choices=[choice])

    parts = [of(0, "a"), of(1, "x"), of(0, "b"), of(0, "c"), of(1, "y"), of(0, "", "stop"), of(1, "", "stop")]
    reply = read_reply(streamed(FIRST, *parts, END), streamed=True)
    assert (reply.content, reply.others[0].content) == ("abc", "xy")
