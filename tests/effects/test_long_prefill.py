"""The prober and the rule for silence against a server that behaves as an engine in a long prefill.

It takes every request and answers none; what its metrics page does meanwhile is all that tells busy from down. The
prober's clock is the test's: ten minutes take two seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from controller.core.desired import ProbeWish
from controller.core.policy import Policy
from controller.core.silence import why_dead
from controller.effects.prober import Prober

STEP_S = 40.0  # between two probes
POLICY = Policy(silent_s=60.0, prefill_s=300.0)


class Engine(ThreadingHTTPServer):
    """`page`: what /metrics shows now; None: there is no such page."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.page: str | None = ""
        self.hangs = True  # else it answers every request with 500, at once
        self.idle = True
        self.over = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        page = self.server.page
        self.send_response(404 if page is None else 200)
        self.end_headers()
        self.wfile.write((page or "").encode())

    def do_POST(self) -> None:
        if self.server.hangs:
            self.server.idle = False
            self.server.over.wait(60.0)
        else:
            self.send_error(500)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine():
    with Engine() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def died_after(engine):
    """Seconds after which it counts as dead, by the rule and through the prober; None: not within `limit_s`."""
    clock = [50_000.0]
    prober = Prober("127.0.0.1:1", "127.0.0.1:1", lambda _: (), timeout_s=0.1, clock=lambda: clock[0])

    def play(page: Callable[[int], str | None], limit_s: float = 600.0) -> float | None:
        began_s, rounds = clock[0], 0
        engine.page = page(0)
        prober.wish([ProbeWish("a", "m", 5.0, engine.server_address[1], "vllm")])
        while clock[0] <= began_s + limit_s:
            end_s = time.monotonic() + 30.0
            while (seen := prober.results().get("a")) is None or seen.at_s < clock[0]:
                assert time.monotonic() < end_s, "the probe does not end"
                time.sleep(0.01)
            if why_dead(seen, clock[0], POLICY):
                return clock[0] - began_s
            rounds += 1
            engine.page = page(rounds)
            clock[0] += STEP_S
        return None

    yield play
    prober.close()


def vllm(tokens: int, pool: float) -> str:
    return (
        f'vllm:prompt_tokens_total{{engine="0"}} {tokens}\nvllm:generation_tokens_total{{engine="0"}} 7\n'
        f'vllm:iteration_tokens_total_count{{engine="0"}} 7\nvllm:num_requests_running{{engine="0"}} 1\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} {pool:.4f}\n'
    )


def sglang(tokens: int) -> str:
    return f'sglang:realtime_tokens_total{{mode="prefill_compute"}} {tokens}\nsglang:num_running_reqs 1\n'


def test_sglang_counts_every_chunk_of_a_prompt(died_after):
    assert died_after(lambda n: sglang(2048 * n)) is None


def test_one_prompt_after_another_on_vllm_is_busy_however_long(died_after):
    """Its tokens are counted at the end of each."""
    assert died_after(lambda n: vllm(100_000 * (n // 4), 0.1 * (n % 4))) is None


def test_one_prompt_on_vllm_fills_the_pool_and_counts_nothing(died_after):
    """As long as one prompt may take, and no longer: a livelock fills and empties the pool, too."""
    assert died_after(lambda n: vllm(5, 0.01 * n)) == 320.0


def test_nothing_moves(died_after):
    """It hangs in the middle of a step, with a request running."""
    assert died_after(lambda _: vllm(5, 0.4)) == 80.0


def test_the_pool_filled_and_then_it_hung(died_after):
    assert died_after(lambda n: vllm(5, 0.01 * min(n, 3))) == 200.0


def test_an_engine_without_counters_is_given_the_time_of_a_prompt(died_after):
    assert died_after(lambda _: None) == 320.0


def test_counters_that_are_gone_stand_still(died_after):
    """The page answered once, so that it is known to exist: its silence is silence."""
    assert died_after(lambda n: vllm(5, 0.4) if n < 2 else None) == 80.0


def test_what_moves_is_seen_while_a_probe_still_waits(engine):
    """A bake with a warm release to go back to cannot wait for 30 s to learn whether this is a prefill or a hang."""
    clock = [50_000.0]
    engine.hangs, engine.page = False, vllm(5, 0.1)
    prober = Prober("127.0.0.1:1", "127.0.0.1:1", lambda _: (), timeout_s=60.0, clock=lambda: clock[0])

    def until(condition):
        end_s = time.monotonic() + 30.0
        while not condition(prober.results().get("a")):
            assert time.monotonic() < end_s, prober.results()
            time.sleep(0.01)

    try:
        prober.wish([ProbeWish("a", "m", 5.0, engine.server_address[1], "vllm")])
        until(lambda seen: seen is not None)
        engine.hangs, engine.page = True, vllm(5, 0.2)
        clock[0] += 20.0
        until(lambda _: not engine.idle)
        clock[0] += 20.0
        until(lambda seen: seen.pool_at_s == clock[0])
        assert prober.results()["a"].at_s == 50_000.0
    finally:
        engine.over.set()
        prober.close()
