"""Whatever is behind the address: a verdict within the deadline, one sentence that says what is wrong, no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bad_servers import (
    BROKEN,
    ENDLESS,
    HTML,
    NEEDS_KEY,
    NEVER_ANSWERS,
    NO_SUCH_MODEL,
    PLAIN_HTTP,
    own_certificate,
    refusing,
    serving,
    with_models,
)
from gate_kit import Judge

from gates.contract import Verdict

GATES = ("smoke", "acceptance")
DEADLINE_S = 40.0
ROOT = Path(__file__).resolve().parents[2]


def said(verdict: Verdict) -> str:
    """The sentence, if it is one that people can read."""
    sentence = verdict.sentence
    assert "\n" not in sentence
    assert 20 < len(sentence) < 400, sentence
    return sentence


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("server", BROKEN)
def test_a_server_that_does_not_answer_as_it_should_fails_in_time(judge: Judge, gate: str, server: str) -> None:
    script, sentence = BROKEN[server]
    before_s = time.monotonic()
    with serving(with_models("emu", script)) as url:
        # Only who never ends is not waited for: a slow machine needs its time to read 16 MiB.
        patience_s = 0.5 if server in ENDLESS else 10.0
        verdict = judge(gate, url, deadline_s=DEADLINE_S, profile={"timeout_s": patience_s})
    assert time.monotonic() - before_s < DEADLINE_S
    assert verdict.verdict == "fail"
    assert said(verdict)
    assert any(sentence in check.sentence for check in verdict.checks if check.verdict == "fail"), verdict.sentence


def _book(connection: socket.socket, _: bytes) -> None:
    """A good answer of 5 MiB to whatever is asked."""
    usage = {"prompt_tokens": 5, "completion_tokens": 9}
    choice = {"index": 0, "message": {"role": "assistant", "content": "word " * 2**20}, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "emu", "usage": usage, "choices": [choice]}
    data = json.dumps(body).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data))
    connection.sendall(data)


@pytest.mark.slow
def test_answers_that_would_fill_the_memory_end_the_run(judge: Judge) -> None:
    with serving(with_models("emu", _book)) as url:
        verdict = judge("acceptance", url, deadline_s=120.0, profile={"checks": ["J"], "timeout_s": 30})
    flood = next(check for check in verdict.checks if check.id == "silent")
    assert (flood.verdict, "have no end" in flood.sentence) == ("fail", True)
    assert verdict.measurements["requests"] < 60


@pytest.mark.parametrize("gate", GATES)
def test_nobody_there(judge: Judge, gate: str) -> None:
    url = refusing()
    verdict = judge(gate, url, deadline_s=DEADLINE_S)
    assert verdict.verdict == "fail"
    assert f"no connection to {url.removeprefix('http://')}: connection refused" in said(verdict)
    assert verdict.measurements["requests"] <= 3


@pytest.mark.parametrize("gate", GATES)
def test_a_host_that_does_not_exist(judge: Judge, gate: str) -> None:
    verdict = judge(gate, "http://no-such-host.invalid:8000", deadline_s=DEADLINE_S)
    assert verdict.verdict == "fail"
    assert "the host name 'no-such-host.invalid' d" in said(verdict)  # does not resolve, or did not within the time


@pytest.mark.parametrize("gate", GATES)
def test_a_wrong_model_name(judge: Judge, gate: str) -> None:
    with serving(with_models("qwen", NO_SUCH_MODEL)) as url:
        verdict = judge(gate, url, deadline_s=DEADLINE_S)
    assert verdict.verdict == "fail"
    assert "the endpoint does not serve the model 'emu'; it serves qwen" in said(verdict)


@pytest.mark.parametrize("gate", GATES)
def test_a_missing_key_is_not_the_engines_fault(judge: Judge, gate: str) -> None:
    with serving(NEEDS_KEY) as url:
        verdict = judge(gate, url, deadline_s=DEADLINE_S)
    assert verdict.verdict == "error"
    assert "wants an API key (HTTP 401); name the environment variable that holds it" in said(verdict)


@pytest.mark.parametrize("gate", GATES)
def test_tls_where_the_server_speaks_plain_http(judge: Judge, gate: str) -> None:
    for script, patience_s in ((PLAIN_HTTP, 5.0), (NEVER_ANSWERS, 0.5)):
        with serving(script) as url:
            secure = url.replace("http:", "https:")
            verdict = judge(gate, secure, deadline_s=DEADLINE_S, profile={"timeout_s": patience_s})
        assert verdict.verdict == "fail"
        assert f"no TLS connection to {url.removeprefix('http://')}" in said(verdict)
        assert "does it speak plain http?" in said(verdict)


@pytest.mark.parametrize("gate", GATES)
def test_plain_http_where_the_server_speaks_tls(judge: Judge, tmp_path: Path, gate: str) -> None:
    certificate = own_certificate(tmp_path)
    if certificate is None:
        pytest.skip("there is no openssl to make a certificate with")
    with serving(HTML, tls=certificate) as url:
        plain = judge(gate, url.replace("https:", "http:"), deadline_s=DEADLINE_S)
        unknown = judge(gate, url, deadline_s=DEADLINE_S)
    assert (plain.verdict, unknown.verdict) == ("fail", "fail")
    assert "the server speaks TLS: its address begins with https" in said(plain)
    assert "certificate verify failed" in said(unknown).lower().replace("_", " ")


@pytest.mark.parametrize("gate", GATES)
def test_the_gates_own_end_is_not_the_engines_fault(judge: Judge, gate: str) -> None:
    before_s = time.monotonic()
    with serving(NEVER_ANSWERS) as url:
        verdict = judge(gate, url, deadline_s=2.0)
        secure = judge(gate, url.replace("http:", "https:"), deadline_s=2.0)
    assert time.monotonic() - before_s < DEADLINE_S
    assert (verdict.verdict, secure.verdict) == ("inconclusive", "inconclusive")
    assert "nothing was answered at all; connected, the request was sent, and no answer came within" in said(verdict)
    assert "does it speak plain http?" in said(secure)


def test_who_waives_lost_answers_does_not_waive_that_there_are_none(judge: Judge) -> None:
    waiver = {
        "check": "P08",
        "reason": "one in a thousand breaks off",
        "expires": (datetime.now(UTC).date() + timedelta(days=30)).isoformat(),
    }
    verdict = judge("acceptance", refusing(), deadline_s=DEADLINE_S, profile={"waivers": [waiver]})
    assert verdict.verdict == "error"
    assert "connection refused" in said(verdict)


@pytest.mark.parametrize(
    ("server", "deadline_s", "code", "sentence"),
    [
        (None, 30, 10, "connection refused"),
        (HTML, 30, 10, "an HTML page"),
        (NEEDS_KEY, 30, 12, "wants an API key"),
        (NEVER_ANSWERS, 8, 11, "nothing was answered at all"),
    ],
    ids=["nobody there", "html", "needs a key", "never answers"],
)
def test_on_the_command_line(tmp_path: Path, server: object, deadline_s: int, code: int, sentence: str) -> None:
    profile = tmp_path / "short.yaml"
    profile.write_text(f"gates:\n  - name: acceptance\n    deadline_s: {deadline_s}\n")
    words = ["--model", "emu", "--profile", str(profile), "--evidence", str(tmp_path / "evidence"), "--json"]
    script = server if callable(server) else NEVER_ANSWERS
    with serving(script) as url:
        endpoint = refusing() if server is None else url
        done = subprocess.run(
            [sys.executable, "-m", "gates", "run", "--endpoint", endpoint, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert sentence in json.loads(done.stdout)["steps"][0]["verdict"]["sentence"]
