"""What the configuration asks for, as the core needs it. Defaults are those of the design (§9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .window import Schedule

HOLD = "hold"
LAST_KNOWN_GOOD = "last-known-good"


@dataclass(frozen=True, slots=True)
class Policy:
    start_s: float = 1200.0  # one instance, from its process to its first token
    drain_s: float = 1800.0  # streams in flight may take that long before they are cut
    # What may be chosen without being asked for. A swap stops production first: somebody has to want it.
    strategies: tuple[str, ...] = ("blue-green", "rolling")
    swap_drain_s: float = 300.0  # the same while new requests wait at the front door
    hold_s: float = 60.0  # that long they wait there; then they get 503
    memory_slack_mib: int = 512  # a card is back when no more than that is in use beyond what was before the start
    memory_back_s: float = 60.0  # … within that time after the last process was gone; else it is quarantined
    swap_drain_cuts: bool = True  # what still streams then is cut; False: the swap is given up
    bake_s: float = 600.0
    bake_interval_s: float = 5.0
    bake_bad_in_row: int = 2
    # A sample is bad when the candidate's time to first byte (p95, at least `bake_min_requests` answers) or the probe's
    # time to first token exceeds what the release before showed by this factor and by this many seconds.
    bake_latency_factor: float = 1.5
    bake_latency_slack_s: float = 0.25
    bake_min_requests: int = 20
    probe_fresh_s: float = 15.0  # a probe older than that proves nothing
    silent_s: float = 60.0  # live fails probes and its counters stand still for that long: down, not busy
    prefill_s: float = 300.0  # … where its KV pool fills, or it has no counters: a prompt may take that long
    silent_probes: int = 3
    restart_budget: int = 5  # one live instance that dies is started again so often, and then given up …
    restart_window_s: float = 600.0  # … unless it served for that long in between
    restart_pause_s: float = 5.0  # before the second of them, from its end; twice as long before each next …
    restart_pause_max_s: float = 60.0  # … but no longer than that
    when_live_keeps_dying: str = HOLD  # who serves when all of live is given up
    max_concurrent_starts: int = 1  # loading models together has collapsed power supplies (field notes §1)
    settle_s: float = 0.0  # … and the next one waits that long after the last was ready, or given up
    port_first: int = 18000
    port_last: int = 18999
    port_block: int = 10
    slots: int = 32
    keep_previous_warm: bool = True
    sleep: bool = True  # who makes room sleeps, where its engine can: going back is a wake then, and no start
    sleep_deadline_s: float = 60.0  # to fall asleep with the memory back, and to wake up to a sane answer
    sleep_leftover_mib: int = 3072  # what a sleeper may keep on each card: its CUDA context, graphs and buffers
    retry_after_s: int = 30
    schedules: Mapping[str, Schedule] = field(default_factory=dict)  # by the name of their window
    approval_s: float = 86_400.0  # an approval that has not come by then: aborted, unless it says otherwise
    approval_recheck_s: float = 600.0  # what waits for its approval is asked its first gate again so often
    expires_s: float = 7 * 86_400.0  # what has not begun by then is skipped, unless it says otherwise
    # By night production makes room, or is measured, only while users ask for no more than this.
    quiet_per_min: float = 6.0
    quiet_in_flight: int = 0
    quiet_patience_s: float = 1800.0  # the measurement of live waits that long for such a moment; then it is left out
    undo_slack: float = 1.25  # what a way back took here before may take that much longer next time
