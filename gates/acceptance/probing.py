"""What can this engine do? Undeclared capabilities found out on an endpoint, best on production, with few requests.

What is declared is believed and not asked. What cannot be told stays undeclared: a check that needs it is skipped.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

from gates import load_client, markers
from gates.acceptance.asker import Asker, SilentError, result
from gates.acceptance.check import Sample
from gates.acceptance.negative import context_tokens
from gates.acceptance.plain import judged, refused, unthinking
from gates.acceptance.prompt_vector import is_kept, reasoning_lengths
from gates.acceptance.prompts import RefusedError
from gates.acceptance.running import told
from gates.acceptance.tools import CLOCK, WEATHER
from gates.callrules import not_an_object, schema_problem
from gates.capability import SWITCHES, Capability, read_capability
from gates.contract import GateRequest
from gates.errors import GateUsageError
from gates.evidence import Redactor
from gates.trial import Answer, CannotJudgeError, DeadlineError, WrongModelError, api_key_of, open_trial
from gates.visible import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TRIES: Final = 3
"""A behaviour is there when it shows once in so many tries; a model may miss it now and then."""
_FOREIGN_ID: Final = "toolu_01A09q90qw90lq917835lq9"


@dataclass
class Probed:
    """What was found: `capability` holds what was declared and what showed, `findings` say it key by key."""

    capability: Capability
    findings: dict[str, str] = field(default_factory=dict)
    requests: int = 0

    def declared(self) -> Mapping[str, Any]:
        """As it would be written into a topology: only what is known."""
        return self.capability.model_dump(mode="json", exclude_unset=True, exclude_none=True)


async def probe(asker: Asker) -> Probed:
    """Find out what `asker.capability` leaves open. Some 20 to 40 short requests, one after the other.

    Raises `RefusedError` when not even a plain question is answered, and what `Asker` raises.
    """
    probing = _Probing(asker, Probed(asker.capability))
    await probing.all()
    probing.found.requests = asker.requests
    return probing.found


def probe_endpoint(
    endpoint: str,
    model: str,
    *,
    evidence_dir: str,
    progress: IO[str],
    api_key_env: str | None = None,
    declared: Mapping[str, Any] | None = None,
    deadline_s: float = 300.0,
) -> Probed:
    """`probe` for a command line. Raises `GateUsageError`, `CannotJudgeError`, `DeadlineError`, `RefusedError`."""
    request = GateRequest(
        gate="acceptance",
        endpoint=endpoint,
        model=model,
        api_key_env=api_key_env,
        capability=declared or {},
        deadline_s=deadline_s,
        evidence_dir=evidence_dir,
    )
    trial = open_trial(request, progress)

    async def ask() -> Probed:
        asker = Asker(trial, concurrency=1)
        try:
            return await probe(asker)
        finally:
            asker.close()

    return load_client.run(ask)


def probed_within(
    endpoint: str, model: str, declared: Mapping[str, Any], api_key_env: str | None, deadline_s: float = 300.0
) -> Probed:
    """`probe_endpoint` for a person: every way to fail is a `GateUsageError` with one sentence."""
    with tempfile.TemporaryDirectory(prefix="cutover-probe-") as folder:
        try:
            return probe_endpoint(
                endpoint,
                model,
                evidence_dir=folder,
                progress=io.StringIO(),
                api_key_env=api_key_env,
                declared=declared,
                deadline_s=deadline_s,
            )
        except (RefusedError, CannotJudgeError, WrongModelError, SilentError) as error:
            said = Redactor(api_key_of(api_key_env)).text(str(error))
            raise GateUsageError(f"{endpoint}: nothing could be found out: {said}") from None
        except DeadlineError:
            raise GateUsageError(f"{endpoint}: nothing could be found out within {deadline_s:g} s") from None


def probed_document(probed: Probed) -> Mapping[str, Any]:
    """The stable answer of `gate probe --json`."""
    return {
        "schema": 1,
        "capability": dict(probed.declared()),
        "findings": dict(probed.findings),
        "requests": probed.requests,
    }


def probed_text(probed: Probed) -> str:
    """For people, and as YAML: what was found, key by key, as comments, and the line for the topology.

    Saved as it is, it is a file that ``--capability`` takes.
    """
    words = ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in probed.declared().items()
    )
    found = [f"# {key:20} {' '.join(printable(said).split())}" for key, said in probed.findings.items()]
    use = ["# For the topology, or as a file for `gate run --capability FILE`:"]
    return "\n".join([*found, *(["#"] if found else []), *use, f"capability: {{{words}}}"])


@dataclass
class _Probing:
    asker: Asker
    found: Probed
    seed: str = field(default_factory=lambda: secrets.token_hex(4))
    asked: int = 0

    async def all(self) -> None:
        await self._length()
        await self._plain()
        await self._thinking()
        if await self._behaves("tools", self._calls, "calls a tool when asked to"):
            await self._behaves("required", self._required, "tool_choice required makes a greeting call")
            await self._named()
            await self._behaves("parallel_calls", self._parallel, "calls twice in one answer")
            await self._history()
        await self._behaves("json_schema", self._schema, "an answer follows the schema of response_format")
        await self._running()

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _plain(self) -> None:
        """One plain question: without an answer there is nothing to probe."""
        answer = await self._ask("Reply with only the following word: hello")
        if not answer.reply.answered:
            # No key and a wrong name have sentences of their own.
            await asyncio.to_thread(self.asker.trial.guard, answer.exchange)
            raise RefusedError(answer.first_problem or "no answer", answer.exchange)

    async def _thinking(self) -> None:
        if not self._open("thinking"):
            return
        unset = await self._thinks({})
        for switch, (on, off) in SWITCHES.items():
            if await self._thinks(on) and not await self._thinks(off):
                self._say("thinking", "switch", f"the switch {switch} turns the reasoning on and off")
                self._say("thinking_switch", switch, f"this spelling of the switch works: {switch}")
                return
        if unset:
            self._say("thinking", "always", "the answer comes with reasoning, and no switch turns it off")
        else:
            self._say("thinking", "none", "no answer came with reasoning, whatever switch was thrown")

    async def _thinks(self, keys: Mapping[str, Any]) -> bool:
        answer = await self._ask("What is 17 + 25? Answer with the number.", thinking=True, **keys)
        reply = answer.reply
        if reply.reasoning_field is not None and self._open("reasoning_field"):
            self._say("reasoning_field", reply.reasoning_field, f"reasoning comes as {reply.reasoning_field}")
        leaked = markers.found(reply.content, markers.THINKING)
        if leaked and not reply.reasoning:
            self.found.findings["reasoning_parser"] = f"the content holds {leaked}: is a reasoning parser set?"
        return bool(reply.reasoning.strip() or leaked)

    async def _calls(self) -> bool:
        answer = await self._ask(f"What is the weather in {self._city()} right now? Use the tool.", tools=[WEATHER])
        return any(call.name == "get_weather" for call in answer.reply.calls)

    async def _required(self) -> bool:
        answer = await self._ask("Hi, how are you?", tools=[WEATHER], tool_choice="required")
        return _forced(answer, "get_weather")

    async def _named(self) -> None:
        finish: str | None = None

        async def clock() -> bool:
            nonlocal finish
            choice = {"type": "function", "function": {"name": "get_server_time"}}
            asked = f"What is the weather in {self._city()}?"
            answer = await self._ask(asked, tools=[WEATHER, CLOCK], tool_choice=choice)
            finish = answer.reply.finish_reason
            return _forced(answer, "get_server_time")

        named = await self._behaves(
            "named", clock, "a function that is named is called, though another would be natural"
        )
        if named and finish in ("stop", "tool_calls") and self._open("finish_named"):
            self._say("finish_named", finish, f"an answer whose function was named ends with {finish}")

    async def _parallel(self) -> bool:
        asked = "What is the weather in Lisbon, Osaka and Quito? Call the tool once for each city."
        return len((await self._ask(asked, tools=[WEATHER])).reply.calls) >= 2

    async def _schema(self) -> bool:
        schema = {
            "type": "object",
            "properties": {"colour": {"type": "string"}, "sides": {"type": "integer"}},
            "required": ["colour", "sides"],
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "json_schema": {"name": "shape", "schema": schema}}
        # Something else than the schema is begged for: what follows it all the same is held to it.
        answer = await self._ask("Write a short poem about the sea, in plain words.", response_format=wanted)
        content = answer.reply.content
        return (
            answer.reply.answered and not not_an_object(content) and schema_problem(json.loads(content), schema) is None
        )

    async def _history(self) -> None:
        """What may stand in a history: broken arguments, ids of others, earlier reasoning."""
        if self._open("malformed_history"):
            exchange = await self._continue("Wthr4K7Q2", '{"city": "Par')
            if refused(exchange.exchange):
                self._say("malformed_history", "refused", "a history with broken arguments is refused (4xx)")
            elif exchange.reply.answered:
                self._say(
                    "malformed_history", "coerced", "a history with broken arguments is answered as if it were right"
                )
        if self._open("foreign_ids"):
            exchange = await self._continue(_FOREIGN_ID, '{"city": "Lisbon"}')
            if exchange.reply.answered:
                self._say("foreign_ids", "accepted", f"a history with the id {_FOREIGN_ID} is answered")
            elif refused(exchange.exchange):
                self._say("foreign_ids", "refused", f"a history with the id {_FOREIGN_ID} is refused (4xx)")
        if self._open("keeps_reasoning") and self.found.capability.thinking != "none":
            try:
                kept = is_kept(grown := await reasoning_lengths(self.asker, self._sample()))
            except RefusedError as said:
                self.found.findings["keeps_reasoning"] = f"cannot be told: {said}"
                return
            shown = ", ".join(f"{name} {'refused' if n is None else f'+{n}'}" for name, n in grown.items())
            self._say("keeps_reasoning", kept, f"200 words of earlier reasoning in the prompt: {shown} tokens")

    async def _length(self) -> None:
        if not self._open("max_context_tokens"):
            return
        length = await context_tokens(self.asker)
        if length is None:
            self.found.findings["max_context_tokens"] = "/v1/models does not say how long a prompt may be"
        else:
            self._say("max_context_tokens", length, f"/v1/models says {length} tokens")

    async def _running(self) -> None:
        if not self._open("max_running"):
            return
        said = await told(self.asker)
        if said is None:
            self.found.findings["max_running"] = "the engine does not say how many requests it runs at once"
        else:
            self._say("max_running", said.number, f"{said.source} requests at once")

    # --- how it is asked ----------------------------------------------------------------------------------------------

    def _open(self, key: str) -> bool:
        return key not in self.found.capability.model_fields_set

    def _say(self, key: str, value: Any, finding: str) -> None:
        known = self.found.capability.model_dump(exclude_unset=True)
        self.found.capability = read_capability(known | {key: value})
        self.found.findings[key] = finding

    async def _behaves(self, key: str, shows: Callable[[], Awaitable[bool]], what: str) -> bool:
        """Is it there? What is declared is not asked."""
        if not self._open(key):
            return bool(getattr(self.found.capability, key))
        for number in range(TRIES):
            if await shows():
                self._say(key, True, f"yes: {what}" + (f" (at try {number + 1})" if number else ""))
                return True
        self._say(key, False, f"no, not in {TRIES} tries: {what}")
        return False

    def _sample(self) -> Sample:
        self.asked += 1
        sample = Sample("probe", self.asked, self.seed, streamed=False, greedy=False)
        return unthinking(self.asker, sample)

    def _city(self) -> str:
        return self._sample().rng().choice(("Lisbon", "Osaka", "Nairobi", "Quito"))

    async def _ask(self, text: Any, *, thinking: bool = False, **keys: Any) -> Answer:
        sample = self._sample()
        tools = keys.pop("tools", ())
        capability = self.found.capability
        if capability.thinking == "switch" and not thinking:
            keys = {**capability.thinking_off, **keys}
        body = self.asker.body(sample, text, tools=tools, **keys)
        # An engine refuses to promise more tokens than its context has, however few it would write.
        body["max_tokens"] = capability.room(body["max_tokens"])
        return judged(self.asker, body, await self.asker.raw("POST", "/v1/chat/completions", body))

    async def _continue(self, call_id: str, arguments: str) -> Answer:
        function = {"name": "get_weather", "arguments": arguments}
        turn = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
        question = {"role": "user", "content": "What is the weather in Lisbon?"}
        return await self._ask([question, turn, result(call_id, "48 degrees")], tools=[WEATHER], max_tokens=8)


def _forced(answer: Answer, name: str) -> bool:
    """Exactly the call that was forced, with arguments that fit."""
    reply = answer.reply
    broken = any(breach.rule in ("J20", "J25") for breach in answer.breaches)
    return [call.name for call in reply.calls[:1]] == [name] and not broken
