"""Group F: everything that clients put into a history is taken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance import lookups
from gates.acceptance.asker import result, user
from gates.acceptance.check import B90, Check, Deterministic, Sample, Skip, needs
from gates.acceptance.filler import filler
from gates.acceptance.lookups import Lookup
from gates.acceptance.tools import EVENT, code, temperature
from gates.acceptance.turns import (
    STATUS_TOKENS,
    ask_unjudged,
    breakdown,
    called,
    calling,
    id_parts,
    refusal,
    said,
    status_problem,
    told_problem,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.capability import Capability

    Messages = list[dict[str, Any]]

_TOOLS: Final = needs(tools=True)
_LONG_BYTES: Final = 16 * 1024


# --- F02: the content of assistant messages ---------------------------------------------------------------------------

_CONTENT_FORMS: Final = ("null", "empty", "missing", "text", "no calls listed")


def _with_content(asker: Asker, sample: Sample) -> tuple[Messages, Lookup]:
    wanted = lookups.lookup(sample.rng())
    messages = lookups.history(asker, sample, wanted)
    match _CONTENT_FORMS[sample.variant % len(_CONTENT_FORMS)]:
        case "empty":
            messages[1]["content"] = ""
        case "missing":
            del messages[1]["content"]
        case "text":
            messages[1]["content"] = "I am looking that up."
        case "no calls listed":
            plain = said("Good morning. What can I do?") | {"tool_calls": []}
            messages = [{"role": "user", "content": "Good morning."}, plain, *messages]
    return messages, wanted


async def _content_accepted(asker: Asker, sample: Sample) -> str | None:
    messages, wanted = _with_content(asker, sample)
    return status_problem(await asker.chat(sample, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS))


async def _content_told(asker: Asker, sample: Sample) -> str | None:
    messages, wanted = _with_content(asker, sample)
    return told_problem(await asker.chat(sample, messages, tools=[wanted.tool]), wanted.canary)


# --- F03: the arguments of earlier calls ------------------------------------------------------------------------------


def _event(rng: Random) -> Lookup:
    """A call whose arguments hold objects in lists in objects, and letters of five scripts."""
    value = code(rng)
    arguments = {
        "title": "Kickoff „Weißwurst“ \\ 東京 🥨",
        "start": "2027-03-04T09:30:00+01:00",
        "attendees": [{"name": "Zoë Łukasz", "email": "zoe@example.org"}, {"name": "سارة", "email": "s@example.org"}],
        "location": {"city": "Kraków", "room": 'B"12"'},
        "priority": 2,
        "notify": True,
        "note": None,
    }
    text = "Put the kickoff that we spoke of into the calendar and tell me the confirmation code."
    return Lookup(EVENT, text, arguments, json.dumps({"created": True, "confirmation_code": value}), value)


def _with_arguments(sample: Sample, forms: int) -> tuple[Lookup, str]:
    """Question and its arguments as they stand in the history."""
    rng = sample.rng()
    match sample.variant % forms:
        case 0:
            wanted = _event(rng)
            return wanted, json.dumps(wanted.arguments, ensure_ascii=False)
        case 1:
            wanted = _event(rng)
            return wanted, json.dumps(wanted.arguments, indent=1)
        case 2:
            return lookups.clock(rng), "{}"
        case _:
            return lookups.clock(rng), ""


def _arguments_history(asker: Asker, sample: Sample, wanted: Lookup, arguments: str) -> Messages:
    messages = lookups.history(asker, sample, wanted)
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    return messages


async def _arguments_accepted(asker: Asker, sample: Sample) -> str | None:
    wanted, arguments = _with_arguments(sample, 4)
    messages = _arguments_history(asker, sample, wanted, arguments)
    body = asker.body(sample, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS)
    if arguments:
        return status_problem(await asker.send(sample, body))
    # Nothing at all for no arguments: some refuse it, and say so; none may break over it.
    return breakdown(await ask_unjudged(asker, sample, body))


async def _arguments_told(asker: Asker, sample: Sample) -> str | None:
    wanted, arguments = _with_arguments(sample, 3)
    messages = _arguments_history(asker, sample, wanted, arguments)
    return told_problem(await asker.chat(sample, messages, tools=[wanted.tool]), wanted.canary)


# --- F09: the forms of a result ---------------------------------------------------------------------------------------

_RESULT_FORMS: Final = 8


def _result_form(rng: Random, form: int, room_bytes: int) -> tuple[Any, str]:
    """A result and the temperature in it; form 0 is empty and holds none."""
    value = temperature(rng)
    long = filler(rng, min(_LONG_BYTES, room_bytes))
    forms: tuple[Any, ...] = (
        "",
        f"It is {value} degrees there, with dust haze.",
        [{"type": "text", "text": "Measured just now. "}, {"type": "text", "text": f"temp_c: {value}"}],
        lookups.weather_result(rng, value),
        json.dumps({"log": long, "temp_c": float(value)}),
        f"目前气温 {value} 度。多云。能见度良好。",
        f"The page quotes <tool_call> and </tool_call>, and <function=x>. After that it says: temp_c {value}",
        value,
    )
    return forms[form], value


def _with_result(asker: Asker, sample: Sample, form: int) -> tuple[Messages, Lookup, str]:
    rng = sample.rng()
    wanted = lookups.weather(rng)
    # A third of the context at three bytes for a token.
    room_bytes = asker.capability.max_context_tokens or _LONG_BYTES
    content, value = _result_form(rng, form, room_bytes)
    messages = lookups.history(asker, sample, wanted)
    messages[-1] = result(messages[-1]["tool_call_id"], content)
    return messages, wanted, value


async def _result_accepted(asker: Asker, sample: Sample) -> str | None:
    messages, wanted, _ = _with_result(asker, sample, sample.variant % _RESULT_FORMS)
    return status_problem(await asker.chat(sample, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS))


async def _result_told(asker: Asker, sample: Sample) -> str | None:
    messages, wanted, value = _with_result(asker, sample, 1 + sample.variant % (_RESULT_FORMS - 1))
    return told_problem(await asker.chat(sample, messages, tools=[wanted.tool]), value)


# --- F10: ids ---------------------------------------------------------------------------------------------------------

_FOREIGN_IDS: Final = (
    "call_abc123",
    "toolu_01A09q90qw90lq917835lq9",
    "0123456789abcdef0123456789abcdef01234567",
    "functions.get_weather:0",
    "Xk3f9ZqT7",
)


async def _own_ids(asker: Asker, sample: Sample) -> str | None:
    """The engine's own ids come back to it, out of a streamed answer and out of a whole one."""
    heads = {}
    forced = {"tool_choice": "required"} if asker.capability.required and sample.variant % 2 else {}
    for streamed in (True, False):
        wanted = lookups.weather(sample.rng(f"{streamed}"))
        asked = sample.asked(streamed=streamed)
        messages = [user(asked, wanted.text)]
        first = await asker.chat(asked, messages, tools=[wanted.tool], **forced)
        if first.first_problem:
            return first.first_problem
        if not first.reply.calls:
            continue  # whether a call comes is group J's matter
        call_id = first.reply.calls[0].id
        heads[streamed] = (id_parts(call_id)[0], len(call_id))
        messages += [first.reply.message(), result(call_id, wanted.result)]
        answer = await asker.chat(asked, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS)
        problem = status_problem(answer)
        if problem is not None:
            return f"the engine's own id {call_id!r} came back and was not taken: {problem}"
    if len(set(heads.values())) > 1:
        return f"ids look otherwise when streamed: {_spelled(heads[True])}; whole {_spelled(heads[False])}"
    return None


