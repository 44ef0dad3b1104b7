"""The single runs of the campaign of `gate_sensitivity.py`: what is run, in which order, and the file that keeps them.

The file has one JSON object a line, written when a run ends, so that a campaign may be broken off at any moment and go
on another evening. Each line carries a digest of the code that was measured: runs of other code are never mixed in
unless somebody asks for it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "acceptance")]

from mutation import DIALECTS, MODELS, Mutant, Outcome, judge, mutants, targets  # noqa: E402 - the path above leads there

import gates.acceptance.gate  # noqa: E402, F401 - workers are forked with all the code: no later edit is run

MEASURES: Final = ("full", "fraction", "healthy", "model")
CAMPAIGN: Final = {"full": 40, "fraction": 40, "healthy": 100, "model": 300}
"""Seeds of each measure in the whole campaign."""
SHARE: Final = 0.05
_CODE: Final = ("gates", "launch/engines/emulator", "tests/acceptance/mutation.py")
_ELSEWHERE: Final = ("gates/throughput", "gates/ledger", "gates/profiles")
"""Rooms of the gates that the acceptance gate does not enter."""


@dataclass(frozen=True)
class Job:
    """One run of the gate. `measure`: full, fraction, healthy or model; `name`: a fault, a dialect or a model."""

    measure: str
    name: str
    dialect: str
    seed: int
    faults: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """What came of a job. `aimed`: what blocked in a run of only those checks that should see the fault.

    `first_try`: how the first try ended that came to no end of its own (its time was up, or something broke); the
    outcome is then that of the second.
    """

    job: Job
    outcome: Outcome
    aimed: tuple[str, ...] = ()
    first_try: str | None = None
    cpu_s: float = 0.0
    """Of gate and engine together, all tries and runs of this job."""

    @property
    def seen(self) -> bool:
        """Has one of the checks that should see this fault blocked?"""
        expected = known()[self.job.name].seen_by
        return any(found.startswith(tuple(expected)) for found in (*self.aimed, *self.outcome.blocking))


@cache
def known() -> Mapping[str, Mutant]:
    return {mutant.fault: mutant for mutant in mutants()}


def planned(measures: tuple[str, ...], seeds: Mapping[str, int], first_seed: int, only: frozenset[str]) -> list[Job]:
    """All jobs, every row's first seed before any row's second: a campaign that is broken off knows of every row."""
    chosen = [mutant for mutant in mutants() if not only or mutant.fault in only]
    rows: list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = []
    rows += [("full", m.fault, "vllm", (m.spelled(),), ()) for m in chosen]
    rows += [("fraction", m.fault, "vllm", (m.spelled(SHARE),), ()) for m in chosen if m.wire and not m.harmless]
    if not only:
        rows += [("healthy", dialect, dialect, (), ()) for dialect in DIALECTS]
        rows += [("model", model.name, "vllm", (), model.flags) for model in MODELS]
    places = []
    for place, (measure, name, dialect, faults, flags) in enumerate(rows):
        if measure not in measures:
            continue
        for number in range(seeds[measure]):
            job = Job(measure, name, dialect, first_seed + number, faults, flags)
            # Measures with more seeds than others advance in proportion.
            places.append(((number / seeds[measure], place), job))
    return [job for _, job in sorted(places, key=lambda pair: pair[0])]


def run(job: Job) -> Done:
    """A job; one that came to no end of its own is tried once more, and says so."""
    before_s = time.process_time()
    done = _tried(job)
    if _unfinished(done.outcome):
        said = f"{done.outcome.verdict}: {done.outcome.sentence}"[:300]
        done = replace(_tried(job), first_try=said)
    gc.collect()
    return replace(done, cpu_s=round(time.process_time() - before_s, 3))


def _tried(job: Job) -> Done:
    try:
        return _run(job)
    except Exception as error:  # noqa: BLE001 - one broken run must not end a campaign; it is counted
        said = f"the run itself broke: {type(error).__name__}: {error}"
        return Done(job, Outcome("error", (), (), 0, 0.0, said[:1000]))


def _unfinished(outcome: Outcome) -> bool:
    return outcome.verdict == "error" or outcome.timed_out


def _run(job: Job) -> Done:
    """Smoke first, as a rollout does; what that lets through goes to standard. Then: does the right check see it?"""
    if job.measure != "full":
        stop = job.measure != "healthy"
        return Done(
            job, judge("standard", job.seed, *job.faults, dialect=job.dialect, flags=job.flags, stop_early=stop)
        )
    first = judge("smoke", job.seed, *job.faults, dialect=job.dialect)
    if not first.blocked:
        first = judge("standard", job.seed, *job.faults, dialect=job.dialect, stop_early=True)
    done = Done(job, first)
    mutant = known()[job.name]
    if mutant.harmless or done.seen:
        return done
    # Another check was faster. In a run of the right ones alone the first to block may still be a rule that is not
    # expected, and so that run may have to go to its end.
    for stop_early in (True, False):
        aimed = judge(
            "extended",
            job.seed,
            *job.faults,
            dialect=job.dialect,
            checks=list(targets(mutant)),
            stop_early=stop_early,
        )
        done = Done(job, first, aimed.blocking)
        if done.seen:
            break
    return done


def digest_of_code() -> str:
    """Eight bytes that change with anything in the code that a run depends on."""
    hashed = blake2b(digest_size=8)
    for place in _CODE:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".py", ".yaml"))
        for file in files:
            name = file.relative_to(ROOT).as_posix()
            if not name.startswith(tuple(f"{room}/" for room in _ELSEWHERE)):
                hashed.update(f"{name}\n".encode() + file.read_bytes())
    return hashed.hexdigest()


@dataclass(frozen=True)
class RunsFile:
    """Lines that can no longer be read (a machine that lost power) are left out and counted."""

    runs: tuple[tuple[str, Done], ...]
    """The digest of the code, and the run."""
    unreadable: int = 0

    @classmethod
    def read(cls, path: Path) -> RunsFile:
        runs, unreadable = [], 0
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                document = json.loads(line)
                runs.append((str(document["digest"]), _done(document)))
            except (ValueError, LookupError, TypeError):
                unreadable += 1
        return cls(tuple(runs), unreadable)

    def of(self, digest: str | None) -> list[Done]:
        """The runs of this code (None: of any), each job's last one."""
        return list({done.job: done for code, done in self.runs if digest in (None, code)}.values())

    def digests(self) -> Iterator[str]:
        """In the order in which they appear."""
        yield from dict.fromkeys(code for code, _ in self.runs)


def append(path: Path, digest: str, done: Done) -> None:
    """One line, given to the system at once; a line that was cut before it stays a line of its own."""
    line = json.dumps({"digest": digest, **asdict(done)}, ensure_ascii=False).encode(errors="replace") + b"\n"
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        file.write(line if file.read(1) in (b"", b"\n") else b"\n" + line)


def _done(document: Mapping[str, Any]) -> Done:
    def tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}

    job, outcome = Job(**tuples(document["job"])), Outcome(**tuples(document["outcome"]))
    return Done(job, outcome, tuple(document["aimed"]), document["first_try"], float(document["cpu_s"]))
