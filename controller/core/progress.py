"""What the active rollout does next, phase by phase. Pure."""

from __future__ import annotations

from typing import Any

from . import actions as act
from .actions import Decision
from .bake import all_asked, bake_s, baseline, failures_of, problems, with_probe
from .cards import Refusal, holders, no_places, shows
from .frozen import replace
from .plan import make_plan
from .policy import Policy
from .records import AttemptState, GateResult, Kind, Phase, Rollout, State
from .restarts import paused
from .returning import rolling_back
from .room import Strategy
from .rules_nights import has_become_loud, refused
from .seats import all_ready, ask_to_leave, heard_since, is_fresh, missing_instances, move, new_attempts
from .seen import Gpu, Seen
from .sleep import sleeps_whole
from .table import DEADLINE_S, Event
from .verify import unverified, what_is_wrong

PORT_TRIES = 8  # blocks of ports that are looked at for one instance
HEARD_WITHIN_S = 35.0  # a probe that is not answered ends before that
GATE_TRIES = 2  # an inconclusive gate gets one more try


def deadline_s(rollout: Rollout, state: State, policy: Policy) -> float:
    """How long the rollout may stay in its phase."""
    base_s = DEADLINE_S[rollout.phase]
    if rollout.phase is Phase.STARTING:
        return base_s + _starts_s(rollout, state, policy)
    if rollout.phase in {Phase.ROLLING_BACK, Phase.COMPLETING}:
        return base_s + _starts_s(rollout, state, policy) + _room_s(rollout, state, policy)
    if rollout.phase is Phase.LEASING:
        return base_s + _room_s(rollout, state, policy)
    if rollout.phase is Phase.GATING:
        return base_s + GATE_TRIES * sum(float(step["deadline_s"]) for step in rollout.profile)
    if rollout.phase is Phase.AWAITING_APPROVAL:
        return policy.approval_s if rollout.options.approval_s is None else rollout.options.approval_s
    if rollout.phase is Phase.BAKING:
        return base_s + bake_s(rollout, policy) + policy.prefill_s  # it ends with tokens, and a prompt may be long
    return base_s


def _starts_s(rollout: Rollout, state: State, policy: Policy) -> float:
    release = state.releases[(rollout.target.release if rollout.target else None) or rollout.release]
    return ((release.start_timeout_s or policy.start_s) + policy.settle_s) * len(release.instances)


def _room_s(rollout: Rollout, state: State, policy: Policy) -> float:
    """Whoever makes room drains first, and then has its grace."""
    makes_room = rollout.planned("gives_way") or any(a.gave_way_to == rollout.id for a in state.attempts.values())
    grace_s = max((r.stop_grace_s for r in state.releases.values()), default=0.0)
    room_s = (policy.drain_s if makes_room else 0.0) + grace_s
    if policy.sleep:  # to fall asleep, or not to; on the way back to wake up besides
        room_s += policy.sleep_deadline_s * (2 if rollout.phase is Phase.ROLLING_BACK else 1)
    return room_s


# --- phases -----------------------------------------------------------------------------------------------------------


