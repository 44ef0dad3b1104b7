"""Generation probes on a schedule of their own: the loop reads the newest result and never waits for one.

Healthy means that tokens came out. A probe that fails says at which layer: host, process, port, HTTP, generation; and
next to it stands when the engine's own counters last moved, so that busy is not taken for down (`core.silence`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import median

import structlog

from gates.contract import sendable
from gates.counters import Counters
from gates.health import Probe, probe
from launch.attempts import listening_pids

from ..core.desired import ProbeWish
from ..core.seen import ProbeSeen
from .clock import Clock
from .engine_pages import counters_of

log = structlog.get_logger("prober")

_TICK_S = 0.05
_WORKERS = 8
_TIMEOUT_S = 30.0
_COUNTERS_TIMEOUT_S = 2.0
_COUNTERS_EVERY_S = 5.0  # while a probe waits: a prefill and a hang look alike else until it times out
_RECENT = 5
_ENDS_KEPT = 400  # of a minute, at the quickest pace
_MOST_LEFT = 4  # half of the workers may wait for what nobody wants to hear any more


@dataclass
class _Target:
    wish: ProbeWish
    due_s: float = 0.0
    running: bool = False
    left: bool = False  # it is asked anew, and nobody wants to hear what is still to come
    seen: ProbeSeen | None = None
    counters: Counters | None = None
    progress_at_s: float | None = None
    pool_at_s: float | None = None
    counted_s: float = 0.0  # when its counters were last asked for
    key: str | None = field(default=None, repr=False)  # for whoever was found to be the attempt itself
    ended_s: deque[float] = field(default_factory=lambda: deque(maxlen=_ENDS_KEPT))
    recent: deque[tuple[float | None, float | None]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def typical(self, index: int) -> float | None:
        values = [pair[index] for pair in self.recent]
        known = [value for value in values if value is not None]
        return median(known) if known else None


class Prober:
    """`wish` says who is to be probed; `results` is what is known. `on_change` is called when an outcome turns.

    `clock`: seconds since boot; probes are due and dated by it. `key_of`: the key that an attempt's engine wants, or,
    asked for None, the one that the front door's own ways in want; None where they want none.
    """

    def __init__(
        self,
        public: str,
        preview: str,
        pids_of: Callable[[str], Collection[int]],
        on_change: Callable[[], None] = lambda: None,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = Clock.boot_s,
        key_of: Callable[[str | None], str | None] = lambda _: None,
    ) -> None:
        self._key_of = key_of
        self._doors = {"public": f"http://{public}", "preview": f"http://{preview}"}
        self._pids_of = pids_of
        self._on_change = on_change
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._targets: dict[str, _Target] = {}
        self._left = 0
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="probe")
        self._counting = ThreadPoolExecutor(2, thread_name_prefix="counters")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._schedule, name="prober", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._counting.shutdown(wait=False, cancel_futures=True)

    def wish(self, wishes: Collection[ProbeWish]) -> None:
        """From now on exactly these; what is known of others is forgotten."""
        with self._lock:
            kept: dict[str, _Target] = {}
            for wish in wishes:
                target = self._targets.get(wish.target)
                if target is None or (target.wish.port, target.wish.model) != (wish.port, wish.model):
                    target = _Target(wish)
                elif wish.every_s < target.wish.every_s:
                    target.due_s = min(target.due_s, self._clock() + wish.every_s)
                target.wish = wish
                kept[wish.target] = target
            self._targets = kept

    def renew(self) -> None:
        """There is somebody else behind the front door: what was asked there before says nothing of them.

        Such a question may wait for its whole time with an engine that hangs, and the new ones count as never asked.
        """
        with self._lock:
            for name in self._doors.keys() & self._targets.keys():
                target = self._targets[name]
                if target.running and self._left < _MOST_LEFT:
                    self._left += 1
                    self._targets[name] = replace(target, running=False, due_s=self._clock())
                    target.left = True

    def results(self) -> Mapping[str, ProbeSeen]:
        with self._lock:
            return {
                name: replace(
                    t.seen,
                    progress_at_s=t.progress_at_s,
                    pool_at_s=t.pool_at_s,
                    has_counters=t.counters is not None,
                )
                for name, t in self._targets.items()
                if t.seen is not None
            }

    def asked(self, name: str, since_s: float) -> tuple[int, int]:
        """Probes of a target that ended since then, up to a few hundred, and those that run."""
        with self._lock:
            target = self._targets.get(name)
            return (0, 0) if target is None else (sum(at_s >= since_s for at_s in target.ended_s), int(target.running))

    def _schedule(self) -> None:
        while not self._stop.wait(_TICK_S):
            now_s = self._clock()
            with self._lock:
                due = [t for t in self._targets.values() if not t.running and t.due_s <= now_s]
                waiting = [t for t in self._targets.values() if t.running and t.wish.port is not None]
                behind = [t for t in waiting if now_s - t.counted_s >= _COUNTERS_EVERY_S]
                for target in due:
                    target.running, target.counted_s = True, now_s
                for target in behind:
                    target.counted_s = now_s
            for target in due:
                self._pool.submit(self._run, target)
            for target in behind:
                self._counting.submit(self._count, target)

    def _run(self, target: _Target) -> None:
        started_s = self._clock()
        wish = target.wish
        counters: Counters | None = None
        try:
            result = self._ask(target, wish)
            if wish.port is not None:
                counters = counters_of(wish.port, target.key, _COUNTERS_TIMEOUT_S)
        except Exception as error:
            # A probe that breaks is a failed probe, not a dead prober.
            log.exception("the probe broke", target=wish.target)
            result = Probe(ok=False, layer="generation", sentence=f"the probe itself broke: {error}")
        self._keep(target, result, counters, started_s)

    def _count(self, target: _Target) -> None:
        wish = target.wish
        if wish.port is None:
            return
        try:
            counters = counters_of(wish.port, target.key, _COUNTERS_TIMEOUT_S)
        except Exception:
            log.exception("the counters cannot be read", target=wish.target)
            return
        with self._lock:
            _note(target, counters, self._clock())

    def _ask(self, target: _Target, wish: ProbeWish) -> Probe:
        if wish.port is None:
            door = self._doors[wish.target]
            return probe(door, wish.model, timeout_s=self._timeout_s, api_key=self._key_of(None))
        target.key = None
        if wish.attempt is not None:
            # Identity before readiness: an orphan of yesterday on the same port answers 200 too (llama-swap#100).
            listening = set(listening_pids(wish.port))
            if listening and not listening & set(self._pids_of(wish.attempt)):
                return Probe(ok=False, layer="identity", sentence=f"port {wish.port} is held by pid {min(listening)}")
            # Whom we cannot see may be another user's, who would like to have the key.
            target.key = self._key_of(wish.attempt) if listening else None
        return probe(f"http://127.0.0.1:{wish.port}", wish.model, timeout_s=self._timeout_s, api_key=target.key)

    def _keep(self, target: _Target, result: Probe, counters: Counters | None, started_s: float) -> None:
        now_s = self._clock()
        with self._lock:
            target.ended_s.append(now_s)
            if target.left:
                self._left -= 1
                return
            before = target.seen
            same = before is not None and before.ok == result.ok
            if result.ok:
                target.recent.append((result.ttft_s, result.total_s))
            target.seen = ProbeSeen(
                ok=result.ok,
                at_s=now_s,
                started_at_s=started_s,
                layer=str(result.layer),
                sentence=sendable(result.sentence),
                ttft_s=result.ttft_s,
                total_s=result.total_s,
                typical_ttft_s=target.typical(0),
                typical_total_s=target.typical(1),
                streak=before.streak + 1 if same and before is not None else 1,
                streak_since_s=before.streak_since_s if same and before is not None else started_s,
            )
            _note(target, counters, now_s)
            target.running = False
            target.due_s = now_s + target.wish.every_s
        if not same or target.wish.target in self._doors:
            self._on_change()


def _note(target: _Target, counters: Counters | None, now_s: float) -> None:
    """What moved since they were read last."""
    if counters is None:
        return
    if target.counters is None or counters.moved_since(target.counters):
        target.progress_at_s = now_s
    elif counters.kv_usage != target.counters.kv_usage:
        target.pool_at_s = now_s
    target.counters = counters
