"""How often an instance of live is started again, how soon, and when nobody does any more. Pure.

Everything is read off the journalled attempts, so that a daemon that begins anew counts on. A reboot begins a new
count: what it did to cards and drivers nobody knows. What was given up stays given up, whoever is restarted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from . import actions as act
from .actions import Decision
from .policy import Policy
from .records import Attempt, AttemptState, Release, Seat, State
from .remembered import remembered
from .seats import missing_instances
from .seen import Seen


def has_died(attempt: Attempt) -> bool:
    """It ended by itself, fell silent or never came up; what made room, or was not needed any more, did not."""
    return attempt.hurry and attempt.gave_way_to is None and not attempt.is_staying


def deaths_in_a_row(mine: Sequence[Attempt], seen: Seen, policy: Policy) -> int:
    """How often an instance died since it last served for `restart_window_s` or left in good health, or since the boot.

    `mine`: every attempt that it had in its seat, in order.
    """
    count = 0
    for attempt in reversed(mine):
        left_well = attempt.ready_at_s is not None and not attempt.hurry and not attempt.is_staying
        if attempt.boot_id != seen.now.boot_id or left_well:
            break
        count += has_died(attempt)
        if longest_service_s(attempt, seen.now.boot_s) >= policy.restart_window_s:
            break
    return count


def longest_service_s(attempt: Attempt, now_s: float) -> float:
    """The longest time that it was ready without a break, a sleep being one."""
    begun = (attempt.ready_at_s, *(nap.ready_at_s for nap in attempt.naps))
    ended = (*(nap.retired_at_s for nap in attempt.naps), now_s if attempt.is_staying else attempt.retired_at_s)
    spans = zip(begun, ended, strict=True)
    return max((end - begin for begin, end in spans if begin is not None and end is not None), default=0.0)


def pause_s(deaths: int, policy: Policy) -> float:
    """What lies between the end of an instance and its next start: nothing after the first death, then ever more."""
    return min(policy.restart_pause_s * 2 ** (deaths - 2), policy.restart_pause_max_s) if deaths > 1 else 0.0


def pause_left_s(mine: Sequence[Attempt], seen: Seen, policy: Policy) -> float:
    """Seconds until this instance may be started again; 0: now."""
    last = mine[-1]
    if not has_died(last) or last.stopped_at_s is None:
        return 0.0
    return max(0.0, pause_s(deaths_in_a_row(mine, seen, policy), policy) - (seen.now.boot_s - last.stopped_at_s))


def give_up(mine: Sequence[Attempt], seen: Seen, policy: Policy) -> Decision | None:
    """Its budget is spent: nobody starts it again but a person."""
    last, deaths = mine[-1], deaths_in_a_row(mine, seen, policy)
    if deaths <= policy.restart_budget or last.is_staying:
        return None
    often = f"{deaths} times, and no restart of it served for {policy.restart_window_s:.0f} s" if deaths > 1 else "once"
    return Decision(act.GiveUp(last.id), f"it died {often}: it is not started again")


@remembered
def given_up(state: State, seat: Seat) -> tuple[Attempt, ...]:
    """The last attempt of every instance of the seat that is down and that nobody starts again."""
    last = (state.attempts_of(seat, name)[-1] for name in missing_instances(state, seat))
    return tuple(attempt for attempt in last if attempt.given_up)


def stands_before_nobody(release: Release, name: str, gone: Collection[str]) -> bool:
    """Whether this is a router, and all engines behind it are given up; where one is left, it serves with that."""
    after = release.instance(name).start_after
    return bool(after) and set(after) <= set(gone)


def paused(state: State, seen: Seen, policy: Policy) -> tuple[str, float] | None:
    """An instance of live that waits for its next start, and for how many seconds still."""
    if state.live is None:
        return None
    for name in missing_instances(state, state.live):
        mine = state.attempts_of(state.live, name)
        if mine[-1].state is AttemptState.STOPPED and not mine[-1].given_up:
            left_s = pause_left_s(mine, seen, policy)
            if left_s > 0:
                return name, left_s
    return None
