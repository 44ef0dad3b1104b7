"""How deaths in a row are counted, and what lies between two starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.policy import Policy
from controller.core.records import Attempt, AttemptState, Nap, Now
from controller.core.restarts import deaths_in_a_row, longest_service_s, pause_left_s, pause_s
from controller.core.route import DoorSeen, Mode
from controller.core.seen import Seen

POLICY = Policy(restart_window_s=600.0, restart_pause_s=5.0, restart_pause_max_s=60.0)
SEEN = Seen(Now("boot-2", 10_000.0, 0.0), DoorSeen(alive=True, mode=Mode.OPEN))
DIED = Attempt(
    "one-a-1", "r0001", "one@00000000", "a", "engine", (), 18000, 1, state=AttemptState.STOPPED, boot_id="boot-2",
    hurry=True, ready_at_s=9000.0, retired_at_s=9100.0, stopped_at_s=9101.0,
)  # fmt: skip
SERVED_LONG = replace(DIED, ready_at_s=1000.0)
LEFT_WELL = replace(DIED, hurry=False)
MADE_ROOM_SILENT = replace(DIED, gave_way_to="r0002")
BEFORE_THE_BOOT = replace(DIED, boot_id="boot-1")
NEVER_READY = replace(DIED, ready_at_s=None)
SERVES = replace(DIED, hurry=False, state=AttemptState.READY, retired_at_s=None, stopped_at_s=None, ready_at_s=9990.0)


@pytest.mark.parametrize(
    ("mine", "deaths"),
    [
        ((DIED,), 1),
        ((DIED, NEVER_READY, DIED), 3),
        ((DIED, SERVED_LONG, DIED), 2),
        ((DIED, LEFT_WELL), 0),
        ((DIED, LEFT_WELL, DIED), 1),
        ((DIED, MADE_ROOM_SILENT, DIED), 2),
        ((DIED, BEFORE_THE_BOOT, DIED), 1),
        ((DIED, BEFORE_THE_BOOT), 0),
        ((DIED, DIED, SERVES), 2),
        ((DIED, DIED, replace(SERVES, ready_at_s=9400.0)), 0),
    ],
)
def test_deaths_in_a_row(mine, deaths):
    assert deaths_in_a_row(mine, SEEN, POLICY) == deaths


def test_a_sleep_is_a_break_and_no_service():
    nap = Nap("r0002", 1100.0, 1101.0, ready_at_s=8900.0)
    slept = replace(DIED, ready_at_s=1000.0, naps=(nap,))
    assert longest_service_s(slept, 10_000.0) == 200.0
    assert longest_service_s(replace(slept, naps=(replace(nap, retired_at_s=1700.0),)), 10_000.0) == 700.0
    assert longest_service_s(replace(slept, naps=(replace(nap, ready_at_s=None),)), 10_000.0) == 100.0


def test_pauses_grow_up_to_a_limit():
    assert [pause_s(n, POLICY) for n in range(8)] == [0, 0, 5, 10, 20, 40, 60, 60]
    assert pause_s(1001, POLICY) == 60.0


def test_a_pause_is_counted_from_the_end_of_the_last_one():
    last = replace(DIED, stopped_at_s=9_998.0)
    assert pause_left_s((DIED, last), SEEN, POLICY) == 3.0
    assert pause_left_s((DIED, last, LEFT_WELL), SEEN, POLICY) == 0.0
    assert pause_left_s((last,), SEEN, POLICY) == 0.0
