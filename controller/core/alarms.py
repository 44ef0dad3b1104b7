"""What a human must know now, in sentences: nothing here is decided, everything here needs somebody. Pure."""

from __future__ import annotations

from .desired import desired_route
from .policy import Policy
from .records import Attempt, AttemptState, Phase, State
from .restarts import given_up, pause_left_s
from .route import differs
from .seats import missing_instances
from .seen import Life, Seen
from .takeover import is_lost, last_takeover
from .verify import is_overruled

STOP_SLACK_S = 30.0
LAST_WORDS = 200  # characters of an engine's last line
LIVE, PREVIOUS, CANDIDATE, LEAVING = "live", "previous", "candidate", "leaving"
HEALS = {
    LIVE: "`cutover restart` heals that",
    PREVIOUS: "a way back it is all the same; `cutover restart` heals it once it is live again",
    CANDIDATE: "once it is live, `cutover restart` heals that; `cutover abort` ends it",
    LEAVING: "the daemon ends it as soon as nobody is on it any more",
}
"""What becomes of an engine whose shim is dead, by whose it is. Nobody has to end one: it may serve users."""


def alarms(state: State, seen: Seen, policy: Policy) -> list[str]:
    """Live instances that nobody starts any more, stops that do not end, engines without a shim, a silent door."""
    found = [
        *_took_over(state),
        *_keeps_dying(state),
        *_live_down(state, seen, policy),
        *_misplaced(state),
        *_slow_stops(state, seen),
    ]
    found += [
        f"the shim of {name} is dead, its engine lives on and its end will not be known: {HEALS[_role(state, name)]}"
        for name, process in seen.processes.items()
        if process.life is Life.STRAYS and state.attempts[name].state is AttemptState.READY
    ]
    found += [
        f"{gpu} is quarantined: {closed.why}; {_way_out(gpu, unseen=closed.unseen)}"
        for gpu, closed in state.closed.items()
        if not closed.by
    ]
    if seen.gpus_why:
        found.append(f"the GPUs cannot be read: {seen.gpus_why}; no rollout begins until they can")
    if not seen.door.alive:
        found.append(f"the front door does not answer: {seen.door.why or 'not started'}")
    return found + _door_refuses(state, seen, policy)


def _role(state: State, name: str) -> str:
    for role, seat in ((LIVE, state.live), (PREVIOUS, state.previous)):
        if seat is not None and any(a.id == name for a in state.seat_attempts(seat)):
            return role
    return CANDIDATE


def _door_refuses(state: State, seen: Seen, policy: Policy) -> list[str]:
    refused = seen.route_refused
    if refused is None or not seen.door.alive or not differs(desired_route(state, policy), seen.door):
        return []
    goes_on = "what it served goes on, and nothing new begins; `cutover doctor` looks at it"
    return [f"the front door does not take its route ({refused.why}): {goes_on}"]


def _keeps_dying(state: State) -> list[str]:
    """What was given up: what it said last, what that means for users, and what to do."""
    if state.live is None:
        return []
    gone = given_up(state, state.live)
    if not gone:
        return []
    users = "nobody is served" if is_lost(state) else "what is left of live serves on"
    way_out = "`cutover rollback` goes to the release before" if state.previous else "`cutover propose` another"
    return [
        f"live keeps dying: instance {a.instance} of {a.release}: {a.given_up}; its last words: {_last_words(a)}; "
        f"{users}; `cutover logs {a.id}` has its log, `cutover restart` starts all of it anew, {way_out}"
        for a in gone
    ]


def _took_over(state: State) -> list[str]:
    """A release that nobody asked for serves, or should: for as long as no person has decided who does."""
    rollout = last_takeover(state)
    if rollout is None or rollout.instead_of is None:
        return []
    said = f"{rollout.instead_of.release} kept dying and {rollout.release}"
    about = f"`cutover show {rollout.id}`"
    if rollout.phase is Phase.ROLLED_BACK:
        again = "when it keeps dying too, nobody takes over: `cutover propose` what is to be live, or `cutover restart`"
        return [f"{said} took over by itself ({about}); {again}"]
    if rollout.ended_wall_s is not None:
        return [f"{said} did not take over: {rollout.why} ({about}); nobody else does"]
    return [f"{said} takes over ({about})"]


def _last_words(attempt: Attempt) -> str:
    """How it ended, and the last line of its log."""
    lines = [line.strip() for line in attempt.log_tail.splitlines() if line.strip()]
    return f"{attempt.why}; {lines[-1][:LAST_WORDS]}" if lines else attempt.why


def _live_down(state: State, seen: Seen, policy: Policy) -> list[str]:
    if state.live is None:
        return []
    missing = {name: state.attempts_of(state.live, name) for name in missing_instances(state, state.live)}
    if not missing and not any(a.is_in_bed for a in state.seat_attempts(state.live)):
        return []
    held = {a.instance for a in state.seat_attempts(state.live)}
    active = state.active
    by_plan = {a.instance for a in state.attempts.values() if active is not None and a.gave_way_to == active.id}
    way_out = "`cutover rollback` goes to the release before" if state.previous else "`cutover propose` another"
    return [
        f"live instance {name} is down and is not started again, its cards are taken: "
        f"`cutover show {state.live.rollout}` says why; {way_out}"
        for name, mine in missing.items()
        if name not in held and name not in by_plan
        if not mine[-1].given_up and pause_left_s(mine, seen, policy) <= 0
    ] + [
        f"live instance {a.instance} sleeps and is not woken: "
        + "; ".join(
            f"{gpu} is {state.closed[gpu].word} ({state.closed[gpu].why})" for gpu in a.gpus if gpu in state.closed
        )
        for a in state.seat_attempts(state.live)
        if a.state is AttemptState.ASLEEP and a.instance not in by_plan and set(a.gpus) & set(state.closed)
    ]


def _misplaced(state: State) -> list[str]:
    """What serves although its start was found wrong: production is not taken down for it."""
    if state.live is None:
        return []
    return [
        f"live serves, and {check.name} is not as it should be: {check.sentence}"
        for attempt in state.seat_attempts(state.live)
        for check in attempt.checks
        if check.verdict == "fail" and not is_overruled(state.rollouts[attempt.rollout], check.name)
    ]


def _slow_stops(state: State, seen: Seen) -> list[str]:
    late = []
    for attempt in state.held:
        if attempt.state is not AttemptState.STOPPING:
            continue
        since_s = seen.now.boot_s - attempt.state_since_s
        if since_s > state.releases[attempt.release].stop_grace_s + STOP_SLACK_S:
            cards = ", ".join(attempt.gpus) or "no card"
            late.append(f"{attempt.id} does not end since {since_s:.0f} s (shim pid {attempt.pid}) and holds {cards}")
    return late


def _way_out(gpu: str, *, unseen: bool) -> str:
    if unseen:
        return "look at `cutover gpus` and `dmesg`; it can be had again by itself once it is there"
    return f"look at `cutover gpus`, then `cutover uncordon {gpu}`"
