"""Fixtures of the tests of the gates; what else they share is in `gate_kit.py`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Judge, RawServer, Script

from gates import program
from gates.contract import GateRequest, Verdict, parse_verdict
from launch.engines.emulator.testing import emulator


@pytest.fixture(scope="session")
def engines() -> Iterator[Callable[..., str]]:
    """URLs of healthy emulated engines, each started once for the whole run and shared."""
    with contextlib.ExitStack() as stack:
        running: dict[tuple[str, ...], str] = {}

        def url(*flags: str) -> str:
            if flags not in running:
                running[flags] = stack.enter_context(emulator(*flags, model="emu")).url
            return running[flags]

        yield url


@pytest.fixture
def raw_server() -> Iterator[Callable[[Script], RawServer]]:
    servers: list[RawServer] = []

    def start(script: Script) -> RawServer:
        servers.append(RawServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Run one built-in gate in this process, over the contract's own door."""

    def run(gate: str, endpoint: str, *, model: str = "emu", deadline_s: float = 40.0, **fields: Any) -> Verdict:
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
