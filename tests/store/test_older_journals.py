"""Journals that earlier versions wrote, in the middle of a bake: read, and carried on.

The tables have had one schema since the first version; the records in them have grown. `journals/first.sql` was written
by the code of the first version that had a store (da6905d), `journals/before-sleep.sql` by the last one before sleep
(4992c48).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from fake_world import Box, FakeProcess, FakeWorld

from controller.core.invariants import violations
from controller.core.policy import Policy
from controller.core.records import Phase
from controller.loop import Loop
from controller.store.condition import Kind, look
from controller.store.journal import Journal

JOURNALS = sorted((Path(__file__).parent / "journals").glob("*.sql"))


@pytest.mark.parametrize("text", JOURNALS, ids=lambda path: path.stem)
def test_an_older_journal_is_carried_on(tmp_path, text):
    path = tmp_path / "journal.sqlite"
    db = sqlite3.connect(path)
    db.executescript(text.read_text())
    db.close()
    assert look(path).kind in {Kind.SOUND, Kind.OLDER}
    journal = Journal(path)
    state = journal.state
    assert state.rollouts["r0002"].phase is Phase.BAKING
    assert violations(state) == []
    world = FakeWorld(clock_s=state.rollouts["r0002"].bake.last_sample_s + 1.0)
    for attempt in state.attempts.values():
        world.processes[attempt.id] = FakeProcess(attempt.pid, 0.0, 0.0, gpus=attempt.gpus)
    box = Box(Loop(journal, world, Policy(bake_s=30.0)), world, journal)
    assert box.finish("r0002") is Phase.PROMOTED
    assert {a.id for a in box.state.seat_attempts(box.state.live)} == {"two-a-2"}
    assert box.state.previous.release == "one@00000000"
    box.rollback()
    box.run(lambda: box.state.live.release == "one@00000000")
    journal.close()
