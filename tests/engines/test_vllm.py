"""A real vLLM serves a real model: it passes the gates with its parsers, fails without, and ends whole when shot."""

import os
import signal

import psutil
import pytest

from launch.attempts import Status, log_tail, observe

PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
TP2 = ("--tensor-parallel-size", "2", "--distributed-executor-backend", "mp")

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


def failed(report: dict, gate: str = "") -> list[str]:
    """What the gates (or one of them) found wrong, in their own sentences."""
    return [
        f"{step['gate']} {check['id']}: {check['sentence']}"
        for step in report["steps"]
        if step["verdict"] and gate in ("", step["gate"])
        for check in step["verdict"]["checks"]
        if check["verdict"] != "pass" and not check["skipped"]
    ]


@pytest.mark.parametrize(
    ("name", "flags", "gpus", "cores"),
    [("tp1", (), 1, "0-1"), ("tp2", TP2, 2, "0|1")],
)
def test_a_real_engine_passes_what_its_model_can(serve, tmp_path, name, flags, gpus, cores):
    server = serve(name, *flags, *PARSERS, gpus=gpus, cores=cores)
    print(f"{name}: generates after {server.started_in_s:.0f} s")
    workers = [p for p in server.family() if p.name().startswith("VLLM::Worker")]
    assert len(workers) == gpus, [p.name() for p in server.family()]
    code, report = server.gates(evidence=tmp_path / "evidence")
    assert (code, report["verdict"]) == (0, "pass"), failed(report)


@pytest.mark.parametrize(
    ("name", "parsers", "why"),
    [
        ("noparser", ("--reasoning-parser", "qwen3"), "--tool-call-parser"),
        ("wrongparser", (*PARSERS[:2], "pythonic", *PARSERS[3:]), "call"),
        ("noreasoning", PARSERS[:3], "think"),
    ],
)
def test_a_wrong_parser_is_blocked_and_named(serve, tmp_path, name, parsers, why):
    server = serve(name, *parsers)
    code, report = server.gates(evidence=tmp_path / "evidence")
    assert (code, report["verdict"]) == (10, "fail"), failed(report)
    assert not failed(report, "health")
    assert any(why in sentence for sentence in failed(report, "acceptance")), failed(report)


def test_a_template_that_drops_results_is_blocked_and_named(serve, tmp_path, model_without_results):
    server = serve("deaf", *PARSERS, model=model_without_results)
    code, report = server.gates(evidence=tmp_path / "evidence")
    assert (code, report["verdict"]) == (10, "fail"), failed(report)
    assert any("F08b" in sentence for sentence in failed(report, "acceptance")), failed(report)


def test_a_shot_api_server_leaves_no_orphan(serve, ended):
    server = serve("shot", *TP2, *PARSERS, gpus=2, cores="0|1")
    family = server.family()
    titles = sorted(process.name() for process in family)
    assert any("EngineCore" in title for title in titles), titles
    os.kill(family[0].pid, signal.SIGKILL)
    seen = ended(server.run_dir)
    assert (seen.status, seen.signal) == (Status.EXITED, signal.SIGKILL), log_tail(server.run_dir)
    assert observe(server.run_dir).pids == ()
    alive = [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not alive
