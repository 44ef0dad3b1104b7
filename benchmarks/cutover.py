"""What a cutover costs the users: every strategy under load, on emulated engines behind the real front door.

    python benchmarks/cutover.py                               # a few runs of each, some minutes
    python benchmarks/cutover.py --runs 20 --streams 16 64     # the whole table, about half an hour
    python benchmarks/cutover.py --strategies swap --runs 3

A run is one promotion and one rollback while all streams talk. Prints Markdown, each time as median / worst: requests
sent, failed and truncated; the dark time in its parts, and what of it is ours: everything but drain, stop, gates and
the engine's own start, which is measured beside it. Ends with 1 when a limit is missed: 0 requests lost, 2 s of ours in
the dark (there and back), 1 s to go back to a release that runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from controller.demo.stage import Clients, Stage
from launch.engines.emulator.testing import emulator

OURS_LIMIT_S = 2.0
WARM_LIMIT_S = 1.0
START_S = 1.0
FLAGS = ("--start-s", str(START_S), "--slots", "64", "--ttft-ms", "40", "--itl-ms", "10")
SETTINGS = {
    "gpus": {"kind": "none", "count": 4},
    "bake": {"seconds": 1, "interval_s": 0.5},
    "drain_s": 60,
    "start_s": 60,
    "hold_s": 100,
}
PROFILE = "gates:\n  - {name: health, deadline_s: 60, settings: {probes: 1}}\n"
INSTANCES = {
    "blue-green": "{a: {gpus: 2}}",
    "rolling": "{a: {gpus: 2}, b: {gpus: 2}}",
    "swap": "{a: {gpus: 4}}",
}


@dataclass
class Table:
    """What came of all runs of one strategy under one load. Seconds."""

    strategy: str
    streams: int
    own_start_s: float
    sent: int = 0
    failed: int = 0
    truncated: int = 0
    gap_s: float = 0.0
    dark: list[Mapping[str, float]] = field(default_factory=list)
    switches_s: list[float] = field(default_factory=list)
    rollbacks_s: list[float] = field(default_factory=list)
    first_problem: str = ""

    def ours_s(self) -> list[float]:
        """Of each dark time what neither the engine nor the users' own streams took."""
        return [parts["rest"] + max(0.0, parts["start"] - self.own_start_s) for parts in self.dark]

    def missed(self) -> Iterator[str]:
        where = f"{self.strategy}, {self.streams} streams"
        if self.failed or self.truncated:
            yield f"{where}: {self.failed} failed, {self.truncated} truncated ({self.first_problem})"
        if self.dark and max(self.ours_s()) > OURS_LIMIT_S:
            yield f"{where}: {max(self.ours_s()):.2f} s of ours in the dark, the limit is {OURS_LIMIT_S:.0f} s"
        if self.strategy == "blue-green" and max(self.rollbacks_s) > WARM_LIMIT_S:
            yield f"{where}: {max(self.rollbacks_s):.2f} s back to what runs, the limit is {WARM_LIMIT_S:.0f} s"


def own_start_s(times: int = 5) -> float:
    """From the engine's process to its first token, asked for as soon as it listens: the median of a few starts."""
    taken = []
    for _ in range(times):
        began_s = time.monotonic()
        with emulator(*FLAGS) as engine:
            _first_token(engine.url)
            taken.append(time.monotonic() - began_s)
    return median(taken)


def _first_token(url: str) -> None:
    body = {"model": "emu", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
    while True:
        try:
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=5, trust_env=False)
            if answer.status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.01)


def topology(name: str, strategy: str) -> str:
    flags = ", ".join(f'"{flag}"' for flag in (*FLAGS, "--seed", str(len(name))))
    return (
        f"name: {name}\nserves: [emu]\nengine: emulator\nflags: [{flags}]\ninstances: {INSTANCES[strategy]}\n"
        "stop_grace_s: 5\n"
    )


