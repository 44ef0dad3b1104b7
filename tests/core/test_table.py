"""The table is closed: every move is legal or raises and changes nothing; every phase ends, and can be left."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from controller.core.diagram import mermaid
from controller.core.records import ACTIVE, TERMINAL, Phase
from controller.core.table import DEADLINE_S, MOVES, Event, IllegalMove, follow


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_every_pair_is_in_the_table_or_raises(phase, event):
    if event in MOVES[phase]:
        assert follow(phase, event) is MOVES[phase][event]
    else:
        with pytest.raises(IllegalMove, match=f"{phase} cannot be {event}"):
            follow(phase, event)


def test_every_phase_that_is_not_an_exit_has_a_deadline_and_a_way_out():
    for phase in {*ACTIVE, Phase.QUEUED}:
        assert DEADLINE_S[phase] > 0
        assert Event.DEADLINE in MOVES[phase] or phase is Phase.QUEUED
        assert {Event.ABORTED, Event.WORSE} & set(MOVES[phase])
    for phase in TERMINAL:
        assert MOVES[phase] == {}


def reachable(start: Phase) -> set[Phase]:
    found, todo = {start}, [start]
    while todo:
        for following in MOVES[todo.pop()].values():
            if following not in found:
                found.add(following)
                todo.append(following)
    return found


def test_every_phase_is_reachable_and_ends():
    assert reachable(Phase.QUEUED) == set(Phase)
    for phase in Phase:
        assert reachable(phase) & TERMINAL


def test_the_published_diagram_is_the_table():
    page = (Path(__file__).parents[2] / "docs" / "phases.md").read_text()
    assert mermaid() in page, "run `python -m controller.core.diagram` and put its output into docs/phases.md"
