"""Faults that it takes more than one request to show, and which requests a fault chooses."""

import threading
import time
from typing import Any, Self

import httpx
import pytest
from emulator_asking import WEATHER
from fault_seeing import CALL, RESULT, SAVE_FILE, Seen, history, see

from launch.engines.emulator.faults import (
    FaultError,
    FaultPlan,
    FaultSetting,
    Group,
    Harm,
    Situation,
    describe_faults,
    vocabulary,
)
from launch.engines.emulator.hosted import hosted

FAST = ("--ttft-ms", "0", "--itl-ms", "0.01")
HELLO = {"text": "Hello!"}


def engine(fault: str | None = None, *flags: str, itl_ms: float = 0.01) -> Any:
    struck = ("--fault", fault) if fault else ()
    return hosted("--ttft-ms", "0", "--itl-ms", str(itl_ms), *struck, *flags)


def prompt_tokens(url: str, **fields: Any) -> int:
    return int(see(url, stream=False, max_tokens=1, **fields).usage["prompt_tokens"])


def grows(url: str, short: dict[str, Any], long: dict[str, Any]) -> int:
    """By how many tokens one prompt is longer than the other."""
    return prompt_tokens(url, **long) - prompt_tokens(url, **short)


WORDS = "and so it went on " * 40
REASONED = {"messages": history(reasoning="I ask for it."), "tools": [WEATHER]}
PROMPTS = {
    "prompt-drop-tool": (
        RESULT,
        {"messages": [*history()[:2], {**history()[2], "content": WORDS}], "tools": [WEATHER]},
    ),
    "prompt-drop-history": (RESULT, {"messages": history(content=WORDS), "tools": [WEATHER]}),
    "prompt-args-coerced": (
        RESULT,
        {"messages": history(arguments=f'{{"city": "{WORDS}"}}'), "tools": [WEATHER]},
    ),
    "prompt-drop-reasoning": (REASONED, {"messages": history(reasoning=WORDS), "tools": [WEATHER]}),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_what_a_prompt_fault_drops_is_not_counted_either(name: str):
    with engine(None, "--keeps-reasoning") as good, engine(name, "--keeps-reasoning") as struck:
        assert grows(good.url, *PROMPTS[name]) > 100
        assert grows(struck.url, *PROMPTS[name]) == 0


def test_a_null_becomes_a_word_of_the_prompt():
    null, empty = {"messages": history(None)}, {"messages": history("")}
    with engine() as good, engine("prompt-null-literal") as struck:
        assert grows(good.url, empty, null) == 0
        assert grows(struck.url, empty, null) == 1


def test_only_the_last_system_message_stays_in_the_prompt():
    def asks(first: str, last: str) -> dict[str, Any]:
        said = (("system", first), ("system", last), ("user", "Hello!"))
        return {"messages": [{"role": role, "content": text} for role, text in said]}

    short, longer = asks("Be brief.", "Be kind."), asks("Be brief. Never say more than one sentence.", "Be kind.")
    with engine() as good, engine("prompt-last-system") as struck:
        assert grows(good.url, short, longer) > 0
        assert grows(struck.url, short, longer) == 0
        assert grows(struck.url, short, asks("Be brief.", "Be kind. Never say more than one sentence.")) > 0


def test_an_ignored_switch_leaves_the_prompt_as_it_is():
    off = {**HELLO, "chat_template_kwargs": {"enable_thinking": False}}
    with engine(None, "--thinking", "on") as good, engine("toggle-ignored", "--thinking", "on") as struck:
        assert grows(good.url, HELLO, off) > 0
        assert grows(struck.url, HELLO, off) == 0
        assert see(struck.url, stream=False, **off).reasoning


def test_exclamation_marks_come_only_after_a_sleep():
    with engine("bang-after-wake") as struck:
        assert "ready to help" in see(struck.url, stream=True, **HELLO).content
        httpx.post(f"{struck.url}/sleep")
        httpx.post(f"{struck.url}/wake_up")
        assert see(struck.url, stream=True, **HELLO).content == "!" * 512


class Beside:
    """A long answer that runs while a test asks something else."""

    def __init__(self, url: str, text: str) -> None:
        self.seen: list[Seen] = []
        self._thread = threading.Thread(target=lambda: self.seen.append(see(url, stream=True, text=text)))
        self._metrics = f"{url}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        give_up_at_s = time.monotonic() + 20
        while 'vllm:num_requests_running{engine="0",model_name="emu"} 1.0' not in httpx.get(self._metrics).text:
            assert time.monotonic() < give_up_at_s, "the other request does not run"
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def test_swapped_requests_need_company():
    with engine("swap-requests", itl_ms=4) as struck:
        assert "ready to help" in see(struck.url, stream=False, **HELLO).content
        with Beside(struck.url, "[ref Q7] Tell me a long story about 150 words of rivers."):
            assert see(struck.url, stream=False, **HELLO).content.startswith("[ref Q7]")


def test_the_state_of_another_request_bleeds_into_arguments():
    other = {"text": "What is the weather in Lima?", "tools": [WEATHER]}
    with engine("state-bleed") as struck:
        assert see(struck.url, stream=True, **other).parsed == [{"city": "Lima"}], "nobody was there before"
        assert see(struck.url, stream=True, **CALL).arguments == ['{"city": "Lima"}{"city": "Oslo"}']


def test_an_id_of_bad_format_is_refused_when_it_comes_back():
    with engine("id-bad-format") as struck:
        assert see(struck.url, stream=False, **RESULT).status == 200, "a foreign id is not the one meant"
        call = see(struck.url, stream=False, **CALL).deltas[0]
        turns = history()
        turns[1]["tool_calls"] = [call]
        turns[2]["tool_call_id"] = call["id"]
        assert see(struck.url, stream=False, messages=turns, tools=[WEATHER]).status == 400


def test_a_dead_engine_stays_dead_and_takes_running_answers_along():
    with engine("engine-death+named", itl_ms=20) as struck:
        with Beside(struck.url, "Tell me a long story of 400 words.") as beside:
            named = {"type": "function", "function": {"name": "get_weather"}}
            assert see(struck.url, stream=False, **CALL, tool_choice=named).status == 500
        assert "error" in beside.seen[0].chunks[-1]
        assert see(struck.url, stream=False, **HELLO).status == 500
        assert httpx.get(f"{struck.url}/health").status_code == 503


@pytest.mark.parametrize(("fault", "finish"), [("wrong-kv", "stop"), ("abort-as-length", "length")])
def test_a_prompt_that_is_too_long_is_taken_by_two_faults(fault: str, finish: str):
    too_long = {"text": "river " * 4000}
    with engine(None, "--max-model-len", "2000") as good:
        assert see(good.url, stream=False, **too_long).status == 400
    with engine(fault, "--max-model-len", "2000") as struck:
        seen = see(struck.url, stream=False, **too_long)
        assert (seen.status, seen.finishes, seen.usage["prompt_tokens"]) == (200, [finish], 1)


@pytest.mark.parametrize("name", ["none-calls", "none-swallow"])
def test_calls_of_the_history_come_back_without_tools(name: str):
    turns = [*history(), {"role": "assistant", "content": "It is 48.37."}, {"role": "user", "content": "Hello!"}]
    with engine() as good:
        assert "ready to help" in see(good.url, stream=True, messages=turns).content
    with engine(name) as struck:
        for stream in (True, False):
            seen = see(struck.url, stream=stream, messages=turns)
            if name == "none-calls":
                assert "<tool_call>" in seen.content
                assert seen.finishes == ["tool_calls"]
            else:
                assert (seen.content, seen.finishes) == ("", ["stop"])
                assert seen.usage["completion_tokens"] > 3


def test_every_family_of_markup_leaks_in_its_own_way():
    said = set()
    for family in range(1, 9):
        with engine(f"leak-markup={family}") as struck:
            seen = see(struck.url, stream=True, **CALL)
            assert not seen.deltas
            assert "get_weather" in seen.content
            said.add(seen.content)
    assert len(said) == 8


def test_a_cut_call_is_mended_only_where_it_is_not_streamed():
    asked = {
        "text": 'Use save_file: "the quick brown fox jumps over it", notes.txt',
        "tools": [SAVE_FILE],
        "max_tokens": 12,
    }
    with engine("fin-toolcalls-on-length") as struck:
        assert see(struck.url, stream=True, **asked).parsed == ["broken"]
        assert isinstance(see(struck.url, stream=False, **asked).parsed[0], dict)


def test_a_named_call_with_stop_is_what_vllm_does():
    named = {**CALL, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    with engine(None, "--dialect", "sglang") as good, engine("fin-stop-on-calls+named", "--dialect", "sglang") as other:
        assert see(good.url, stream=True, **named).finishes == ["tool_calls"]
        assert see(other.url, stream=True, **named).finishes == ["stop"]
        assert see(other.url, stream=True, **CALL).finishes == ["tool_calls"]


def test_several_faults_act_together():
    with hosted(*FAST, "--fault", "id-missing", "--fault", "name_repeat", "--fault", "no-done") as struck:
        seen = see(struck.url, stream=True, **CALL)
    assert len(seen.openings) == len(seen.deltas)
    assert not any("id" in call for call in seen.deltas)
    assert "[DONE]" not in seen.events


@pytest.mark.parametrize(
    ("condition", "hit", "missed"),
    [
        ("argument=100", {"text": f'Use save_file: "{"long " * 40}", a.txt', "tools": [SAVE_FILE]}, CALL),
        ("after-tool-result", RESULT, CALL),
        ("result", {"messages": [*history(), {"role": "user", "content": "Hello!"}]}, CALL),
        ("sampled", HELLO, {**HELLO, "temperature": 0}),
        ("schema", {**HELLO, "response_format": {"type": "json_object"}}, HELLO),
        ("required", {**CALL, "tool_choice": "required"}, CALL),
        ("turn=2", {"messages": [{"role": "user", "content": "Hello!"}] * 2}, HELLO),
    ],
)
def test_a_condition_chooses_requests(condition: str, hit: dict[str, Any], missed: dict[str, Any]):
    with engine(f"http500+{condition}") as struck:
        assert see(struck.url, stream=False, **hit).status == 500
        assert see(struck.url, stream=False, **missed).status == 200


def test_a_prompt_seen_before_is_a_cache_hit_until_it_is_forgotten():
    asked = {"text": "river " * 60, "max_tokens": 1}
    with engine("http500+cached") as struck:
        assert [see(struck.url, stream=False, **asked).status for _ in range(2)] == [200, 500]
        httpx.post(f"{struck.url}/sleep")
        httpx.post(f"{struck.url}/wake_up")
        assert see(struck.url, stream=False, **asked).status == 200


def test_a_share_of_the_requests_is_struck():
    with engine("http500@0.25") as struck:
        statuses = [see(struck.url, stream=False, **HELLO).status for _ in range(80)]
    assert 8 <= statuses.count(500) <= 34


def test_a_share_is_drawn_anew_for_each_fault():
    plan = FaultPlan(tuple(FaultSetting.parse(text) for text in ("http500@0.5", "no-done@0.5")), seed=1)
    hits = [frozenset(plan.strike(Situation(number, streamed=True))) for number in range(400)]
    assert all(
        60 < hits.count(frozenset(both)) < 140 for both in ([], ["http500"], ["no-done"], ["http500", "no-done"])
    )


def test_the_vocabulary_is_there_for_programs():
    by_name = {fault.name: fault for fault in vocabulary()}
    assert all(fault.healthy for fault in vocabulary(Group.VARIANTS))
    assert {f.name for f in vocabulary() if f.healthy and f.group is not Group.VARIANTS} == {
        "args-one-chunk", "id-null-cont", "content-ws", "content-empty-chunk", "value-trim",
    }  # fmt: skip
    assert by_name["id-null-cont"].harm is Harm.HEALTHY
    assert {fault.group for fault in vocabulary(Group.ARGS)} == {Group.ARGS}
    assert not {Group.LIFE, Group.TIMING} & {fault.group for fault in vocabulary()}
    assert len(vocabulary()) >= 98


def test_both_spellings_and_old_names_mean_the_same():
    for old, new in [
        ("bad-tool-arguments", "args_tail_cut"), ("leak-think", "think-in-content"), ("error-500", "http500"),
        ("tool-text-in-content", "leak_markup"), ("truncates=3", "stream-cut=3"),
    ]:  # fmt: skip
        assert FaultSetting.parse(old) == FaultSetting.parse(new)


def test_faults_are_listed_by_group():
    listed = describe_faults()
    assert all(f"{group}:\n" in listed for group in Group)


def test_a_hosted_engine_refuses_faults_that_would_end_its_host():
    with pytest.raises(FaultError, match="own process"), hosted("--fault", "dies-under-load"):
        pass


def test_a_share_behind_a_condition_is_told_its_place():
    with pytest.raises(FaultError, match="before the conditions"):
        FaultSetting.parse("no-done+stream@0.5")
