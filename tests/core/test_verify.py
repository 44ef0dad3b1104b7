"""Every start is looked at: it sits on the cards that it leased, alone, and its KV pool is what the release had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.alarms import alarms
from controller.core.policy import Policy
from controller.core.records import Attempt, AttemptState, Checked, Kind, Options, Phase, Rollout, State
from controller.core.seen import Gpu, Life, OnCard, PoolSeen, Seen
from controller.core.verify import check_cards, check_pool

ME, OTHER = 71, 72


@pytest.fixture
def started(box, release):
    """`a` leased gpu-0 and gpu-1, which showed 4 MiB, and is ready since 1000 s."""
    made = release("m", gpus=2)
    attempt = Attempt(
        "m-a-2",
        "r0002",
        made.id,
        "a",
        "engine",
        ("gpu-0", "gpu-1"),
        18000,
        1,
        state=AttemptState.READY,
        ready_at_s=1000.0,
        memory_before_mib={"gpu-0": 4, "gpu-1": 4},
    )
    rollouts = {n: Rollout(n, Kind.PROPOSE, made.id, "me", 0.0) for n in ("r0001", "r0002")}
    return attempt, State(releases={made.id: made}, rollouts=rollouts, attempts={attempt.id: attempt})


def card(number: int, used_mib: int | None, *pids: int, **more) -> Gpu:
    listed = tuple(OnCard(pid, 20_000) for pid in pids)
    known = {"memory_total_mib": 81_920, "memory_used_mib": used_mib, "processes": listed, "name": "H", **more}
    return Gpu(f"gpu-{number}", number, **known)


def look(started, *gpus: Gpu, at_s: float | None = 1001.0, why: str = "", before: dict | None = None):
    attempt, state = started
    if before is not None:
        attempt = replace(attempt, memory_before_mib=before)
    other = replace(attempt, id="m-b-1", instance="b", gpus=("gpu-2",))
    state = replace(state, attempts={attempt.id: attempt, other.id: other})
    pids = {attempt.id: (ME,), other.id: (OTHER,)}
    seen = Seen(None, None, gpus=gpus, gpus_at_s=at_s, gpus_why=why, pids=pids)
    return check_cards(attempt, state, seen, Policy())


USED = (card(0, 20_004, ME), card(1, 20_004, ME))
CASES = {
    "as it should be": (USED, "pass", "gpu-0 +20,000 MiB (pid 71); gpu-1 +20,000 MiB (pid 71)"),
    "one card is not used": (
        (USED[0], card(1, 4)),
        "fail",
        "gpu-1 shows 4 MiB in use, 4 MiB before its start, and no process of it is there",
    ),
    "a context and no model": (
        (USED[0], card(1, 404, ME)),
        "inconclusive",
        "gpu-1 shows 404 MiB in use, 4 MiB before its start, and its pid 71 is there",
    ),
    "memory that is nobody's": ((USED[0], card(1, 404)), "inconclusive", "a context, hardly a model"),
    "on a card that it did not lease": (
        (*USED, card(3, 20_000, ME)),
        "fail",
        "its pid 71 holds 20,000 MiB on gpu-3, which it did not lease",
    ),
    "a stranger": (
        (USED[0], card(1, 40_004, ME, 9, foreign=("pid 9 (a job, bob) holds 20000 MiB",))),
        "fail",
        "on gpu-1 is somebody else too: pid 9 (a job, bob) holds 20000 MiB",
    ),
    "another instance of ours": (
        (USED[0], card(1, 40_004, ME, OTHER)),
        "fail",
        "pid 72 of m-b-1, which did not lease it, holds 20,000 MiB",
    ),
    "pids of another namespace": (
        (card(0, 20_004, processes=None), card(1, 20_004, processes=None)),
        "pass",
        "by memory alone: NVML names no process of it",
    ),
    "pids of another namespace, and an idle card": (
        (card(0, 20_004, processes=None), card(1, 4, processes=None)),
        "fail",
        "gpu-1 shows 4 MiB",
    ),
    "NVML lists nothing": ((card(0, 20_004), card(1, 20_004)), "pass", "by memory alone"),
    "a card that cannot be read": (
        (USED[0], card(1, None, trusted=False, why="GPU is lost")),
        "inconclusive",
        "gpu-1 cannot be read (GPU is lost)",
    ),
    "a card that is not listed": (USED[:1], "inconclusive", "gpu-1 cannot be read"),
    "cards without memory": (
        (Gpu("gpu-0", 0), Gpu("gpu-1", 1)),
        "inconclusive",
        "m-a-2: its cards show no memory, so nobody can tell who is on them",
    ),
    "what is wrong is said before what is not known": (
        (card(0, None, trusted=False), card(1, 4)),
        "fail",
        "gpu-1 shows 4 MiB",
    ),
}


@pytest.mark.parametrize(("gpus", "verdict", "said"), CASES.values(), ids=CASES)
def test_where_it_sits(started, gpus, verdict, said):
    check = look(started, *gpus)
    assert (check.name, check.verdict) == ("cards", verdict)
    assert check.sentence.startswith("m-a-2: ")
    assert said in check.sentence


def test_memory_of_before_that_nobody_knows_leaves_the_process(started):
    assert look(started, *USED, before={}).verdict == "pass"
    assert look(started, card(0, 20_004), card(1, 20_004), before={}).verdict == "inconclusive"


def test_a_sleeper_beside_it_is_not_its_own_memory(started):
    """A sleeper's context is no part of what the card showed before, and none of what a start adds."""
    attempt, state = started
    sleeper = replace(attempt, id="m-b-1", instance="b", state=AttemptState.ASLEEP, lent=True)
    state = replace(state, attempts={attempt.id: attempt, sleeper.id: sleeper})
    beside = card(1, 1_304, processes=(OnCard(OTHER, 1_300),))
    seen = Seen(None, None, gpus=(USED[0], beside), gpus_at_s=1001.0, pids={attempt.id: (ME,), sleeper.id: (OTHER,)})
    check = check_cards(attempt, state, seen, Policy())
    assert check.verdict == "fail"
    assert "gpu-1 shows 4 MiB in use, 4 MiB before its start, and no process of it is there" in check.sentence


