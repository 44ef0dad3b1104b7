"""Seeded bugs of shim, attempts, identity, effects and front door; the zoo and the rooms beside it have to find each.

A mutant replaces text in a copy of the package, and the named tests run on that copy. What is replaced must be there
exactly once, so that a mutant that no longer fits the code fails loudly instead of being the code itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET  # what is read was written by our own run of pytest
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch import shim
from launch.identity import strays_in

ROOT = Path(__file__).parent.parent.parent
PARTS = ("controller", "launch", "gates", "tests")
PATIENCE_S = 8.0  # of the zoo: what a bug leaves waiting for ever is waited for that long
TIMEOUT_S = 110.0

SHIM, ATTEMPTS, IDENTITY = "launch/shim.py", "launch/attempts.py", "launch/identity.py"
EFFECTS = "controller/effects/"
DOOR = EFFECTS + "frontdoor/"

ZOO = "tests/zoo/test_zoo.py::test_"
DOORS = "tests/effects/frontdoor/"
STOPPED, KILLED = ZOO + "adopted_and_stopped", ZOO + "killed_at_once"
DIES, SHIM_DEAD = ZOO + "what_is_left_of_one_that_dies_is_ended", ZOO + "found_and_ended_when_its_shim_is_dead"

HAPPENS_TO_ANYBODY = re.compile(r"(Import|ModuleNotFound|Syntax|Indentation|Name|UnboundLocal|Attribute|Type)Error")


@dataclass(frozen=True)
class Mutant:
    """`test` has to fail with the bug, and passes without. `zoo`: which animals it needs to see it."""

    name: str
    file: str
    text: str
    instead: str
    test: str
    zoo: str = ""


MUTANTS = (
    # the shim
    Mutant(
        "SIGTERM is never followed by SIGKILL",
        SHIM,
        "            if self.now_s() >= patience_ends_s:\n                kill_round()",
        "            if self.now_s() >= patience_ends_s + 600:\n                kill_round()",
        STOPPED,
        "ignores_term",
    ),
    Mutant(
        "SIGKILL comes without a SIGTERM before",
        SHIM,
        "                os.kill(self.child, signal.SIGTERM)  # not",
        "                os.kill(self.child, signal.SIGKILL)  # not",
        STOPPED,
        "listens",
    ),
    Mutant(
        "orphans are not inherited",
        SHIM,
        "prctl(36, 1, 0, 0, 0)",
        "prctl(36, 0, 0, 0, 0)",
        DIES,
        "exits_zero",
    ),
    Mutant(
        "the exit is told as whole while others of the tree live",
        SHIM,
        "os.waitstatus_to_exitcode(self.status), tree_empty=False)",
        "os.waitstatus_to_exitcode(self.status), tree_empty=True)",
        DIES,
        "exits_zero",
    ),
    Mutant(
        "a later owner of a number is signalled",
        SHIM,
        "if (stat := stat_of(pid)) and stat.start_ticks == start_ticks:",
        "if stat_of(pid):",
        "tests/zoo/test_signal_doors.py::test_a_later_owner_of_a_number_is_not_signalled",
    ),
    Mutant(
        "the program inherits the lock of its shim",
        SHIM,
        "os.set_inheritable(lock, False)",
        "os.set_inheritable(lock, True)",
        SHIM_DEAD,
        "zombie",
    ),
    Mutant(
        "a program that was halted is not woken up to end",
        SHIM,
        "                os.kill(self.child, signal.SIGCONT)\n",
        "",
        STOPPED,
        "dead_inside",
    ),
    # attempts
    Mutant(
        "what is left is not looked for before a start",
        ATTEMPTS,
        "    if left:\n        raise StraysAlive(",
        "    if left and spec.keep:\n        raise StraysAlive(",
        SHIM_DEAD,
        "zombie",
    ),
    Mutant(
        "a directory without a record is taken for empty",
        ATTEMPTS,
        "left = _strays(run_dir, None) if seen.status is Status.ABSENT else seen.pids",
        "left = seen.pids",
        ZOO + "nothing_starts_where_somebody_lives_already",
    ),
    Mutant(
        "a directory that was removed holds nobody",
        IDENTITY,
        'own = (run_dir, f"{run_dir} (deleted)")',
        "own = (run_dir,)",
        ZOO + "a_directory_that_is_removed_under_an_engine_starts_no_second_one",
    ),
    Mutant(
        "without a lock nobody lives",
        ATTEMPTS,
        "lock is None or started is None or (started.identity and started.identity.is_alive()):",
        "lock is None or started is None:",
        ZOO + "a_lock_that_is_removed_under_a_shim_changes_nothing",
    ),
    Mutant(
        "an attempt that has ended runs again",
        ATTEMPTS,
        "    return spec.keep or seen.status is Status.ABSENT",
        "    return spec.keep or seen.status is not Status.RUNNING",
        KILLED,
        "zombie",
    ),
    Mutant(
        "what a dead shim leaves is not looked for",
        ATTEMPTS,
        "if identity and alive else _strays(run_dir, identity)",
        "if identity and alive else ()",
        SHIM_DEAD,
        "zombie",
    ),
    Mutant(
        "what a dead shim leaves is asked only, never killed",
        ATTEMPTS,
        "signal.SIGKILL if force else signal.SIGTERM, set",
        "signal.SIGTERM, set",
        SHIM_DEAD,
        "ignores_term",
    ),
    # identity
    Mutant(
        "adopted by its recorded number",
        IDENTITY,
        "stat.alive and stat.start_ticks == self.start_ticks and self._is_at_home()",
        "stat.alive",
        "tests/launch/test_attempts.py::test_an_identity_of_another_start_time_is_dead",
    ),
    Mutant(
        "who sits elsewhere is taken for ours",
        IDENTITY,
        "stat.start_ticks == self.start_ticks and self._is_at_home()",
        "stat.start_ticks == self.start_ticks",
        "tests/launch/test_attempts.py::test_a_reused_pid_is_never_signalled",
    ),
    Mutant(
        "the log is no mark",
        IDENTITY,
        'for mark in ("fd/1", "fd/2"):',
        'for mark in ("fd/0",):',
        SHIM_DEAD,
        "moves_away",
    ),
    Mutant(
        "the first thread speaks for all",
        IDENTITY,
        'return _is_marked(f"{pid}/task/{thread}", run_dir)',
        'return _is_marked(f"{pid}/task/{pid}", run_dir)',
        SHIM_DEAD,
        "headless",
    ),
    Mutant(
        "one look at the process table is enough",
        IDENTITY,
        "LOOKS = 50",
        "LOOKS = 1",
        ZOO + "who_forks_on_without_a_shim_is_seen_at_every_look_and_ended",
    ),
    Mutant(
        "who was in the directory before is ended, too",
        IDENTITY,
        " and stat.start_ticks >= since_ticks:",
        ":",
        SHIM_DEAD,
        "ignores_term",
    ),
    Mutant(
        "whose directory begins alike is ended, too",
        IDENTITY,
        'place.startswith(f"{run_dir}/")',
        "place.startswith(run_dir)",
        SHIM_DEAD,
        "ignores_term",
    ),
    Mutant(
        "a person with a terminal is ended, too",
        IDENTITY,
        " and not stat.has_terminal",
        "",
        "tests/launch/test_attempts.py::test_a_person_with_a_terminal_in_the_directory_is_no_stray",
    ),
    # effects
    Mutant(
        "the port is not looked at before a start",
        EFFECTS + "processes.py",
        "            if taken is not None:",
        "            if taken is not None and taken in attempt.workers:",
        ZOO + "a_port_that_is_held_by_what_is_left_names_it_before_the_next_start",
    ),
    Mutant(
        "the last process of a tree is not waited for",
        EFFECTS + "processes.py",
        "life = Life.ENDING if seen.status is Status.EXITED and seen.pids else _LIFE[seen.status]",
        "life = _LIFE[seen.status]",
        DIES,
        "exits_zero",
    ),
    Mutant(
        "a directory of another start is adopted",
        EFFECTS + "processes.py",
        "identity.start_ticks != attempt.start_ticks",
        "identity.pid != attempt.pid",
        ZOO + "a_directory_of_another_start_is_not_ours",
    ),
    Mutant(
        "what a gate leaves behind stays",
        EFFECTS + "gate_runner.py",
        "            launched.kill_strays(run_dir, force=True)\n        verdict",
        "            pass\n        verdict",
        "tests/zoo/test_gate_zoo.py::test_what_is_left_of_a_gate_is_ended_before_its_verdict_is_told",
    ),
    Mutant(
        "a directory in which something lives is removed",
        EFFECTS + "remnants.py",
        "in {Status.RUNNING, Status.STRAYS}:",
        "in {Status.STRAYS}:",
        "tests/effects/test_remnants.py::test_where_something_lives_nothing_is_removed",
    ),
    Mutant(
        "a stranger is asked to sleep",
        EFFECTS + "sleeper.py",
        "        _refuse_stranger(attempt.port, self._pids_of(attempt.id))\n",
        "",
        "tests/effects/test_sleeper.py::test_a_stranger_on_its_port_is_left_alone",
    ),
    # the front door
    Mutant(
        "the route is remembered as it was before",
        DOOR + "door.py",
        "self._save(take_snapshot(runtime) if commands else seen)",
        "self._save(seen)",
        DOORS + "test_door_memory.py::test_what_was_applied_is_remembered_when_the_call_returns",
    ),
    Mutant(
        "half of an answer of HAProxy is enough",
        DOOR + "runtime.py",
        "all(map(_CONFIRMED.search",
        "any(map(_CONFIRMED.search",
        DOORS + "test_door_memory.py::test_what_the_door_does_not_confirm_is_an_error",
    ),
    Mutant(
        "an answer of HAProxy is not looked at",
        DOOR + "runtime.py",
        'if answer and not all(map(_CONFIRMED.search, answer.split(", "))):',
        "if answer and not _CONFIRMED:",
        DOORS + "test_door_memory.py::test_what_the_door_does_not_confirm_is_an_error",
    ),
    Mutant(
        "a drained server is not restored",
        DOOR + "changes.py",
        "    if state is not slot.state:",
        "    if state is not slot.state and state is not SlotState.DRAIN:",
        DOORS + "test_door_memory.py::test_what_was_applied_is_remembered_when_the_call_returns",
    ),
    Mutant(
        "a slot changes hands without maintenance",
        DOOR + "changes.py",
        "        if state is not SlotState.MAINT:\n",
        "        if state is SlotState.DRAIN:\n",
        DOORS + "test_door_changes.py::test_a_slot_changes_hands_only_through_maintenance",
    ),
    Mutant(
        "the old one stops before the new one serves",
        DOOR + "changes.py",
        "commands + by_state[SlotState.READY] + by_state[SlotState.DRAIN] + by_state[SlotState.MAINT]",
        "commands + by_state[SlotState.DRAIN] + by_state[SlotState.MAINT] + by_state[SlotState.READY]",
        DOORS + "test_door_changes.py::test_the_new_slot_is_ready_before_the_old_one_stops",
    ),
    Mutant(
        "a door without a shim is started a second time",
        DOOR + "door.py",
        "if self._process.is_running() or self._answers():",
        "if self._process.is_running():",
        DOORS + "test_door_start.py::test_a_door_whose_shim_died_serves_on_and_can_be_stopped",
    ),
    Mutant(
        "a route of before the reboot is served",
        DOOR + "door.py",
        "kept = text_of(path) if remembers else None",
        "kept = text_of(path)",
        DOORS + "test_door_start.py::test_a_reboot_forgets_the_route",
    ),
    Mutant(
        "two doors share a port",
        DOOR + "door.py",
        "            check_free(address)",
        "            pass",
        DOORS + "test_door_start.py::test_two_doors_cannot_share_a_port",
    ),
)


class Bench:
    """A copy of the package and its tests, into which one bug after the other is planted."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.scratch = folder / "scratch"
        for part in PARTS:
            shutil.copytree(ROOT / part, self.tree / part, ignore=_not_needed)
        shutil.copy(ROOT / "pyproject.toml", self.tree)

    def hunt(self, mutant: Mutant) -> str:
        """How the test failed that has to find it; "" when it passed."""
        path = self.tree / mutant.file
        before = path.read_text()
        path.write_text(planted(mutant, before))
        try:
            return self.play((mutant.test,), mutant.zoo)
        finally:
            path.write_text(before)

    def play(self, tests: Sequence[str], zoo: str = "", patience_s: float = PATIENCE_S) -> str:
        """How the first of these that fails failed. Raises `RuntimeError` when they could not be played."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        report = self.scratch / "report.xml"
        room = os.path.commonpath([self.tree / test.partition("::")[0] for test in tests])
        options = [
            "-q",
            "-x",
            "-o",
            "addopts=",
            *(f"-pno:{plugin}" for plugin in ("xdist", "schemathesis", "cacheprovider")),
        ]
        options += [f"--confcutdir={Path(room).parent}", f"--junitxml={report}", f"--basetemp={self.scratch / 'tmp'}"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.tree,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, (self.tree, self.tree / "tests"))),
                    "CUTOVER_ZOO": zoo,
                    "CUTOVER_ZOO_PATIENCE_S": str(patience_s),
                },
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        finally:
            sweep(self.scratch)
        if done.returncode == 0:
            return ""
        failed = ET.parse(report).find(".//failure") if report.exists() else None  # noqa: S314 - see the import
        if done.returncode != 1 or failed is None:
            raise RuntimeError(f"{', '.join(tests)} could not be played: {done.stdout[-3000:]}{done.stderr[-1000:]}")
        return failed.get("message", "")


def planted(mutant: Mutant, text: str) -> str:
    """Raises `ValueError` when the bug does not fit the code any more."""
    found = text.count(mutant.text)
    if found != 1:
        raise ValueError(
            f"mutant `{mutant.name}`: its text is found {found} times in {mutant.file}, not once: {mutant.text!r}"
        )
    return text.replace(mutant.text, mutant.instead)


def is_found(how: str) -> bool:
    """Whether this is a test that noticed something, and not a bug that could not even run."""
    return bool(how) and HAPPENS_TO_ANYBODY.match(how) is None


def sweep(folder: Path) -> None:
    """End what a bug has left behind."""
    for _ in range(20):
        left = strays_in(str(folder), 0)
        shim.signal_all(left, signal.SIGKILL)
        if not left:
            return


def _not_needed(folder: str, names: list[str]) -> list[str]:
    """Compiled files stay: they save a second of every run."""
    return [
        name
        for name in names
        if name in {"models", "node_modules", "sim", "acceptance", "engines"} and _is_test(folder)
    ]


def _is_test(folder: str) -> bool:
    return Path(folder).name == "tests"
