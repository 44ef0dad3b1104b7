"""What the engine and the machine say beside a run; cards are played by an object that answers as NVML does."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gates.counters import Counters
from gates.throughput.bench import clock_note
from gates.throughput.device_side import is_local, open_devices
from gates.throughput.engine_side import EngineFacts, Tally, facts_of_flags, foreign_load, together
from gates.wire import parse_endpoint

HERE = parse_endpoint("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("flags", "limit", "context", "captures"),
    [
        (("--max-num-seqs", "8", "--max-model-len=65536"), 8, 65536, ()),
        (("--max-num-seqs", "8", "--max-num-seqs", "32"), 32, None, ()),
        (("--max-running-requests", "4", "--context-length", "262144"), 4, 262144, ()),
        (("--parallel", "16", "-c", "8192"), 16, 8192, ()),
        (("--cudagraph-capture-sizes", "1", "2", "4", "8", "--seed", "1"), None, None, (1, 2, 4, 8)),
        (("--cuda-graph-bs", "1,2,4"), None, None, (1, 2, 4)),
        (("--compilation-config", '{"cudagraph_capture_sizes": [8, 1, 2]}'), None, None, (1, 2, 8)),
        (("--max-num-seqs", "many", "--compilation-config", "{broken"), None, None, ()),
        ((), None, None, ()),
    ],
)
def test_flags_say_limits(flags: tuple[str, ...], limit: int | None, context: int | None, captures: Any) -> None:
    facts = facts_of_flags(flags)
    assert (facts.limit, facts.context_tokens, facts.captures) == (limit, context, captures)


def test_instances_add_up_and_what_is_known_first_wins() -> None:
    assert facts_of_flags(("--max-num-seqs", "8"), instances=2).limit == 16
    given = EngineFacts(limit=4).or_else(EngineFacts(limit=8, context_tokens=100))
    assert (given.limit, given.context_tokens) == (4, 100)
    assert given.plain() == {"limit": 4, "context_tokens": 100}


class FakeCards:
    """Two cards of 24 GB; whatever is in `without` is not supported, as old cards have it."""

    def __init__(self, *without: str, pids: tuple[int, ...] = (), working: tuple[int, ...] = ()) -> None:
        self._without = without
        self._pids = pids
        self._working = working
        self.closed = False

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"999.1"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"Card"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=24 * 2**30, used=(10 + handle) * 2**30)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        if "power" in self._without:
            raise RuntimeError("Not Supported")
        return 150_000

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50 + 50 * handle)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return 1800

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self._pids]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since_us: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, smUtil=60) for pid in self._working]


def watched(cards: FakeCards) -> dict[str, Any]:
    devices = open_devices(HERE, cards)
    began_s = time.monotonic()
    with devices.watching():
        while not (seen := devices.figures([(began_s, time.monotonic())])):
            time.sleep(0.05)
    return seen


def test_cards_are_added_up() -> None:
    cards = FakeCards()
    seen = watched(cards)
    assert seen["gpu_memory_used_bytes"].value == 21 * 2**30
    assert seen["gpu_power_w"].value == pytest.approx(300)
    assert seen["gpu_utilisation"].value == pytest.approx(0.75)
    assert seen["gpu_sm_clock_mhz"].value == pytest.approx(1800)
    assert seen["host_memory_used_bytes"].value > 0
    assert cards.closed
    hardware = open_devices(HERE, FakeCards()).hardware()
    assert (hardware["gpus"], hardware["driver"]) == (["Card", "Card"], "999.1")


def test_what_a_card_does_not_tell_is_absent_and_the_rest_stays() -> None:
    seen = watched(FakeCards("power"))
    assert seen["gpu_power_w"].value is None
    assert seen["gpu_memory_used_bytes"].value == 21 * 2**30


def test_a_stranger_that_works_on_the_engines_cards_is_named(raw_port: int) -> None:
    target = parse_endpoint(f"http://127.0.0.1:{raw_port}")
    ours = os.getpid()
    stranger = open_devices(target, FakeCards(pids=(ours, 1), working=(ours, 1)))
    assert "process 1 (" in (stranger.foreign(0.0) or "")
    alone = open_devices(target, FakeCards(pids=(ours,), working=(ours,)))
    assert alone.foreign(0.0) is None
    unknown = open_devices(HERE, FakeCards(pids=(1,), working=(1,)))
    assert unknown.foreign(0.0) is None, "nobody knows which processes are the engine's"


def test_another_machine_has_no_devices_here() -> None:
    assert not is_local("203.0.113.7")
    far = open_devices(parse_endpoint("http://203.0.113.7:8000"), FakeCards())
    assert "another machine" in (far.absent or "")
    with far.watching():
        assert far.figures([(0.0, time.monotonic())]) == {}
    assert far.hardware() == {}


def test_without_a_driver_there_is_a_sentence() -> None:
    class NoDriver(FakeCards):
        def nvmlInit(self) -> None:  # noqa: N802
            raise RuntimeError("Shared Library Not Found")

    assert open_devices(HERE, NoDriver()).absent == "NVML is not here: Shared Library Not Found"


BEFORE = Counters(finished=10, generation_tokens=1000, prompt_tokens=5000, running=0, waiting=0)
OURS = Tally(counted=8, tokens=800, prompt_tokens=1600)


@pytest.mark.parametrize(
    ("more", "failed", "said"),
    [
        ({}, 0, None),
        ({"finished": 2, "generation_tokens": 16, "prompt_tokens": 60}, 0, None),
        ({"finished": 1, "generation_tokens": 300}, 0, "generated 300 tokens more"),
        ({"finished": 1, "prompt_tokens": 9000}, 0, "read 9000 tokens of prompts more"),
        ({"running": 1}, 0, "1 requests run on the engine after ours"),
        ({"finished": 30}, 2, "finished 28 requests more"),
        ({"finished": 3}, 2, None),
    ],
)
def test_a_probe_is_no_load_and_a_user_is(more: dict[str, float], failed: int, said: str | None) -> None:
    ours = replace(OURS, failed=failed)
    grown = {"finished": 8, "generation_tokens": 800, "prompt_tokens": 1600, "running": 0, "waiting": 0}
    after = Counters(**{name: (getattr(BEFORE, name) or 0) + grown[name] + more.get(name, 0) for name in grown})
    found = foreign_load(BEFORE, after, ours, 5.0)
    assert (found is None) if said is None else (said in (found or ""))


@pytest.mark.parametrize(("engines", "tokens"), [(1, 16), (2, 32)])
def test_a_round_shorter_than_the_pause_between_probes_may_meet_one_of_each(engines: int, tokens: int) -> None:
    after = replace(BEFORE, finished=18 + engines, generation_tokens=1800 + tokens, prompt_tokens=6600)
    assert foreign_load(BEFORE, after, OURS, 0.3, engines=engines) is None
    far = replace(after, generation_tokens=1800 + 10 * tokens)
    assert "foreign load" in (foreign_load(BEFORE, far, OURS, 0.3, engines=engines) or "")


def test_several_engines_count_as_one() -> None:
    one = Counters(finished=3, running=1, kv_usage=0.5, accept_length=2.0, preemptions=1, progress=10)
    other = Counters(finished=4, running=2, kv_usage=0.25, accept_length=3.0, progress=5)
    both = together([one, other])
    assert (both.finished, both.running, both.progress) == (7, 3, 15)
    assert (both.kv_usage, both.accept_length) == (0.5, 2.5)
    assert both.preemptions is None, "what one of them does not count nobody knows of both"
    assert together([one]) == one


def test_an_engine_that_counts_no_tokens_still_counts_requests() -> None:
    found = foreign_load(Counters(finished=10), Counters(finished=19), OURS, 5.0)
    assert "finished 1 requests more" in (found or "")
    assert foreign_load(Counters(), Counters(), OURS, 5.0) is None


def test_a_clock_that_was_set_is_said() -> None:
    assert clock_note(100.2, 100.0) == []
    assert "set -3600.0 s" in clock_note(-3500.0, 100.0)[0]