def measure(strategy: str, streams: int, runs: int, start_s: float) -> Table:
    table = Table(strategy, streams, start_s)
    with tempfile.TemporaryDirectory(prefix="cutover-bench-") as folder:
        profile = Path(folder) / "profile.yaml"
        profile.write_text(PROFILE)
        with Stage(Path(folder) / "stage", SETTINGS) as stage:
            _promote(stage, "one", strategy, profile)
            clients = Clients(f"http://{stage.config.public}", "emu", streams, 120, stage.directory / "clients.log")
            try:
                time.sleep(1.0)
                for number in range(runs):
                    _run(stage, strategy, profile, table)
                    print(f"{strategy}, {streams} streams: run {number + 1} of {runs}", file=sys.stderr)
            finally:
                tally = clients.stop()
    table.sent, table.failed, table.truncated = tally["sent"], tally["failed"], tally["truncated"]
    table.gap_s, table.first_problem = tally["largest_gap_s"], tally["first_problem"]
    return table


def _run(stage: Stage, strategy: str, profile: Path, table: Table) -> None:
    """There and back: `one` is live before and after."""
    there = _promote(stage, "two-b", strategy, profile)
    back = stage.finish(stage.post("/v1/rollback")["rollout"]["id"])
    if back["phase"] != "rolled_back":
        sys.exit(f"the rollback is {back['phase']}: {back['why']}")
    whole = 2 if strategy == "rolling" else 1
    if not stage.until(lambda: _ready(stage) == whole and "rollback_s" in stage.rollout(back["id"])["times"], 60):
        sys.exit("live is not whole a minute after the rollback")
    back = stage.rollout(back["id"])
    table.switches_s.append(there["times"]["switch_s"])
    table.rollbacks_s.append(back["times"]["rollback_s"])
    table.dark += [rollout["dark"] for rollout in (there, back) if rollout["dark"]]


def _promote(stage: Stage, name: str, strategy: str, profile: Path) -> dict[str, Any]:
    wanted = strategy if stage.get("/v1/status")["live"] else "any"
    rollout = stage.propose(topology(name, strategy), f"{name}.yaml", gates=str(profile), strategy=wanted)
    done = stage.finish(rollout)
    if done["phase"] != "promoted":
        sys.exit(f"{name} as a {strategy} is {done['phase']}: {done['why']}")
    return done


def _ready(stage: Stage) -> int:
    live = stage.get("/v1/status")["live"]
    return sum(attempt["state"] == "ready" for attempt in live["attempts"])


def show(tables: Sequence[Table], start_s: float) -> None:
    print(f"The engine's own start, from its process to its first token: {start_s:.2f} s.\n")
    print("| strategy | streams | runs | requests | failed | truncated | largest gap | switch | way back |")
    print("|---|---|---|---|---|---|---|---|---|")
    for t in tables:
        print(
            f"| {t.strategy} | {t.streams} | {len(t.switches_s)} | {t.sent} | {t.failed} | {t.truncated} "
            f"| {t.gap_s * 1000:.0f} ms | {_both(t.switches_s)} | {_both(t.rollbacks_s)} |"
        )
    dark = [t for t in tables if t.dark]
    if not dark:
        return
    print("\n| dark time of | streams | whole | drain | stop | start | gates | rest | **ours** |")
    print("|---|---|---|---|---|---|---|---|---|")
    for t in dark:
        cells = [_both([sum(p.values()) for p in t.dark])]
        cells += [_both([p[name] for p in t.dark]) for name in ("drain", "stop", "start", "gates", "rest")]
        print(f"| {t.strategy} | {t.streams} | {' | '.join(cells)} | **{_both(t.ours_s())}** |")


def _both(values: Sequence[float]) -> str:
    return f"{_span(median(values))} / {_span(max(values))}" if values else ""


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[16])
    parser.add_argument("--strategies", nargs="+", choices=list(INSTANCES), default=list(INSTANCES))
    arguments = parser.parse_args()
    start_s = own_start_s()
    tables = [
        measure(strategy, streams, arguments.runs, start_s)
        for strategy in arguments.strategies
        for streams in arguments.streams
    ]
    show(tables, start_s)
    missed = [sentence for table in tables for sentence in table.missed()]
    print()
    for sentence in missed:
        print(f"MISSED  {sentence}")
    print("" if missed else "every limit is kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
