"""The route that the front door was last told, from its files: they outlive it, and the daemon's journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.route import SlotState
from .snapshot import BACKENDS, admin_state, rows

if TYPE_CHECKING:
    from pathlib import Path


def committed_route(directory: Path) -> dict[str, tuple[int, SlotState]]:
    """Attempt → its number and state in the public backend; without those in maintenance.

    Empty where there is no such file, or it is not one that a front door has written.
    """
    try:
        state = (directory / "haproxy.state").read_text()
        lines = (directory / "attempt.map").read_text().splitlines()
        attempts = dict(line.split(" ", 1) for line in lines if " " in line)
        listed = [row for row in rows(state) if row["be_name"] == BACKENDS[0]]
        return {
            attempts[row["srv_name"]]: (int(row["srv_name"].removeprefix("s")), slot_state)
            for row in listed
            if (slot_state := admin_state(int(row["srv_admin_state"]))) is not SlotState.MAINT
            and row["srv_name"] in attempts
        }
    except (OSError, ValueError, LookupError):
        return {}
