"""What people see: plain JSON of the journal's state and the newest observation. Schema 1; keys are only ever added."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..config import Config
from ..core.cards import holders
from ..core.dark import dark_parts, way_home
from ..core.records import Attempt, Phase, Release, Rollout, Seat, State
from ..core.route import HoldSeen
from ..core.seen import Life, Seen

SCHEMA = 1


def status(state: State, seen: Seen | None, config: Config, why: str, alarms: list[str]) -> dict[str, Any]:
    active = state.active
    return {
        "schema": SCHEMA,
        "now": why,
        "alarms": alarms,
        "live": seat(state, state.live, seen),
        "previous": seat(state, state.previous, seen),
        "way_home": asdict(way_home(state, seen.gpus if seen else (), config.policy)),
        "rollout": rollout(state, active, seen) if active else None,
        "queue": [rollout(state, waiting, seen) for waiting in state.queue],
        "freeze": asdict(state.freeze) if state.freeze else None,
        "front_door": front_door(state, seen, config),
        "gpus": gpus(state, seen),
        "generation": state.generation,
        "state_dir": str(config.state_dir),
    }


def seat(state: State, place: Seat | None, seen: Seen | None) -> dict[str, Any] | None:
    if place is None:
        return None
    attempts = state.seat_attempts(place)
    return {
        "release": place.release,
        "serves": list(state.releases[place.release].serves),
        "rollout": place.rollout,
        "since": place.since_wall_s or None,  # of before a rebuild nobody knows
        "back_by": _back_by(state, place),
        "running": bool(attempts),
        "asleep": any(a.is_in_bed for a in attempts),
        "attempts": [attempt(a, seen) for a in attempts],
    }


def _back_by(state: State, place: Seat) -> str | None:
    """The rollout that led back to it, which is what `since` tells the time of; None where its own rollout is."""
    back = (r for r in state.rollouts.values() if r.phase is Phase.ROLLED_BACK and r.target == place)
    return next((r.id for r in back if r.ended_wall_s == place.since_wall_s), None)


def attempt(record: Attempt, seen: Seen | None) -> dict[str, Any]:
    probe = seen.probes.get(record.id) if seen else None
    return {
        "id": record.id,
        "instance": record.instance,
        "role": record.role,
        "release": record.release,
        "rollout": record.rollout,
        "state": record.state.value,
        "gpus": list(record.gpus),
        "port": record.port,
        "slot": record.slot,
        "pid": record.pid,  # of its shim
        "shim_alive": _shim_lives(record, seen),
        "pids": list(seen.pids.get(record.id, ())) if seen else [],
        "why": record.why,
        "start_s": _difference(record.ready_at_s, record.started_at_s),
        "wake_s": _rounded(record.naps[-1].wake_s) if record.naps else None,
        "kv_tokens": record.kv_tokens,
        "checks": [asdict(check) for check in record.checks],
        "log_tail": record.log_tail,
        "given_up": record.given_up,
        "probe": {
            "ok": probe.ok,
            "layer": probe.layer,
            "sentence": probe.sentence,
            "ttft_s": probe.ttft_s,
            "age_s": round(seen.now.boot_s - probe.at_s, 1),
        }
        if probe and seen
        else None,
    }


def _shim_lives(record: Attempt, seen: Seen | None) -> bool | None:
    """None where nobody looked: before the first look, and at what has ended."""
    process = seen.processes.get(record.id) if seen else None
    return None if process is None else process.life in {Life.RUNNING, Life.ENDING}


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else round(later - earlier, 2)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


WITHDRAWN = "withdrawn"


def is_withdrawn(record: Rollout) -> bool:
    """Somebody took it back before it had begun: nothing of it ever ran that could have been aborted."""
    return record.phase is Phase.ABORTED and set(record.times) <= {Phase.QUEUED.value}


def outcome(record: Rollout) -> str:
    """Its phase, or what people call such an end."""
    return WITHDRAWN if is_withdrawn(record) else record.phase.value


def why(record: Rollout) -> str:
    """The last sentence about it; of what was taken back, by whom."""
    return f"{WITHDRAWN} by {record.abort_by}" if is_withdrawn(record) and record.abort_by else record.why


def rollout(state: State, record: Rollout, seen: Seen | None) -> dict[str, Any]:
    mine = [a for a in state.attempts.values() if a.rollout == record.id]
    return {
        "id": record.id,
        "kind": record.kind.value,
        "release": record.release,
        "phase": record.phase.value,
        "outcome": outcome(record),
        "over": record.ended_wall_s is not None,
        "why": why(record),
        "asked_by": record.asked_by,
        "instead_of": record.instead_of.release if record.instead_of else None,
        "approved_by": record.approved_by,
        "abort_by": record.abort_by,
        "created": record.created_wall_s,
        "ended": record.ended_wall_s,
        "phase_s": round(seen.now.boot_s - record.phase_since_s, 1) if seen and record.ended_wall_s is None else None,
        "options": asdict(record.options),
        "plan": dict(record.plan),
        "profile": [{"name": step["name"], "observe": step.get("observe", False)} for step in record.profile],
        "gate": asdict(record.gate) if record.gate else None,
        "gates": [{**asdict(result), "measurements": dict(result.measurements)} for result in record.gates],
        "bake": asdict(record.bake),
        "times": dict(record.times),
        "dark": dict(dark_parts(state, record)),
        "attempts": [attempt(a, seen) for a in mine],
    }


def front_door(state: State, seen: Seen | None, config: Config) -> dict[str, Any]:
    """What users' requests hit right now is the front door's own answer, not the database's."""
    door = seen.door if seen else None
    by_port = {a.port: a for a in state.held}
    slots = []
    for backend, listed in (("public", door.public if door else ()), ("preview", door.preview if door else ())):
        for slot in listed:
            holder = by_port.get(slot.port)
            if holder is not None:
                slots.append(
                    {
                        "backend": backend,
                        "number": slot.number,
                        "attempt": holder.id,
                        "release": holder.release,
                        "state": slot.state.value,
                        "up": slot.up,
                        "in_flight": slot.in_flight,
                    }
                )
    return {
        "alive": bool(door and door.alive),
        "why": door.why if door else "not looked at yet",
        "pid": door.pid if door else None,
        "public": config.public,
        "preview": config.preview,
        "mode": door.mode.value if door else None,
        "held": door.held if door else 0,
        "hold": asdict(door.hold if door else HoldSeen()),
        "slots": slots,
        "traffic": {
            name: {
                "requests": t.requests,
                "errors_5xx": t.errors_5xx,
                "truncated": t.truncated,
                "client_left": t.client_left,
            }
            for name, t in (seen.traffic.items() if seen else ())
        },
    }


