"""After a start: does the instance sit on the cards that it leased, and is its KV pool what this release had? Pure.

An engine that generates may still be wrong about its place: it leased two cards and computes on one, somebody else's
job sits on them too, or its KV pool is a third smaller than yesterday because of that. Every start is looked at once,
as soon as it is ready. What is wrong with a candidate rejects it; what is wrong with live is an alarm, and production
stays up. What cannot be told (no memory is shown, the log says nothing) blocks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import actions as act
from .actions import Decision
from .cards import told_apart_mib
from .policy import Policy
from .records import Attempt, AttemptState, Checked, GateResult, Phase, Rollout, Seat, State
from .seen import Gpu, OnCard, PoolSeen, Seen

CARDS = "cards"
KV_POOL = "kv-pool"
CHECKS = (CARDS, KV_POOL)

PATIENCE_S = 10.0  # for a reading of the cards and of the log that is younger than the start: five readings of NVML
# A CUDA context alone takes 200 to 600 MiB, depending on the card and the modules that it loads: less is nobody.
NOBODY_MIB = 64
# Engines take a share of the card less what a profiling run needed, and that asks the same every time: two starts of
# one release on one kind of card differ by far less. A job that took a tenth of the card is seen.
POOL_TOLERANCE = 0.05
REMEMBERED = 5  # earlier starts that a pool is compared with: a box that changed for good is forgiven after so many

_NOTHING_SHOWN = "its cards show no memory, so nobody can tell who is on them"
_WORST_FIRST = ("fail", "inconclusive", "pass")


# --- who is looked at, and what follows -------------------------------------------------------------------------------


def verify_ready(state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Look once at every engine that has become ready."""
    for attempt in state.held:
        if not is_due(attempt):
            continue
        overdue = seen.now.boot_s - (attempt.ready_at_s or 0.0) > PATIENCE_S
        pool = seen.kv_pools.get(attempt.id)
        cards = check_cards(attempt, state, seen, policy)
        if (cards is None or pool is None) and not overdue:
            continue
        checks = (
            cards or Checked(CARDS, "inconclusive", f"{attempt.id}: NVML was not read within {PATIENCE_S:.0f} s"),
            check_pool(attempt, state, seen, policy, pool or PoolSeen(None, f"not read within {PATIENCE_S:.0f} s")),
        )
        said = "; ".join(f"{check.name} {check.verdict}: {check.sentence}" for check in checks)
        return Decision(act.RecordChecks(attempt.id, checks, pool.tokens if pool else None), said)
    return None


def is_due(attempt: Attempt) -> bool:
    """Whether it has become ready and was not looked at yet."""
    return not attempt.checks and attempt.role != "router" and attempt.state is AttemptState.READY


def unverified(state: State, seat: Seat) -> bool:
    """Whether an engine of the seat that is ready has still to be looked at."""
    return any(is_due(attempt) for attempt in state.seat_attempts(seat))


def is_overruled(rollout: Rollout, check: str) -> bool:
    """Whether who asked for the rollout wants it although this check fails."""
    return check in rollout.options.overruled


def check_results(
    rollout: Rollout, attempt: str, checks: tuple[Checked, ...], kv_tokens: int | None
) -> tuple[GateResult, ...]:
    """The checks as rows of the rollout's record. A failure stops nothing where it is what production comes back to."""
    comes_back = rollout.phase is Phase.ROLLING_BACK
    return tuple(
        GateResult(
            gate=check.name,
            index=-1,
            run=f"{rollout.id}-{check.name}-{attempt}",
            verdict=check.verdict,
            sentence=check.sentence,
            observe=comes_back or is_overruled(rollout, check.name),
            measurements={"kv_tokens": kv_tokens} if check.name == KV_POOL and kv_tokens is not None else {},
        )
        for check in checks
    )


def what_is_wrong(state: State, seat: Seat) -> Checked | None:
    """The first failed check of an attempt that the seat still has, unless it was overruled."""
    for attempt in state.seat_attempts(seat):
        for check in attempt.checks:
            if check.verdict == "fail" and not is_overruled(state.rollouts[attempt.rollout], check.name):
                return check
    return None


