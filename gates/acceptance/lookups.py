"""Questions that one tool answers with a value nobody can guess, and conversations that begin with one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import result, user
from gates.acceptance.calls import one_call_problem
from gates.acceptance.tools import CITIES, CLOCK, RECORD, WEATHER, Tool, code, named, record_id, temperature
from gates.acceptance.turns import call_ids, called, calling

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

_SKIES: Final = ("dust haze", "light rain", "clear", "thin fog", "sleet", "overcast")
_OWNERS: Final = ("Velloraine Kuspit", "Tamsin Oduya-Brecht", "Ilvar Meskauskas", "Perpetua Holmqvist")


@dataclass(frozen=True)
class Lookup:
    """A question, the call it deserves, what the tool gives, and the value to look for in the answer."""

    tool: Tool
    text: str
    arguments: Mapping[str, Any]
    result: str
    canary: str

    @property
    def name(self) -> str:
        return named(self.tool)

    @property
    def written(self) -> str:
        """The arguments as a model writes them."""
        return json.dumps(self.arguments, ensure_ascii=False)


def lookup(rng: Random) -> Lookup:
    """One of the kinds below."""
    return rng.choice((weather, weather, record))(rng)


def weather(rng: Random) -> Lookup:
    city, value = rng.choice(CITIES), temperature(rng)
    text = f"What is the weather in {city} right now? Use the tool, unit c."
    return Lookup(WEATHER, text, {"city": city, "unit": "c"}, weather_result(rng, value), value)


def record(rng: Random) -> Lookup:
    wanted, value = record_id(rng), code(rng)
    text = f"Look up record {wanted} with the tool and tell me its code."
    return Lookup(RECORD, text, {"record_id": wanted}, record_result(rng, wanted, value), value)


def clock(rng: Random) -> Lookup:
    """The tool without arguments."""
    value = code(rng)
    text = "Ask the server for its time with the tool, and tell me the ticket that comes with it."
    return Lookup(CLOCK, text, {}, json.dumps({"time": "14:07", "ticket": value}), value)


def weather_result(rng: Random, value: str) -> str:
    return json.dumps({"temp_c": float(value), "sky": rng.choice(_SKIES)})


def record_result(rng: Random, wanted: str, value: str) -> str:
    return json.dumps({"record_id": wanted, "owner": rng.choice(_OWNERS), "code": value})


def history(asker: Asker, sample: Sample, wanted: Lookup, **message: Any) -> list[dict[str, Any]]:
    """Question, call and result as if they had been; `message` changes keys of the assistant's message."""
    (call_id,) = call_ids(asker, sample.rng(f"id of {wanted.canary}"), [wanted.name])
    assistant = calling(called(call_id, wanted.name, wanted.written)) | message
    return [user(sample, wanted.text), assistant, result(call_id, wanted.result)]


async def own_call(asker: Asker, sample: Sample, wanted: Lookup) -> list[dict[str, Any]] | str:
    """Question, the engine's own call as it came, and the result; a sentence where no right call comes.

    Calls are group J's matter, here one is only needed to go on from: a model that misses one is asked once more.
    """
    problem = None
    for salt in ("", "once more"):
        again = sample.asked(salt=sample.salt + salt)
        asked = user(again, wanted.text)
        answer = await asker.chat(again, [asked], tools=[wanted.tool])
        problem = one_call_problem(answer, [wanted.tool], wanted.name, wanted.arguments)
        if problem is None:
            return [asked, answer.reply.message(), result(answer.reply.calls[0].id, wanted.result)]
    return problem or "no call"
