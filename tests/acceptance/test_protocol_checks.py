"""Group P: healthy engines in every dialect pass; an engine that is wrong in one way fails the check for it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates import load_client
from gates.acceptance.asker import Asker
from gates.acceptance.check import Tier
from gates.acceptance.client_abort import hang_up_survey
from gates.acceptance.contract_difference import differences, pattern
from gates.acceptance.equality import difference
from gates.acceptance.jsonprefix import begins_an_object
from gates.acceptance.survey import Surroundings, Surveyed
from gates.acceptance.truncation import cut_problem
from gates.contract import GateRequest, Verdict
from gates.reply import Reply, Usage
from gates.toolwire import Breach, ToolCall
from gates.trial import Answer, open_trial
from gates.wire import Exchange
from launch.engines.emulator.testing import emulator

FAST = ("--ttft-ms", "1", "--itl-ms", "0.2", "--max-model-len", "32768")
CAPABILITY = {
    "thinking": "switch",
    "required": True,
    "named": True,
    "parallel_calls": True,
    "max_context_tokens": 32768,
}
GROUP = ["P09", "P10", "P12", "P13", "P14", "P15", "P16", "P16k", "P17"]


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {
        c.id: "skip" if c.skipped else "warn" if c.warn else str(c.verdict) for c in verdict.checks if c.id in GROUP
    }


def run(judge: Judge, url: str, *checks: str, **more: Any) -> Verdict:
    fields = {"capability": CAPABILITY} | more
    return judge("acceptance", url, profile={"checks": list(checks), "seed": "x"}, **fields)


@pytest.mark.parametrize("dialect", ["vllm", "vllm-old", "sglang", "llamacpp", "smg"])
def test_a_healthy_engine_passes_the_group(judge: Judge, engines: Engines, dialect: str) -> None:
    url = engines(*FAST, "--dialect", dialect)
    verdict = run(judge, url, *GROUP)
    assert verdict.verdict == "pass", verdict.sentence
    assert outcomes(verdict) == dict.fromkeys(GROUP, "pass") | {"P14": "skip"}
    again = run(judge, url, "P14", baseline={"measurements": verdict.measurements})
    assert outcomes(again)["P14"] == "pass"


@pytest.mark.parametrize(
    ("fault", "check", "said"),
    [
        ("engine-death", "P08", "HTTP 500"),
        ("args-value-cut+stream", "P12", "what is only copied differs"),
        ("call-lost+stream", "P12", "calls: [] streamed"),
        ("second-call-lost+stream", "P12", "calls: "),
        ("content-gap", "P12", "what is only copied differs"),
        ("fin-toolcalls-on-length", "P13", "finish_reason is tool_calls; expected length"),
        ("leak-markup", "P13", "content holds <tool_call>"),
        ("content-lost+no-stream", "P12", ""),
        ("usage-wrong", "P13", "max_tokens"),
        ("abort-as-length", "P09", "is empty"),
        ("all-empty", "P09", "is empty"),
    ],
)
def test_a_fault_fails_the_check_that_looks_for_it(judge: Judge, fault: str, check: str, said: str) -> None:
    with emulator(*FAST, "--fault", fault) as engine:
        verdict = run(judge, engine.url, "P17" if check == "P08" else check)
    failing = {c.id: c for c in verdict.checks if c.verdict == "fail"}
    assert check in failing, [c.sentence for c in verdict.checks]
    assert said in failing[check].sentence
    assert failing[check].evidence


def test_pieces_in_the_wrong_choice_warn(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "choice-mix") as engine:
        verdict = run(judge, engine.url, "P10")
    assert outcomes(verdict)["P10"] == "warn"
    assert verdict.verdict == "pass"


def test_another_dialect_is_shown_difference_by_difference(judge: Judge, engines: Engines) -> None:
    mine, theirs = engines(*FAST, "--dialect", "vllm"), engines(*FAST, "--dialect", "smg")
    verdict = run(judge, mine, "P14", live_endpoint=theirs)
    found = next(c for c in verdict.checks if c.id == "P14")
    assert found.verdict == "fail"
    listed = found.measurements["differences"]
    assert "thought, streamed: reasoning_field is reasoning, on production reasoning_content" in listed
    assert any("time, whole: finish_reason is stop, on production tool_calls" in one for one in listed)
    assert any("call_id is chatcmpl-tool-<" in one and "production call_<" in one for one in listed)
    assert found.evidence


def test_the_same_engine_as_live_shows_no_difference(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--dialect", "sglang")
    assert outcomes(run(judge, url, "P14", live_endpoint=url))["P14"] == "pass"


# --- engines by hand --------------------------------------------------------------------------------------------------

Reaction = Callable[["_Handler", Mapping[str, Any]], None]


class HandMade(ThreadingHTTPServer):
    """Answers a plain question by repeating its last word; `reaction` may do something else first, and says so."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, reaction: Callable[[_Handler, Any], bool], running: int = 0) -> None:
        self.reaction = reaction
        self.running = running
        super().__init__(("127.0.0.1", 0), _Handler)
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: HandMade

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.send(200, f"vllm:num_requests_running {self.server.running}\n".encode(), "text/plain")
        else:
            self.send(200, json.dumps({"data": [{"id": "emu", "max_model_len": 1000}]}).encode())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if self.server.reaction(self, body):
            return
        if body is None or len(data) > 1_000_000:
            self.refuse()
            return
        text = body["messages"][-1]["content"].split()[-1]
        document = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "emu",
            "choices": [choice(text)],
            "usage": USAGE,
        }
        self.send(200, json.dumps(document).encode())

    def refuse(self, status: int = 400) -> None:
        self.send(status, b'{"error": {"message": "no"}}')

    def send(self, status: int, data: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Silent."""


USAGE = {"prompt_tokens": 9, "completion_tokens": 3}


def choice(text: str) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


@pytest.fixture
def by_hand() -> Iterator[Callable[..., HandMade]]:
    servers: list[HandMade] = []

    def start(reaction: Callable[[_Handler, Any], bool], **more: Any) -> HandMade:
        servers.append(HandMade(reaction, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def strict(handler: _Handler, body: Any) -> bool:
    """Refuses a prompt beyond its limit, and answers everything else."""
    if body is None or len(str(body["messages"][-1]["content"])) > 4000:
        handler.refuse()
        return True
    return False


def crashing(handler: _Handler, body: Any) -> bool:
    if body and "banana" in json.dumps(body):
        handler.refuse(500)
        return True
    return strict(handler, body)


def dropping(handler: _Handler, body: Any) -> bool:
    if body and body.get("max_tokens") == 0:
        handler.close_connection = True
        return True
    return strict(handler, body)


def lenient(handler: _Handler, body: Any) -> bool:
    """Takes a prompt of any length."""
    if body is None:
        handler.refuse()
        return True
    text = body["messages"][-1]["content"].split()[-1]
    document = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "emu",
        "choices": [choice(text)],
        "usage": USAGE,
    }
    handler.send(200, json.dumps(document).encode())
    return True


def poisoned() -> Callable[[_Handler, Any], bool]:
    """Is gone, with HTTP 500 for everybody, as soon as it saw a schema that refers to itself."""
    gone = False

    def reaction(handler: _Handler, body: Any) -> bool:
        nonlocal gone
        gone = gone or (body is not None and "$ref" in json.dumps(body))
        if gone:
            handler.refuse(500)
        return gone or strict(handler, body)

    return reaction


@pytest.mark.parametrize(
    ("reaction", "said"),
    [
        (strict, None),
        (crashing, "schema of an unknown type: HTTP 500"),
        (dropping, "max_tokens 0: the server closed the connection"),
        (lenient, "prompt longer than the limit: HTTP 200; expected a refusal"),
    ],
)
def test_bad_requests(
    judge: Judge, by_hand: Callable[..., HandMade], reaction: Callable[[_Handler, Any], bool], said: str | None
) -> None:
    verdict = run(judge, by_hand(reaction).url, "P09", capability={"thinking": "none"})
    check = next(c for c in verdict.checks if c.id == "P09")
    assert len(check.measurements["statuses"]) == 21
    assert (check.verdict == "pass") is (said is None), check.sentence
    assert said is None or check.sentence == said or check.sentence.startswith(said)


def test_a_request_that_kills_the_engine_is_named(judge: Judge, by_hand: Callable[..., HandMade]) -> None:
    verdict = run(judge, by_hand(poisoned()).url, "P09", capability={"thinking": "none"})
    check = next(c for c in verdict.checks if c.id == "P09")
    assert check.sentence.startswith("schema that refers to itself: HTTP 500")
    assert "afterwards the engine answers HTTP 500" in check.sentence
    assert "the rest was not asked: the engine is gone" in check.sentence


def test_requests_that_run_for_nobody_are_seen(by_hand: Callable[..., HandMade], tmp_path: Path) -> None:
    def streaming(handler: _Handler, body: Any) -> bool:
        if not (body and body.get("stream") and "Reply" not in str(body["messages"][-1]["content"])):
            return False
        handler.server.running += 1  # and never comes back
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "emu", "choices": []}
        for _ in range(200):
            handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        return True

    async def look() -> Surveyed:
        asker = Asker(open_trial(request, io.StringIO()))
        try:
            return await hang_up_survey(0.5)(asker, Surroundings("x", Tier.STANDARD, 8, {}))
        finally:
            asker.close()

    url = by_hand(streaming).url
    request = GateRequest(gate="acceptance", endpoint=url, model="emu", deadline_s=30, evidence_dir=str(tmp_path))
    found = load_client.run(look)
    assert (found.verdict, found.measurements["cut"]) == ("fail", 8)
    assert found.sentence == "0.5 s after 8 clients hung up 8 requests run, before 0"


def test_a_model_that_is_not_on_the_list(judge: Judge, by_hand: Callable[..., HandMade]) -> None:
    verdict = run(judge, by_hand(strict).url, "P17", model="other", capability={"thinking": "none"})
    check = next(c for c in verdict.checks if c.id == "P17")
    assert check.sentence.startswith("/v1/models lists emu; the model 'other' is not there")


def copying(tokens_per_event: int, *, keeps_blanks: bool) -> Callable[[_Handler, Any], bool]:
    """Copies what is to be copied; newlines and indents are tokens of their own, as in real vocabularies.

    Without `keeps_blanks` a streamed delta that is nothing but white space never leaves: vllm-mlx#431, vllm-mlx#462.
    """

    def reaction(handler: _Handler, body: Any) -> bool:
        asked = body["messages"][-1]["content"]
        block = re.search("<<<\n(.*)\n>>>", asked, re.DOTALL)
        text = block[1] if block else asked.rpartition(": ")[2]
        if not body.get("stream"):
            document: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 1, "model": "emu"}
            handler.send(200, json.dumps(document | {"choices": [choice(text)], "usage": USAGE}).encode())
            return True
        tokens = re.findall(r"\n+| +(?= )| ?\S+|\s+", text)
        texts = ["".join(tokens[i : i + tokens_per_event]) for i in range(0, len(tokens), tokens_per_event)]
        deltas: list[dict[str, Any]] = [{"content": each} for each in texts if keeps_blanks or each.strip()]
        choices: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        events: list[dict[str, Any]] = [{"choices": [each]} for each in choices] + [{"choices": [], "usage": USAGE}]
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "emu"}
        lines = [f"data: {json.dumps(head | event)}\n\n" for event in events]
        handler.send(200, ("".join(lines) + "data: [DONE]\n\n").encode(), "text/event-stream")
        return True

    return reaction


@pytest.mark.parametrize(
    ("tokens_per_event", "keeps_blanks", "said"),
    [
        (1, True, None),
        (1, False, "what is only copied differs"),
        # Every event has a word in it: there is nothing to drop, and the client gets all.
        (4, False, None),
    ],
)
def test_blanks_that_never_leave(
    judge: Judge, by_hand: Callable[..., HandMade], tokens_per_event: int, keeps_blanks: bool, said: str | None
) -> None:
    server = by_hand(copying(tokens_per_event, keeps_blanks=keeps_blanks))
    verdict = run(judge, server.url, "P12", capability={"thinking": "none", "tools": False})
    check = next(c for c in verdict.checks if c.id == "P12")
    assert (check.verdict == "pass") is (said is None), check.sentence
    assert said is None or said in check.sentence


@pytest.mark.parametrize(
    ("whole", "streamed", "equal"),
    [
        ("a\n\n    b\n", "\n a \n\n    b", True),
        ("a\n\n    b", "a\nb", False),
        ("a\n    b", "a\nb", False),
        ("a\n\nb", "a\nb", False),
    ],
)
def test_lines_of_a_copy(whole: str, streamed: str, equal: bool) -> None:
    found = difference(cut(None, "stop", 5, streamed), cut(None, "stop", 5, whole), copied=True)
    assert (found is None) is equal, found


# --- rules by hand ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", ['{"a": "b\\u00e9\\n\\"x", "c": [1, -2.5e3, {"d": null}], "e": true}', '{"f":{}}'])
def test_every_beginning_of_an_object_is_one(document: str) -> None:
    assert all(begins_an_object(document[:length]) for length in range(len(document) + 1))


@pytest.mark.parametrize(
    "text", ['{"a": 1}}', '{{"a"', '"city": "x"', '{"a":1}{', '{"a" "b"', "[1", '{"a": tru1', "<tool_call>"]
)
def test_what_no_object_begins_with(text: str) -> None:
    assert not begins_an_object(text)


def cut(arguments: str | None, finish: str, used: int = 16, content: str = "", *breaches: Breach) -> Answer:
    calls = (ToolCall("c", "save_file", arguments),) if arguments is not None else ()
    usage = Usage(5, used, None)
    reply = Reply(True, content=content, calls=calls, finish_reason=finish, usage=usage)
    return Answer({}, Exchange("POST", "/", b"", 0, 0, 200), reply, breaches)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (cut('{"path": "/a", "te', "length"), None),
        (cut("", "length"), None),
        (cut(None, "length"), None),
        (cut(None, "stop", 5, "I cannot save."), None),
        (cut('{"text": "all of it ENDOFNOTE"}', "tool_calls"), None),
        (cut('{"path": "/a"}', "tool_calls"), "expected length"),
        (cut(None, "stop", 5), "the message is empty"),
        (cut('path": "/a"', "length"), "not the beginning of a JSON object"),
        (cut(None, "length", 16, "x", Breach("P11", "content holds <tool_call>", by_model=True)), "<tool_call>"),
    ],
)
def test_what_a_cut_answer_may_look_like(answer: Answer, said: str | None) -> None:
    problem = cut_problem(answer, 16)
    assert problem == said or (said is not None and problem is not None and said in problem)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("chatcmpl-tool-0123456789abcdef0123456789abcdef", "chatcmpl-tool-<32>"),
        ("call_abcdefgh12345678ABCDEFGH", "call_<24>"),
        ("functions.get_weather:0", "functions.get_weather:<1>"),
        ("aB3dE6gH9", "<9>"),
        (None, "none"),
    ],
)
def test_the_form_of_an_id(value: object, form: str) -> None:
    assert pattern(value) == form


def test_differences_are_listed_in_words() -> None:
    here = {"paths": ["a: string", "b: null"], "finish_reason": "stop", "id": "c-<3>", "call_id": None}
    there = here | {"paths": ["a: string", "c: number"], "finish_reason": "length"}
    shapes = {"text": here | {"reasoning_field": None}}
    assert differences(shapes, {"text": there | {"reasoning_field": None}}) == [
        "text: finish_reason is stop, on production length",
        "text: b: null is new",
        "text: c: number is gone",
    ]
    assert differences(shapes, {}) == []
