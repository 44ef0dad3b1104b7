"""A stranger sits on a card when an attempt of ours is planned there: what it has is not what the card shows empty."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from fake_world import Box, FakeProcess
from sleepy_world import LEFTOVER_MIB, SleepyWorld

from controller.core.policy import Policy
from controller.core.records import AttemptState, Nap, Seat, State
from controller.core.seats import new_attempts
from controller.core.seen import Gpu, Life, OnCard, Seen
from controller.core.sleep import not_taken_again, used_mib
from controller.loop import Loop
from controller.store.journal import Journal

EMPTY_MIB = 10
ENGINE_MIB = FakeProcess.memory_mib
STRANGER_MIB = 9_000


@dataclass
class SharedWorld(SleepyWorld):
    """Cards that say what strangers have of them."""

    strangers_mib: dict[int, int] = field(default_factory=dict)

    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(self._shared(gpu, self.strangers_mib.get(gpu.index, 0)) for gpu in super()._gpus())

    def _shared(self, gpu: Gpu, mib: int) -> Gpu:
        foreign = (f"pid 7 (a job) holds {mib} MiB",) if mib else ()
        return replace(gpu, memory_used_mib=(gpu.memory_used_mib or 0) + mib, foreign=foreign, strangers_mib=mib)


@pytest.fixture
def shared(tmp_path, release):
    """Live, on gpu-0, died of a stranger who came there, and was started again beside it."""
    journal = Journal(tmp_path / "journal.sqlite")
    world = SharedWorld(memory_mib=dict.fromkeys(range(4), EMPTY_MIB))
    box = Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    box.finish(box.propose(release("one", gpus=1)))
    world.strangers_mib[0] = STRANGER_MIB
    die(box, "one-a-1")
    box.run(lambda: "one-a-2" in world.processes)
    yield box
    journal.close()


def die(box: Box, attempt: str) -> None:
    process = box.world.processes[attempt]
    process.life, process.sentence = Life.EXITED, "out of memory"


def test_what_leaks_once_the_stranger_is_gone_is_found(shared):
    shared.run(lambda: shared.state.attempts["one-a-2"].state is AttemptState.READY)
    shared.world.strangers_mib.clear()
    shared.world.memory_mib[0] = EMPTY_MIB + ENGINE_MIB  # as much as the stranger had, nearly
    die(shared, "one-a-2")
    shared.run(lambda: "gpu-0" in shared.state.closed)
    assert f"gpu-0 shows {EMPTY_MIB + ENGINE_MIB} MiB in use" in shared.state.closed["gpu-0"].why
    shared.world.memory_mib[0] = EMPTY_MIB
    shared.run(lambda: not shared.state.closed)


def test_what_leaks_beside_the_stranger_is_found_too(shared):
    shared.run(lambda: shared.state.attempts["one-a-2"].state is AttemptState.READY)
    shared.world.memory_mib[0] = EMPTY_MIB + ENGINE_MIB
    die(shared, "one-a-2")
    shared.run(lambda: "gpu-0" in shared.state.closed)
    assert f"{STRANGER_MIB} of them a stranger's" in shared.state.closed["gpu-0"].why


def test_a_card_whose_stranger_is_all_that_is_left_is_given_back(shared):
    shared.run(lambda: shared.state.attempts["one-a-2"].state is AttemptState.READY)
    die(shared, "one-a-2")
    shared.run(lambda: shared.state.attempts["one-a-2"].state is AttemptState.STOPPED)
    assert not shared.state.closed


def test_an_engine_that_loaded_while_the_stranger_left_sits_on_its_card(shared):
    shared.world.strangers_mib.clear()
    shared.run(lambda: bool(shared.state.attempts["one-a-2"].checks))
    cards = shared.state.attempts["one-a-2"].checks[0]
    assert (cards.verdict, cards.sentence) == (
        "pass",
        f"one-a-2: gpu-0 +{ENGINE_MIB:,} MiB (by memory alone: NVML names no process of it)",
    )


def test_a_pool_that_is_smaller_is_told_whose_memory_it_was(shared):
    shared.world.kv_tokens = 60_000
    shared.world.strangers_mib.clear()
    shared.run(lambda: bool(shared.state.attempts["one-a-2"].checks))
    pool = shared.state.attempts["one-a-2"].checks[1]
    assert pool.verdict == "fail"
    assert "(gpu-0 showed 9,010 MiB in use before its start, 9,000 MiB of them a stranger's)" in pool.sentence


@pytest.mark.parametrize(("asleep_beside", "awake_beside"), [(STRANGER_MIB, 0), (0, STRANGER_MIB)])
def test_who_wakes_is_not_judged_by_a_stranger(shared, asleep_beside, awake_beside):
    """One that left while it slept makes no wake an empty one, and one that came hides none."""
    shared.run(lambda: shared.state.attempts["one-a-2"].state is AttemptState.READY)
    attempt = shared.state.attempts["one-a-2"]

    def look(stranger_mib: int, engine_mib: int) -> Seen:
        shared.world.strangers_mib[0], shared.world.processes[attempt.id].memory_mib = stranger_mib, engine_mib
        return shared.world.observe(shared.state)

    nap = Nap("r0001", 0.0, 0.0, used_mib(attempt, look(asleep_beside, ENGINE_MIB)))
    woken = replace(attempt, naps=(nap,))
    assert not_taken_again(woken, look(awake_beside, ENGINE_MIB)) == ""
    assert "before its sleep it was 8010" in not_taken_again(woken, look(awake_beside, LEFTOVER_MIB))


# --- what a card shows when it is empty -------------------------------------------------------------------------------

ASLEEP = 71


@pytest.mark.parametrize(
    ("gpu", "before_mib", "strangers_mib"),
    [
        (Gpu("gpu-0", 0, memory_used_mib=600, strangers_mib=0), 600, None),
        (Gpu("gpu-0", 0, memory_used_mib=9_600, strangers_mib=9_000), 600, 9_000),
        (Gpu("gpu-0", 0, memory_used_mib=1_900, strangers_mib=0, processes=(OnCard(ASLEEP, 1_300),)), 600, None),
        # What nobody tells stays in: it may be the card's own.
        (Gpu("gpu-0", 0, memory_used_mib=9_600, foreign=("pid 9 (a job)",)), 9_600, None),
        (Gpu("gpu-0", 0, memory_used_mib=1_900, strangers_mib=0, processes=(OnCard(ASLEEP, None),)), 1_900, None),
        # A stranger who ended between the two questions: the card is not below empty.
        (Gpu("gpu-0", 0, memory_used_mib=600, strangers_mib=9_000), 600, None),
        (Gpu("gpu-0", 0), None, None),
    ],
    ids=["empty", "a stranger", "a sleeper", "not told", "a sleeper's not told", "two moments", "no memory"],
)
def test_only_what_stays_when_everybody_leaves_is_what_it_shows_empty(release, gpu, before_mib, strangers_mib):
    made = release("m", gpus=1)
    seen = Seen(None, None, gpus=(gpu,), pids={"sleeper": (ASLEEP,)})
    state = State(releases={made.id: made})
    (attempt,) = new_attempts(state, seen, Policy(), Seat(made.id, "r0001"), {"a": ("gpu-0",)})
    assert attempt.memory_before_mib.get("gpu-0") == before_mib
    assert attempt.strangers_before_mib.get("gpu-0") == strangers_mib
