"""Journals that earlier versions wrote, in the middle of a bake: read, and carried on.

The tables are those of the first version; the records in them have grown. `journals/first.sql` was written by the code
of the first version that had a store (da6905d), `journals/before-sleep.sql` by the last one before sleep (4992c48),
`journals/before-nights.sql` by the last one before windows, trials and sweeps (7d3215d).

The other way round a version refuses a journal whose schema it does not know. So the number has to grow with whatever
an older version would read and carry on wrongly, also where no table changes.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import fields
from pathlib import Path

import pytest
from fake_world import Box, FakeProcess, FakeWorld

from controller.core import night_records, records
from controller.core.invariants import violations
from controller.core.policy import Policy
from controller.core.records import Phase
from controller.loop import Loop
from controller.store.condition import Kind, look
from controller.store.database import known_schema
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


RECORDS = (
    *(records.State, records.Release, records.Instance, records.Seat, records.Freeze, records.Closed),
    *(records.Rollout, records.Options, records.GateResult, records.GateRun, records.Bake),
    *(records.Attempt, records.Nap, records.Checked),
    *(night_records.Night, night_records.Sweep, night_records.Arm),
)
WORDS = (records.Phase, records.Kind, records.AttemptState, night_records.NightState, night_records.OnSuccess)
SHAPE = (2, "eea42ff2f256d7fb")


def shape() -> str:
    """Of all that stands in a journal: names of records, of their fields, and the words in them."""
    known = {record.__name__: sorted(field.name for field in fields(record)) for record in RECORDS}
    known |= {words.__name__: sorted(word.value for word in words) for words in WORDS}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def test_whoever_changes_a_record_decides_whether_an_older_version_may_read_it():
    """An older version drops what it does not know: a proposal that waits for a window would begin at once."""
    assert (known_schema(), shape()) == SHAPE, (
        "a record of the journal has changed. Would a version that does not know of it carry a journal on wrongly? "
        "Then add a file to controller/store/schema (it may change no table) and a journal of the version before to "
        f"tests/store/journals. In any case the new shape is {(known_schema(), shape())}"
    )
