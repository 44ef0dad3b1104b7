"""F08: healthy engines in every dialect pass every letter; a template that loses something fails the letter for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.contract import Verdict
from launch.engines.emulator.testing import emulator

LETTERS = [f"F08{letter}" for letter in "abcdefghijklmn"]
PROFILE = {"checks": LETTERS, "seed": "x", "tier": "smoke"}
FAST = ("--ttft-ms", "1", "--itl-ms", "0.2")


def verdicts(verdict: Verdict) -> dict[str, str]:
    return {c.id: "skip" if c.skipped else str(c.verdict) for c in verdict.checks if c.id.startswith("F08")}


@pytest.mark.parametrize("dialect", ["vllm", "vllm-old", "sglang", "llamacpp", "smg"])
def test_a_healthy_template_passes_every_letter(judge: Judge, engines: Engines, dialect: str) -> None:
    url = engines(*FAST, "--dialect", dialect, "--keeps-reasoning")
    capability = {"thinking": "switch", "keeps_reasoning": True}
    verdict = judge("acceptance", url, profile=PROFILE, capability=capability)
    assert verdict.verdict == "pass", verdict.sentence
    seen = verdicts(verdict)
    assert seen == dict.fromkeys(LETTERS, "pass") | {"F08l": "skip"}
    # What could not be compared yet is the baseline of the next run.
    again = judge(
        "acceptance", url, profile=PROFILE, capability=capability, baseline={"measurements": verdict.measurements}
    )
    assert verdicts(again)["F08l"] == "pass"


def blocking(verdict: Verdict) -> set[str]:
    return {check.id for check in verdict.checks if check.verdict == "fail"}


@pytest.mark.parametrize(
    ("fault", "letters", "said"),
    [
        ("prompt-drop-tool", {"F08b"}, "a tool's result got 200 words longer: the prompt grows by"),
        ("prompt-drop-history", {"F08b", "F08c", "F08g"}, "a call and its result were added"),
        ("prompt-args-coerced", {"F08c"}, "arguments of an earlier call"),
        ("prompt-null-literal", {"F08e"}, "counts more than an empty one"),
        ("prompt-drop-reasoning", {"F08h"}, "the capability says keeps_reasoning"),
        ("prompt-last-system", {"F08n"}, "the first of two system messages got 200 words longer"),
        ("toggle-ignored", {"F08i"}, "the switch enable_thinking does not reach it"),
    ],
)
def test_what_a_template_loses_fails_its_letter(judge: Judge, fault: str, letters: set[str], said: str) -> None:
    with emulator(*FAST, "--keeps-reasoning", "--fault", fault) as engine:
        verdict = judge(
            "acceptance",
            engine.url,
            # The smoke tier would end at the first of them.
            profile=PROFILE | {"tier": "standard"},
            capability={"thinking": "switch", "keeps_reasoning": True},
        )
    assert letters <= blocking(verdict), verdict.checks
    assert said in " ".join(check.sentence for check in verdict.checks if check.verdict == "fail")
    assert all(check.evidence for check in verdict.checks if check.verdict == "fail")


Render = Callable[[dict[str, Any]], str]


class Template(ThreadingHTTPServer):
    """An engine that only counts: prompt tokens of what `render` makes of a request, four characters each."""

    daemon_threads = True

    def __init__(self, render: Render, *, as_text: bool = True) -> None:
        self.render = render
        self.as_text = as_text
        super().__init__(("127.0.0.1", 0), _Counting)
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Counting(BaseHTTPRequestHandler):
    server: Template
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.as_text and self.path.endswith("/apply-template"):
            self._send(200, {"prompt": self.server.render(body)})
            return
        if not self.server.as_text and self.path.endswith("/tokenize"):
            self._send(200, {"tokens": list(self.server.render(body).encode())})
            return
        if not self.server.as_text and self.path.endswith("/detokenize"):
            assert body["skip_special_tokens"] is False
            self._send(200, {"text": bytes(body["tokens"]).decode()})
            return
        if not self.path.endswith("/chat/completions"):
            self._send(404, {"error": {"message": "no such route"}})
            return
        message = {"role": "assistant", "content": "The"}
        tokens = len(self.server.render(body).encode()) // 4
        usage = {"prompt_tokens": tokens, "completion_tokens": 1}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        document = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "emu",
            "choices": [choice],
            "usage": usage,
        }
        self._send(200, document)

    def _send(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Silent."""


