"""What a cutover costs the users: every strategy under load, behind the real front door.

    python benchmarks/cutover.py                               # emulated engines, a few runs of each, some minutes
    python benchmarks/cutover.py --runs 20 --streams 16 64     # the whole table, about half an hour
    python benchmarks/cutover.py --strategies swap --runs 3 --sleep on off
    python benchmarks/cutover.py --engine vllm --runs 1     # real vLLM on the CPU: rolling and swap

A run is one promotion and one rollback while all streams talk. Prints Markdown, each time as median / worst: requests
sent, failed and truncated; the dark time in its parts, and what of it is ours: everything but drain, stop, memory,
gates and the engine's own start, which is timed beside it. An emulated engine sleeps and wakes in no time, so all of
that is ours. `--sleep off` stops who makes room instead. `--json FILE` keeps the figures. Ends with 1 when a limit is
missed: 0 requests lost, 2 s of ours in the dark (there and back), 1 s to go back to a release that runs, 1 s more than
its wake (and the drain of live) to go back to one that sleeps.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cutover_boxes import Box, at_the_door, emulated, vllm

from controller.demo.stage import Clients, Stage

OURS_LIMIT_S = 2.0
WARM_LIMIT_S = 1.0
ASLEEP_LIMIT_S = 1.0
BOXES = {"emulated": emulated, "vllm": vllm}


@dataclass
class Table:
    """What came of all runs of one strategy under one load. Seconds."""

    strategy: str
    streams: int
    sleep: bool = True  # who makes room may sleep
    sent: int = 0
    complete: int = 0
    failed: int = 0
    truncated: int = 0
    gap_s: float = 0.0
    longest_wait_s: float = 0.0  # for a first token
    dark: list[Mapping[str, float]] = field(default_factory=list)
    own_starts_s: list[float] = field(default_factory=list)  # the engine's own, one for each dark time
    switches_s: list[float] = field(default_factory=list)
    rollbacks_s: list[float] = field(default_factory=list)
    wakes: list[Mapping[str, float]] = field(default_factory=list)  # the parts of a dark way back that was a wake
    whole_again_s: list[float] = field(default_factory=list)  # from asking for the rollback
    door: Mapping[str, int] = field(default_factory=dict)  # how requests ended at the front door, probes among them
    first_problem: str = ""

    def ours_s(self) -> list[float]:
        """Of each dark time what neither the engine nor the users' own streams took."""
        started = zip(self.dark, self.own_starts_s, strict=True)
        return [
            parts["rest"] + max(0.0, parts["start"] - own_s) + parts.get("sleep", 0.0) + parts.get("wake", 0.0)
            for parts, own_s in started
        ]

    @property
    def name(self) -> str:
        return self.strategy if self.strategy == "blue-green" or self.sleep else f"{self.strategy}, sleep off"

    def beyond_wake_s(self) -> list[float]:
        """Of each way back by a wake what neither the wake nor the users' own streams took."""
        return [sum(parts.values()) - parts["drain"] - parts["wake"] for parts in self.wakes]

    def missed(self) -> Iterator[str]:
        where = f"{self.name}, {self.streams} streams"
        if self.failed or self.truncated:
            yield f"{where}: {self.failed} failed, {self.truncated} truncated ({self.first_problem})"
        if self.dark and max(self.ours_s()) > OURS_LIMIT_S:
            yield f"{where}: {max(self.ours_s()):.2f} s of ours in the dark, the limit is {OURS_LIMIT_S:.0f} s"
        if self.strategy == "blue-green" and max(self.rollbacks_s) > WARM_LIMIT_S:
            yield f"{where}: {max(self.rollbacks_s):.2f} s back to what runs, the limit is {WARM_LIMIT_S:.0f} s"
        if self.wakes and max(self.beyond_wake_s()) > ASLEEP_LIMIT_S:
            beyond_s = max(self.beyond_wake_s())
            yield f"{where}: {beyond_s:.2f} s more than the wake to go back, the limit is {ASLEEP_LIMIT_S:.0f} s"


def measure(box: Box, strategy: str, streams: int, runs: int, *, sleep: bool = True) -> Table:
    table = Table(strategy, streams, sleep)
    settings = {**box.settings, **({} if sleep else {"sleep": "off"})}
    with tempfile.TemporaryDirectory(prefix="cutover-bench-") as folder:
        profile = Path(folder) / "profile.yaml"
        profile.write_text(box.profile)
        with Stage(Path(folder) / "stage", settings) as stage:
            _promote(box, stage, "one", strategy, profile)
            clients = Clients(
                f"http://{stage.config.public}",
                box.model,
                streams,
                box.max_tokens,
                stage.directory / "clients.log",
                pause_s=box.pause_s,
                timeout_s=box.patience_s,
            )
            try:
                time.sleep(1.0)
                for number in range(runs):
                    _run(box, stage, strategy, profile, table)
                    print(f"{table.name}, {streams} streams: run {number + 1} of {runs}", file=sys.stderr)
            finally:
                tally = clients.stop()
            table.door = at_the_door(stage)
    table.sent, table.complete = tally["sent"], tally["complete"]
    table.failed, table.truncated, table.first_problem = tally["failed"], tally["truncated"], tally["first_problem"]
    table.gap_s, table.longest_wait_s = tally["largest_gap_s"], tally["longest_first_token_s"]
    return table


