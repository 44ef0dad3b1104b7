"""Boxes that live through nights: a window, quiet users, and gates that measure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fake_world import Box, FakeWorld, make_release
from structlog.testing import capture_logs

from controller.core import actions as act
from controller.core.policy import Policy
from controller.core.records import State
from controller.core.window import Schedule
from controller.loop import Loop
from controller.report.build import build
from controller.report.material import Material
from controller.report.records import Report
from controller.store.journal import Journal

ZONE = ZoneInfo("Asia/Taipei")
NIGHTLY = Schedule("nightly", time(2), 4 * 3600.0, ZONE, "Asia/Taipei")
EVENING_S = datetime(2026, 11, 29, 20, 0, tzinfo=ZONE).timestamp()
DECODE, AGGREGATE, TTFT = "decode_tok_per_s", "aggregate_tok_per_s", "ttft_s"


def measured(decode: float, ratio: float | None = None) -> dict[str, Any]:
    """What the throughput gate leaves: a run of two cells, and the comparison where there is one."""
    rounds = {DECODE: [decode, decode * 1.01, decode * 0.99], AGGREGATE: [decode] * 3, TTFT: [0.2] * 3}
    many = {DECODE: [decode / 2] * 3, AGGREGATE: [decode * 4] * 3, TTFT: [0.4] * 3}
    cells = [
        {"workload": "chat", "concurrency": number, "requests": 9, "rounds": each, "figures": {}, "problem": None}
        for number, each in ((1, rounds), (8, many))
    ]
    found: dict[str, Any] = {"run": {"cells": cells}}
    if ratio is not None:
        numbers = {"ratio": ratio, "low": ratio * 0.97, "high": ratio * 1.03, "margin": 0.05}
        named = {"metric": DECODE, "name": "decode rate per user", "higher_is_better": True}
        found["compared"] = [{**named, "verdict": "pass", **numbers, "cells": 2, "rounds": 3}]
    return found


@dataclass
class MeasuringWorld(FakeWorld):
    """Gates of a release say what the test wrote down for it."""

    measures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by the release's name
    sentences: Mapping[str, str] = field(default_factory=dict)

    def _RunGate(self, action: act.RunGate, state: State) -> act.Outcome:  # noqa: N802
        outcome = super()._RunGate(action, state)
        name = state.releases[state.rollouts[action.rollout].release].name
        seen = self.gates.get(action.run)
        if seen is not None and action.gate == "throughput":
            self.gates[action.run] = replace(seen, measurements=self.measures.get(name, {}))
        if seen is not None and name in self.sentences and seen.verdict != "pass":
            self.gates[action.run] = replace(self.gates[action.run], sentence=self.sentences[name])
        return outcome


@dataclass
class NightBox(Box):
    def until_wall(self, hour: int, minute: int = 0, day: int = 30) -> None:
        """Let it be that time of November 2026 on the clocks there."""
        wall_s = datetime(2026, 11, day, hour, minute, tzinfo=ZONE).timestamp()
        while (left_s := wall_s - self.world.now().wall_s) > 0:
            if not self.loop.step():
                self.world.clock_s += 0.5 if self.state.active else min(60.0, left_s)

    def report(self, night: str = "nightly@2026-11-30", **more: Any) -> Report:
        return build(self.material(night, **more))

    def material(self, night: str = "nightly@2026-11-30", **more: Any) -> Material:
        known = {
            "entries": tuple(self.journal.entries(limit=100_000)),
            "seen": self.world.observe(self.state),
            "gates_dir": "/state/gates",
            **more,
        }
        return Material(self.state, self.state.nights[night], self.world.now(), self.loop.policy, **known)


@contextlib.contextmanager
def night_box(directory: Path, **policy: Any) -> Iterator[NightBox]:
    """It is evening, something can become live, and the window opens at two."""
    journal = Journal(directory / "journal.sqlite")
    world = MeasuringWorld()
    world.set_wall(EVENING_S)
    chosen = {"bake_s": 30.0, "schedules": {"nightly": NIGHTLY}, "strategies": ("blue-green", "rolling", "swap")}
    box = NightBox(Loop(journal, world, Policy(**{**chosen, **policy})), world, journal)
    try:
        yield box
    finally:
        journal.close()


THROUGHPUT = {"name": "throughput", "deadline_s": 120.0}


def busy_night(directory: Path) -> Iterator[NightBox]:
    """Three proposals: one leaks, one is slow, one is better; an older revision of it; and one that fits nowhere."""
    with night_box(directory) as box:
        with capture_logs():  # hundreds of lines that nobody reads
            box.observers = (THROUGHPUT,)
            box.world.measures = {
                "first": measured(40.0),
                "leaky": measured(41.0, 1.02),
                "slow": measured(36.0, 0.9),
                "better": measured(48.0, 1.2),
            }
            box.finish(box.propose(make_release("first")))
            box.propose(make_release("leaky"), window="nightly", note="a new build")
            box.propose(make_release("slow"), window="nightly")
            box.propose(make_release("better"), window="nightly")
            box.propose(replace(make_release("better"), id="better@11111111"), window="nightly")
            box.propose(make_release("giant", gpus=9), window="nightly")
            box.world.verdicts = {"toolcalls": ["fail"], "throughput": ["pass", "fail"]}
            box.world.sentences = {"leaky": "thinking leaks into content: <think>", "slow": "10 % slower than live"}
            box.until_wall(6, 5)
        yield box


def taipei(hour: int, minute: int = 0, day: int = 30) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=ZONE).astimezone(UTC)