def preflight(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    release = state.releases[rollout.release]
    if paused(state, seen, policy):
        return None  # live waits for its next start, and its cards only look free
    plan = make_plan(state, release, seen.gpus, policy, options=rollout.options, profile=rollout.profile)
    if isinstance(plan, Refusal):
        # Nobody knows of the cards just now: that is no reason to refuse, and none to go on.
        return None if seen.gpus_why else refused(rollout, plan.sentence)
    if loud := has_become_loud(rollout, plan, seen, policy):
        return refused(rollout, loud)
    wanted = rollout.options.plan_digest
    if wanted is not None and wanted != plan.digest:
        return move(rollout, Event.REFUSED, f"the world has changed: the plan is {plan.digest} now, not {wanted}")
    if _is_unheard(rollout, state, seen):
        return None
    cards = ", ".join(gpu for gpus in plan.gpu_map.values() for gpu in gpus) or "no cards"
    gives = "gives" if len(plan.gives_way) == 1 else "give"
    why = f"{plan.strategy} on {cards}" + (f"; {', '.join(plan.gives_way)} {gives} way" if plan.gives_way else "")
    return Decision(act.AdoptPlan(rollout.id, plan.as_json(), plan.gpu_map, baseline(state, seen, policy)), why)


def _is_unheard(rollout: Rollout, state: State, seen: Seen) -> bool:
    """Live serves since a moment ago, after a dark time or under a new daemon, and nobody has asked it anything yet.

    Its answers are what the bake compares with: without them whatever comes would be as good.
    """
    spent_s = seen.now.boot_s - rollout.phase_since_s
    return state.is_served() and seen.door.alive and "public" not in seen.probes and spent_s < HEARD_WITHIN_S


def leasing(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Whoever the plan says gives way is stopped first; a lease begins when its cards are free."""
    held = holders(state)
    first = rollout.planned("first")
    needed = {gpu for name in first for gpu in rollout.gpu_map.get(name, ())}
    blockers = {held[gpu].id: held[gpu] for gpu in needed if gpu in held}
    if given_up := _endless_drain(rollout, state, seen, policy):
        return given_up
    if leaves := ask_to_leave(rollout, state, rollout.planned("gives_way"), seen, policy):
        return leaves
    for attempt_id, attempt in blockers.items():
        if attempt_id not in rollout.planned("gives_way") and attempt.state is AttemptState.READY:
            return move(rollout, Event.REFUSED, f"{attempt_id} holds {', '.join(attempt.gpus)} and is not to give way")
    release = state.releases[rollout.release]
    if blockers or no_places(state, release, policy, frozenset(), *first):
        return None
    if taken := _lost_cards(state, seen, needed):
        return refused(rollout, taken)
    if unread := [gpu for gpu in seen.gpus if gpu.id in needed and not gpu.trusted]:
        return _blind(rollout, state, unread[0], seen, policy)  # a card that cannot be read is not free
    attempts = new_attempts(state, seen, policy, rollout.seat, rollout.gpu_map, *first)
    free = "1 GPU is free" if len(needed) == 1 else f"{len(needed)} GPUs are free"
    return Decision(act.TakeLease(rollout.id, attempts), free)


def _blind(rollout: Rollout, state: State, gpu: Gpu, seen: Seen, policy: Policy) -> Decision | None:
    """Live has made room, and a card cannot be read any more: users wait no longer for that than for its memory."""
    made_room_s = max((a.state_since_s for a in state.attempts.values() if a.gave_way_to == rollout.id), default=0.0)
    if rollout.dark_since_s is None or seen.now.boot_s - made_room_s <= policy.memory_back_s:
        return None
    return move(rollout, Event.DEADLINE, f"{shows(gpu.id, gpu)}, so that nobody can have it: live goes on")


def _lost_cards(state: State, seen: Seen, needed: set[str]) -> str | None:
    """What came between the plan and the lease: a stranger, or a card that was closed."""
    foreign = [text for gpu in seen.gpus if gpu.id in needed for text in gpu.foreign]
    if foreign:
        return f"somebody else came onto the cards: {foreign[0]}"
    closed = [gpu for gpu in needed if gpu in state.closed]
    return f"{closed[0]} is {state.closed[closed[0]].word}: {state.closed[closed[0]].why}" if closed else None


def _given_to_others(state: State, gpus: tuple[str, ...]) -> str | None:
    """Live that came back has gone onto cards that were free for a moment."""
    held = holders(state)
    return next((f"{held[gpu].id} is on {gpu} by now" for gpu in gpus if gpu in held), None)


def _endless_drain(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """A swap whose policy cuts no stream is given up when streams outlive the drain: live goes on."""
    if policy.swap_drain_cuts or rollout.strategy != Strategy.SWAP:
        return None
    slots = {s.number: s.in_flight for s in seen.door.public}
    late = [
        a
        for a in state.attempts.values()
        if a.gave_way_to == rollout.id
        and a.state is AttemptState.RETIRING
        and seen.now.boot_s - a.state_since_s > policy.swap_drain_s
    ]
    streams = sum(slots.get(a.slot, 0) for a in late if a.slot is not None)
    if not streams:
        return None
    counted = "1 request still runs" if streams == 1 else f"{streams} requests still run"
    return move(rollout, Event.DEADLINE, f"{counted} after {policy.swap_drain_s:.0f} s of drain; live goes on")


def starting(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    if broken := _replace_or_break(rollout, state, seen, policy) or _writes_garbage(rollout, state, seen, policy):
        return broken
    if not all_ready(state, rollout.seat):
        return None
    since_s = max(a.ready_at_s or 0.0 for a in state.seat_attempts(rollout.seat))
    if is_fresh(seen.probes.get("preview"), seen, policy.probe_fresh_s, since_s):
        took_s = seen.now.boot_s - rollout.phase_since_s
        begun, every = state.begun(rollout.seat), state.releases[rollout.release].instances
        verb = "generates" if len(begun) == 1 else "generate"
        who = "every instance generates" if len(begun) == len(every) else f"{', '.join(begun)} {verb}"
        return move(rollout, Event.READY, f"{who}, also through the preview address ({took_s:.1f} s)")
    return None


def _replace_or_break(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance that died: once more on other ports if a port was taken, else the candidate is broken."""
    missing = missing_instances(state, rollout.seat)
    if not missing:
        return None
    mine = [a for a in state.attempts.values() if a.rollout == rollout.id and a.instance == missing[0]]
    last = mine[-1]
    # A block that was seen to be taken cost nothing; a start that died of it is tried once more.
    started = [a for a in mine if a.pid is not None]
    if not last.port_conflict or len(started) > 1 or len(mine) >= PORT_TRIES:
        return move(rollout, Event.BROKEN, f"instance {last.instance} ({last.id}) did not come up: {last.why}")
    if last.holds:
        return None
    if taken := _lost_cards(state, seen, set(last.gpus)) or _given_to_others(state, last.gpus):
        return move(rollout, Event.BROKEN, f"a port of {last.id} was taken, and it is not started again: {taken}")
    again = new_attempts(state, seen, policy, rollout.seat, rollout.gpu_map, last.instance)
    return Decision(act.AddAttempts(again), f"a port of {last.id} was taken: once more on other ports")


def _writes_garbage(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """An instance that answers, and what it writes is no text: loading longer will not mend it, and users may wait."""
    for attempt in state.seat_attempts(rollout.seat):
        probe = seen.probes.get(attempt.id)
        if attempt.state is not AttemptState.STARTING or probe is None or probe.ok or probe.layer != "output":
            continue
        if probe.streak >= policy.silent_probes:
            said = f"{probe.sentence}, {probe.streak} probes in a row"
            return move(rollout, Event.BROKEN, f"instance {attempt.instance} ({attempt.id}) did not come up: {said}")
    return None


def _died(rollout: Rollout, state: State) -> str | None:
    missing = missing_instances(state, rollout.seat)
    if not missing:
        return None
    last = [a for a in state.attempts.values() if a.rollout == rollout.id and a.instance == missing[0]][-1]
    return f"instance {last.instance} ({last.id}) is gone: {last.why}"


def gating(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    if wrong := what_is_wrong(state, rollout.seat):
        return move(rollout, Event.GATE_FAILED, f"check {wrong.name}: {wrong.sentence}")
    if rollout.gate is not None:
        return _await_gate(rollout, state, seen)
    if died := _died(rollout, state):
        return move(rollout, Event.BROKEN, died)
    if unverified(state, rollout.seat):
        return None  # cards that are shared, or not used, would make every measurement of the gates worthless
    for index, step in enumerate(rollout.profile):
        results = [r for r in rollout.gates if r.index == index]
        if not results:
            return _run_gate(rollout, index, step, 1)
        last = results[-1]
        if last.verdict == "pass" or last.observe:
            continue
        if last.verdict == "fail":
            return move(rollout, Event.GATE_FAILED, f"gate {last.gate}: {last.sentence}")
        # A gate may know that a repetition cannot help: the request itself is at fault, or what live once showed.
        hopeless = last.measurements.get("again") is False
        if len(results) < GATE_TRIES and not hopeless:
            return _run_gate(rollout, index, step, len(results) + 1)
        tried = "and asking again would not change that" if hopeless else "twice"
        return move(rollout, Event.UNDECIDED, f"gate {last.gate} could not tell, {tried}: {last.sentence}")
    return _all_passed(rollout)


def _all_passed(rollout: Rollout) -> Decision:
    if rollout.kind is Kind.MEASURE:
        last = rollout.gates[-1]
        return move(rollout, Event.TRIED, f"gate {last.gate}: {last.verdict}, {last.sentence}")
    passed = _passed(rollout)
    if rollout.options.trial:
        return move(rollout, Event.TRIED, f"passed {passed}; tried, and not switched to, as asked")
    if rollout.options.require_approval:
        return move(rollout, Event.ASK, f"passed {passed}; waits for `cutover approve {rollout.id}`")
    return move(rollout, Event.PASSED, f"passed {passed}")


def _passed(rollout: Rollout) -> str:
    """``health, smoke; observed: latency (fail)``: what only observed and did not pass is not said to have passed."""
    asked = [r for r in rollout.gates if r.index >= 0]
    passed = ", ".join(dict.fromkeys(r.gate for r in asked if r.verdict == "pass")) or "no gate"
    observed = ", ".join(f"{r.gate} ({r.verdict})" for r in rollout.gates if r.observe and r.verdict != "pass")
    return f"{passed}; observed: {observed}" if observed else passed


def _run_gate(rollout: Rollout, index: int, step: Any, number: int) -> Decision:
    name = str(step["name"])
    run = f"{rollout.id}-{index}-{name}-{number}"
    again = " once more, it could not tell" if number > 1 else ""
    return Decision(
        act.RunGate(rollout.id, index, name, run), f"gate {name}{again} ({index + 1}/{len(rollout.profile)})"
    )


def _await_gate(rollout: Rollout, state: State, seen: Seen) -> Decision | None:
    run = rollout.gate
    if run is None:
        return None
    done = seen.gates.get(run.run)
    if done is None:
        died = _died(rollout, state)
        return move(rollout, Event.BROKEN, f"{died} (while gate {run.gate} ran)") if died else None
    step = rollout.profile[run.index]
    result = GateResult(
        run.gate, run.index, run.run, done.verdict, done.sentence, bool(step.get("observe")), done.measurements
    )
    about = f"{run.gate} (observing)" if result.observe else run.gate
    return Decision(act.RecordGate(rollout.id, result), f"gate {about}: {done.verdict}, {done.sentence}")


def awaiting_approval(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Whoever approves in the morning approves what still works: it is asked the first gate again and again."""
    if died := _died(rollout, state):
        return move(rollout, Event.BROKEN, died)
    probe = seen.probes.get("preview")
    if probe is not None and not probe.ok and probe.streak >= policy.silent_probes:
        return move(rollout, Event.BROKEN, f"it does not generate any more ({probe.layer}: {probe.sentence})")
    if rollout.gate is not None:
        return _await_recheck(rollout, state, seen)
    since_s = seen.now.boot_s - max(rollout.phase_since_s, rollout.rechecked_at_s)
    if not rollout.profile or since_s < policy.approval_recheck_s:
        return None
    step = rollout.profile[0]
    name = str(step["name"])
    run = f"{rollout.id}-0-{name}-again-{seen.now.boot_s:.0f}"
    return Decision(act.RunGate(rollout.id, 0, name, run), f"gate {name} again, while it waits for its approval")


def _await_recheck(rollout: Rollout, state: State, seen: Seen) -> Decision | None:
    decision = _await_gate(rollout, state, seen)
    if decision is None or not isinstance(decision.action, act.RecordGate):
        return decision
    result = decision.action.result
    if result.verdict == "fail" and not result.observe:
        return move(rollout, Event.GATE_FAILED, f"gate {result.gate}, again: {result.sentence}")
    return Decision(act.RecordRecheck(rollout.id, result.run), f"gate {result.gate}, again: {result.verdict}")


def cutting_over(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Readiness is checked again at the last moment: gates may have passed a while ago."""
    if died := _died(rollout, state):
        return move(rollout, Event.BROKEN, died)
    generates = heard_since(state, rollout.seat, "preview", seen, policy.probe_fresh_s, rollout.phase_since_s)
    if not all_ready(state, rollout.seat) or not generates or seen.door_refuses:
        return None
    # Live that made room shows nothing now, or only what a part of it can do: what it showed before counts.
    untouched = rollout.strategy == Strategy.BLUE_GREEN
    return Decision(
        act.CommitCutover(rollout.id, baseline(state, seen, policy) if untouched else rollout.bake),
        f"{rollout.release} is live from now on" + _what_stays(rollout, state),
    )


def _what_stays(rollout: Rollout, state: State) -> str:
    if state.live is None:
        return ""
    if not any(a.is_staying for a in state.seat_attempts(state.live)):
        asleep = sleeps_whole(state, state.live)
        return f"; {state.live.release} {'sleeps' if asleep else 'is stopped'}"
    partly = ", ".join(rollout.planned("first"))
    return f"; {partly} first, the rest follows" if state.unborn(rollout.seat) else f"; {state.live.release} stays warm"


def completing(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Rolling: users are with the first instances; what is left of the old release makes room for the others."""
    if broken := _replace_or_break(rollout, state, seen, policy) or _writes_garbage(rollout, state, seen, policy):
        return broken
    if rollout.switched_at_s is None:
        return None
    if leaves := ask_to_leave(
        rollout, state, tuple(a.id for a in state.seat_attempts(rollout.before[0])), seen, policy
    ):
        return leaves
    release = state.releases[rollout.release]
    if rest := state.unborn(rollout.seat):
        held = holders(state)
        needed = {gpu for name in rest for gpu in rollout.gpu_map.get(name, ())}
        if any(gpu in held for gpu in needed) or no_places(state, release, policy, frozenset(), *rest):
            return None
        if taken := _lost_cards(state, seen, needed):
            return move(rollout, Event.BROKEN, taken)
        if any(not gpu.trusted for gpu in seen.gpus if gpu.id in needed):
            return None
        attempts = new_attempts(state, seen, policy, rollout.seat, rollout.gpu_map, *rest)
        return Decision(act.AddAttempts(attempts), f"their cards are free: {', '.join(rest)} follows")
    if wrong := what_is_wrong(state, rollout.seat):
        return move(rollout, Event.BROKEN, f"check {wrong.name}: {wrong.sentence}")
    if not all_ready(state, rollout.seat) or unverified(state, rollout.seat):
        return None
    since_s = max(a.ready_at_s or 0.0 for a in state.seat_attempts(rollout.seat))
    if is_fresh(seen.probes.get("public"), seen, policy.probe_fresh_s, since_s):
        return move(rollout, Event.READY, f"every instance of {release.id} serves")
    return None


def baking(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    if died := _died(rollout, state):
        return move(rollout, Event.WORSE, died)
    bake = rollout.bake
    if bake.bad_streak >= policy.bake_bad_in_row:
        return move(rollout, Event.WORSE, f"{bake.bad_streak} bad samples in a row: {bake.last}")
    # What was asked before the front door had the new route says nothing about the new release.
    since_s = rollout.switched_at_s if rollout.switched_at_s is not None else seen.now.boot_s
    lasted_s = seen.now.boot_s - rollout.phase_since_s
    asked_s = bake_s(rollout, policy)
    # A probe that hangs has not failed yet: the end of a bake needs tokens, not the absence of complaints.
    fresh_s = max(policy.probe_fresh_s, 3 * policy.bake_interval_s)
    proved = bake.samples > 0 and heard_since(state, rollout.seat, "public", seen, fresh_s, since_s)
    if lasted_s >= asked_s and proved and bake.bad_streak == 0:
        return move(
            rollout, Event.BAKED, f"baked {lasted_s:.0f} s, {bake.samples} samples, none to worry about at the end"
        )
    interval_s = min(policy.bake_interval_s, max(asked_s, 0.1))
    if seen.now.boot_s - bake.last_sample_s < interval_s or not all_asked(state, seen):
        return None
    bake = with_probe(bake, seen.probes.get("public"), since_s)
    found = problems(state, seen, bake, since_s, policy)
    text = "; ".join(found) or "as good as before"
    sample = replace(
        bake,
        samples=bake.samples + 1,
        bad_streak=bake.bad_streak + 1 if found else 0,
        last_sample_s=seen.now.boot_s,
        last=text,
        failures=failures_of(state, seen)[0],
    )
    return Decision(act.RecordSample(rollout.id, sample), f"sample {sample.samples}: {text}")


PHASES = {
    Phase.PREFLIGHT: preflight,
    Phase.LEASING: leasing,
    Phase.STARTING: starting,
    Phase.GATING: gating,
    Phase.AWAITING_APPROVAL: awaiting_approval,
    Phase.CUTTING_OVER: cutting_over,
    Phase.COMPLETING: completing,
    Phase.BAKING: baking,
    Phase.ROLLING_BACK: rolling_back,
}
