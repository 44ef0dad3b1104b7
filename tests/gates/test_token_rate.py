"""What a run's own answers say about the cost of a word, a call, a thought; and the answers that do not fit."""

from __future__ import annotations

import json
from random import Random

import pytest

from gates.reply import Reply, Usage
from gates.token_rate import FEWEST, TokenRate, learn
from gates.toolwire import ToolCall
from gates.trial import Answer
from gates.wire import Exchange

TEXT = "the harbour lies behind a low wall and nobody paints it before winter comes along slowly again"
WORDS = TEXT.split(" ")
CITIES = ("Porto", "Quito", "Aarhus", "Nagoya", "Tbilisi", "Cardiff")


def answer(content: str, reasoning: str, cities: tuple[str, ...], tokens: int, finish: str = "stop") -> Answer:
    calls = tuple(
        ToolCall(f"call_{number}", "get_weather", json.dumps({"city": city})) for number, city in enumerate(cities)
    )
    reply = Reply(
        streamed=False,
        content=content,
        reasoning=reasoning,
        calls=calls,
        finish_reason=finish,
        usage=Usage(20, tokens, None),
    )
    return Answer({"tools": [1]}, Exchange("POST", "/", b"", 0.0, 0.1, 200), reply, ())


def counted(content: str, reasoning: str, cities: tuple[str, ...], rng: Random) -> int:
    """An engine whose calls cost 18 tokens of markup, its thoughts two, its words 1.2 or so, its end one."""
    words = len(f"{content} {reasoning}".split())
    noise = sum(rng.random() < 0.2 for _ in range(words))
    return words + noise + 2 * bool(reasoning) + 21 * len(cities) + 1


def traffic(number: int, rng: Random) -> list[Answer]:
    found = []
    for _ in range(number):
        cities = tuple(rng.sample(CITIES, rng.choice((0, 1, 1, 3))))
        content = "" if cities else " ".join(rng.choices(WORDS, k=rng.randrange(1, 120)))
        reasoning = " ".join(rng.choices(WORDS, k=rng.randrange(20, 60))) if rng.random() < 0.5 else ""
        found.append(answer(content, reasoning, cities, counted(content, reasoning, cities, rng)))
    return found


@pytest.fixture(scope="module")
def rate() -> TokenRate:
    rng = Random(7)  # noqa: S311 - must be repeatable
    lost = [answer("", "", ("Porto",), 64) for _ in range(20)]
    learned = learn([*traffic(400, rng), *lost])
    assert learned is not None
    return learned


def test_whole_answers_fit_although_some_that_taught_the_rate_were_broken(rate):
    rng = Random(8)  # noqa: S311 - must be repeatable
    assert [rate.unaccounted(one) for one in traffic(400, rng)] == [0.0] * 400


def test_lost_calls_lost_thoughts_and_lost_text_are_tokens_that_never_came(rate):
    assert 35 < rate.unaccounted(answer("", "", ("Porto",), 64)) < 50  # two of three calls are gone
    assert 20 < rate.unaccounted(answer("", "", ("Porto",), 22 + 35)) < 50  # the thought is gone
    assert rate.unaccounted(answer(TEXT, "", (), 90)) > 60


def test_what_came_twice_was_counted_once(rate):
    text = f"{TEXT}. {TEXT}. {TEXT}."
    rng = Random(9)  # noqa: S311 - must be repeatable
    once = counted(text, "", (), rng)
    assert rate.unaccounted(answer(text, text, (), once)) < -40


def test_nothing_is_said_of_answers_whose_count_says_nothing(rate):
    assert rate.unaccounted(answer("天気はどうですか", "", (), 500)) is None
    assert rate.unaccounted(answer("", "", ("Porto",), 500, finish="length")) is None  # a cut call may be withheld
    hidden = answer("yes", "", (), 500)
    thoughts = Usage(20, 502, None, 500)
    assert rate.unaccounted(Answer(hidden.body, hidden.exchange, _with(hidden.reply, thoughts), ())) == 0


def _with(reply: Reply, usage: Usage) -> Reply:
    return Reply(streamed=False, content=reply.content, finish_reason="stop", usage=usage)


def test_few_answers_teach_nothing():
    assert learn(traffic(FEWEST - 1, Random(1))) is None  # noqa: S311 - must be repeatable
