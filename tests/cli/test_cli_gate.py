"""`cutover gate …` and `cutover emulate`: judging an endpoint without a daemon."""

from __future__ import annotations

import contextlib
import json
import signal

import psutil
import pytest


@pytest.fixture
def endpoint(cutover_begun, tmp_path, wait_until):
    """An emulated engine, begun through the command line."""

    def begin(*flags: str) -> str:
        port_file = tmp_path / "port"
        port_file.unlink(missing_ok=True)
        words = ("--port", "0", "--port-file", port_file, "--model", "emu", "--ttft-ms", "10", "--itl-ms", "2")
        cutover_begun("emulate", *words, *flags)
        port = wait_until(lambda: port_file.exists() and port_file.read_text().strip())
        return f"http://127.0.0.1:{port}"

    return begin


def test_list_and_explain(cutover):
    listed = cutover("gate", "list")
    assert listed.code == 0
    assert "acceptance" in listed.out
    assert "smoke" in listed.out
    document = cutover("gate", "list", "--json").json
    assert {"health", "acceptance", "throughput"} <= {gate["name"] for gate in document["gates"]}
    explained = cutover("gate", "explain", "acceptance")
    assert "Catches: " in explained.out
    assert "timeout_s" in cutover("gate", "explain", "acceptance", "--json").json["settings"]
    unknown = cutover("gate", "explain", "acceptence")
    assert unknown.code == 3
    assert "did you mean 'acceptance'?" in unknown.err


def test_an_endpoint_passes(cutover, endpoint, tmp_path):
    url = endpoint()
    done = cutover(
        "gate", "run", "--endpoint", f"{url}/v1", "--model", "emu", "--gate", "health", "--evidence", tmp_path / "ev",
        "--capability", "thinking=none", "--json",
    )  # fmt: skip
    assert (done.code, done.json["verdict"]) == (0, "pass"), done.out
    assert done.json["steps"][0]["gate"] == "health"
    assert list((tmp_path / "ev").rglob("*.json"))
    assert "health: started" in done.err


def test_an_endpoint_fails(cutover, endpoint, tmp_path):
    url = endpoint("--fault", "silent")
    profile = tmp_path / "quick.yaml"
    profile.write_text("gates:\n  - {name: health, deadline_s: 60, settings: {probes: 1, timeout_s: 3}}\n")
    words = ("gate", "run", "--endpoint", url, "--model", "emu", "--profile", profile, "--evidence", tmp_path / "ev")
    done = cutover(*words)
    assert done.code == 10
    assert "fail" in done.out


def test_an_interrupted_run_leaves_no_gate_behind(cutover_begun, endpoint, tmp_path, wait_until):
    evidence = tmp_path / "ev"
    url = endpoint("--fault", "silent")
    run = cutover_begun("gate", "run", "--endpoint", url, "--model", "emu", "--gate", "health", "--evidence", evidence)

    def gates() -> list[int]:
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(str(evidence)):
                    mine.append(process.pid)
        return mine

    wait_until(gates)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "cancelled" in out
    assert "Traceback" not in err
    assert gates() == []


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--endpoint", "ftp://x", "--model", "m"), 2, "ftp"),
        (("--endpoint", "http://127.0.0.1:9", "--model", "m", "--profile", "nope"), 3, "no profile 'nope'"),
        (("--endpoint", "http://127.0.0.1:9", "--model", "m", "--gate", "nope"), 3, "no gate 'nope'"),
        (("--endpoint", "http://127.0.0.1:9", "--model", "m", "--capability", "tools"), 2, "expected KEY=VALUE"),
        (("--endpoint", "http://127.0.0.1:9", "--model", "m", "--capability", "flying=true"), 2, "flying"),
        (("--endpoint", "http://127.0.0.1:9", "--model", "m", "--baseline", "/no/file"), 2, "cannot be read"),
        (
            ("--endpoint", "http://127.0.0.1:9", "--model", "m", "--profile", "smoke", "--check", "J07"),
            2,
            "--profile st",
        ),
    ],
)
def test_what_is_asked_wrongly(cutover, words, code, expected):
    done = cutover("gate", "run", *words)
    assert (done.code, done.out) == (code, "")
    assert expected in done.err
    as_json = cutover("gate", "run", *words, "--json")
    assert json.loads(as_json.out)["exit_code"] == code


def test_emulate_passes_everything_on(cutover):
    faults = cutover("emulate", "--list-faults")
    assert faults.code == 0
    assert "never-ready" in faults.out
    wrong = cutover("emulate", "--port", "99999")
    assert wrong.code == 2
    assert "--port" in wrong.err


def test_an_endpoint_is_probed_for_what_it_can_do(cutover, endpoint):
    done = cutover("gate", "probe", "--endpoint", endpoint(), "--model", "emu")
    assert done.code == 0, done.err
    assert "capability: {" in done.out
    assert "thinking: switch" in done.out
    document = cutover("gate", "probe", "--endpoint", endpoint(), "--model", "emu", "--json").json
    assert document["schema"] == 1
    assert document["capability"]["thinking"] == "switch"
    nobody = cutover("gate", "probe", "--endpoint", "http://127.0.0.1:9", "--model", "emu")
    assert nobody.code == 2
    assert "nothing could be found out" in nobody.err