# --- cards ------------------------------------------------------------------------------------------------------------


def check_cards(attempt: Attempt, state: State, seen: Seen, policy: Policy) -> Checked | None:
    """Whether it is on every card that it leased, alone, and on no other; None: the cards were not read since.

    `seen.gpus_at_s` is None where nothing is ever read: declared cards.
    """
    if seen.gpus_at_s is not None and seen.gpus_at_s < (attempt.ready_at_s or 0.0) and not seen.gpus_why:
        return None
    pids = frozenset(seen.pids.get(attempt.id, ()))
    elsewhere = [("fail", text) for text in _elsewhere(attempt, seen, pids)]
    cards = {gpu.id: gpu for gpu in seen.gpus}
    found = elsewhere + [_on(attempt, name, cards.get(name), state, seen, policy) for name in attempt.gpus]
    verdict = next((word for word in _WORST_FIRST if any(word == v for v, _ in found)), "pass")
    said = "; ".join(dict.fromkeys(text for v, text in found if v == verdict)) or "it leased no card and is on none"
    remedy = "; let its flags use what it leases (`instances`), and nothing else" if verdict == "fail" else ""
    return Checked(CARDS, verdict, f"{attempt.id}: {said}{remedy}")


def _elsewhere(attempt: Attempt, seen: Seen, pids: frozenset[int]) -> Iterator[str]:
    for gpu in seen.gpus:
        for process in gpu.processes or ():
            if process.pid in pids and gpu.id not in attempt.gpus:
                yield f"its pid {process.pid} holds {_mib(process.memory_mib)} on {gpu.id}, which it did not lease"


def _on(attempt: Attempt, name: str, gpu: Gpu | None, state: State, seen: Seen, policy: Policy) -> tuple[str, str]:
    """One leased card: verdict and what is said of it."""
    if gpu is None or not gpu.trusted:
        return "inconclusive", f"{name} cannot be read" + (f" ({gpu.why})" if gpu is not None and gpu.why else "")
    if intruders := [*gpu.foreign, *_other_attempts(attempt, gpu, state, seen)]:
        return "fail", f"on {name} is somebody else too: {intruders[0]}"
    others = {pid for name, pids in seen.pids.items() if name != attempt.id for pid in pids}
    used_mib = told_apart_mib(gpu, others)  # as what was there before was counted
    if used_mib is None:
        return "inconclusive", _NOTHING_SHOWN
    mine = [process for process in gpu.processes or () if process.pid in seen.pids.get(attempt.id, ())]
    before_mib = attempt.memory_before_mib.get(name)
    if before_mib is None:
        return _by_process(name, mine)
    more_mib = used_mib - before_mib
    change = f"{name} shows {_mib(used_mib)} in use, {_mib(before_mib)} before its start"
    if more_mib > policy.memory_slack_mib:
        by = f"pid {mine[0].pid}" if mine else "by memory alone: NVML names no process of it"
        return "pass", f"{name} +{_mib(more_mib)} ({by})"
    if mine:
        return "inconclusive", f"{change}, and its pid {mine[0].pid} is there: a context, hardly a model"
    if more_mib >= NOBODY_MIB:
        return "inconclusive", f"{change}: a context, hardly a model"
    return "fail", f"{change}, and no process of it is there"


def _by_process(name: str, mine: list[OnCard]) -> tuple[str, str]:
    if not mine:
        return "inconclusive", f"nobody knows what {name} showed before its start"
    return "pass", f"its pid {mine[0].pid} holds {_mib(mine[0].memory_mib)} on {name}"


def _other_attempts(attempt: Attempt, gpu: Gpu, state: State, seen: Seen) -> Iterator[str]:
    """Processes of ours on this card whose attempt has no business there. One that sleeps there, or ends, has."""
    owners = {pid: name for name, pids in seen.pids.items() for pid in pids if name != attempt.id}
    for process in gpu.processes or ():
        other = state.attempts.get(owners.get(process.pid, ""))
        if other is not None and gpu.id not in other.gpus:
            yield f"pid {process.pid} of {other.id}, which did not lease it, holds {_mib(process.memory_mib)}"


