"""The real world behind the loop's port: each part lives in its own file, none of them decides."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ..config import Config
from ..core import actions
from ..core.actions import Effect, Outcome
from ..core.desired import SWITCHED, candidate_seat, probe_wishes
from ..core.records import AttemptState, Now, Rollout, Seat, State
from ..core.route import DoorSeen, Traffic
from ..core.seen import GateSeen, Life, ProcessSeen, Seen, Users
from ..core.takeover import candidates
from ..core.verify import is_due
from .clock import Clock
from .deployments import Deployments
from .frontdoor.door import DoorError, FrontDoor
from .gate_runner import GateOrder, GateRunner
from .gpus import Inventory
from .kv_pools import KvPools
from .prober import Prober
from .processes import Processes, host_facts
from .sleeper import SLEEP, WAKE, Sleeper

log = structlog.get_logger("world")

BASELINE_WINDOW_S = 300.0
MINUTE_S = 60.0
_GONE = frozenset({Life.ENDING, Life.EXITED})


class RealWorld:
    """Implements `ports.World`."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        processes: Processes,
        door: FrontDoor,
        gates: GateRunner,
        gpus: Inventory,
        prober: Prober,
        sleeper: Sleeper,
    ) -> None:
        self.config = config
        self.policy = config.policy
        self.clock = clock
        self.processes = processes
        self.door = door
        self.gates = gates
        self.gpus = gpus
        self.prober = prober
        self.sleeper = sleeper
        self.kv_pools = KvPools(processes.run_dir)
        self.deployments = Deployments(config.releases_dir, gpus)
        self._door_tried_s: float | None = None
        self._door_told = ""
        self._pids: dict[str, tuple[int, ...]] = {}
        self._effects: dict[type[Effect], Callable[..., Outcome]] = {
            actions.StartAttempt: self._start,
            actions.StopAttempt: lambda action, state: self.processes.stop(state.attempts[action.attempt]),
            actions.ClearStrays: lambda action, state: self.processes.clear(
                state.attempts[action.attempt], force=action.force
            ),
            actions.SleepAttempt: lambda action, state: self._bed(action, state, SLEEP),
            actions.WakeAttempt: lambda action, state: self._bed(action, state, WAKE),
            actions.RunGate: self._run_gate,
            actions.StopGate: lambda action, _: self.gates.stop(action.run),
            actions.SetRoute: self._set_route,
            actions.OpenDoor: self._open_door,
            actions.CutSlot: lambda action, _: self._door(lambda: self.door.cut(action.slot)),
        }

    def now(self) -> Now:
        return self.clock.now()

    # --- looking ------------------------------------------------------------------------------------------------------

    def observe(self, state: State) -> Seen:
        processes = self._processes(state)  # before anybody is probed: who may listen on its port, the probe asks
        self.prober.wish(probe_wishes(state, self.policy))
        ours = {pid for name in processes for pid in self._pids.get(name, ())}
        # One that is not started yet has nothing on its cards: what shows up there meanwhile is a stranger's.
        held = {gpu for name in processes for gpu in state.attempts[name].gpus}
        self._refresh_door()
        now = self.now()
        if any(state.attempts[name].state is AttemptState.STOPPING or p.life in _GONE for name, p in processes.items()):
            self.gpus.nudge()  # a lease ends when the memory is back, and users may wait in the dark for that
        if any(is_due(attempt) for attempt in state.attempts.values()):
            self.gpus.nudge()  # no gate begins before it is seen where the instance sits
        if any(attempt.state is AttemptState.DOZING or attempt.is_waking for attempt in state.attempts.values()):
            self.gpus.nudge()  # whether it sleeps, and whether it is awake, the memory has to show
        door = self.door.read()
        gpus, sheet = self.gpus.read(ours, held), self.gpus.sheet()
        return Seen(
            now=now,
            door=door,
            door_tried_s=self._door_tried_s,
            processes=processes,
            probes=self.prober.results(),
            traffic=self._traffic(state, now),
            users=self._users(now, door),
            gates=self._gates(state),
            sleeps=self.sleeper.results(),
            pids=dict(self._pids),
            kv_pools=self.kv_pools.look(state),
            gpus=gpus,
            gpus_at_s=None if sheet.age_s is None else now.boot_s - sheet.age_s,
            gpus_why=sheet.why,
            releases_gone=frozenset(r for r in candidates(state) if not self._is_kept(r)),
        )

    def _is_kept(self, release: str) -> bool:
        return (self.config.releases_dir / release / "manifest.json").is_file()

    def _processes(self, state: State) -> dict[str, ProcessSeen]:
        seen = {}
        for attempt in state.attempts.values():
            if attempt.holds and attempt.state is not AttemptState.PLANNED:
                seen[attempt.id], self._pids[attempt.id] = self.processes.look(attempt)
            else:
                self._pids.pop(attempt.id, None)
        return seen

    def _traffic(self, state: State, now: Now) -> dict[str, Traffic]:
        active = state.active
        if active is not None and active.phase in SWITCHED:
            # Until the switch is seen nothing has been asked of the new release.
            since_s = now.boot_s if active.switched_at_s is None else active.switched_at_s
        else:
            since_s = now.boot_s - BASELINE_WINDOW_S
        return dict(self.door.traffic(since_s))

    def _users(self, now: Now, door: DoorSeen) -> Users | None:
        """Who asks besides the daemon itself, whose probes through the public address are in the same log."""
        if not door.alive:
            return None
        since_s = now.boot_s - MINUTE_S
        ended = sum(traffic.requests for traffic in self.door.traffic(since_s).values())
        own_ended, own_running = self.prober.asked("public", since_s)
        in_flight = sum(slot.in_flight for slot in door.public) + door.held
        return Users(max(0, in_flight - own_running), max(0, ended - own_ended) * 60.0 / MINUTE_S)

    def _gates(self, state: State) -> dict[str, GateSeen]:
        run = state.active.gate if state.active else None
        done = self.gates.look(run.run, run.gate) if run else None
        return {run.run: done} if run and done else {}

    def pids_of(self, attempt_id: str) -> tuple[int, ...]:
        """For the prober: who may listen on the attempt's port."""
        return self._pids.get(attempt_id, ())

    # --- acting -------------------------------------------------------------------------------------------------------

    def act(self, action: Effect, state: State, seen: Seen) -> Outcome:  # noqa: ARG002 - a fake may need it
        return self._effects[type(action)](action, state)

    def _start(self, action: actions.StartAttempt, state: State) -> Outcome:
        attempt = state.attempts[action.attempt]
        facts = host_facts(state, self.gpus.facts())
        peers = [
            other.id
            for other in state.seat_attempts(Seat(attempt.release, attempt.rollout))
            if other.id != attempt.id and other.state is not AttemptState.PLANNED
        ]
        return self.processes.start(attempt, state.releases[attempt.release], facts, peers)

    def _bed(self, action: actions.SleepAttempt | actions.WakeAttempt, state: State, wanted: str) -> Outcome:
        return self.sleeper.begin(state.attempts[action.attempt], wanted, again=action.again)

    def _run_gate(self, action: actions.RunGate, state: State) -> Outcome:
        rollout = state.rollouts[action.rollout]
        release = state.releases[rollout.release]
        seat = candidate_seat(rollout) or rollout.seat
        compared = state.live if state.live != seat else None  # live is not compared with itself
        # In the dark nobody answers for live: its figures in the ledger are what there is to compare with.
        live = state.releases[compared.release] if compared is not None and state.is_served() else None
        order = GateOrder(
            endpoint=f"http://{self.config.preview}",
            model=release.serves[0],
            step=rollout.profile[action.index],
            capability=release.capability,
            baseline=baseline(state, rollout, action.gate) if compared is not None else None,
            engine=release.engine,
            live_endpoint=f"http://{self.config.own_way_in}" if live is not None else None,
            live_model=live.serves[0] if live is not None else None,
            candidate=self.deployments.of(state, seat),
            live=self.deployments.of(state, compared) if compared is not None else None,
            ledger=self.config.ledger,
            key=self.door.engine_key,
        )
        return self.gates.start(action.run, action.gate, order)

    def _door(self, do: Callable[[], object]) -> Outcome:
        try:
            do()
        except DoorError as error:
            return Outcome(False, str(error))
        return Outcome(True)

    def _set_route(self, action: actions.SetRoute, state: State) -> Outcome:  # noqa: ARG002
        outcome = self._door(lambda: self.door.apply(action.route))
        self.prober.renew()
        return outcome

    def _refresh_door(self) -> None:
        """A file that cannot be used is told once; what is in force stays."""
        try:
            self.door.refresh()
        except DoorError as error:
            if str(error) != self._door_told:
                log.warning("the door keeps what it has", why=str(error))
            self._door_told = str(error)
        else:
            self._door_told = ""

    def _open_door(self, action: actions.OpenDoor, state: State) -> Outcome:  # noqa: ARG002
        self._door_tried_s = self.clock.boot_s()
        return self._door(self.door.ensure)


def baseline(state: State, rollout: Rollout, gate: str) -> dict[str, object] | None:
    """What live showed in the same gate when it was the candidate: never a ladder on top of users' traffic."""
    if state.live is None:
        return None
    carried = state.rollouts.get(state.live.rollout)
    shown = [
        result
        for other in state.rollouts.values()
        if other.id != rollout.id and other.release == state.live.release
        for result in other.gates
        if result.gate == gate and result.verdict == "pass" and result.measurements
    ]
    if carried is None or not shown:
        return None
    return {"release": state.live.release, "run": shown[-1].run, "measurements": dict(shown[-1].measurements)}
