"""A box under users' load whose processes are killed with SIGKILL: who, when, what it cost, and what must hold then.

Everything is real: daemon, HAProxy, shims, emulated engines, clients. Only processes of the box's own stage are killed.
What must hold at rest is in `kill_oracle`.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import sqlite3
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx
from kill_oracle import Excuse, Members, at_rest, members, settled, unexcused
from nursery import QuickStage

from controller.core.invariants import violations
from controller.core.records import AttemptState, State
from controller.demo.stage import Clients, Stage
from controller.store.database import StoreError
from controller.store.journal import load_state
from launch import attempts as launched
from launch import shim

SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    # Kills take the processor from everybody: a box that is slow then must not look like a slow candidate.
    "bake": {"seconds": 1, "interval_s": 0.5, "latency_slack_s": 30},
    "drain_s": 60,
    "start_s": 90,
    "hold_max": 2000,
    # Here production dies more often in a minute than elsewhere in a year.
    "watch": {"restart_budget": 1000, "restart_pause_s": 0.1, "restart_pause_max_s": 0.5},
}
STREAMS, MAX_TOKENS, RATE_PER_S = 6, 60, 50.0
GATE = """\
gates:
  - name: said
    deadline_s: 60
    run:
      - /bin/sh
      - -c
      - 'cat > /dev/null; echo ''{{"contract": 1, "gate": "said", "verdict": "{0}", "sentence": "{0}"}}'''
