"""Prompt tokens follow from everything a chat template renders, and from nothing else."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from emulator_asking import Asking
from emulator_mind import CLOCK, USUAL, WEATHER, calling, flags, result, user

from launch.engines.emulator.hosted import hosted
from launch.engines.emulator.mind import answer
from launch.engines.emulator.request import Asked, read_chat

WORDS = " ".join(f"word{n}" for n in range(200))
OSLO = ("get_weather", {"city": "Oslo"})
BASE: dict[str, Any] = {
    "messages": [user("[ref 7Q4-KD2] Weather in Oslo?"), calling(OSLO), result({"temp_c": 48.37, "sky": "haze"})],
    "tools": [WEATHER, CLOCK],
    "max_tokens": 1,
}


def asked(body: dict[str, Any], settings: Any = USUAL) -> Asked:
    return read_chat(json.dumps(body).encode(), settings)


def tokens(body: dict[str, Any], settings: Any = USUAL) -> int:
    return asked(body, settings).prompt_tokens


def changed(place: int, **fields: Any) -> dict[str, Any]:
    body = deepcopy(BASE)
    body["messages"][place] |= fields
    return body


def without(*places: int) -> dict[str, Any]:
    body = deepcopy(BASE)
    body["messages"] = [m for n, m in enumerate(body["messages"]) if n not in places]
    return body


@pytest.mark.parametrize("dialect", ["vllm", "vllm-old", "sglang", "llamacpp", "smg"])
def test_what_is_added_counts_and_what_is_left_out_does_not(dialect: str):
    settings = flags("--dialect", dialect)
    base = tokens(BASE, settings)

    assert base - tokens({**BASE, "tools": None}, settings) >= 20
    assert base - tokens({**BASE, "tools": [CLOCK]}, settings) >= 20
    long_result = result({"temp_c": 48.37, "sky": WORDS})["content"]
    assert tokens(changed(2, content=long_result), settings) - base >= 150
    call = deepcopy(BASE["messages"][1]["tool_calls"])
    call[0]["function"]["arguments"] = json.dumps({"city": WORDS})
    assert tokens(changed(1, tool_calls=call), settings) - base >= 150
    assert tokens(changed(1, content=WORDS), settings) - base >= 150
    assert base - tokens(without(1, 2), settings) >= 15
    assert tokens({**BASE, "messages": [*BASE["messages"], user(WORDS)]}, settings) - base >= 150


def test_nothing_null_and_empty_are_the_same():
    missing = deepcopy(BASE)
    del missing["messages"][1]["content"]
    assert tokens(BASE) == tokens(changed(1, content="")) == tokens(missing)
    assert tokens(changed(1, tool_calls=[])) == tokens(changed(1, tool_calls=None))


def test_results_as_text_and_as_parts_are_the_same():
    text = BASE["messages"][2]["content"]
    assert tokens(changed(2, content=[{"type": "text", "text": text}])) == tokens(BASE)
    assert tokens(changed(2, content=[{"type": "text", "text": p} for p in (text[:5], text[5:])])) == tokens(BASE)


def test_arguments_count_as_the_template_writes_them_not_as_they_were_sent():
    call = deepcopy(BASE["messages"][1]["tool_calls"])
    call[0]["function"]["arguments"] = '{ "city" :  "Oslo"\n}'
    assert tokens(changed(1, tool_calls=call)) == tokens(BASE)
    call[0]["id"] = "some_longer_id_of_another_engine"
    assert tokens(changed(1, tool_calls=call)) == tokens(BASE)


def test_every_result_counts():
    second = ("get_weather", {"city": "Lima"})
    two = [*BASE["messages"][:1], calling(OSLO, second), result({"temp_c": 1.5}), result({"temp_c": 2.5}, "c1")]
    assert tokens({**BASE, "messages": two}) - tokens({**BASE, "messages": two[:-1]}) >= 15


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("vllm", {"reasoning", "reasoning_content"}),
        ("vllm-old", {"reasoning_content"}),
        ("sglang", {"reasoning_content"}),
        ("llamacpp", {"reasoning_content"}),
        ("smg", {"reasoning_content"}),
    ],
)
def test_reasoning_of_earlier_turns_counts_where_the_template_keeps_it(dialect: str, names: set[str]):
    for name in ("reasoning", "reasoning_content"):
        kept = tokens(changed(1, **{name: WORDS}), flags("--dialect", dialect, "--keeps-reasoning"))
        dropped = tokens(changed(1, **{name: WORDS}), flags("--dialect", dialect))
        assert dropped == tokens(BASE, flags("--dialect", dialect))
        assert (kept - dropped >= 150) == (name in names)


@pytest.mark.parametrize("habit", ["on", "off"])
@pytest.mark.parametrize(
    "spelling",
    [
        lambda on: {"chat_template_kwargs": {"enable_thinking": on}},
        lambda on: {"chat_template_kwargs": {"thinking": on}},
        lambda on: {"chat_template_kwargs": {"thinking_mode": "enabled" if on else "disabled"}},
        lambda on: {"reasoning_effort": "high" if on else "none"},
    ],
)
def test_the_thinking_switch_in_every_spelling(habit: str, spelling: Any):
    settings = flags("--thinking", habit)
    on, off = (asked({**BASE, **spelling(value)}, settings) for value in (True, False))
    assert (on.thinking, off.thinking) == (True, False)
    assert 1 <= off.prompt_tokens - on.prompt_tokens <= 8
    assert asked(BASE, settings).prompt_tokens == (on if habit == "on" else off).prompt_tokens
    unknown = asked({**BASE, "chat_template_kwargs": {"no_such_switch": 1}}, settings)
    assert unknown.prompt_tokens == asked(BASE, settings).prompt_tokens


def test_a_model_that_knows_one_spelling_hears_no_other():
    settings = flags("--thinking", "on", "--thinking-switch", "thinking")
    deaf = asked({**BASE, "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none"}, settings)
    assert deaf.thinking
    assert not asked({**BASE, "chat_template_kwargs": {"thinking": False}}, settings).thinking


@pytest.mark.parametrize(("habit", "thinks"), [("never", False), ("always", True)])
def test_without_a_switch_nothing_changes_the_prompt(habit: str, thinks: bool):
    for value in (True, False):
        found = asked({**BASE, "chat_template_kwargs": {"enable_thinking": value}}, flags("--thinking", habit))
        assert found.thinking == thinks
        assert found.prompt_tokens == tokens(BASE, flags("--thinking", habit))


def test_other_scripts_cost_no_more_than_they_should():
    short = tokens(changed(2, content=""))
    cjk = tokens(changed(2, content="天气" * 50)) - short
    ascii_ = tokens(changed(2, content="ab cd" * 20)) - short
    assert cjk / ascii_ < 4


def test_sglang_renders_only_what_may_be_called():
    named = {"type": "function", "function": {"name": "get_server_time"}}
    for dialect, fewer in (("vllm", False), ("sglang", True)):
        settings = flags("--dialect", dialect)
        base = tokens(BASE, settings)
        assert (tokens({**BASE, "tool_choice": "none"}, settings) < base) == fewer
        assert (tokens({**BASE, "tool_choice": named}, settings) < base) == fewer


def test_the_model_knows_only_what_was_rendered():
    whole = asked({**BASE, "max_tokens": 100})
    blind = whole.reading(
        replace(segment, body="") if segment.kind == "result" else segment for segment in whole.segments
    )
    assert "48.37" in "".join(answer(whole, USUAL).content)
    assert "48.37" not in "".join(answer(blind, USUAL).content)
    assert blind.prompt_tokens < whole.prompt_tokens
    toolless = whole.reading(segment for segment in whole.segments if segment.kind != "tools")
    assert toolless.tools == ()
    assert whole.reading(whole.segments) == whole


def test_the_prompt_can_be_asked_for_in_tokens_and_as_text():
    for dialect in ("vllm", "sglang"):
        with hosted("--dialect", dialect) as running:
            engine = Asking(running)  # type: ignore[arg-type]
            body = {"model": "emu", **BASE}
            count = engine.http.post("/tokenize", json=body).json()["count"]
            usage = engine.http.post("/v1/chat/completions", json=body).json()["usage"]
            plain = engine.http.post("/tokenize", json={"model": "emu", "prompt": "abcdefgh"}).json()
        assert count == usage["prompt_tokens"]
        assert plain["count"] == len(plain["tokens"]) == 2
    with hosted("--dialect", "vllm") as running:
        shown = Asking(running).http.post("/tokenize", json={**BASE, "return_token_strs": True}).json()  # type: ignore[arg-type]
    assert "None" not in "".join(shown["token_strs"])
    with hosted("--dialect", "llamacpp") as running:
        engine = Asking(running)  # type: ignore[arg-type]
        prompt = engine.http.post("/apply-template", json=BASE).json()["prompt"]
        assert "48.37" in prompt
        assert len(engine.http.post("/tokenize", json={"content": prompt}).json()["tokens"]) == tokens(BASE)
