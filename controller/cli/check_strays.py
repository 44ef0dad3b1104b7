"""Doctor's look at processes that have lost whoever watched them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.alarms import CANDIDATE, HEALS, LEAVING, LIVE, PREVIOUS
from .checks import Check, Runs


def whose(status: Mapping[str, Any], listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Attempts that hold something, by id: live, previous, candidate or leaving. `listed`: all of them."""
    seats = {attempt["id"]: role for role in (PREVIOUS, LIVE) if status[role] for attempt in status[role]["attempts"]}
    words = {"retiring": LEAVING, "stopping": LEAVING}
    return {
        attempt["id"]: words.get(attempt["state"], seats.get(attempt["id"], CANDIDATE))
        for attempt in listed
        if attempt["state"] != "stopped"
    }


def strays(runs: Runs, held: Mapping[str, str] | None) -> Check:
    """`held`: whose the attempts and gate runs are that the daemon knows to run; None when no daemon was asked.

    Nobody is told to end what may serve users: an engine lives on when its shim has died, and has its owner still.
    """
    if held is None:
        lost = runs.strays
        if runs.hidden and not lost:
            return _NOT_LOOKED_AT
        remedy = "start the daemon: it keeps what serves users, and ends the rest"
        sentence = f"processes of ours whose shim is dead: {_named(lost)}"
        return Check("strays", False, sentence, remedy) if lost else _none(runs)
    lost = {name: pids for name, pids in {**runs.strays, **runs.running}.items() if name not in held}
    shimless = {name: pids for name, pids in runs.strays.items() if name in held}
    sentences, remedies = [], []
    if lost:
        first = next((str(pid) for pids in lost.values() for pid in pids), "PID")
        sentences.append(f"processes of ours without an owner: {_named(lost)}")
        remedies.append(f"the daemon ends what an attempt left behind; else end them yourself (`kill {first}`)")
    for name, pids in shimless.items():
        sentences.append(f"the shim of {name} ({held[name]}) is dead, its pids {_numbers(pids)} live on")
        remedies.append(f"{name}: {HEALS.get(held[name], HEALS[LEAVING])}")
    if not sentences:
        return _NOT_LOOKED_AT if runs.hidden else _none(runs)
    return Check("strays", False, "; ".join(sentences), "; ".join(remedies))


_NOT_LOOKED_AT = Check("strays", None, "not looked at: the run directories belong to another user")


def _none(runs: Runs) -> Check:
    return Check("strays", True, f"none; {len(runs.running)} of ours run")


def _named(lost: Mapping[str, tuple[int, ...]]) -> str:
    return "; ".join(f"{name}: pids {_numbers(pids) or '—'}" for name, pids in lost.items())


def _numbers(pids: Iterable[int]) -> str:
    return ", ".join(map(str, pids))