def gpus(state: State, seen: Seen | None) -> list[dict[str, Any]]:
    held = holders(state)
    return [
        {
            "id": gpu.id,
            "index": gpu.index,
            "held_by": held[gpu.id].id if gpu.id in held else None,
            "sleepers": sleepers(state, gpu.id),
            "foreign": list(gpu.foreign),
            "trusted": gpu.trusted,
            "why": gpu.why,
            "closed": asdict(state.closed[gpu.id]) if gpu.id in state.closed else None,
            "memory_total_mib": gpu.memory_total_mib,
            "memory_used_mib": gpu.memory_used_mib,
        }
        for gpu in (seen.gpus if seen else ())
    ]


def sleepers(state: State, gpu: str) -> list[str]:
    """Who sleeps on a card that may be somebody else's meanwhile."""
    return [a.id for a in state.held if a.lent and gpu in a.gpus]


def inventory(state: State, found: dict[str, Any]) -> dict[str, Any]:
    """The cards with everything that is known of them, and who has them; `found` is the inventory's own sheet."""
    held = holders(state)
    seats = {"live": state.live, "previous": state.previous}
    roles = {
        attempt.id: role for role, place in seats.items() if place is not None for attempt in state.seat_attempts(place)
    }
    return {
        "schema": SCHEMA,
        **found,
        "cards": [_card(state, card, held.get(card["id"]), roles) for card in found["cards"]],
    }


def _card(state: State, card: dict[str, Any], holder: Attempt | None, roles: dict[str, str]) -> dict[str, Any]:
    closed = state.closed.get(card["id"])
    words = (
        (not card["trusted"], "untrusted"),
        # Memory that did not come back has no owner that NVML names: the reason is the quarantine.
        (closed is not None, "cordoned" if closed and closed.by else "quarantined"),
        (bool(card["foreign"]), "foreign"),
        (holder is not None, "held"),
    )
    return {
        **card,
        "state": next((word for applies, word in words if applies), "free"),
        "held_by": holder.id if holder else None,
        "sleepers": sleepers(state, card["id"]),
        "release": holder.release if holder else None,
        "role": roles.get(holder.id, "candidate") if holder else None,
        "closed": asdict(closed) if closed else None,
    }


def release(record: Release) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "digest": record.digest,
        "engine": record.engine,
        "serves": list(record.serves),
        "gates": record.gates,
        "instances": [asdict(instance) for instance in record.instances],
    }
