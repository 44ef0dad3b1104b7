"""A night as it is told in the morning: frozen, plain, and the same for every rendering.

Every instant is aware and carries the offset of the window's timezone, so that nobody who shows it has to ask where the
box stands. As JSON (`report.document`) this is the schema `cutover-report/1`: keys are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

SCHEMA: Final = "cutover-report/1"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that did not pass."""

    id: str
    verdict: str
    sentence: str
    evidence: tuple[str, ...]  # paths


@dataclass(frozen=True, slots=True)
class GatePart:
    """One gate run. `evidence`: its directory; `kept`: whether the verdict still lay there when this was written."""

    name: str
    run: str
    verdict: str  # pass | fail | inconclusive | error
    sentence: str
    observe: bool
    evidence: str
    kept: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A metric of a candidate as a share of live's, between two bounds (docs/throughput-statistics.md)."""

    metric: str
    words: str  # decode rate per user
    higher_is_better: bool
    ratio: float
    low: float
    high: float
    margin: float  # that share of it may be lost
    says: str  # better | worse | no difference: where the bounds lie


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell: medians of the rounds. Of live, where it was measured in the same night by the same workload."""

    workload: str
    concurrency: int
    decode_tok_per_s: float | None
    aggregate_tok_per_s: float | None
    ttft_s: float | None
    live_decode_tok_per_s: float | None = None
    live_aggregate_tok_per_s: float | None = None
    live_ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dark:
    """Nothing served. `parts`: seconds by what they went into (`core.dark`); `until` None: it is not over."""

    seconds: float
    parts: Mapping[str, float]
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class UsersPart:
    """What users met at the public address; the daemon's own probes and gates are among `requests`."""

    requests: int
    held: int
    released: int
    timed_out: int
    left: int
    refused: int
    cut: int
    errors_5xx: int
    lost: int
    longest_wait_s: float
    since: datetime | None  # the log goes back no further than that; None: it has all of it


@dataclass(frozen=True, slots=True)
class RolloutPart:
    """One rollout. `outcome`: its phase in people's words, finer where it was skipped."""

    id: str
    kind: str
    release: str
    asked_by: str
    note: str
    again_for: str  # the rollout that it tries once more; empty: none
    phase: str
    outcome: str
    tone: str  # good | bad | unsure | quiet | open
    over: bool
    why: str
    of_this_night: bool  # False: it only happened meanwhile
    trial: bool
    sweep: str
    strategy: str
    proposed: datetime
    began: datetime | None
    switched: datetime | None
    ended: datetime | None
    gates: tuple[GatePart, ...]
    compared: tuple[Ratio, ...]
    compared_with: str  # the release whose figures are 1; empty: nobody said
    figures: tuple[Figure, ...]
    dark: Dark | None
    users: UsersPart | None
    bake: str
    command: str
    left: datetime | None = None  # of one that was rolled back: when users had left it
    dark_back: Dark | None = None  # … and when nothing served after that


@dataclass(frozen=True, slots=True)
class NotBegun:
    """What waited for the window and did not begin in it. `outcome`: expired, superseded, withdrawn, refused, waits."""

    id: str
    release: str
    asked_by: str
    outcome: str
    why: str
    at: datetime | None
    command: str


@dataclass(frozen=True, slots=True)
class ArmPart:
    """One combination of a sweep, as `core.ranking` has it: the best first. `rank` None: it has none.

    The bounds of `compared` hold for all arms together, so that they are wider than those of the rollout alone.
    """

    name: str
    release: str
    rollout: str
    outcome: str
    tone: str
    standing: str  # better | no better | worse | not compared | failed | not tried | waits | runs
    rank: int | None
    why: str
    night: str  # in which it was tried
    compared: tuple[Ratio, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class SweepPart:
    """`left`: arms that wait or run. `pick` empty: not decided, or no arm is better; `why` says which."""

    id: str
    name: str
    asked_by: str
    on_success: str  # report | ask | switch
    against: str  # the release that figures are ratios to
    arms: tuple[ArmPart, ...]
    left: int
    decided: datetime | None
    pick: str
    why: str
    followed_by: str


@dataclass(frozen=True, slots=True)
class CardPart:
    """A card that was taken out of use, or given back."""

    gpu: str
    sentence: str
    at: datetime
    closed: bool  # still, at the time of the report


@dataclass(frozen=True, slots=True)
class QueuedPart:
    """One who waits now. `opens`: when its window opens next, None without one."""

    id: str
    kind: str
    release: str
    asked_by: str
    window: str
    opens: datetime | None
    waits_for: str
    priority: int
    trial: bool
    sweep: str
    note: str


@dataclass(frozen=True, slots=True)
class Opens:
    window: str
    timezone: str
    opens: datetime
    closes: datetime


@dataclass(frozen=True, slots=True)
class Present:
    """How things stand at `at`: not in the night, but when somebody asks."""

    at: datetime
    live: str  # a release; empty: nothing
    live_since: datetime | None
    live_rollout: str
    live_why: str
    previous: str
    active: str  # a sentence; empty: nothing is tried
    frozen: str
    alarms: tuple[str, ...]
    closed_cards: tuple[CardPart, ...]
    queue: tuple[QueuedPart, ...]
    windows: tuple[Opens, ...]


@dataclass(frozen=True, slots=True)
class NightPart:
    id: str
    window: str
    date: str
    timezone: str
    state: str  # open | closed | missed
    opens: datetime
    closes: datetime
    ended: datetime | None
    why: str
    said: tuple[str, ...]
    hours: tuple[datetime, ...]  # round times on the clocks there, for an axis
    baseline: str  # the rollout that measured live, or was to
    baseline_why: str  # why it did not, or not yet; empty: it did, or nobody needed it
    live_before: str
    live_after: str
    baseline_pending: bool = False  # it waits for a quiet moment, or is being measured: `baseline_why` says which


@dataclass(frozen=True, slots=True)
class Report:
    schema: str
    made_at: datetime
    headline: tuple[str, ...]  # sentences: the whole night in a few
    night: NightPart
    rollouts: tuple[RolloutPart, ...]  # in the order in which they began
    not_begun: tuple[NotBegun, ...]
    sweeps: tuple[SweepPart, ...]
    users: UsersPart | None  # None: nobody could tell
    dark_s: float
    cards: tuple[CardPart, ...]
    present: Present
