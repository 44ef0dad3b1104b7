"""Which requests count, and what their times and tokens are."""

from __future__ import annotations

import pytest
from gate_kit import DONE, END, FIRST, chunk, event, streamed, whole

from gates.throughput.sample import Sample, read
from gates.wire import Exchange, Failure, Piece

TEN = [chunk({"content": "ab"}) for _ in range(10)]


def usage(tokens: int, **more: object) -> bytes:
    return chunk(usage={"prompt_tokens": 5, "completion_tokens": tokens, **more})


def test_the_role_chunk_is_no_token_and_time_ends_at_the_last_one() -> None:
    sample = read(streamed(FIRST, *TEN, chunk({}, "stop"), usage(30), DONE), wanted_tokens=30).sample
    assert sample is not None
    assert (sample.ttft_s, len(sample.times_s)) == (0.001, 10)
    assert sample.decode_tok_per_s == pytest.approx(29 / 0.009)
    assert sample.end_to_end_tok_per_s == pytest.approx(30 / 0.010)
    assert sum(sample.gaps_s) == pytest.approx(0.009)


@pytest.mark.parametrize("key", ["content", "reasoning", "reasoning_content", "tool_calls"])
def test_every_kind_of_text_is_a_token(key: str) -> None:
    value = [{"index": 0, "function": {"arguments": "{"}}] if key == "tool_calls" else "x"
    sample = read(streamed(FIRST, chunk({key: value}), chunk({"content": "y"}, "stop"), END), wanted_tokens=None).sample
    assert sample is not None
    assert len(sample.times_s) == 2


def test_the_first_chunk_may_bring_several_tokens_where_the_engine_says_so() -> None:
    def spoken(so_far: int) -> bytes:
        return chunk({"content": "abc"}, usage={"prompt_tokens": 5, "completion_tokens": so_far})

    said = [spoken(3 * (number + 1)) for number in range(20)]
    sample = read(streamed(FIRST, *said, chunk({}, "length"), usage(60), DONE), wanted_tokens=60).sample
    assert sample is not None
    assert sample.first_tokens == 3
    assert sample.decode_tok_per_s == pytest.approx(57 / 0.019)


def test_chunks_alike_are_read_as_those_that_are_not() -> None:
    """With a quote, an escape, two events in one piece and an event in two pieces in between."""
    texts = ["one", "two", 'say "three"', "four\n", "", "fünf", "六", "seven"]
    chunks = [chunk({"content": text}) for text in texts]
    pieces = [FIRST, *chunks, chunks[0] + chunks[1], chunks[0][:30], chunks[0][30:], chunk({}, "stop"), usage(20), DONE]
    together = read(streamed(*pieces), wanted_tokens=None).sample
    apart = read(streamed(*pieces, piece_bytes=7), wanted_tokens=None).sample
    assert together is not None
    assert apart is not None
    # The empty one is no token; two came in one piece; one came in two.
    assert len(together.times_s) == len(apart.times_s) == 7 + 2 + 1


def test_cached_tokens_are_what_usage_says() -> None:
    told = usage(10, prompt_tokens_details={"cached_tokens": 4})
    sample = read(streamed(FIRST, *TEN, chunk({}, "stop"), told, DONE), wanted_tokens=10).sample
    assert sample is not None
    assert sample.cached_tokens == 4


def refused(status: int, body: bytes) -> Exchange:
    headers = (("Content-Type", "application/json"),)
    return Exchange("POST", "/v1/chat/completions", b"", 0.0, 0.1, status, headers, (Piece(0.1, body),))


def failed(layer: str, *, pieces: tuple[Piece, ...] = ()) -> Exchange:
    headers = (("Content-Type", "text/event-stream"),)
    failure = Failure(layer, "it ended")  # type: ignore[arg-type]
    return Exchange("POST", "/v1/chat/completions", b"", 0.0, 1.0, 200 if pieces else None, headers, pieces, failure)