def _run(box: Box, stage: Stage, strategy: str, profile: Path, table: Table) -> None:
    """There and back: `one` is live before and after."""
    there, there_own_s = _promote(box, stage, "two-b", strategy, profile)
    began_s = time.monotonic()
    asked = stage.post("/v1/rollback")["rollout"]["id"]
    back, back_own_s = box.finish(stage, asked, dark=strategy == "swap")
    if back["phase"] != "rolled_back":
        sys.exit(f"the rollback is {back['phase']}: {back['why']}")
    whole = 2 if strategy == "rolling" else 1
    if not stage.until(
        lambda: _ready(stage) == whole and "rollback_s" in stage.rollout(asked)["times"], box.patience_s
    ):
        sys.exit(f"live is not whole {box.patience_s:.0f} s after the rollback")
    table.whole_again_s.append(time.monotonic() - began_s)
    back = stage.rollout(asked)
    table.switches_s.append(there["times"]["switch_s"])
    table.rollbacks_s.append(back["times"]["rollback_s"])
    if "wake" in back["dark"]:
        table.wakes.append(back["dark"])
    for rollout, own_s in ((there, there_own_s), (back, back_own_s)):
        if rollout["dark"]:
            table.dark.append(rollout["dark"])
            table.own_starts_s.append(own_s)


def _promote(box: Box, stage: Stage, name: str, strategy: str, profile: Path) -> tuple[dict[str, Any], float]:
    first = stage.get("/v1/status")["live"] is None
    wanted = "any" if first else strategy
    rollout = stage.propose(box.topologies[strategy](name), f"{name}.yaml", gates=str(profile), strategy=wanted)
    done, own_start_s = box.finish(stage, rollout, dark=strategy == "swap" and not first)
    if done["phase"] != "promoted":
        sys.exit(f"{name} as a {strategy} is {done['phase']}: {done['why']}")
    return done, own_start_s


def _ready(stage: Stage) -> int:
    live = stage.get("/v1/status")["live"]
    return sum(attempt["state"] == "ready" for attempt in live["attempts"])


def show(tables: Sequence[Table]) -> None:
    print(
        "| strategy | streams | runs | requests | failed | truncated | largest gap | longest wait | switch | way back "
        "| whole again |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for t in tables:
        print(
            f"| {t.name} | {t.streams} | {len(t.switches_s)} | {t.sent} | {t.failed} | {t.truncated} "
            f"| {_span(t.gap_s)} | {_span(t.longest_wait_s)} | {_both(t.switches_s)} | {_both(t.rollbacks_s)} "
            f"| {_both(t.whole_again_s)} |"
        )
    dark = [t for t in tables if t.dark]
    if not dark:
        return
    parts = ("drain", "sleep", "stop", "memory", "start", "wake")
    print(f"\n| dark time of | streams | whole | {' | '.join(parts)} | its own start | gates | rest | **ours** |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for t in dark:
        cells = [_both([sum(p.values()) for p in t.dark])]
        cells += [_both([p[name] for p in t.dark if name in p]) for name in parts]
        cells += [_both(t.own_starts_s), *(_both([p[name] for p in t.dark]) for name in ("gates", "rest"))]
        print(f"| {t.name} | {t.streams} | {' | '.join(cells)} | **{_both(t.ours_s())}** |")


def _both(values: Sequence[float]) -> str:
    return f"{_span(median(values))} / {_span(max(values))}" if values else ""


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _leave(number: int, frame: object) -> None:  # noqa: ARG001 - a signal handler
    """Being ended is a reason to clean up."""
    sys.exit(128 + number)


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(BOXES), default="emulated")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", help="default: 16, and 6 on vLLM")
    parser.add_argument("--strategies", nargs="+", help="default: all that the engine is set up for")
    parser.add_argument("--sleep", nargs="+", choices=("on", "off"), default=["on"], help="for who makes room")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    box = BOXES[arguments.engine]()
    strategies = arguments.strategies or list(box.topologies)
    if unknown := [strategy for strategy in strategies if strategy not in box.topologies]:
        parser.error(f"--strategies: {unknown[0]} is not one of {', '.join(box.topologies)}, which {box.engine} plays")
    streams_asked = arguments.streams or [box.streams]
    tables = [
        measure(box, strategy, streams, arguments.runs, sleep=sleep == "on")
        for strategy in strategies
        for sleep in (arguments.sleep if strategy != "blue-green" else ["on"])
        for streams in streams_asked
    ]
    show(tables)
    if arguments.json:
        arguments.json.write_text(json.dumps([{**asdict(t), "ours_s": t.ours_s()} for t in tables], indent=2))
    missed = [sentence for table in tables for sentence in table.missed()]
    print()
    for sentence in missed:
        print(f"MISSED  {sentence}")
    print("" if missed else "every limit is kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
