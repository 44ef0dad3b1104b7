"""A journal after a year of nights, with and without what the daemon forgets of it: do passes stay quick?

    python benchmarks/year_of_nights.py

Four nights are played on the real loop and the real journal, in a world whose clock is turned: live is measured, nine
trials are judged beside it, and one proposal is promoted and baked for ten minutes; every release is a new one. The
second of them is written again under other names for as many nights before as asked for. Prints for each number of
nights what a pass at rest takes (median of 200) and what a write takes (median of 50), both in CPU time, what is in
memory and on the disk, and how long a daemon needs to open it; then the same after `Journal.forget` with
`keep: {days: 30}`. Asserts nothing.
"""

import logging
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from datetime import time as of_day
from pathlib import Path

import structlog
from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fake_world import Box, FakeWorld, make_release

from controller.core import actions as act
from controller.core.policy import Policy
from controller.core.records import Freeze, State
from controller.core.retention import DAY_S
from controller.core.seen import GateSeen, Life
from controller.core.window import Schedule
from controller.loop import Loop
from controller.store.condition import look
from controller.store.journal import Journal

TRIALS = 9
NIGHTS = (1, 30, 90, 365)
KEEP_DAYS = 30
FIRST_NUMBER = 5_000  # of the nights that are played: those that are written again come before
SCHEDULE = Schedule("nightly", of_day(2), 6 * 3600.0, UTC, "UTC")
POLICY = Policy(bake_s=600.0, schedules={"nightly": SCHEDULE})
FIGURES = {f"cell {number}": {"tok_per_s": 100.0 + number, "ttft_s": 0.2, "samples": 400} for number in range(12)}
LINES = "wall_s, boot_id, boot_s, action, subject, rollout, why, detail, outcome"

_STATE = TypeAdapter(State)
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


class MeasuringWorld(FakeWorld):
    """Its last gate leaves as many figures as a measured ladder does."""

    def _gates(self, state: State) -> dict[str, GateSeen]:
        seen = super()._gates(state)
        return {run: replace(g, measurements=FIGURES) if "-2-" in run else g for run, g in seen.items()}


def play(box: Box, number: int) -> None:
    """Ten proposals by day; the clock goes on until the window is open, and everything in it is over."""
    names = [f"n{number}c{arm}" for arm in range(TRIALS + 1)]
    asked = [box.propose(make_release(name), window="nightly", trial=name != names[-1]) for name in names]
    while any(box.state.rollouts[name].ended_wall_s is None for name in asked):
        if not box.loop.step():
            box.world.clock_s += 5.0 if box.state.active is not None else 300.0
    box.settle()
    box.world.clock_s += 6 * 3600.0
    box.settle()
    box.world.processes = {name: p for name, p in box.world.processes.items() if p.life is Life.RUNNING}


def night_of(state: State, number: int) -> State:
    """Only that night: its rollouts with all of theirs."""
    night = sorted(state.nights)[number - 1]
    rollouts = {r.id: r for r in state.rollouts.values() if r.night == night}
    attempts = {a.id: a for a in state.attempts.values() if a.rollout in rollouts}
    releases = {r.release: state.releases[r.release] for r in rollouts.values()}
    return State(rollouts=rollouts, attempts=attempts, releases=releases, nights={night: state.nights[night]})


def earlier(text: str, first_rollout: int, first_attempt: int, days: int) -> str:
    """The same night `days` days before, with numbers from `days` × 20 downwards."""
    shift = FIRST_NUMBER - days * (TRIALS + 3)

    def rollout(found: re.Match[str]) -> str:
        return f"{found[1]}r{int(found[2]) - first_rollout + shift:04d}"

    def attempt(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) - first_attempt + shift}"

    def wall(found: re.Match[str]) -> str:
        return f"{found[1]}{float(found[2]) - days * DAY_S}"

    def date(found: re.Match[str]) -> str:
        at_s = datetime.fromisoformat(found[0]).replace(tzinfo=UTC).timestamp() - days * DAY_S
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"

    text = re.sub(r"(\b)r(\d{4,})\b", rollout, text)
    text = re.sub(r"(n2c\d-a-)(\d+)", attempt, text)
    text = re.sub(r'(_wall_s":)(\d+(?:\.\d+)?)', wall, text)
    text = re.sub(r"\d{4}-\d\d-\d\d", date, text)
    return text.replace("n2c", f"d{days}c")


