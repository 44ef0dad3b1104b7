"""What several rooms of tests share: emulated engines, and a gate run in this process. Helpers are in `gate_kit.py`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge, RawServer, Script
from hypothesis import settings

from gates import program
from gates.contract import GateRequest, Verdict, parse_verdict
from launch.engines.emulator.testing import emulator

# Hundreds of processes are started here, and a fifth of the start of each would be to compile the same files anew where
# the environment forbids to keep what was compiled (container images do).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What one example takes says something about the machine, and nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """ruff and mypy first: what is long must not be left for the end, where it would run alone."""
    items.sort(key=lambda item: item.path.name != "test_static.py")


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """URLs of emulated engines by their flags, each started once for the whole run and shared."""
    with contextlib.ExitStack() as stack:
        running: dict[tuple[str, ...], str] = {}

        def url(*flags: str) -> str:
            if flags not in running:
                running[flags] = stack.enter_context(emulator(*flags, model="emu")).url
            return running[flags]

        yield url


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Run one built-in gate in this process, over the contract's own door."""

    def run(gate: str, endpoint: str, *, model: str = "emu", deadline_s: float = 60.0, **fields: Any) -> Verdict:
        request = GateRequest(
            gate=gate,
            endpoint=endpoint,
            model=model,
            deadline_s=deadline_s,
            evidence_dir=str(tmp_path / "evidence" / gate),
            **fields,
        )
        stdout, stderr = io.StringIO(), io.StringIO()
        code = program.judge(gate, io.BytesIO(request.to_json().encode()), stdout, stderr)
        assert "Traceback" not in stderr.getvalue(), stderr.getvalue()
        verdict = parse_verdict(stdout.getvalue().encode(), gate)
        assert verdict.exit_code == code
        return verdict

    return run


@pytest.fixture
def raw_server() -> Iterator[Callable[[Script], RawServer]]:
    """Servers that answer byte by byte as a script says, ended with the test."""
    servers: list[RawServer] = []

    def start(script: Script) -> RawServer:
        servers.append(RawServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