def test_cards_that_were_read_before_it_was_ready_say_nothing_of_it(started):
    assert look(started, *USED, at_s=999.0) is None
    assert look(started, *USED, at_s=999.0, why="NVML fails") is not None


def test_an_instance_without_cards_is_on_none(started):
    attempt, state = started
    bare = replace(attempt, gpus=())
    seen = Seen(None, None, gpus=USED, gpus_at_s=1001.0, pids={attempt.id: (73,)})
    assert check_cards(bare, state, seen, Policy()).verdict == "pass"
    seen = replace(seen, pids={attempt.id: (ME,)})
    assert check_cards(bare, state, seen, Policy()).verdict == "fail"


# --- KV pool ----------------------------------------------------------------------------------------------------------


def earlier(tokens: int | None, number: int, verdict: str = "pass", **changes) -> Attempt:
    plain = Attempt(f"m-a-{number}", "r0001", "m@00000000", "a", "engine", ("gpu-0", "gpu-1"), 18000, 1)
    return replace(plain, kv_tokens=tokens, checks=(Checked("kv-pool", verdict, ""),), **changes)


def pool(started, tokens: int | None, *before: Attempt, gpus: tuple[Gpu, ...] = USED, **changes) -> Checked:
    attempt, state = started
    attempt = replace(attempt, **changes)
    state = replace(state, attempts={a.id: a for a in (*before, attempt)})
    return check_pool(attempt, state, Seen(None, None, gpus=gpus), Policy(), PoolSeen(tokens, "its log"))


def test_the_first_pool_is_recorded(started):
    check = pool(started, 123_456)
    assert (check.name, check.verdict) == ("kv-pool", "pass")
    assert "room for 123,456 tokens in its KV pool (its log); the first" in check.sentence


def test_a_pool_of_about_the_same_size_passes(started):
    check = pool(started, 96_000, earlier(100_000, 1))
    assert check.verdict == "pass"
    assert "up to 100,000 in the start before" in check.sentence


def test_a_smaller_pool_fails_with_both_numbers_and_the_likely_cause(started):
    check = pool(started, 77_000, earlier(100_000, 1), memory_before_mib={"gpu-0": 4, "gpu-1": 18_000})
    assert check.verdict == "fail"
    assert "77,000 tokens" in check.sentence
    assert "23 % less than the 100,000" in check.sentence
    assert "gpu-1 showed 18,000 MiB in use before its start" in check.sentence
    assert "showed" not in pool(started, 77_000, earlier(100_000, 1)).sentence


def test_a_pool_that_nobody_names_is_no_verdict(started):
    assert pool(started, None, earlier(100_000, 1)).verdict == "inconclusive"


def test_what_a_sleeper_keeps_of_its_cards_rejects_nobody(started):
    sleeper = earlier(None, 7, release="m@11111111", lent=True, state=AttemptState.ASLEEP)
    check = pool(started, 77_000, earlier(100_000, 1), sleeper)
    assert check.verdict == "inconclusive"
    assert "beside m-a-7 (asleep)" in check.sentence
    assert pool(started, 77_000, earlier(100_000, 1), replace(sleeper, gpus=("gpu-7",))).verdict == "fail"


@pytest.mark.parametrize(
    "other",
    [
        earlier(100_000, 1, release="m@11111111"),
        earlier(100_000, 1, instance="b"),
        earlier(100_000, 1, gpus=("gpu-7", "gpu-8")),
        earlier(None, 1),
        earlier(100_000, 1, "fail"),
    ],
    ids=["another release", "another instance", "other cards", "never known", "it failed itself"],
)
def test_only_like_is_compared_with_like(started, other):
    assert pool(started, 50_000, other).verdict == "pass"


def test_other_cards_of_the_same_kind_are_like(started):
    gpus = (*USED, card(2, 4), card(3, 4))
    other = earlier(100_000, 1, gpus=("gpu-2", "gpu-3"))
    assert pool(started, 50_000, other, gpus=gpus).verdict == "fail"
    smaller = (*USED, card(2, 4), card(3, 4, memory_total_mib=40_960))
    assert pool(started, 50_000, other, gpus=smaller).verdict == "pass"


