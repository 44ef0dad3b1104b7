"""--right: a model that is wrong as often as it is told, in the behaviour it is told, and never breaks the wire."""

import json
from collections import Counter
from typing import Any

import jsonschema
import pytest
from emulator_mind import ALL, EVENT, WEATHER, calling, flags, result, say, user

from launch.engines.emulator.mistakes import read_right

OSLO = ("get_weather", {"city": "Oslo"})
SCHEMAS = {t["function"]["name"]: t["function"]["parameters"] for t in ALL}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3},
        "level": {"enum": ["low", "high"]},
        "who": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"]},
    },
    "required": ["name", "level", "who"],
    "additionalProperties": False,
}
SHAPE = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}


def asked(behaviour: str, number: int) -> dict[str, Any]:
    """A request that shows the behaviour, another one for every number."""
    ref = f"[ref AAA-{number}] "
    told = 'name "Ada", level "high", who {"kind": "b"}'
    history = [user(ref + "Weather in Oslo?"), calling(OSLO), result({"temp_c": 48.37})]
    return {
        "calls": {"text": ref + 'Call get_weather with city "Oslo".', "tools": ALL},
        "copies": {"text": ref + 'Call save_file with path "a" and text as here:\n<<<\nx y z\n>>>', "tools": ALL},
        "parallel": {"text": ref + "Weather in Oslo, Lima and Kyiv?", "tools": ALL},
        "no-call": {"text": ref + "What is the capital of France?", "tools": ALL},
        "agent": {
            "text": [
                {"role": "system", "content": "You are an agent. " * 200},
                user(ref + "What is the capital of France?"),
            ],
            "tools": ALL,
        },
        "quoted": {"text": ref + "Explain what `<tool_call>` means.", "tools": ALL},
        "results": {"text": history, "tools": ALL},
        "structured": {"text": ref + f"Return {told}.", "response_format": SHAPE},
        "answers": {"text": ref + "What is the capital of France?"},
    }[behaviour]


BEHAVIOURS = ("calls", "copies", "parallel", "no-call", "agent", "quoted", "results", "structured", "answers")


def shares(behaviour: str, *words: str, tries: int = 150) -> float:
    """How often the answer is the right one."""
    settings = flags(*(flag for word in words for flag in ("--right", word)))
    fields = asked(behaviour, 0)
    right = 0
    for number in range(tries):
        fields = asked(behaviour, number)
        text, tools = fields.pop("text"), fields.pop("tools", [])
        perfect = say(text, *tools, **fields)
        said = say(text, *tools, settings=settings, **fields)
        right += said == perfect
        for name, arguments in said.calls:
            jsonschema.validate(arguments, SCHEMAS[name])
        if behaviour == "structured":
            jsonschema.validate(json.loads(said.content), SCHEMA)
        assert said.content or said.calls
    return right / tries


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_behaviour_goes_wrong_as_often_as_told(behaviour: str):
    assert 0.7 < shares(behaviour, f"{behaviour}=0.8") < 0.9


@pytest.mark.parametrize("behaviour", ["calls", "no-call", "answers"])
def test_the_others_stay_right(behaviour: str):
    other = next(name for name in BEHAVIOURS if name != behaviour)
    assert shares(behaviour, f"{other}=0", tries=50) == 1
    assert shares(behaviour, "0", f"{behaviour}=1", tries=50) == 1
    assert shares(behaviour, "0", tries=50) == 0


def test_mistakes_are_a_models_mistakes():
    settings = flags("--right", "calls=0")
    kinds: Counter[str] = Counter()
    for number in range(100):
        said = say(f'[ref AAA-{number}] Call get_weather with city "Oslo".', *ALL, settings=settings)
        kinds["none" if not said.calls else "other tool" if said.calls[0][0] != "get_weather" else "other value"] += 1
    assert set(kinds) == {"none", "other tool", "other value"}


def test_what_is_demanded_is_wrong_only_where_it_may_be():
    settings = flags("--right", "0")
    for number in range(50):
        required = say(
            f'[ref AAA-{number}] Call get_weather with city "Oslo".', *ALL, tool_choice="required", settings=settings
        )
        assert required.calls
        named = {"type": "function", "function": {"name": "get_weather"}}
        said = say(f"[ref AAA-{number}] Oslo", WEATHER, EVENT, tool_choice=named, settings=settings)
        assert [name for name, _ in said.calls] == ["get_weather"]


def test_the_same_question_is_answered_the_same_way_and_another_seed_otherwise():
    answers = [
        [
            say(f"[ref AAA-{n}] What is 2+{n}?", settings=flags("--right", "0.5", "--seed", seed)).content
            for n in range(40)
        ]
        for seed in ("1", "1", "2")
    ]
    assert answers[0] == answers[1] != answers[2]
    unsure = flags("--right", "0.5")
    for number in range(40):
        question = {"role": "user", "content": f"[ref AAA-{number}] What is 2+2?"}
        alone, behind = ([question], [{"role": "system", "content": "Be kind."}, question])
        assert say(alone, settings=unsure).content == say(behind, settings=unsure).content


@pytest.mark.parametrize(
    ("word", "says"), [("call=0.5", "no behaviour 'call'"), ("calls=often", "is no number"), ("1.5", "between 0 and 1")]
)
def test_a_misspelled_share_is_refused(word: str, says: str):
    with pytest.raises(ValueError, match=says):
        read_right([word])