def rendering(
    *,
    tools: bool = True,
    text: bool = True,
    parts: bool = True,
    escaped: bool = False,
    nothing: str = "",
    results: slice = slice(None),
    system: bool = True,
) -> Render:
    """A template that is right unless told otherwise."""

    def told(content: Any) -> str:
        if isinstance(content, list):
            content = "".join(part["text"] for part in content) if parts else ""
        return json.dumps(content) if escaped else str(content)

    def render(body: dict[str, Any]) -> str:
        written = [json.dumps(body["tools"])] if tools and "tools" in body else []
        written += [told(m["content"]) for m in [m for m in body["messages"] if m["role"] == "tool"][results]]
        for message in body["messages"]:
            if message["role"] == "system" and "tools" in body and not system:
                continue
            called = message.get("tool_calls") or []
            if message["role"] != "tool" and (text or not called):
                content = message.get("content")
                written.append(nothing if content is None else content)
            written += [f"{call['function']['name']} {call['function']['arguments']}" for call in called]
        return " ".join(written)

    return render


@pytest.mark.parametrize(
    ("render", "letters"),
    [
        (rendering(), set()),
        (rendering(tools=False), {"F08a"}),
        (rendering(text=False), {"F08d"}),
        (rendering(parts=False), {"F08f"}),
        (rendering(system=False), {"F08m", "F08n"}),
        (rendering(results=slice(-1, None)), {"F08j"}),
        (rendering(results=slice(1)), {"F08j"}),
        (rendering(escaped=True), {"F08k"}),
        (rendering(nothing="<|None|>"), {"F08e"}),
        (rendering(nothing="<|nothing|>"), set()),
    ],
)
def test_a_template_by_hand(judge: Judge, render: Render, letters: set[str]) -> None:
    server = Template(render)
    try:
        verdict = judge("acceptance", server.url, profile=PROFILE | {"tier": "standard"})
    finally:
        server.shutdown()
        server.server_close()
    assert blocking(verdict) == letters, [check.sentence for check in verdict.checks if check.verdict == "fail"]


def test_an_engine_that_shows_no_count_fails_and_says_so(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "no-usage") as engine:
        verdict = judge("acceptance", engine.url, profile=PROFILE | {"tier": "standard"})
    assert {"F08a", "F08b", "P07"} <= blocking(verdict)


def test_another_tokeniser_than_production_is_shown_number_by_number(judge: Judge, engines: Engines) -> None:
    before = judge("acceptance", engines(*FAST, "--keeps-reasoning"), profile=PROFILE).measurements
    recorded = before["recorded"]["F08l"]["prompt_tokens"]
    drifted = {"recorded": {"F08l": {"prompt_tokens": recorded | {"long result": recorded["long result"] + 1}}}}
    verdict = judge(
        "acceptance", engines(*FAST, "--keeps-reasoning"), profile=PROFILE, baseline={"measurements": drifted}
    )
    assert blocking(verdict) == {"F08l"}
    assert "long result: " in verdict.sentence
    assert verdict.sentence.count("here") == 1
    live = judge(
        "acceptance",
        engines(*FAST, "--keeps-reasoning"),
        profile=PROFILE,
        live_endpoint=engines(*FAST, "--dialect", "sglang", "--keeps-reasoning"),
    )
    assert verdicts(live)["F08l"] == "pass"


def test_where_a_prompt_leaves_productions_is_shown(judge: Judge) -> None:
    """The field that SGLang 0.5.23 writes into every tool of a template that prints tools as they come."""

    def more(body: dict[str, Any]) -> str:
        tools = [tool | {"defer_loading": None} for tool in body.get("tools") or ()]
        return rendering()(body | ({"tools": tools} if tools else {}))

    live, candidate = Template(rendering()), Template(more, as_text=False)
    try:
        verdict = judge("acceptance", candidate.url, profile=PROFILE, live_endpoint=live.url)
    finally:
        for server in (live, candidate):
            server.shutdown()
            server.server_close()
    assert blocking(verdict) == {"F08l"}
    assert "no tools: " not in verdict.sentence
    assert '"defer_loading": null' in verdict.sentence
