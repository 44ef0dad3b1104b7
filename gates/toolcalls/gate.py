"""The run of the gate `toolcalls`: conversations, what must hold in each, and how often a model may be wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import jsonschema
from pydantic import Field

from gates import markers, tally
from gates.contract import VerdictKind
from gates.invariants import not_an_object
from gates.strict import StrictModel, read_model
from gates.text import folded, holds
from gates.toolcalls import cases as catalogue
from gates.toolcalls.cases import OwnCase

if TYPE_CHECKING:
    from collections.abc import Callable

    from gates.contract import Verdict
    from gates.reply import Reply
    from gates.toolcalls.cases import Case
    from gates.trial import Answer, Trial

RUNS: Final = 3
"""A behaviour that failed once is tried this often in all; the majority decides."""


class ToolcallSettings(StrictModel):
    """Settings of the gate `toolcalls`."""

    cases: tuple[Literal["weather", "record", "clock"], ...] = Field(
        default=("weather", "record", "clock"), strict=False
    )
    own_cases: tuple[OwnCase, ...] = Field(default=(), strict=False)
    timeout_s: float = Field(default=120.0, gt=0)
    """Longest wait for one answer."""
    max_tokens: int = Field(default=1024, gt=0)
    thinking_max_tokens: int = Field(default=4096, gt=0)
    sampling: Literal["mixed", "greedy", "default"] = "mixed"
    """`mixed`: half of the requests greedy, half with the model's own defaults; some faults hide from one of them."""


@dataclass(frozen=True)
class _Mode:
    streamed: bool
    thinking: str
    keys: Mapping[str, Any]

    @property
    def label(self) -> str:
        wire = "stream" if self.streamed else "whole"
        return f"{wire}.{self.thinking}" if self.thinking else wire


@dataclass
class _Tries:
    """What came of one behaviour: for each try the problem (None when it was right) and its answers."""

    problems: list[str | None] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)

    def add(self, problem: str | None, answers: list[Answer]) -> None:
        self.problems.append(problem)
        self.answers.append(answers)

    @property
    def right(self) -> int:
        return self.problems.count(None)


def run(trial: Trial) -> Verdict:
    settings = read_model(ToolcallSettings, trial.request.profile, "settings of gate toolcalls")
    if not trial.capability.tools:
        trial.skip("toolcalls", "the capability of this topology says tools: false")
        return trial.verdict("nothing to judge: this topology declares no tools")
    makers = [catalogue.BUILT_IN[name] for name in settings.cases]
    makers += [catalogue.own(case, number) for number, case in enumerate(settings.own_cases, 1)]
    for mode in _modes(trial):
        for make in makers:
            if not tally.gone_silent(trial):
                _judge_case(trial, settings, make, mode)
        if not tally.gone_silent(trial):
            _judge_required(trial, settings, mode)
    _judge_thinking_off(trial)
    tally.check_invariants(trial)
    return trial.verdict(f"tool calls and their results work, streamed and not ({len(trial.answers)} answers)")


def _modes(trial: Trial) -> list[_Mode]:
    capability = trial.capability
    thinking: list[tuple[str, Mapping[str, Any]]] = [("", {})]
    if capability.thinking == "switch":
        thinking = [("thinking-on", capability.thinking_on), ("thinking-off", capability.thinking_off)]
    return [_Mode(streamed, label, keys) for label, keys in thinking for streamed in (True, False)]


def _judge_case(trial: Trial, settings: ToolcallSettings, make: Callable[[], Case], mode: _Mode) -> None:
    calls, feedback = _Tries(), _Tries()
    case = make()
    for number in range(RUNS):
        case = make()
        _converse(trial, settings, case, mode, number, calls, feedback)
        clean = calls.problems[-1] is None and (not feedback.problems or feedback.problems[-1] is None)
        if (number == 0 and clean) or tally.gone_silent(trial):
            break
    _decide(trial, f"{case.name}.{mode.label}", "exactly one call, of the right tool, with valid arguments", calls)
    if not case.canary:
        return
    check_id = f"{case.feedback_id}.{mode.label}"
    if feedback.problems:
        _decide(trial, check_id, "a value that only the tool's result holds comes back in the answer", feedback)
    else:
        trial.skip(check_id, "there was no call whose result could be returned")