def _mib(value: int | None) -> str:
    return "memory that NVML does not tell" if value is None else f"{value:,} MiB"


# --- KV pool ----------------------------------------------------------------------------------------------------------


def check_pool(attempt: Attempt, state: State, seen: Seen, policy: Policy, pool: PoolSeen) -> Checked:
    """Whether its KV pool has the room that this instance of this release had on such cards before."""
    if pool.tokens is None:
        return Checked(KV_POOL, "inconclusive", f"{attempt.id}: the size of its KV pool is not known: {pool.source}")
    said = f"{attempt.id} has room for {pool.tokens:,} tokens in its KV pool ({pool.source})"
    earlier = _accepted_pools(attempt, state, seen)
    if not earlier:
        return Checked(KV_POOL, "pass", f"{said}; the first such start on such cards, kept to compare with")
    best = max(earlier)
    if pool.tokens >= best * (1 - POOL_TOLERANCE):
        return Checked(KV_POOL, "pass", f"{said}; up to {best:,} in {_starts(len(earlier))} before")
    less = 100 * (1 - pool.tokens / best)
    if sleepers := _sleepers(attempt, state):
        beside = f"{less:.0f} % less than the {best:,} of an earlier start, beside {sleepers}"
        return Checked(KV_POOL, "inconclusive", f"{said}, {beside}")
    return Checked(
        KV_POOL,
        "fail",
        f"{said}, {less:.0f} % less than the {best:,} of an earlier start of this release: something else probably had "
        f"memory of its cards{_what_they_showed(attempt, policy)}; `cutover gpus` shows who is on them",
    )


def _sleepers(attempt: Attempt, state: State) -> str:
    """Who sleeps on its cards: their CUDA contexts stay there, and some engines take what is free for the pool."""
    cards = set(attempt.gpus)
    lent = (other for other in state.held if other.lent and cards & set(other.gpus))
    return ", ".join(f"{other.id} (asleep)" for other in lent)


def _accepted_pools(attempt: Attempt, state: State, seen: Seen) -> tuple[int, ...]:
    """What the last few good starts had. One that somebody wanted although it was smaller begins the count anew."""
    pools: list[int] = []
    for other in state.attempts.values():
        same = (other.release, other.instance) == (attempt.release, attempt.instance) and other.id != attempt.id
        if not same or other.kv_tokens is None or _kinds(other.gpus, seen) != _kinds(attempt.gpus, seen):
            continue
        failed = any(check.name == KV_POOL and check.verdict == "fail" for check in other.checks)
        if failed and is_overruled(state.rollouts[other.rollout], KV_POOL):
            pools.clear()
        elif failed:
            continue
        pools.append(other.kv_tokens)
    return tuple(pools[-REMEMBERED:])


def _kinds(gpus: tuple[str, ...], seen: Seen) -> list[tuple[str, int]]:
    """Cards of one name and size are alike; a pool on 80 GB says nothing about one on 24."""
    known = {gpu.id: (gpu.name, gpu.memory_total_mib or 0) for gpu in seen.gpus}
    return sorted(known.get(name, (name, 0)) for name in gpus)


def _starts(count: int) -> str:
    return "the start" if count == 1 else f"the {count} starts"


def _what_they_showed(attempt: Attempt, policy: Policy) -> str:
    strangers = attempt.strangers_before_mib
    used = {name: mib + strangers.get(name, 0) for name, mib in attempt.memory_before_mib.items()}
    name, used_mib = max(used.items(), key=lambda item: item[1], default=("", 0))
    whose = f", {_mib(strangers[name])} of them a stranger's" if name in strangers else ""
    shown = f" ({name} showed {_mib(used_mib)} in use before its start{whose})"
    return shown if used_mib > policy.memory_slack_mib else ""