"""
TOPOLOGY = """\
name: {name}
serves: [emu]
engine: emulator
flags: ["--start-s", "0.1", "--ttft-ms", "40", "--itl-ms", "10", "--seed", "{number}"]
instances: {instances}
stop_grace_s: 5
gates: {gates}
"""
HALF, BOTH_HALVES, WHOLE = "{a: {gpus: 2}}", "{a: {gpus: 2}, b: {gpus: 2}}", "{a: {gpus: 4}}"
POLL_S = 0.01
SERVES_S, DECIDES_S = 2.0, 5.0  # what docs/promises.md says (P2, P3)
PATIENCE_S = 120.0  # what a box may need that has other things to do; the promises are judged by medians
LAST_DECISIONS = 25
WEIGHTS = {
    "daemon": 7,
    "daemon and door": 4,
    "daemon and engine": 2,
    "daemon and shim": 2,
    "door": 3,
    "engine": 2,
    "shim": 2,
    "shim of the door": 1,
}
AGAIN, AGAIN_S = 0.25, 0.5  # how often a daemon is killed again that has just been started, and after how long at most
# Its shim starts the door again after 0.05 s, and after twice that each time it did not live for ten seconds.
DOOR_STEADY_S, DOOR_KILLS_IN_A_ROW = 11.0, 3


class Broken(AssertionError):  # noqa: N818 - it says what it is
    """Something does not hold after a kill."""


class Box:
    """`with Box(directory, seed) as box:` has a release live and users asking; `rest` ends with what must hold."""

    def __init__(self, directory: Path, seed: int, instances: str = HALF, stage: type[Stage] = QuickStage) -> None:
        """`stage`: a plain one where it matters what a start of the daemon costs."""
        self.seed = seed
        self.dice = random.Random(seed)  # noqa: S311 - it has to be the same again
        self.stage = stage(directory / "stage", SETTINGS)
        self.first_instances = instances
        self.kills: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()
        self.times: dict[str, list[float]] = defaultdict(list)
        self.excuses: list[Excuse] = []
        self.acknowledged: list[str] = []
        self.story: list[str] = []
        self.hit: set[str] = set()  # attempts whose engine was killed
        self.shimless: set[str] = set()
        self.arms: deque[str] = deque()  # CUTOVER_CRASH_AT of the daemons to come
        self.armed = ""
        self.reached: set[str] = set()  # points at which a daemon died
        self.proposed = 0
        self._door_killed_s = time.monotonic()
        self._door_kills = 0  # without a pause in which it lived long enough
        self._door_has_shim = True
        self._began_s = time.monotonic()
        for verdict in ("pass", "fail"):
            (self.stage.directory / f"{verdict}.yaml").write_text(GATE.format(verdict))

    def __enter__(self) -> Self:
        try:
            self.stage.start_daemon()
            first = self.propose(self.first_instances)
            self.over(first)
            log = self.stage.directory / "clients.log"
            self.load = Clients(
                f"http://{self.stage.config.public}", "emu", STREAMS, MAX_TOKENS, log, rate_per_s=RATE_PER_S
            )
        except BaseException:
            self.stage.close()
            raise
        self.loaded_s = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.load.stop()
        self.stage.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def propose(self, instances: str, verdict: str = "pass", strategy: str = "any") -> str:
        self.proposed += 1
        name = f"n{self.proposed}"
        gates = self.stage.directory / f"{verdict}.yaml"
        text = TOPOLOGY.format(name=name, number=self.proposed, instances=instances, gates=gates)
        return self.file("/v1/rollouts", {"topology": text, "source": f"{name}.yaml", "strategy": strategy})

    def rollback(self) -> str:
        return self.file("/v1/rollback", None)

    def file(self, path: str, body: dict[str, str] | None) -> str:
        """Ask, and with the same key again until there is an answer, as the command line does; "" for a refusal."""
        headers = {"Idempotency-Key": f"key-{len(self.story)}-{self.proposed}"}
        while True:
            try:
                answer = self.stage.api.post(path, json=body, headers=headers)
            except httpx.TransportError:
                self.revive()
                continue
            told = answer.json()
            if answer.is_error:
                self.tell(f"refused: {told['error']}")
                return ""
            rollout = str(told["rollout"]["id"])
            self.acknowledged.append(rollout)
            self.tell(f"filed {path}: {rollout}, {told['rollout']['kind']} {told['rollout']['release']}")
            return rollout

    def over(self, rollout: str) -> str:
        """Wait until it has ended; its phase."""
        self.until(lambda: self.state().rollouts[rollout].ended_wall_s is not None, f"{rollout} does not end")
        return self.state().rollouts[rollout].phase.value

    def state(self) -> State:
        """What the journal has, read beside the daemon."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with contextlib.closing(self.database()) as db:
                    return load_state(db)
            except (sqlite3.Error, StoreError):
                # Its daemon was killed, and the next one has to open it first.
                if time.monotonic() > give_up_s:
                    raise
                if self.is_dead():
                    self.revive()
                time.sleep(POLL_S)

    def database(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.stage.config.journal}?mode=ro", uri=True, timeout=5)

    def tell(self, line: str) -> None:
        self.story.append(f"{time.monotonic() - self._began_s:7.2f} s  {line}")

    def until(self, condition: Callable[[], object], what: str) -> None:
        began_s = time.monotonic()
        while not condition():
            if time.monotonic() - began_s > PATIENCE_S:
                self.fail([f"{what} after {PATIENCE_S:.0f} s"])
            time.sleep(POLL_S)

    def fail(self, found: list[str]) -> None:
        with contextlib.closing(self.database()) as db:
            rows = db.execute(
                "SELECT wall_s, action, subject, why, outcome FROM journal ORDER BY seq DESC LIMIT ?",
                (LAST_DECISIONS,),
            ).fetchall()
        lines = ["{:.2f}  {} {}: {} ({})".format(*row) for row in reversed(rows)]
        raise Broken("\n".join([f"seed {self.seed}", *self.story, "", *lines, "", "broken:", *found]))

    # --- killing ------------------------------------------------------------------------------------------------------

    def victims(self) -> list[str]:
        """Who may be killed now."""
        barred = set()
        if time.monotonic() - self._door_killed_s >= DOOR_STEADY_S:
            self._door_kills = 0
        if self._door_kills >= DOOR_KILLS_IN_A_ROW:
            barred |= {"door", "daemon and door"}
        if not self._door_has_shim:
            barred |= {"shim of the door"}
        return [name for name in WEIGHTS if name not in barred]

    def strike(self) -> None:
        """Kill somebody, whom the dice choose, and wait until what the promises say holds again."""
        names = self.victims()
        victim = self.dice.choices(names, [WEIGHTS[name] for name in names])[0]
        parts = victim.split(" and ")
        whose = self._who_has(parts[-1])
        if not whose and parts[-1] in {"engine", "shim"}:
            victim, parts = "daemon", ["daemon"]  # nothing of that kind runs: it was killed a moment ago
        attempt = self.dice.choice(whose) if whose else ""
        before, known = self.running(), self.state()
        self.tell(f"kill {victim} {attempt}".rstrip())
        self.kills[victim] += 1
        at_s = time.monotonic()
        self.dice.shuffle(parts)
        for part in parts:
            self._kill(part, attempt)
        dead_s = time.monotonic()
        if "daemon" in parts:
            self.stage.begin_daemon()
        if "door" in parts and self._door_has_shim:
            self.await_service(at_s)
        if "daemon" in parts and not self.await_decision(self._and_again(at_s)):
            self.fail([f"the daemon ended: {self.stage.daemon_words()}"])
        if "door" in parts and not self._door_has_shim:  # then only the daemon starts it again, and with a shim
            self.await_service(at_s)
        state = self.judge_adopted(before, known)
        if "engine" in parts and state.attempts[attempt].exposed:
            self.excuses.append(Excuse(f"the engine of {attempt} was killed", at_s, dead_s))

    def _who_has(self, part: str) -> list[str]:
        """Attempts whose engine, or whose shim, is there to be killed."""
        if part not in {"engine", "shim"}:
            return []
        return sorted(name for name in self.running() if self._of(name, shim=part == "shim"))

    def _kill(self, part: str, attempt: str) -> None:
        match part:
            case "daemon":
                self.kill_daemon()
            case "door":
                self._door_killed_s, self._door_kills = time.monotonic(), self._door_kills + 1
                self._blow(self._door_members(shim=False))
            case "shim of the door":
                self._door_has_shim = False
                self._blow(self._door_members(shim=True))
            case "shim":
                self.shimless.add(attempt)
                self._blow(self._of(attempt, shim=True))
            case "engine":
                self.hit.add(attempt)
                self._blow(self._of(attempt, shim=False))

    def kill_daemon(self) -> None:
        daemon = self.stage.daemon
        assert daemon is not None
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    def _and_again(self, at_s: float) -> float:
        """Now and then the new daemon is killed, too, wherever it is in its start; when the last one was killed."""
        while self.dice.random() < AGAIN:
            time.sleep(self.dice.uniform(0, AGAIN_S))
            self.tell("kill the new daemon")
            self.kills["new daemon"] += 1
            at_s = time.monotonic()
            self.kill_daemon()
            self.stage.begin_daemon()
        return at_s

    def _of(self, attempt: str, *, shim: bool) -> Members:
        return self._split(self.stage.config.runs_dir / attempt, shim=shim)

    def _door_members(self, *, shim: bool) -> Members:
        return self._split(self.stage.config.door_dir / "run", shim=shim)

    @staticmethod
    def _split(run_dir: Path, *, shim: bool) -> Members:
        identity = launched.observe(run_dir).identity
        head = identity.pid if identity else 0
        return {pid: ticks for pid, ticks in members(run_dir).items() if (pid == head) is shim}

    def _blow(self, processes: Members) -> None:
        """Through pidfds, start times compared; returns when they are dead."""
        shim.signal_all(processes, signal.SIGKILL)
        alive = lambda pid, ticks: (s := shim.stat_of(pid)) is not None and s.alive and s.start_ticks == ticks  # noqa: E731
        self.until(lambda: not any(alive(*one) for one in processes.items()), f"{processes} do not die")

    # --- what must hold after a kill ----------------------------------------------------------------------------------

    def running(self) -> dict[str, Members]:
        """Attempts that have processes that are there to stay: pid → start time of each, shims included."""
        folders = list(self.stage.config.runs_dir.iterdir())
        return {folder.name: found for folder in folders if (found := settled(folder))}

    def await_service(self, at_s: float) -> None:
        """Until the front door answers; only what was in flight or came until then may be lost."""
        self.until(self.answers, "the front door does not answer")
        now_s = time.monotonic()
        if self._door_has_shim:
            self.times["serves"].append(now_s - at_s)
        self._door_has_shim = True
        self.excuses.append(Excuse("the front door was killed", at_s, now_s))

    def answers(self) -> bool:
        host, _, port = self.stage.config.public.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as door:
                door.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return door.recv(64).startswith(b"HTTP/1.")
        except OSError:
            return False

    def await_decision(self, at_s: float) -> bool:
        """Until the daemon answers and its loop has made a pass. False when it died before (a test may have asked)."""
        self.until(lambda: self.is_dead() or self._decides(), "the daemon decides nothing")
        if self.is_dead():
            return False
        self.times["decides"].append(time.monotonic() - at_s)
        return True

    def is_dead(self) -> bool:
        return self.stage.daemon is None or self.stage.daemon.poll() is not None

    def _decides(self) -> bool:
        try:
            return bool(self.stage.api.get("/v1/status", timeout=5.0).json()["now"] != "starting")
        except httpx.HTTPError:
            return False

    def revive(self) -> None:
        """The daemon is dead: the service manager starts another, armed with the next point where one is to come."""
        daemon, at_s = self.stage.daemon, time.monotonic()
        assert daemon is not None
        if daemon.wait(PATIENCE_S) != -signal.SIGKILL:
            self.fail([f"the daemon ended with code {daemon.returncode}: {self.stage.daemon_words()}"])
        if self.armed:
            self.reached.add(self.armed.partition(":")[0])
            self.tell(f"the daemon died at {self.armed}")
            self.kills[self.armed] += 1
        before = self.running()
        self.armed = self.arms.popleft() if self.arms else ""
        self.stage.begin_daemon(CUTOVER_CRASH_AT=self.armed)
        if self.await_decision(at_s):
            self.judge_adopted(before, None)

    def judge_adopted(self, before: dict[str, Members], known: State | None) -> State:
        """Whoever ran and was not killed runs on, the same processes; production is not sent away."""
        state = self.state()
        found = violations(state)
        for name, old in before.items():
            attempt = state.attempts.get(name)
            if attempt is None or attempt.pid is None or name in self.hit:
                continue
            if attempt.is_staying:
                there = members(self.stage.config.runs_dir / name)
                killed = {attempt.pid} if name in self.shimless else set()
                gone = {pid for pid, ticks in old.items() if there.get(pid) != ticks} - killed
                if gone:
                    found.append(f"{name} lost its processes {sorted(gone)}, and nobody killed them")
            elif known is not None and known.live == state.live and attempt.gave_way_to is None:
                was = known.attempts.get(name)
                if was in known.seat_attempts(known.live) and was is not None and was.state is AttemptState.READY:
                    found.append(f"{name} is live, was well and was sent away: {attempt.why}")
        if found:
            self.fail(found)
        return state

    # --- the end ------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Nobody is killed any more: everything ends, and what must hold at rest holds."""
        give_up_s = time.monotonic() + 2 * PATIENCE_S
        while complaints := at_rest(self.stage, self.state(), self.acknowledged):
            if time.monotonic() > give_up_s:
                self.fail(complaints)
            time.sleep(0.1)
        served = self.load.tally().get("complete", 0)
        self.until(lambda: self.load.tally().get("complete", 0) > served, "no user is served")
        lasted_s = time.monotonic() - self.loaded_s
        self.tally = self.load.stop()
        self.times["rate"].append(self.tally["sent"] / lasted_s)
        self.phases.update(r.phase.value for r in self.state().rollouts.values())
        if lost := unexcused(self.load.problems(), self.excuses):
            self.fail([f"{len(lost)} requests were lost without an excuse", *lost[:10]])