WHOLE = {"choices": [{"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
STOP = chunk({}, "stop")


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        (refused(429, b'{"error": {"message": "slow down"}}'), "HTTP 429"),
        (refused(503, b"busy"), "HTTP 503"),
        (refused(400, b'{"error": {"message": "maximum context length is 100 tokens"}}'), "prompt too long"),
        (whole(WHOLE), "not streamed"),
        (failed("port"), "no connection"),
        (failed("timeout"), "timeout"),
        (failed("http"), "broken off"),
        (failed("timeout", pieces=(Piece(0.1, FIRST + TEN[0]),)), "timeout"),
        (failed("http", pieces=(Piece(0.1, FIRST + TEN[0]),)), "broken off"),
        (streamed(FIRST, *TEN, STOP, usage(10)), "broken off"),
        (streamed(FIRST, *TEN, usage(10), DONE), "broken off"),
        (streamed(FIRST, *TEN, event({"error": {"message": "x"}}), DONE), "error in the stream"),
        (streamed(FIRST, *TEN, STOP, DONE), "no usage"),
        (streamed(FIRST, STOP, usage(10), DONE), "no token"),
        (streamed(FIRST, *TEN, STOP, usage(9), DONE), "stopped early"),
        (streamed(FIRST, *TEN, STOP, usage(11), DONE), "went on"),
        (streamed(FIRST, *TEN, chunk({}, "abort"), usage(10), DONE), "given up"),
        (streamed(FIRST, *TEN, event(b"not json"), STOP, usage(10), DONE), "malformed"),
        (streamed(FIRST, b"nonsense\n\n", *TEN, STOP, usage(10), DONE), "malformed"),
    ],
)
def test_a_request_counts_only_when_it_ended_as_it_should(exchange: Exchange, kind: str) -> None:
    reading = read(exchange, wanted_tokens=10)
    assert (reading.failure, reading.sample) == (kind, None)
    assert reading.sentence


def test_without_ignore_eos_any_length_counts() -> None:
    assert read(streamed(FIRST, *TEN, STOP, usage(9), DONE), wanted_tokens=None).sample is not None


def test_tokens_are_counted_by_time() -> None:
    sample = Sample(0.0, (1.0, 2.0, 3.0, 4.0), prompt_tokens=5, completion_tokens=10, first_tokens=1)
    assert sample.tokens_in(0.0, 4.0) == pytest.approx(10)
    assert sample.tokens_in(1.0, 3.0) == pytest.approx(6)
    assert sample.tokens_in(0.0, 1.0) == pytest.approx(1)
    assert sample.tokens_in(4.0, 9.0) == 0


def test_one_chunk_is_no_rate() -> None:
    sample = read(streamed(FIRST, chunk({"content": "all"}, "stop"), usage(40), DONE), wanted_tokens=40).sample
    assert sample is not None
    assert sample.decode_tok_per_s is None


@pytest.mark.parametrize(
    ("counted", "kind"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 0}, "no usage"),
        ({"prompt_tokens": 5, "completion_tokens": 10**400}, "no usage"),
    ],
)
def test_counts_that_cannot_be_are_no_usage(counted: dict[str, int], kind: str) -> None:
    reading = read(streamed(FIRST, *TEN, chunk({}, "stop"), chunk(usage=counted), DONE), wanted_tokens=None)
    assert (reading.sample, reading.failure) == (None, kind)
    assert read(streamed(FIRST, chunk({}, "stop"), chunk(usage=counted), DONE), wanted_tokens=None).sample is None


def test_a_prompt_of_more_tokens_than_there_are_is_not_believed() -> None:
    said = chunk(usage={"prompt_tokens": 10**400, "completion_tokens": 10})
    reading = read(streamed(FIRST, *TEN, chunk({}, "stop"), said, DONE), wanted_tokens=10)
    assert reading.prompt_tokens is None
    assert reading.sample is not None
    assert reading.sample.prompt_tokens == 0