def test_a_smaller_pool_that_somebody_wanted_is_what_counts_from_then_on(started):
    attempt, state = started
    wanted = replace(state.rollouts["r0001"], options=Options(overruled={"kv-pool": "the driver takes more now"}))
    state = replace(state, rollouts={**state.rollouts, "r0001": wanted})
    history = (earlier(100_000, 1, rollout="r0002"), earlier(60_000, 3, "fail"))
    assert pool((attempt, state), 60_000, *history).verdict == "pass"
    assert pool((attempt, state), 50_000, *history).verdict == "fail"


# --- what follows -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(box):
    box.world.memory_mib = dict.fromkeys(range(4), 4)
    return box


def rows(box, rollout: str) -> list[tuple[str, str]]:
    return [(result.gate, result.verdict) for result in box.state.rollouts[rollout].gates]


def test_checks_stand_in_the_record_before_the_gates(cards, release):
    rollout = cards.propose(release("one", gpus=1, instances=2, router=True))
    assert cards.finish(rollout) is Phase.PROMOTED
    checks = [("cards", "pass"), ("kv-pool", "pass")] * 2
    assert rows(cards, rollout) == [*checks, ("health", "pass"), ("toolcalls", "pass")]
    assert cards.state.attempts["one-a-1"].kv_tokens == 100_000


def test_a_candidate_that_does_not_use_its_cards_is_rejected_before_any_gate(cards, release):
    rollout = cards.propose(release("one", gpus=2))
    cards.run(lambda: "one-a-1" in cards.world.processes)
    cards.world.processes["one-a-1"].gpus = ("gpu-0",)
    assert cards.finish(rollout) is Phase.REJECTED
    assert rows(cards, rollout) == [("cards", "fail"), ("kv-pool", "pass")]
    assert cards.state.rollouts[rollout].why.startswith("check cards: one-a-1: gpu-1 shows 4 MiB in use")


def test_who_knows_better_overrules_it(cards, release):
    rollout = cards.propose(release("one", gpus=2), overruled={"cards": "it loads on demand"})
    cards.run(lambda: "one-a-1" in cards.world.processes)
    cards.world.processes["one-a-1"].gpus = ("gpu-0",)
    assert cards.finish(rollout) is Phase.PROMOTED
    assert rows(cards, rollout)[0] == ("cards", "fail")
    assert cards.state.rollouts[rollout].gates[0].observe
    assert not [
        text for text in alarms(cards.state, cards.world.observe(cards.state), cards.loop.policy) if "cards" in text
    ]


def test_a_pool_that_shrank_rejects_the_second_start(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.world.kv_tokens = 70_000
    again = box.propose(release("one", gpus=1), Kind.RESTART, force=True)
    assert box.finish(again) is Phase.REJECTED
    assert "30 % less than the 100,000" in box.state.rollouts[again].why
    assert box.state.is_served()


def test_an_instance_of_live_that_is_started_again_serves_and_rings(cards, release):
    rollout = cards.propose(release("one", gpus=1))
    cards.finish(rollout)
    before = rows(cards, rollout)
    cards.world.kv_tokens = 50_000
    cards.world.processes["one-a-1"].life = Life.EXITED
    cards.run(lambda: "one-a-2" in cards.state.attempts and bool(cards.state.attempts["one-a-2"].checks))
    assert cards.state.is_served()
    assert [c.verdict for c in cards.state.attempts["one-a-2"].checks] == ["pass", "fail"]
    said = alarms(cards.state, cards.world.observe(cards.state), cards.loop.policy)
    assert any("live serves, and kv-pool is not as it should be: one-a-2 has room for 50,000" in text for text in said)
    assert rows(cards, rollout) == before


def test_in_a_rolling_the_instances_that_follow_are_looked_at_too(cards, release):
    cards.finish(cards.propose(release("one", gpus=2, instances=2)))
    rollout = cards.propose(release("two", gpus=2, instances=2), strategy="rolling")
    cards.run(lambda: "two-b-4" in cards.world.processes)
    assert cards.phase(rollout) is Phase.COMPLETING
    cards.world.processes["two-b-4"].gpus = (
        ("gpu-3",) if "gpu-3" in cards.state.attempts["two-b-4"].gpus else ("gpu-0",)
    )
    assert cards.finish(rollout) is Phase.ROLLED_BACK
    assert ("cards", "fail") in rows(cards, rollout)
    cards.run(lambda: len(cards.state.seat_attempts(cards.state.live)) == 2)


def test_what_is_never_read_holds_nobody_up(box, release):
    """The thread that reads logs hangs: the start goes on after ten seconds, and the record says so."""
    rollout = box.propose(release("one", gpus=1))
    box.world.reads_logs = False
    assert box.finish(rollout) is Phase.PROMOTED
    assert rows(box, rollout)[:2] == [("cards", "inconclusive"), ("kv-pool", "inconclusive")]
    assert "not read within 10 s" in box.state.rollouts[rollout].gates[1].sentence
