"""A server that sends cheap events for ever costs its reader no minutes, and is named."""

from __future__ import annotations

import pytest
from gate_kit import END, FIRST, chunk, streamed

from gates.reply import read_reply

FLOODS = {
    "empty objects": b"data: {}\n\n" * 1_600_000,
    "blank lines": b"\n" * 5_000_000,
    "comments": b": ping\n\n" * 1_600_000,
    "fields": b"id: 1\n" * 1_600_000,
    "no events": b"nonsense\n" * 1_600_000,
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_cut_and_named(kind: str) -> None:
    reply = read_reply(streamed(FIRST, FLOODS[kind], piece_bytes=65_536), streamed=True)
    assert [breach.sentence for breach in reply.breaches if "flood" in breach.sentence]
    assert not reply.complete


def test_events_in_pieces_of_their_own_are_cut_too() -> None:
    reply = read_reply(streamed(FIRST, *[b"data: {}\n\n"] * 150_000), streamed=True)
    assert any("more than 100000 events carry neither text nor a call" in found.sentence for found in reply.breaches)


def test_pings_and_held_back_tokens_of_a_long_answer_are_healthy() -> None:
    held = [b": ping\n\n", chunk({})] * 20_000
    said = [chunk({"content": "word "})] * 2_000
    reply = read_reply(streamed(FIRST, *held, *said, chunk({}, "stop"), END), streamed=True)
    assert reply.breaches == ()
    assert reply.complete