def _converse(
    trial: Trial, settings: ToolcallSettings, case: Case, mode: _Mode, number: int, calls: _Tries, feedback: _Tries
) -> None:
    """One conversation: the question, the call, and, where the call can be answered, the tool's result."""
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": case.prompt}]
    body = _body(trial, settings, case.tools, mode, number)
    first = trial.ask(body | {"messages": messages}, timeout_s=settings.timeout_s)
    calls.add(call_problem(first, case), [first])
    call = next((call for call in first.reply.calls if call.name == case.called), None)
    if call is None or not case.canary:
        return
    result = {"role": "tool", "tool_call_id": call.id, "content": case.result}
    history = [*messages, first.reply.message(), result]
    if len(first.reply.calls) > 1:
        # Every call wants its result; the others get the same, so that the history is complete.
        history += [result | {"tool_call_id": other.id} for other in first.reply.calls if other is not call]
    second = trial.ask(body | {"messages": history}, timeout_s=settings.timeout_s)
    feedback.add(feedback_problem(second, case), [first, second])


def _body(
    trial: Trial, settings: ToolcallSettings, tools: Sequence[Mapping[str, Any]], mode: _Mode, number: int
) -> dict[str, Any]:
    thinks = trial.capability.may_think and mode.thinking != "thinking-off"
    body: dict[str, Any] = {
        "model": trial.request.model,
        "max_tokens": trial.capability.room(settings.thinking_max_tokens if thinks else settings.max_tokens),
        "tools": list(tools),
        "tool_choice": "auto",
        **mode.keys,
    }
    greedy = settings.sampling == "greedy" or (settings.sampling == "mixed" and (number + mode.streamed) % 2 == 1)
    if greedy:
        body |= {"temperature": 0, "seed": 42}
    if mode.streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def call_problem(answer: Answer, case: Case) -> str | None:
    """What is wrong with the answer to the question, in the order in which faults hide one another."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if not reply.calls:
        return no_call_reason(reply)
    if len(reply.calls) > 1:
        return f"{len(reply.calls)} calls came ({', '.join(call.name for call in reply.calls)}); expected one"
    call = reply.calls[0]
    schema = case.schema(call.name)
    if schema is None:
        return f"the tool {call.name!r} was called, which was not on offer"
    if call.name != case.called:
        return f"{call.name} was called; expected {case.called}"
    problem = arguments_problem(call.arguments, schema, case.expected)
    if problem is None and reply.finish_reason != "tool_calls":
        return f"finish_reason is {reply.finish_reason}; expected tool_calls"
    return problem


def arguments_problem(arguments: str, schema: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """What is wrong with `arguments`: as JSON, against the declared schema, against what was asked."""
    broken = not_an_object(arguments)
    if broken:
        return broken
    value = json.loads(arguments)
    error = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(value)), None)
    if error is not None:
        where = ".".join(str(part) for part in error.path) or "arguments"
        return f"arguments break their schema: {where}: {error.message}"
    wrong = [key for key, asked in expected.items() if folded(value.get(key)) != folded(asked)]
    if wrong:
        return f"{wrong[0]} is {value.get(wrong[0])!r}; asked was {expected[wrong[0]]!r}"
    return None


def no_call_reason(reply: Reply) -> str:
    """Why there is no call, as far as the answer shows."""
    if reply.finish_reason == "length":
        return "no call: the answer reached max_tokens"
    leaked = markers.found(reply.content, markers.TOOLS)
    if leaked:
        return f"no call: it was left in the content as text ({leaked}); is a tool-call parser set?"
    hidden = markers.found(reply.reasoning, markers.TOOLS)
    if hidden:
        return f"no call: it was swallowed by the reasoning ({hidden})"
    if not reply.content.strip():
        return "no call and no content: the answer is empty"
    return f"no call: the model answered in prose ({' '.join(reply.content.split())[:100]!r})"


def feedback_problem(answer: Answer, case: Case) -> str | None:
    """What is wrong with the answer to a tool's result."""
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if reply.calls:
        return f"instead of an answer to the result came another call of {reply.calls[0].name}"
    if not reply.content.strip():
        where = "; the value is in the reasoning" if holds(reply.reasoning, case.canary) else ""
        return f"the answer to the result is empty (finish_reason {reply.finish_reason}){where}"
    if not holds(reply.content, case.canary):
        said = " ".join(reply.content.split())[:160]
        return f"the value {case.canary} of the result does not come back; the answer was {said!r}"
    if reply.finish_reason != "stop":
        return f"finish_reason is {reply.finish_reason}; expected stop"
    return None


