"""Seeded bugs of core and store. The simulator has to find each of them: an oracle that misses one is no oracle.

A mutant replaces text in a copy of the package. What is replaced must be there exactly once, so that a mutant that no
longer fits the code fails loudly instead of being the code itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sim_histories import NIGHTS

ROOT = Path(__file__).parent.parent.parent
ENOUGH = 5_000  # histories in which a mutant has to be found

CORE = "controller/core/"
FORGETTING = CORE + "forgetting.py"
JOURNAL = "controller/store/journal.py"


@dataclass(frozen=True)
class Mutant:
    name: str
    patches: tuple[tuple[str, str, str], ...]  # file, text, what stands there instead
    by_night: bool = False  # it can show only in histories in which windows open: those are played


def _one(name: str, file: str, text: str, instead: str) -> Mutant:
    return Mutant(name, ((file, text, instead),))


def _by_night(name: str, file: str, text: str, instead: str) -> Mutant:
    return Mutant(name, ((file, text, instead),), by_night=True)


MUTANTS = (
    # the route and the commit
    _one(
        "users are sent to the candidate before the commit",
        CORE + "desired.py",
        "for a in state.offered]",
        "for a in state.seat_attempts(candidate_seat(state.active) or state.live)"
        " if a.slot is not None and a.state is AttemptState.READY]",
    ),
    _one(
        "the route is not repaired",
        CORE + "rules.py",
        "if not differs(route, seen.door):",
        "if seen.door_tried_s is None or not differs(route, seen.door):",
    ),
    _one(
        "what fails for ever holds up every deadline",
        CORE + "rules.py",
        "if decision is not None and not seen.rests(decision.action):",
        "if decision is not None:",
    ),
    _one(
        "a port is used again that the front door may send users to",
        CORE + "rules_attempts.py",
        "    if seen.door_refuses:\n        return None\n",
        "",
    ),
    _one(
        "the generation is not counted at the cutover",
        CORE + "moves_rollouts.py",
        "generation=state.generation + 1,\n            live=replace(rollout.seat,",
        "generation=state.generation,\n            live=replace(rollout.seat,",
    ),
    _one(
        "the cutover does not look whether the candidate still generates",
        CORE + "progress.py",
        "if not all_ready(state, rollout.seat) or not generates or seen.door_refuses:",
        "if not all_ready(state, rollout.seat):",
    ),
    Mutant(
        "the old release is stopped at the cutover",
        (
            (CORE + "desired.py", "        seats.append(state.previous)\n", "        pass\n"),
            (CORE + "desired.py", "seats += [*active.before, active.target]", "seats += [active.target]"),
        ),
    ),
    # the way back
    _one(
        "a blind rollback: its target is not asked whether it generates",
        CORE + "returning.py",
        "if all(is_fresh(probe, seen, fresh_s) for probe in probes):",
        "if ready:",
    ),
    Mutant(
        "a sleeper that is being stopped is called back",
        (
            (CORE + "seats.py", "and not attempt.lent  # who", "# who"),
            (
                CORE + "moves_attempts.py",
                " or attempt.ready_at_s is None or attempt.lent:",
                " or attempt.ready_at_s is None:",
            ),
        ),
    ),
    # gates and bake
    _one(
        "verdicts count for any gate",
        CORE + "progress.py",
        "results = [r for r in rollout.gates if r.index == index]\n        if not results:",
        "results = list(rollout.gates)\n        if not results:",
    ),
    _one(
        "a verdict that could not tell is taken for a pass",
        CORE + "progress.py",
        'if last.verdict == "pass" or last.observe:',
        'if last.verdict in {"pass", "inconclusive"} or last.observe:',
    ),
    _one(
        "a verdict is written down better than it was",
        CORE + "progress.py",
        "run.gate, run.index, run.run, done.verdict, done.sentence,",
        'run.gate, run.index, run.run, "pass" if done.verdict == "error" else done.verdict, done.sentence,',
    ),
    _one(
        "the bake does not look whether the new release lives",
        CORE + "progress.py",
        "        return move(rollout, Event.WORSE, died)\n    bake = rollout.bake",
        "        pass\n    bake = rollout.bake",
    ),
    # time
    _one(
        "no deadline is enforced",
        CORE + "rules.py",
        "    if spent_s <= limit_s:\n        return None",
        "    if spent_s <= 1e12:\n        return None",
    ),
    _one(
        "a deadline begins anew with every verdict",
        CORE + "moves_rollouts.py",
        "replace(rollout, gate=None, gates=(*rollout.gates, action.result), why=why)",
        "replace(rollout, gate=None, gates=(*rollout.gates, action.result), why=why, phase_since_s=now.boot_s)",
    ),
    _one(
        "a reboot is not noticed",
        CORE + "rules.py",
        "if rollout.phase_boot_id != seen.now.boot_id:\n        return _after_reboot",
        "if rollout.phase_boot_id == seen.now.wall_s:\n        return _after_reboot",
    ),
    _one(
        "what keeps dying is started for ever",
        CORE + "rules_live.py",
        "        if ends := give_up(mine, seen, policy):\n            return ends\n        if any(",
        "        if any(",
    ),
    _one(
        "it is started again at once, as fast as it dies",
        CORE + "restarts.py",
        "min(policy.restart_pause_s * 2 ** (deaths - 2), policy.restart_pause_max_s) if deaths > 1 else 0.0",
        "0.0",
    ),
    _one(
        "what was given up is forgotten over a reboot",
        CORE + "rules_live.py",
        "if name in gone or stands_before_nobody(",
        "if (name in gone and mine[-1].boot_id == seen.now.boot_id) or stands_before_nobody(",
    ),
    _one(
        "one release after another takes over, and nobody is asked",
        CORE + "takeover.py",
        " or last_takeover(state) is not None:",
        ":",
    ),
    _one(
        "a release takes over from one that serves",
        CORE + "takeover.py",
        "return bool(gone) and all(",
        "return bool(gone) and any(",
    ),
    # cards and processes
    _one(
        "a daemon that has asked nobody yet sends engines without a shim away",
        CORE + "rules_attempts.py",
        "return probe is None or not (probe.layer",
        "return probe is not None and not (probe.layer",
    ),
    Mutant(
        "cards that somebody holds are given away",
        (
            (
                CORE + "cards.py",
                "if attempt.id not in leaving}\n    return tuple",
                "if attempt.id in leaving}\n    return tuple",
            ),
            (CORE + "moves_attempts.py", "(other.holds_cards and set(attempt.gpus) & set(other.gpus)) or ", ""),
        ),
    ),
    _one(
        "a lease is given back before its holder is dead",
        CORE + "rules_attempts.py",
        "if process.life is not Life.RUNNING and not stray:",
        "if (process.life is not Life.RUNNING and not stray) or attempt.stop_asked:",
    ),
    _one(
        "a lease is given back before its memory",
        CORE + "rules_attempts.py",
        "    if not late:\n        return None",
        "    if not late or attempt.gone_at_s is not None:\n        return None",
    ),
    _one(
        "what a stranger has counts as what its card shows empty",
        CORE + "seats.py",
        "before[gpu.id] = stays_mib if fits else used_mib",
        "before[gpu.id] = used_mib",
    ),
    _one(
        "strays are taken for dead",
        CORE + "rules_attempts.py",
        "stray = process.life is Life.STRAYS",
        "stray = process.life is Life.STRAYS and attempt.ready_at_s is None",
    ),
    _one(
        "an engine is ready when its process is there",
        CORE + "rules_attempts.py",
        "if probe is not None and probe.ok and probe.started_at_s >= since_s:",
        "if probe is not None and probe.started_at_s >= since_s - 1.0:",
    ),
    _one(
        "streams are not waited for",
        CORE + "rules_attempts.py",
        "(slot.state is not SlotState.READY and slot.in_flight == 0)",
        "slot.state is not SlotState.READY",
    ),
    _one(
        "a kept router waits for ever",
        CORE + "rules_attempts.py",
        "    if seat == candidate_seat(state.active):\n        return False\n    gone",
        "    if seat.release in state.releases:\n        return False\n    gone",
    ),
    # one at a time, and who may
    Mutant(
        "two rollouts at once",
        (
            (
                CORE + "rules.py",
                " is not None or seen.door_refuses:\n        return None\n    for rollout in first_of_each(state):",
                " is not None and not state.releases:\n        return None\n    for rollout in first_of_each(state):",
            ),
            (
                CORE + "moves_rollouts.py",
                "and before.phase not in ACTIVE and state.active is not None:",
                "and before.phase not in ACTIVE and not state.rollouts:",
            ),
            (
                CORE + "moves_nights.py",
                "    if state.active is not None:\n        raise",
                "    if not state.rollouts:\n        raise",
            ),
        ),
    ),
    _one(
        "a freeze freezes nobody",
        CORE + "rules.py",
        "        if state.freeze is None and not why_not_yet(",
        "        if not why_not_yet(",
    ),
    # nights
    _by_night(
        "what waits for a window does not wait",
        CORE + "queue.py",
        "    if options.window and night is None:\n",
        "    if options.window and night is None and not state.nights:\n",
    ),
    _by_night(
        "nothing that has begun keeps to its time",
        CORE + "rules_nights.py",
        "    if rollout.until_s is None or",
        "    if rollout.until_s is None or rollout.phase in BEFORE_SWITCH or",
    ),
    _by_night(
        "a trial is switched to",
        CORE + "progress.py",
        "    if rollout.options.trial:\n",
        "    if rollout.options.trial and rollout.options.require_approval:\n",
    ),
    _by_night(
        "a night that is over is opened again",
        CORE + "rules_nights.py",
        "if opening.is_open(seen.now.wall_s) and can_open(opening, state):",
        "if opening.is_open(seen.now.wall_s) and (can_open(opening, state) or state.nights[opening.id].ended_wall_s):",
    ),
    _by_night(
        "what has expired begins",
        CORE + "queue.py",
        "        if seen.now.wall_s >= until_s and",
        "        if seen.now.wall_s >= until_s + 3600.0 and",
    ),
    # the store
    _one(
        "nights are kept in memory only",
        JOURNAL,
        '        rows += _changed("night", old.nights, state.nights, _NIGHT)\n',
        "",
    ),
    _one(
        "an abort is kept in memory only",
        JOURNAL,
        "            asked = (key, now.wall_s",
        "            if isinstance(action, act.AskAbort):\n"
        "                self.state = state\n"
        "                return about\n"
        "            asked = (key, now.wall_s",
    ),
    Mutant(
        "a repeated key is filed again",
        (
            (JOURNAL, 'WHERE key = ?", (key,)).fetchone()', 'WHERE key = ?", ("",)).fetchone()'),
            (JOURNAL, '"INSERT INTO requests', '"INSERT OR REPLACE INTO requests'),
        ),
    ),
    _one(
        "an intent is written in two transactions",
        JOURNAL,
        '            crash_point("begin-torn")\n',
        '            self._db.commit()\n            crash_point("begin-torn")\n',
    ),
    _one(
        "an outcome is not written",
        JOURNAL,
        '            self._save(state)\n            crash_point("finish-torn")',
        '            crash_point("finish-torn")',
    ),
    _one(
        "attempts are read in the order of their names",
        JOURNAL,
        "int(_NUMBER.search(item[0])[0])",
        "item[0]",
    ),
    _one(
        "the state is believed before it is written",
        JOURNAL,
        "            state = intend(self.state, action, now, why)\n            done",
        "            state = intend(self.state, action, now, why)\n"
        "            self.state = state if isinstance(action, act.MarkStopped) else self.state\n"
        "            done",
    ),
    # what is forgotten
    _one(
        "who makes room by an open plan is forgotten",
        FORGETTING,
        '            planned = (*rollout.planned("gives_way"), *rollout.planned("later"))\n',
        "            planned = ()\n",
    ),
    _one(
        "the last known good release is forgotten",
        FORGETTING,
        ", *_good(state, keep.good)}",
        "}",
    ),
    _one(
        "what was found against a release is forgotten before the release",
        FORGETTING,
        "set(_against(staying & set(state.rollouts), state))",
        "set()",
    ),
    _one(
        "records that are forgotten stay on the disk",
        JOURNAL,
        "        if gone := [*_gone(old, state)]:",
        "        if gone := [(kind, name) for kind, name in _gone(old, state) if kind != 'attempt']:",
    ),
    # the loop
    _one(
        "an outcome is written before its effect",
        "controller/loop.py",
        "        outcome = self.world.act(",
        '        if type(decision.action).__name__ == "StopAttempt":\n'
        "            self.journal.finish(seq, decision.action, Outcome(True), self.world.now())\n"
        "        outcome = self.world.act(",
    ),
)


def plant(mutant: Mutant, folder: Path) -> None:
    """A copy of the package with the bug in it. Raises `ValueError` when the bug does not fit the code any more."""
    for part in ("core", "store", "effects"):
        shutil.copytree(ROOT / "controller" / part, folder / "controller" / part, ignore=_heavy)
    for name in ("__init__.py", "loop.py", "crashpoints.py", "errors.py"):
        shutil.copy(ROOT / "controller" / name, folder / "controller" / name)
    for file, text, instead in mutant.patches:
        path = folder / file
        found = path.read_text().count(text)
        if found != 1:
            raise ValueError(f"mutant `{mutant.name}`: its text is found {found} times in {file}, not once: {text!r}")
        path.write_text(path.read_text().replace(text, instead))


def _heavy(folder: str, names: list[str]) -> list[str]:
    """Of the effects only the port is needed."""
    keep = {"__init__.py", "ports.py"}
    return [n for n in names if n == "__pycache__" or (folder.endswith("effects") and n not in keep)]


def hunt(mutant: Mutant, folder: Path, histories: int = ENOUGH, timeout_s: float = 1_000.0) -> int | None:
    """How many histories it took to find the bug; None when they all passed."""
    plant(mutant, folder)
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parent / "replay.py"),
            *((f"0-{histories * NIGHTS}", "--nights") if mutant.by_night else (f"0-{histories}",)),
            "--first",
        ],
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    found = re.search(r"^broken by seed (\d+)$", done.stdout, re.MULTILINE)
    if found is None and done.returncode != 0:
        raise RuntimeError(f"mutant `{mutant.name}` could not be played: {done.stderr[-2000:]}")
    if found is None:
        return None
    return int(found[1]) // (NIGHTS if mutant.by_night else 1) + 1