def written(folder: Path, played: Path, nights: int) -> Path:
    """A journal of the nights that were played, and of so many before them."""
    with sqlite3.connect(played) as db:
        lines = db.execute(f"SELECT {LINES} FROM journal ORDER BY seq").fetchall()  # noqa: S608 - names of columns
    db.close()
    state = look(played).state
    second = night_of(state, 2)
    first_rollout = min(int(name[1:]) for name in second.rollouts)
    first_attempt = min(int(name.rpartition("-")[2]) for name in second.attempts)
    text, mine = _STATE.dump_json(second).decode(), [line for line in lines if line[5] in second.rollouts]
    kinds = ("rollouts", "attempts", "releases", "nights")
    merged, old_lines = {kind: {} for kind in kinds}, []
    for days in range(nights, 0, -1):
        copy = _STATE.validate_json(earlier(text, first_rollout, first_attempt, days))
        for kind in kinds:
            merged[kind] |= getattr(copy, kind)
        for wall_s, *others in mine:
            again = [earlier(f"{value}", first_rollout, first_attempt, days) for value in others[2:]]
            old_lines.append((wall_s - days * DAY_S, *others[:2], *again))
    path = folder / f"{nights}.sqlite"
    journal = Journal(path)
    whole = replace(state, **{kind: {**merged[kind], **getattr(state, kind)} for kind in kinds})
    journal.begin_with(whole, "made for a benchmark", MeasuringWorld().now())
    journal.close()
    with sqlite3.connect(path) as db:
        places = ", ".join("?" * 9)
        db.executemany(f"INSERT INTO journal ({LINES}) VALUES ({places})", [*old_lines, *lines])  # noqa: S608 - the same
    db.close()
    return path


def figures(world: FakeWorld, path: Path) -> str:
    begun_s = time.process_time()
    journal = Journal(path)
    open_s = time.process_time() - begun_s
    box = Box(Loop(journal, world, POLICY), world, journal)
    box.settle()
    passes, writes = [], []
    for _ in range(200):
        begun_s = time.process_time()
        box.loop.step()
        passes.append(time.process_time() - begun_s)
    for number in range(50):
        begun_s = time.process_time()
        box.ask(act.SetFreeze(None if number % 2 else Freeze("boss", "to time it", 0.0)))
        writes.append(time.process_time() - begun_s)
    counted = [len(kind) for kind in (box.state.rollouts, box.state.attempts, box.state.releases)]
    journal.close()
    return (
        f"{statistics.median(passes) * 1000:8.2f} {statistics.median(writes) * 1000:9.2f} {counted[0]:9} {counted[1]:9}"
        f" {counted[2]:9} {look(path).entries:8} {path.stat().st_size / (1 << 20):6.1f} {open_s * 1000:8.0f}"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, world = Path(folder) / "played.sqlite", MeasuringWorld(wall_zero_s=1_780_000_000.0)
        journal = Journal(path)
        box = Box(Loop(journal, world, POLICY), world, journal)
        box.observers = ({"name": "throughput", "deadline_s": 600.0, "settings": {}, "command": None},)
        journal.begin_with(State(rollout_seq=FIRST_NUMBER, attempt_seq=FIRST_NUMBER), "from here on", world.now())
        box.finish(box.propose(make_release("live")))
        before = look(path).entries
        for number in range(1, 5):
            play(box, number)
        print(f"a night adds {(look(path).entries - before) / 4:.0f} lines")
        journal.close()
        print("nights  forgets  pass ms  write ms  rollouts  attempts  releases    lines    MiB  open ms")
        for nights in NIGHTS:
            made = written(Path(folder), path, nights)
            print(f"{nights:6}  {'no':7} {figures(world, made)}", flush=True)
            journal, now = Journal(made), world.now()
            journal.forget(now.wall_s - KEEP_DAYS * DAY_S, now)
            journal.close()
            print(f"{nights:6}  {'yes':7} {figures(world, made)}", flush=True)


if __name__ == "__main__":
    main()