def _spelled(head: tuple[str, int]) -> str:
    return f"{head[0]}… of {head[1]} characters"


def _foreign(asker: Asker, sample: Sample, **keys: Any) -> tuple[dict[str, Any], Lookup, str]:
    wanted = lookups.weather(sample.rng())
    call_id = _FOREIGN_IDS[sample.variant % len(_FOREIGN_IDS)]
    call = called(call_id, wanted.name, wanted.written)
    messages = [user(sample, wanted.text), calling(call), result(call_id, wanted.result)]
    return asker.body(sample, messages, tools=[wanted.tool], **keys), wanted, call_id


async def _foreign_ids(asker: Asker, sample: Sample) -> str | None:
    """A refusal is an answer here, unless the capability says otherwise: some templates take their own ids only."""
    body, _, call_id = _foreign(asker, sample, max_tokens=STATUS_TOKENS)
    answer = await ask_unjudged(asker, sample, body)
    problem = status_problem(answer) if asker.capability.foreign_ids == "accepted" else breakdown(answer)
    return f"id {call_id!r} in the history: {problem}" if problem else None


async def _ids(asker: Asker, sample: Sample) -> str | None:
    return await (_own_ids if sample.variant < 2 else _foreign_ids)(asker, sample)


async def _foreign_ids_told(asker: Asker, sample: Sample) -> str | None:
    body, wanted, call_id = _foreign(asker, sample)
    answer = await ask_unjudged(asker, sample, body)
    problem = status_problem(answer) or told_problem(answer, wanted.canary)
    return f"id {call_id!r} in the history: {problem}" if problem else None


