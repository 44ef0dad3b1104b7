"""Following the journal: a rollout until it is over, or everything until somebody has seen enough."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..errors import ExitCode
from .client import Client
from .outcome import exit_code_of, sentence_of
from .reporters import JsonLines, Lines, Live, Reporter
from .session import Session

POLL_S = 10.0  # with the reporters' `STILL_S` no silence is longer than half a minute
SETTLE_S = 5.0  # from the decision to the front door's word for it; it is one tick of the loop
_SHOWN_BEFORE = 10
_TO_BE_READ = frozenset({"failed", "inconclusive", "rejected", "rolled_back", "rollback_failed"})
_THE_END = 1 << 53  # a number from the future means now


def reporter_for(session: Session, *, quiet_stdout: bool = False) -> Reporter:
    """`quiet_stdout`: stdout is kept for one document, so lines go to stderr."""
    if quiet_stdout:
        return Lines(sys.stderr)
    if session.as_json:
        return JsonLines()
    return Live() if sys.stdout.isatty() else Lines()


def follow_rollout(client: Client, rollout_id: str, reporter: Reporter, timeout_s: float | None) -> dict[str, Any]:
    """Tell every event until the rollout is over, or `timeout_s` has passed. Returns the rollout as it is then."""
    give_up_at_s = None if timeout_s is None else time.monotonic() + timeout_s
    client.patient, client.say = True, reporter.note  # it has answered before: it is away, not missing
    rollout = client.get(f"/v1/rollouts/{rollout_id}")
    after = 0
    while True:
        left_s = POLL_S if give_up_at_s is None else max(0.0, give_up_at_s - time.monotonic())
        events, after = client.events(after, rollout_id, 0.0 if rollout["over"] else min(POLL_S, left_s))
        for entry in events:
            reporter.event(entry)
        rollout = client.get(f"/v1/rollouts/{rollout_id}")
        if rollout["over"] and not events:
            return _settled(client, rollout)
        if not rollout["over"]:
            reporter.status(client.get("/v1/status"))
            if give_up_at_s is not None and time.monotonic() >= give_up_at_s:
                return rollout


def follow_all(client: Client, reporter: Reporter) -> None:
    """Tell every event of every rollout, for ever; begins with the last few."""
    _, newest = client.events(_THE_END, None, 0.0)
    client.patient, client.say = True, reporter.note
    after = max(0, newest - _SHOWN_BEFORE)
    while True:
        reporter.status(client.get("/v1/status"))
        events, after = client.events(after, None, POLL_S)
        for entry in events:
            reporter.event(entry)


def _settled(client: Client, rollout: dict[str, Any]) -> dict[str, Any]:
    """Decided is not yet done: wait until the front door was seen to serve what was decided."""
    key = {"promoted": "switch_s", "rolled_back": "rollback_s"}.get(rollout["phase"])
    give_up_at_s = time.monotonic() + SETTLE_S
    while key is not None and key not in rollout["times"] and time.monotonic() < give_up_at_s:
        time.sleep(0.05)
        rollout = client.get(f"/v1/rollouts/{rollout['id']}")
    return rollout


def wait_for(session: Session, client: Client, rollout_id: str, timeout_s: float | None, *, back: bool = False) -> int:
    """What `--wait` does: follow, tell the end, return its exit code. With `--json` stdout is the rollout alone."""
    reporter = reporter_for(session, quiet_stdout=session.as_json)
    try:
        rollout = follow_rollout(client, rollout_id, reporter, timeout_s)
    finally:
        reporter.close()
    tell_end(session, rollout)
    return exit_code_of(rollout, wanted_back=back)


def tell_end(session: Session, rollout: dict[str, Any]) -> None:
    if session.as_json:
        session.emit(rollout)
        return
    line = sentence_of(rollout)
    if not rollout["over"]:
        line += f"\nit goes on: `cutover watch {rollout['id']}`, or `cutover abort {rollout['id']}`"
    sys.stdout.write(line + "\n")
    if rollout["phase"] in _TO_BE_READ and exit_code_of(rollout) != ExitCode.DONE:
        sys.stdout.flush()
        sys.stderr.write(f"every why, the evidence and the last words: `cutover show {rollout['id']}`\n")
