"""Workloads and their prompts: unique, of the wanted length, the same from run to run; and the rungs of a ladder."""

from __future__ import annotations

from typing import Any

import pytest

from gates.errors import GateUsageError
from gates.profile import DIRECTORY, load
from gates.strict import read_model
from gates.throughput.ladder import beyond, ladder, resolved
from gates.throughput.prompts import Lengths, prompt
from gates.throughput.settings import ThroughputSettings
from gates.throughput.workload import Scene, Workload, room

SCENES: tuple[Scene, ...] = ("chronicle", "code", "technical", "dialogue_zh", "prose_zh")


def read(**settings: Any) -> ThroughputSettings:
    return read_model(ThroughputSettings, settings, "p")


@pytest.mark.parametrize("scene", SCENES)
def test_no_prompt_comes_twice_and_they_differ_from_the_first_tokens_on(scene: Scene) -> None:
    prompts = [prompt(scene, chars=400, round_number=1, position=0) for _ in range(50)]
    assert len({text[:24] for text in prompts}) == 50
    assert len({text[24:] for text in prompts}) == 1, "but for the nonce two runs ask the same"
    other = prompt(scene, chars=400, round_number=2, position=0)
    assert other[24:] != prompts[0][24:]


@pytest.mark.parametrize("scene", SCENES)
def test_a_prompt_is_as_long_as_it_should_be(scene: Scene) -> None:
    bare = len(prompt(scene, chars=0, round_number=1, position=0))
    for chars in (1, 100, 12_345):
        assert len(prompt(scene, chars=chars, round_number=1, position=0)) == bare + chars


def test_lengths_are_learned_from_what_the_server_counts() -> None:
    lengths = Lengths()
    assert lengths.chars_for("code", 500) == 0, "nothing is known yet"
    lengths.learn("code", 0, 40)
    lengths.learn("code", 2000, 540)
    assert lengths.chars_for("code", 290) == 1000
    assert lengths.chars_for("code", None) == 0
    lengths.learn("code", 40_000, 8000)
    # Near 8,000 tokens the rate there counts, not that of short prompts.
    assert abs(lengths.chars_for("code", 8000) - 40_000) <= 1
    assert lengths.longest("code") == 8000


def test_counts_that_scatter_steer_nothing_away() -> None:
    lengths = Lengths()
    lengths.learn("code", 0, 60)
    for chars, tokens in ((212, 205), (218, 190), (209, 212), (212, 195)):
        lengths.learn("code", chars, tokens)
    assert lengths.chars_for("code", 200) == pytest.approx(212, rel=0.1)


def test_mixed_lengths_fill_their_range_and_are_the_same_every_time() -> None:
    mixed = Workload(name="mixed", prompt_tokens=200, prompt_tokens_max=8000, answer_tokens=100, answer_tokens_max=400)
    answers = [mixed.answer_length(position) for position in range(64)]
    prompts = [mixed.prompt_length(position, None) or 0 for position in range(64)]
    assert answers == [mixed.answer_length(position) for position in range(64)]
    assert min(answers) >= 100
    assert max(answers) <= 400
    assert sum(answers) / 64 == pytest.approx(250, rel=0.05)
    assert sum(prompts) / 64 == pytest.approx(4100, rel=0.05)
    assert len(set(answers)) > 50


def test_what_does_not_fit_into_the_context_is_said() -> None:
    long = Workload(name="long", prompt_tokens=8000, answer_tokens=256)
    limit = Workload(name="limit", prompt_tokens="limit", answer_tokens=256)
    assert long.impossible(None) is None
    assert long.impossible(32_768) is None
    assert "do not fit into the context of 8192" in (long.impossible(8192) or "")
    assert "declare max_context_tokens" in (limit.impossible(None) or "")
    assert limit.impossible(8192) is None
    assert limit.prompt_length(0, 8192) == room(8192, 256) < 8192 - 256


def test_a_workload_as_plain_data_is_what_makes_it_comparable() -> None:
    one = Workload(name="a", concurrency=(1, 2))
    assert one.plain() == Workload(name="b").plain()
    assert one.plain() != Workload(name="a", answer_tokens=300).plain()
    assert one.plain()["prompts_version"] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workloads": [{"name": "a", "prompt_tokns": 5}]}, "did you mean 'prompt_tokens'?"),
        ({"workloads": [{"name": "a"}, {"name": "a"}]}, "listed twice"),
        (
            {"workloads": [{"name": "chat"}], "ladder": [{"concurrency": 1, "workload": "chta"}]},
            "p: ladder: a rung is for the workload 'chta'; there are chat",
        ),
        ({"workloads": [{"name": "a", "answer_tokens": 50, "answer_tokens_max": 20}]}, "answer_tokens_max is below"),
        ({"workloads": [{"name": "a", "prompt_tokens": None, "prompt_tokens_max": 20}]}, "needs prompt_tokens"),
        ({"workloads": [{"name": "a", "scene": "poem"}]}, "workloads.0.scene"),
        ({"workloads": [{"name": "a", "concurrency": [0]}]}, "concurrency is at least 1"),
        ({"ladder": [{"concurrency": 0}]}, "between 1 and 4096"),
        ({"ladder": [{"concurrency": "most"}]}, "ladder.0.concurrency"),
        ({"ladder": [{"concurrency": 1, "min_decode": 5}]}, "did you mean 'min_decode_tok_per_s'?"),
        ({"ladder": [{"concurrency": 1, "workload": "b"}]}, "there are chat"),
        ({"rounds": [5, 3]}, "ascending"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(GateUsageError) as refused:
        read(**settings)
    assert said in str(refused.value)


def test_every_profile_that_ships_can_be_read() -> None:
    for file in DIRECTORY.glob("*.yaml"):
        for step in load(file.stem).gates:
            if step.name == "throughput":
                read_model(ThroughputSettings, step.settings, file.stem)
    names = [w.name for w in read(**load("uni_bench").gates[0].settings).workloads]
    assert {"code", "technical", "dialogue_zh", "prose_zh"} <= set(names)


def test_a_ladder_reaches_the_limit_and_one_rung_beyond() -> None:
    assert ladder(8, most=16) == [1, 2, 4, 8, 10]
    assert ladder(12, most=16) == [1, 2, 4, 8, 12, 15]
    assert ladder(1, most=16) == [1, 2]
    assert ladder(None, most=16) == [1, 2, 4, 8, 16]
    assert beyond(4) == 5


def test_a_ladder_looks_right_above_each_capture_size() -> None:
    assert ladder(32, most=16, captures=(4, 8)) == [1, 2, 4, 5, 8, 9, 16, 32, 40]
    dozens = ladder(64, most=16, captures=range(1, 65))
    assert len(dozens) <= 8 + 6
    assert max(dozens) == beyond(64)


def test_rungs_by_name() -> None:
    assert resolved(["limit", 1, "beyond"], 8) == ([1, 8, 10], [])
    rungs, lost = resolved([1, "limit"], None)
    assert rungs == [1]
    assert "does not say how many sequences" in lost[0]