# --- F11: roles and names ---------------------------------------------------------------------------------------------


async def _roles_accepted(asker: Asker, sample: Sample) -> str | None:
    wanted = lookups.lookup(sample.rng())
    messages = lookups.history(asker, sample, wanted)
    system = {"role": "system", "content": "You answer briefly."}
    developer = {"role": "developer", "content": "Answer in English."}
    form = sample.variant % 4
    if form == 3:
        messages[-1]["name"] = wanted.name
    else:
        messages = [*([system], [developer], [system, developer])[form], *messages]
    body = asker.body(sample, messages, tools=[wanted.tool], max_tokens=STATUS_TOKENS)
    problem = status_problem(await ask_unjudged(asker, sample, body))
    what = ("role system", "role developer", "roles system and developer", "a name on the tool's message")[form]
    return f"{what}: {problem}" if problem else None


# --- F13: a history that is broken ------------------------------------------------------------------------------------

_MALFORMED: Final = ('{"city": "Par', "[1]", "null")


def _malformed(asker: Asker, sample: Sample, arguments: str, **keys: Any) -> Mapping[str, Any]:
    wanted = lookups.weather(sample.rng())
    messages = _arguments_history(asker, sample, wanted, arguments)
    return asker.body(sample, messages, tools=[wanted.tool], **keys)


async def _malformed_survived(asker: Asker, sample: Sample) -> str | None:
    arguments = _MALFORMED[sample.variant % len(_MALFORMED)]
    answer = await ask_unjudged(asker, sample, _malformed(asker, sample, arguments, max_tokens=STATUS_TOKENS))
    problem = breakdown(answer) or await asker.liveness(sample)
    return f"arguments {arguments} in the history: {problem}" if problem else None


def _not_coerced(capability: Capability) -> str | None:
    if capability.malformed_history == "coerced":
        return "the capability of this topology says malformed_history: coerced"
    return _TOOLS(capability)


async def _malformed_noticed(asker: Asker, sample: Sample) -> str | None:
    """Taken in silence, the prompt is the one of a call without arguments: the model reads another history."""
    arguments = _MALFORMED[sample.variant % len(_MALFORMED)]
    broken = await ask_unjudged(asker, sample, _malformed(asker, sample, arguments, max_tokens=1))
    if refusal(broken) is not None or status_problem(broken):
        return None
    empty = await ask_unjudged(asker, sample, _malformed(asker, sample, "{}", max_tokens=1))
    tokens = [answer.reply.usage.prompt_tokens if answer.reply.usage else None for answer in (broken, empty)]
    if None in tokens:
        raise Skip("the engine does not count prompt tokens")
    return f"arguments {arguments} in the history are silently read as {{}}" if tokens[0] == tokens[1] else None


