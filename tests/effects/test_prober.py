"""The prober against emulated engines: tokens count, answers on /health do not, and a failure names its layer."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import pytest

from controller.core.desired import ProbeWish
from controller.core.seen import ProbeSeen
from controller.effects.prober import Prober
from launch.engines.emulator.testing import emulator


@pytest.fixture
def probed():
    """Probe one port until a condition holds; returns what was seen then."""
    probers: list[Prober] = []

    def begin(port: int, until: Callable[[ProbeSeen], object], pids=None, timeout_s: float = 1.0) -> ProbeSeen:
        prober = Prober("127.0.0.1:1", "127.0.0.1:1", lambda _: pids or (), timeout_s=timeout_s)
        probers.append(prober)
        prober.wish([ProbeWish("a", "emu", 0.1, port, "emulator", "a" if pids else None)])
        end_s = time.monotonic() + 30
        while time.monotonic() < end_s:
            seen = prober.results().get("a")
            if seen is not None and until(seen):
                return seen
            time.sleep(0.02)
        raise AssertionError(f"never seen; last: {prober.results()}")

    yield begin
    for prober in probers:
        prober.close()


def test_an_engine_that_generates_is_ok_and_its_pace_is_known(probed):
    with emulator("--ttft-ms", "30", "--itl-ms", "5") as engine:
        seen = probed(engine.port, lambda s: s.ok and s.streak >= 3)
        assert seen.ttft_s is not None
        assert seen.ttft_s >= 0.03
        assert seen.total_s > seen.ttft_s
        assert seen.typical_total_s is not None
        assert seen.progress_at_s is not None


def test_healthy_and_silent_is_not_ok(probed):
    with emulator("--fault", "silent") as engine:
        seen = probed(engine.port, lambda s: s.streak >= 2)
        assert not seen.ok
        assert seen.layer in {"timeout", "generation"}


def test_busy_engine_shows_progress_while_a_probe_waits(probed):
    """Every slot is taken: probes time out, and the token counters say that somebody is being served."""
    with emulator("--slots", "1", "--itl-ms", "20", "--answer-tokens", "2000") as engine:
        body = (
            b'{"model":"emu","stream":true,"max_tokens":2000,"ignore_eos":true,'
            b'"messages":[{"role":"user","content":"a long story"}]}'
        )
        with socket.create_connection(("127.0.0.1", engine.port)) as user:
            user.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                + f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            user.recv(1024)
            seen = probed(engine.port, lambda s: not s.ok and s.streak >= 2)
            assert seen.progress_at_s is not None
            assert seen.progress_at_s >= seen.streak_since_s


def test_nobody_listens(probed):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert probed(free.getsockname()[1], lambda s: not s.ok).layer == "port"


def test_somebody_else_listens_there(probed):
    """An orphan of yesterday on the same port answers 200 too (mostlygeek/llama-swap#100)."""
    with emulator() as stranger:
        seen = probed(stranger.port, lambda s: not s.ok, pids=(os.getpid(),))
        assert seen.layer == "identity"
        assert str(stranger.pid) in seen.sentence


def test_who_is_no_longer_wished_is_forgotten(probed):
    with emulator() as engine:
        prober = Prober("127.0.0.1:1", "127.0.0.1:1", lambda _: ())
        try:
            prober.wish([ProbeWish("a", "emu", 0.1, engine.port, "emulator")])
            end_s = time.monotonic() + 30
            while not prober.results() and time.monotonic() < end_s:
                time.sleep(0.02)
            assert "a" in prober.results()
            prober.wish([])
            assert prober.results() == {}
        finally:
            prober.close()


def test_who_comes_to_the_front_door_is_asked_although_a_question_to_those_before_hangs():
    """Else a good candidate counts as never asked since the cutover, because the old release hung."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        asked = []
        prober = Prober(f"127.0.0.1:{door.getsockname()[1]}", "127.0.0.1:1", lambda _: (), timeout_s=20.0)
        try:
            prober.wish([ProbeWish("public", "emu", 0.05, None, "emulator")])
            for _ in range(8):
                door.settimeout(5)
                asked.append(door.accept()[0])  # it hangs: nothing is ever answered
                if len(asked) > 4:
                    break  # not for ever: the others have to be asked as well
                prober.renew()
            door.settimeout(0.3)
            prober.renew()
            with pytest.raises(TimeoutError):
                door.accept()
            for one in asked[:4]:
                one.close()
            end_s = time.monotonic() + 10
            while prober.asked("public", 0.0) != (4, 1) and time.monotonic() < end_s:
                time.sleep(0.01)
            assert prober.asked("public", 0.0) == (4, 1)
            assert prober.results() == {}, "what was asked before is not heard"
            asked[4].close()
            while not prober.results() and time.monotonic() < end_s:
                time.sleep(0.01)
            assert prober.results()["public"].ok is False
        finally:
            prober.close()
            for one in asked:
                one.close()
