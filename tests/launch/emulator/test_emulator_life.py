"""Start, stop, children, ports and mistakes on the command line."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from emulator_asking import Asking, until

from launch.engines.emulator.__main__ import build_parser, main

COMMAND = [sys.executable, "-m", "launch.engines.emulator"]


def run_to_end(*flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=60, check=False)


def answered(engine: Asking, path: str) -> int:
    try:
        return engine.http.get(path).status_code
    except httpx.ConnectError:
        return 0


def test_the_pool_line_is_vllms_and_sglangs(vllm: Asking, sglang: Asking):
    assert (
        "GPU KV cache size: 524,288 tokens, Maximum concurrency for 32,768 tokens per request: 16.00x"
        in vllm.engine.log()
    )
    assert "max_total_num_tokens=524288" in sglang.engine.log()


def test_nobody_listens_before_the_start_is_over(start):
    engine = start("--start-s", "3", wait=False)
    assert answered(engine, "/health") == 0
    until(lambda: answered(engine, "/health") == 200)
    assert "Application startup complete" in engine.engine.log()


def test_one_that_listens_early_is_unhealthy_until_ready(start):
    engine = start("--start-s", "3", "--listen-early", wait=False)
    until(lambda: answered(engine, "/health") == 503)
    until(lambda: answered(engine, "/health") == 200)


def test_term_during_the_start_ends_it(start):
    engine = start("--start-s", "60", wait=False)
    until(lambda: "0% Completed" in engine.engine.log())
    assert engine.engine.stop() == 0


def test_dies_loading_leaves_a_traceback_and_code_1():
    ended = run_to_end("--port", "0", "--start-s", "0.2", "--fault", "dies-loading", "--workers", "1")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "out of memory" in ended.stderr


def test_a_crash_can_hide_behind_code_0():
    flags = ("--fault", "dies-loading", "--fault", "exits-zero-on-crash")
    assert run_to_end("--port", "0", *flags).returncode == 0


@pytest.mark.parametrize("listening", [True, False])
def test_a_taken_port_is_named(listening: bool):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen()
        port = str(taken.getsockname()[1])
        ended = run_to_end("--port", port)
    assert ended.returncode == 1
    assert "[Errno 98] Address already in use" in ended.stderr
    assert port in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_not_ours_is_named():
    ended = run_to_end("--host", "192.0.2.1", "--port", "0")
    assert ended.returncode == 1
    assert "Cannot assign requested address" in ended.stderr


def test_term_cuts_streams_at_once(start):
    engine = start("--itl-ms", "50")
    with engine.raw_chat(stream=True, max_tokens=4000, ignore_eos=True) as connection:
        until(lambda: engine.metric("vllm:generation_tokens_total") > 0)
        engine.http.close()
        assert engine.engine.stop() == 0
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"[DONE]" not in data


def test_term_lets_streams_end_when_told_to(start):
    engine = start("--itl-ms", "50", "--shutdown-timeout-s", "60")
    with engine.raw_chat(stream=True, max_tokens=30, ignore_eos=True) as connection:
        until(lambda: engine.metric("vllm:generation_tokens_total") > 0)
        engine.engine.process.send_signal(signal.SIGTERM)
        until(lambda: "SIGTERM received" in engine.engine.log())
        until(lambda: _refused(engine.engine.port))
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    assert data.endswith(b"0\r\n\r\n")
    assert engine.engine.process.wait(30) == 0


def _refused(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) != 0


def test_workers_have_titles_and_outlive_a_killed_parent(start):
    engine = start("--workers", "2")
    parent = psutil.Process(engine.engine.pid)
    children = until(lambda: len(found := parent.children()) == 2 and found)
    try:
        until(lambda: sorted(c.cmdline()[0] for c in children) == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"])
        assert all(Path(f"/proc/{c.pid}/comm").read_text().startswith("VLLM::Worker") for c in children)
        parent.kill()
        engine.engine.process.wait(30)
        time.sleep(0.1)  # long enough for a death that must not happen
        assert not any(ended(child) for child in children)
        assert _refused(engine.engine.port)
    finally:
        for child in children:
            child.kill()
    # Whoever inherited them may reap them late: a zombie is dead enough.
    until(lambda: all(ended(child) for child in children))


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_workers_end_with_their_parent(start):
    engine = start("--workers", "2", "--dialect", "sglang")
    children = until(lambda: len(found := psutil.Process(engine.engine.pid).children()) == 2 and found)
    assert engine.engine.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_the_port_file_holds_the_port(tmp_path: Path):
    port_file = tmp_path / "port"
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--port-file", str(port_file)], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        until(port_file.exists)
        port = int(port_file.read_text())
        until(lambda: not _refused(port))
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--fault", "nonsense"], "no fault 'nonsense'"),
        (["--fault", "exits-zero-on-crash"], "needs a crash"),
        (["--slots", "0"], "--slots must be at least 1"),
        (["--ttft-ms", "-1"], "--ttft-ms must be at least 0"),
        (["--port", "70000"], "--port must be between"),
        (["--api-key-env", "NO_SUCH_VARIABLE_HERE"], "NO_SUCH_VARIABLE_HERE"),
        (["--seed", str(2**70)], "--seed"),
        (["--truth", "/nonexistent/folder/truth"], "/nonexistent/folder/truth"),
        (["--port-file", "/nonexistent/folder/port"], "/nonexistent/folder/port"),
    ],
)
def test_mistakes_get_one_sentence_and_code_2(flags: list[str], says: str):
    ended = run_to_end(*(["--port", "0", *flags] if "--port" not in flags else flags))
    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_vocabulary_can_be_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["--list-faults"]) == 0
    assert "slow-after-s=SECONDS:FACTOR(3)" in capsys.readouterr().out


def test_help_has_examples():
    assert "examples:" in build_parser().format_help()


def test_starting_imports_nothing_heavy():
    probe = (
        "import sys, launch.engines.emulator.__main__, launch.engines.emulator.process;"
        "print([m for m in ('pydantic', 'fastapi', 'httpx', 'yaml', 'rich', 'typer') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert found.stdout.strip() == "[]"
