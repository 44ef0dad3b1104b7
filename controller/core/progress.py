"""What the active rollout does next, phase by phase. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import actions as act
from .actions import Decision
from .bake import baseline, failures_of, problems, with_probe
from .desired import wanted_seats
from .moves import rollback_seat
from .plan import Refusal, holders, make_plan, no_places, place_again
from .policy import Policy
from .records import Attempt, AttemptState, GateResult, Kind, Phase, Release, Rollout, Seat, State
from .seen import ProbeSeen, Seen
from .table import DEADLINE_S, Event

PORT_TRIES = 8  # blocks of ports that are looked at for one instance
GATE_TRIES = 2  # an inconclusive gate gets one more try


def move(rollout: Rollout, event: Event, why: str) -> Decision:
    return Decision(act.Move(rollout.id, event), why)


def new_attempts(
    state: State, policy: Policy, release: Release, rollout_id: str, gpu_map: dict[str, tuple[str, ...]], *names: str
) -> tuple[Attempt, ...]:
    """Attempts for the named instances (default: all), with ports and slots that nobody holds.

    Ports and slots go round: one that was just in use still has clients that remember it (sglang#22779).
    """
    chosen = [i for i in release.instances if not names or i.name in names]
    held = [a for a in state.attempts.values() if a.holds]
    ports = _round(policy.port_first, policy.port_last, policy.port_block, state.last_port, {a.port for a in held})
    slots = _round(1, policy.slots, 1, state.last_slot, {a.slot for a in held if a.slot is not None})
    attempts: list[Attempt] = []
    for number, instance in enumerate(chosen, state.attempt_seq + 1):
        attempts.append(
            Attempt(
                id=f"{release.name}-{instance.name}-{number}",
                rollout=rollout_id,
                release=release.id,
                instance=instance.name,
                role=instance.role,
                gpus=tuple(gpu_map.get(instance.name, ())),
                port=next(ports),
                slot=next(slots) if instance.fronted else None,
            )
        )
    return _with_workers(state, release, rollout_id, tuple(attempts))


def _round(first: int, last: int, step: int, after: int, taken: set[int]) -> Any:
    everything = range(first, last - step + 2, step)
    ordered = [n for n in everything if n > after] + [n for n in everything if n <= after]
    return iter([n for n in ordered if n not in taken])


def _with_workers(
    state: State, release: Release, rollout_id: str, attempts: tuple[Attempt, ...]
) -> tuple[Attempt, ...]:
    """A router learns the ports of the engines behind it, in the order of the topology."""
    known = {a.instance: a.port for a in state.seat_attempts(Seat(release.id, rollout_id))}
    known |= {a.instance: a.port for a in attempts}
    workers = tuple(known[i.name] for i in release.instances if i.role != "router" and i.name in known)
    return tuple(replace(a, workers=workers) if a.role == "router" else a for a in attempts)


def missing_instances(state: State, seat: Seat) -> list[str]:
    """Instances of the seat's release that no attempt carries, or whose attempt is on its way out."""
    carried = {
        a.instance
        for a in state.seat_attempts(seat)
        if a.state in {AttemptState.PLANNED, AttemptState.STARTING, AttemptState.READY}
    }
    return [i.name for i in state.releases[seat.release].instances if i.name not in carried]


def all_ready(state: State, seat: Seat) -> bool:
    ready = {a.instance for a in state.seat_attempts(seat) if a.state is AttemptState.READY}
    return all(i.name in ready for i in state.releases[seat.release].instances)


def is_fresh(probe: ProbeSeen | None, seen: Seen, fresh_s: float, since_s: float = 0.0) -> bool:
    """A probe that succeeded, recently, and began after `since_s`."""
    if probe is None or not probe.ok or probe.started_at_s < since_s:
        return False
    return seen.now.boot_s - probe.at_s <= fresh_s


def heard_since(state: State, seat: Seat, door: str, seen: Seen, fresh_s: float, since_s: float) -> bool:
    """Whether every attempt of the seat, and the seat through the front door, has generated since then."""
    names = (*(a.id for a in state.seat_attempts(seat)), door)
    return all(is_fresh(seen.probes.get(name), seen, fresh_s, since_s) for name in names)


def deadline_s(rollout: Rollout, state: State, policy: Policy) -> float:
    """How long the rollout may stay in its phase."""
    base_s = DEADLINE_S[rollout.phase]
    release = state.releases[(rollout.target.release if rollout.target else None) or rollout.release]
    starts_s = (release.start_timeout_s or policy.start_s) * len(release.instances)
    if rollout.phase in {Phase.STARTING, Phase.ROLLING_BACK}:
        return base_s + starts_s
    if rollout.phase is Phase.LEASING:
        drain_s = policy.drain_s if rollout.plan.get("gives_way") else 0.0
        return base_s + drain_s + max((r.stop_grace_s for r in state.releases.values()), default=0.0)
    if rollout.phase is Phase.GATING:
        return base_s + GATE_TRIES * sum(float(step["deadline_s"]) for step in rollout.profile)
    if rollout.phase is Phase.BAKING:
        return base_s + bake_s(rollout, policy)
    return base_s


def bake_s(rollout: Rollout, policy: Policy) -> float:
    return policy.bake_s if rollout.options.bake_s is None else rollout.options.bake_s


# --- phases -----------------------------------------------------------------------------------------------------------


def preflight(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    release = state.releases[rollout.release]
    plan = make_plan(state, release, seen.gpus, policy, force=rollout.options.force)
    if isinstance(plan, Refusal):
        return move(rollout, Event.REFUSED, plan.sentence)
    wanted = rollout.options.plan_digest
    if wanted is not None and wanted != plan.digest:
        return move(rollout, Event.REFUSED, f"the world has changed: the plan is {plan.digest} now, not {wanted}")
    cards = ", ".join(gpu for gpus in plan.gpu_map.values() for gpu in gpus) or "no cards"
    why = f"{plan.strategy} on {cards}" + (f"; {', '.join(plan.gives_way)} gives way" if plan.gives_way else "")
    return Decision(act.AdoptPlan(rollout.id, plan.as_json(), plan.gpu_map), why)


def leasing(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Whoever the plan says gives way is stopped first; a lease begins when its cards are free."""
    held = holders(state)
    gives_way = set(rollout.plan.get("gives_way", ()))
    needed = {gpu for gpus in rollout.gpu_map.values() for gpu in gpus}
    blockers = {held[gpu].id: held[gpu] for gpu in needed if gpu in held}
    for attempt in state.attempts.values():
        leaving = attempt.id in gives_way and attempt.holds
        if leaving and attempt.state in {AttemptState.PLANNED, AttemptState.STARTING, AttemptState.READY}:
            return Decision(act.Retire(attempt.id), f"its cards are needed by {rollout.id} ({rollout.release})")
    for attempt_id, attempt in blockers.items():
        if attempt_id not in gives_way and attempt.state is AttemptState.READY:
            return move(rollout, Event.REFUSED, f"{attempt_id} holds {', '.join(attempt.gpus)} and is not to give way")
    release = state.releases[rollout.release]
    if blockers or no_places(state, release, policy):
        return None
    foreign = [text for gpu in seen.gpus if gpu.id in needed for text in gpu.foreign]
    if foreign:
        return move(rollout, Event.REFUSED, f"somebody else came onto the cards: {foreign[0]}")
    attempts = new_attempts(state, policy, release, rollout.id, dict(rollout.gpu_map))
    free = "1 GPU is free" if len(needed) == 1 else f"{len(needed)} GPUs are free"
    return Decision(act.TakeLease(rollout.id, attempts), free)


def starting(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    if broken := _replace_or_break(rollout, state, policy):
        return broken
    if not all_ready(state, rollout.seat):
        return None
    since_s = max(a.ready_at_s or 0.0 for a in state.seat_attempts(rollout.seat))
    if is_fresh(seen.probes.get("preview"), seen, policy.probe_fresh_s, since_s):
        took_s = seen.now.boot_s - rollout.phase_since_s
        return move(
            rollout, Event.READY, f"every instance generates, also through the preview address ({took_s:.1f} s)"
        )
    return None


def _replace_or_break(rollout: Rollout, state: State, policy: Policy) -> Decision | None:
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
    release = state.releases[rollout.release]
    again = new_attempts(state, policy, release, rollout.id, dict(rollout.gpu_map), last.instance)
    return Decision(act.AddAttempts(again), f"a port of {last.id} was taken: once more on other ports")


def _died(rollout: Rollout, state: State) -> str | None:
    missing = missing_instances(state, rollout.seat)
    if not missing:
        return None
    last = [a for a in state.attempts.values() if a.rollout == rollout.id and a.instance == missing[0]][-1]
    return f"instance {last.instance} ({last.id}) is gone: {last.why}"


def gating(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    if rollout.gate is not None:
        return _await_gate(rollout, state, seen)
    if died := _died(rollout, state):
        return move(rollout, Event.BROKEN, died)
    for index, step in enumerate(rollout.profile):
        results = [r for r in rollout.gates if r.index == index]
        if not results:
            return _run_gate(rollout, index, step, 1)
        last = results[-1]
        if last.verdict == "pass" or last.observe:
            continue
        if last.verdict == "fail":
            return move(rollout, Event.GATE_FAILED, f"gate {last.gate}: {last.sentence}")
        if len(results) < GATE_TRIES:
            return _run_gate(rollout, index, step, len(results) + 1)
        return move(rollout, Event.UNDECIDED, f"gate {last.gate} could not tell, twice: {last.sentence}")
    passed = _passed(rollout)
    if rollout.options.require_approval:
        return move(rollout, Event.ASK, f"passed {passed}; waits for `cutover approve {rollout.id}`")
    return move(rollout, Event.PASSED, f"passed {passed}")


def _passed(rollout: Rollout) -> str:
    """``health, smoke; observed: latency (fail)``: what only observed and did not pass is not said to have passed."""
    passed = ", ".join(dict.fromkeys(r.gate for r in rollout.gates if r.verdict == "pass")) or "no gate"
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


def awaiting_approval(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:  # noqa: ARG001
    died = _died(rollout, state)
    return move(rollout, Event.BROKEN, died) if died else None


def cutting_over(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Readiness is checked again at the last moment: gates may have passed a while ago."""
    if died := _died(rollout, state):
        return move(rollout, Event.BROKEN, died)
    generates = heard_since(state, rollout.seat, "preview", seen, policy.probe_fresh_s, rollout.phase_since_s)
    if not all_ready(state, rollout.seat) or not generates:
        return None
    return Decision(
        act.CommitCutover(rollout.id, baseline(state, seen, policy)),
        f"{rollout.release} is live from now on" + (f"; {state.live.release} stays warm" if state.live else ""),
    )


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
    if seen.now.boot_s - bake.last_sample_s < interval_s:
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


def rolling_back(rollout: Rollout, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """Rollback has a gate of its own: its target must serve at the moment of the switch (flagger#1931)."""
    target = rollout.target
    if target is None:
        return move(rollout, Event.HOPELESS, "there is no release to return to; what serves stays")
    seat = rollback_seat(state, rollout)
    assert seat is not None  # noqa: S101 - the target is set
    cold = seat.rollout == rollout.id
    if all_ready(state, seat):
        probes = [seen.probes.get(a.id) for a in state.seat_attempts(seat)]
        fresh_s = max(2 * policy.bake_interval_s, 5.0)
        if all(is_fresh(probe, seen, fresh_s) for probe in probes):
            how = "started again" if cold else "still warm"
            return Decision(act.CommitRollback(rollout.id), f"{target.release} ({how}) is live again")
        if not cold and any(p is not None and not p.ok and p.streak >= policy.silent_probes for p in probes):
            sick = next(a for a, p in zip(state.seat_attempts(seat), probes, strict=True) if p and not p.ok)
            return Decision(act.Retire(sick.id, hurry=True), "the release to return to is sick: start it again")
        return None
    if cold:
        gone = missing_instances(state, seat)
        if gone and rollout.kind is not Kind.ROLLBACK:
            return move(rollout, Event.HOPELESS, f"{target.release} does not come back; what serves stays")
        if gone:
            last = [a for a in state.attempts.values() if a.rollout == rollout.id][-1]
            return move(rollout, Event.HOPELESS, f"{target.release} does not come up: {last.why}; what serves stays")
        return None
    return _start_target(rollout, target, state, seen, policy)


def _start_target(rollout: Rollout, target: Seat, state: State, seen: Seen, policy: Policy) -> Decision | None:
    """The release to return to is not running whole: clear what is left of it and start it again on free cards."""
    left = state.seat_attempts(target)
    release = state.releases[target.release]
    if draining := _all_there(left, release):
        return Decision(act.Recall(draining.id), f"{draining.id} still drains: it serves again")
    starting = [a for a in left if a.state in {AttemptState.PLANNED, AttemptState.STARTING}]
    if starting and not missing_instances(state, target):
        return None
    for attempt in left:
        if attempt.state in {AttemptState.PLANNED, AttemptState.STARTING, AttemptState.READY}:
            return Decision(
                act.Retire(attempt.id), "an instance of it is gone: the release is started again as a whole"
            )
    if left:
        return None
    if rollout.kind is not Kind.ROLLBACK and target.release == rollout.release:
        return move(rollout, Event.HOPELESS, f"{target.release} died in old and in fresh processes; what serves stays")
    placed = place_again(state, release, seen.gpus)
    if isinstance(placed, Refusal):
        if not isinstance(place_again(state, release, seen.gpus, _leaving(state, policy)), Refusal):
            return None  # its cards are being given back just now
        return move(
            rollout, Event.HOPELESS, f"{target.release} cannot be started again: {placed.sentence}; what serves stays"
        )
    if no_places(state, release, policy):
        return None  # whoever drains gives them back
    attempts = new_attempts(state, policy, release, rollout.id, placed)
    return Decision(act.AddAttempts(attempts), f"{target.release} is started again: its cards are free")


def _all_there(left: tuple[Attempt, ...], release: Release) -> Attempt | None:
    """The first draining attempt of a seat that would be whole if those that drain came back."""
    ready = {a.instance for a in left if a.state is AttemptState.READY}
    draining = {
        a.instance: a
        for a in left
        if a.state is AttemptState.RETIRING and not a.hurry and a.ready_at_s is not None and a.instance not in ready
    }
    whole = all(i.name in ready or i.name in draining for i in release.instances)
    return next(iter(draining.values()), None) if whole else None


def _leaving(state: State, policy: Policy) -> frozenset[str]:
    """Attempts that hold cards and have no reason to: they are on their way out, or about to be."""
    wanted = wanted_seats(state, policy)
    return frozenset(
        a.id
        for a in state.attempts.values()
        if a.holds
        and (a.state in {AttemptState.RETIRING, AttemptState.STOPPING} or Seat(a.release, a.rollout) not in wanted)
    )


PHASES = {
    Phase.PREFLIGHT: preflight,
    Phase.LEASING: leasing,
    Phase.STARTING: starting,
    Phase.GATING: gating,
    Phase.AWAITING_APPROVAL: awaiting_approval,
    Phase.CUTTING_OVER: cutting_over,
    Phase.BAKING: baking,
    Phase.ROLLING_BACK: rolling_back,
}