CHECKS: Final = (
    Check(
        id="F02",
        name="content of assistant messages: accepted",
        asks="A call in the history with content null, empty, missing or a text; a plain turn with `tool_calls: []`.",
        holds="HTTP 200 and an answer",
        catches="templates and validators that know only one of the spellings that clients send",
        rule=Deterministic(5),
        attempt=_content_accepted,
        needs=_TOOLS,
    ),
    Check(
        id="F02c",
        name="content of assistant messages: answered",
        asks="The same histories, with a result whose value nobody can guess.",
        holds="the answer tells the value",
        catches="a literal None in the prompt, results lost beside one spelling of the content",
        rule=B90,
        attempt=_content_told,
        needs=_TOOLS,
    ),
    Check(
        id="F03",
        name="arguments of earlier calls: accepted",
        asks="Arguments in the history: nested, of many scripts, escaped, `{}`, and nothing at all.",
        holds="HTTP 200 and an answer; for nothing at all a clear refusal will do",
        catches="templates that iterate over a JSON string as if it were a mapping",
        rule=Deterministic(4),
        attempt=_arguments_accepted,
        needs=_TOOLS,
    ),
    Check(
        id="F03c",
        name="arguments of earlier calls: answered",
        asks="The same histories, with a result whose value nobody can guess.",
        holds="the answer tells the value",
        catches="histories that are cut or dropped because of what stands in their arguments",
        rule=B90,
        attempt=_arguments_told,
        needs=_TOOLS,
    ),
    Check(
        id="F09",
        name="forms of a result: accepted",
        asks="Results: empty, text, a list of parts, JSON, 16 KB, Chinese, template markers, a bare number.",
        holds="HTTP 200 and an answer",
        catches="engines that want a string, or an object, where clients send either",
        rule=Deterministic(_RESULT_FORMS),
        attempt=_result_accepted,
        needs=_TOOLS,
    ),
    Check(
        id="F09c",
        name="forms of a result: answered",
        asks="The same results, without the empty one.",
        holds="the answer tells the value",
        catches="results that are lost as a list, cut when long, or cut at a marker in them",
        rule=B90,
        attempt=_result_told,
        needs=_TOOLS,
    ),
    Check(
        id="F10",
        name="ids in the history",
        asks="The engine's own call ids, streamed and whole, by free and by forced choice; ids of five other makers.",
        holds="own ids are taken and look alike in both modes; foreign ones are taken or clearly refused",
        catches="ids that the engine's own template refuses in the next turn, and engines that break on foreign ids",
        rule=Deterministic(2 + len(_FOREIGN_IDS)),
        attempt=_ids,
        needs=_TOOLS,
    ),
    Check(
        id="F10c",
        name="foreign ids: answered",
        asks="Histories with the call ids of five other makers.",
        holds="they are taken, and the answer tells the value",
        catches="conversations that cannot move from another engine to this one",
        rule=Deterministic(len(_FOREIGN_IDS)),
        attempt=_foreign_ids_told,
        needs=_TOOLS,
        warns=True,
    ),
    Check(
        id="F11",
        name="roles and names",
        asks="A system message, a developer message, both, and a name on the tool's message.",
        holds="HTTP 200 and an answer",
        catches="templates that refuse roles and fields of the OpenAI API",
        rule=Deterministic(4),
        attempt=_roles_accepted,
        needs=_TOOLS,
        warns=True,
    ),
    Check(
        id="F13",
        name="malformed history: survived",
        asks="Earlier calls whose arguments are cut JSON, a list, or null.",
        holds="a clear refusal or an answer, never HTTP 5xx or silence, and the engine lives on",
        catches="one broken agent that breaks the engine for everybody",
        rule=Deterministic(3),
        attempt=_malformed_survived,
        needs=_TOOLS,
    ),
    Check(
        id="F13c",
        name="malformed history: noticed",
        asks="The same histories and the same with arguments `{}`, prompt tokens compared.",
        holds="they are refused, or rendered as they are",
        catches="arguments that silently become {}, so that the model reads another history",
        rule=Deterministic(3),
        attempt=_malformed_noticed,
        modes=(False,),
        needs=_not_coerced,
        warns=True,
    ),
)