def _decide(trial: Trial, check_id: str, rule: str, tries: _Tries) -> None:
    right, total = tries.right, len(tries.problems)
    verdict = VerdictKind.PASS if right * 2 > total else VerdictKind.FAIL
    problem = next((p for p in tries.problems if p), None)
    if problem is None:
        sentence, shown = f"{rule} ({right} of {total})", 0
    else:
        sentence, shown = f"{problem} (right in {right} of {total})", tries.problems.index(problem)
    trial.check(
        check_id,
        verdict,
        sentence,
        rule=rule,
        exchanges=[answer.exchange for answer in tries.answers[shown]],
        measurements={"right": right, "of": total},
    )


def _judge_required(trial: Trial, settings: ToolcallSettings, mode: _Mode) -> None:
    check_id = f"J11.{mode.label}"
    if not trial.capability.required:
        trial.skip(check_id, "capability.required is not declared")
        return
    body = _body(trial, settings, (catalogue.CLOCK, catalogue.WEATHER), mode, 0) | {"tool_choice": "required"}
    messages = [{"role": "user", "content": f"[ref {catalogue.nonce()}] Hi, how are you?"}]
    answer = trial.ask(body | {"messages": messages}, timeout_s=settings.timeout_s)
    rule = "tool_choice required gives at least one valid call, whatever was said"
    problem = _required_problem(answer)
    verdict = VerdictKind.FAIL if problem else VerdictKind.PASS
    trial.check(check_id, verdict, problem or rule, rule=rule, exchanges=[answer.exchange])


def _required_problem(answer: Answer) -> str | None:
    reply = answer.reply
    if answer.first_problem:
        return answer.first_problem
    if not reply.calls:
        return no_call_reason(reply)
    schemas = {
        tool["function"]["name"]: tool["function"]["parameters"] for tool in (catalogue.CLOCK, catalogue.WEATHER)
    }
    for call in reply.calls:
        if call.name not in schemas:
            return f"the tool {call.name!r} was called, which was not on offer"
        problem = arguments_problem(call.arguments, schemas[call.name], {})
        if problem:
            return problem
    return None


def _judge_thinking_off(trial: Trial) -> None:
    if trial.capability.thinking != "switch":
        trial.skip("T02", "capability.thinking is not 'switch'")
        return
    off = trial.capability.thinking_off
    answers = [a for a in trial.answers if a.reply.answered and all(a.body.get(k) == v for k, v in off.items())]
    guilty = next((answer for answer in answers if answer.reply.reasoning.strip()), None)
    rule = "with thinking off there is no reasoning"
    if guilty is None:
        trial.check("T02", VerdictKind.PASS, f"{rule}: {len(answers)} of {len(answers)} answers")
    else:
        sentence = f"thinking is switched off and reasoning came: {' '.join(guilty.reply.reasoning.split())[:80]!r}"
        trial.check("T02", VerdictKind.FAIL, sentence, rule=rule, exchanges=[guilty.exchange])
