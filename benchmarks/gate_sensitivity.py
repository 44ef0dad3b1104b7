"""How sensitive is the acceptance gate? One row per fault of the emulated engine, none averaged away.

    python benchmarks/gate_sensitivity.py                       # a slice: every fault once, few seeds
    python benchmarks/gate_sensitivity.py --seeds 40 --jobs 2   # the campaign
    python benchmarks/gate_sensitivity.py --only args-tail-cut,think-in-content

Four measures: each fault in every request must be blocked, by the check that should see it; each wire fault in one of
twenty requests must be blocked in 95 % of seeds; a healthy engine must never be; a model that is right often enough
must pass, and one that is not must be blocked. Prints Markdown tables; `--json FILE` keeps every single run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "acceptance")]

from mutation import (  # noqa: E402 - the path above leads there
    DIALECTS,
    MODELS,
    Mutant,
    Outcome,
    judge,
    mutants,
    targets,
)

from gates.statistics import wilson_lower  # noqa: E402


@dataclass(frozen=True)
class Job:
    """One run of the gate. `measure`: full, fraction, healthy or model."""

    measure: str
    name: str
    dialect: str
    seed: int
    faults: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    job: Job
    outcome: Outcome
    aimed: tuple[str, ...] = ()
    """What blocked in a run of only those checks that should see the fault."""


def run(job: Job) -> Done:
    """Smoke first, as a rollout does; what that lets through goes to standard. Then: does the right check see it?"""
    if job.measure != "full":
        stop = job.measure != "healthy"
        return Done(
            job, judge("standard", job.seed, *job.faults, dialect=job.dialect, flags=job.flags, stop_early=stop)
        )
    first = judge("smoke", job.seed, *job.faults, dialect=job.dialect)
    if not first.blocked:
        first = judge("standard", job.seed, *job.faults, dialect=job.dialect, stop_early=True)
    mutant = next(m for m in mutants() if m.fault == job.name)
    if mutant.harmless:
        return Done(job, first)
    aimed = judge("extended", job.seed, *job.faults, dialect=job.dialect, checks=list(targets(mutant)))
    return Done(job, first, aimed.blocking)


def jobs(arguments: argparse.Namespace) -> list[Job]:
    only = set(filter(None, arguments.only.split(",")))
    chosen = [m for m in mutants() if not only or m.fault in only]
    unknown = only - {m.fault for m in mutants()}
    if unknown:
        sys.exit(f"--only: there is no fault {min(unknown)!r}; names as `cutover emulate --list-faults` spells them")
    found: list[Job] = []
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if "full" in arguments.measures:
        found += [Job("full", m.fault, "vllm", s, (m.spelled(),)) for m in chosen for s in seeds]
    if "fraction" in arguments.measures:
        wire = [m for m in chosen if m.wire]
        found += [Job("fraction", m.fault, "vllm", s, (m.spelled(0.05),)) for m in wire for s in seeds]
    if "healthy" in arguments.measures and not only:
        found += [Job("healthy", d, d, s) for d in DIALECTS for s in seeds]
    if "model" in arguments.measures and not only:
        found += [Job("model", model.name, "vllm", s, flags=model.flags) for model in MODELS for s in seeds]
    return found


def table(done: list[Done]) -> str:
    """Markdown, one row per fault, dialect or model."""
    rows = ["| measure | what | blocked | by | requests until then | expected |", "|---|---|---|---|---|---|"]
    known = {m.fault: m for m in mutants()}
    by_row: dict[tuple[str, str], list[Done]] = {}
    for one in done:
        by_row.setdefault((one.job.measure, one.job.name), []).append(one)
    for (measure, name), ran in by_row.items():
        mutant = known.get(name)
        blocked = [one.outcome for one in ran if one.outcome.blocked]
        seen = sum(mutant is not None and _seen(one, mutant) for one in ran)
        checks = sorted({check for one in blocked for check in one.blocking})
        bound = f" (≥ {wilson_lower(len(blocked), len(ran)):.0%})" if len(ran) >= 10 else ""
        right = f", {seen} by the right check" if mutant is not None and measure == "full" else ""
        requests = f"{median(one.requests for one in blocked):.0f}" if blocked else ""
        rows.append(
            f"| {measure} | {name} | {len(blocked)} of {len(ran)}{bound}{right} | {', '.join(checks[:6])} | {requests} "
            f"| {_expectation(measure, mutant, name)} |"
        )
    return "\n".join(rows)


def _seen(one: Done, mutant: Mutant) -> bool:
    return any(found.startswith(tuple(mutant.seen_by)) for found in (*one.aimed, *one.outcome.blocking))


def _expectation(measure: str, mutant: Mutant | None, name: str) -> str:
    if measure == "healthy":
        return "never blocked"
    if measure == "model":
        return next(model.expectation for model in MODELS if model.name == name)
    if mutant is None or mutant.harmless:
        return "not blocked: healthy, or a warning"
    return f"blocked by {', '.join(sorted(mutant.seen_by))}"


def _weak_rows(done: list[Done]) -> list[str]:
    """Faults in one of twenty answers that were blocked in less than 95 % of seeds."""
    ran: dict[str, list[bool]] = {}
    for one in done:
        if one.job.measure == "fraction":
            ran.setdefault(one.job.name, []).append(one.outcome.blocked)
    return [f"fraction {name}: {sum(b)} of {len(b)}" for name, b in ran.items() if sum(b) < 0.95 * len(b)]


def _shortfalls(done: list[Done]) -> list[str]:
    """Every single run that did not end as it must."""
    known = {m.fault: m for m in mutants()}
    wrong = []
    for one in done:
        mutant = known.get(one.job.name)
        where = f"{one.job.measure} {one.job.name} seed {one.job.seed}"
        if one.job.measure == "healthy" and one.outcome.verdict != "pass":
            wrong.append(f"{where}: {one.outcome.verdict}, {one.outcome.sentence}")
        if one.job.measure == "full" and mutant is not None:
            if mutant.harmless and one.outcome.blocked:
                wrong.append(f"{where}: blocked by {one.outcome.blocking}, and it is harmless")
            if not mutant.harmless and not one.outcome.blocked:
                wrong.append(f"{where}: {one.outcome.verdict}, not blocked ({one.outcome.sentence})")
            if not mutant.harmless and not _seen(one, mutant):
                wrong.append(
                    f"{where}: not seen by {sorted(mutant.seen_by)}, but by {one.aimed or one.outcome.blocking}"
                )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", metavar="FAULT,FAULT")
    parser.add_argument("--measures", nargs="+", default=["full", "fraction", "healthy", "model"])
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    todo = jobs(arguments)
    started_s = time.monotonic()
    done: list[Done] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for one in pool.map(run, todo):
            done.append(one)
            if sys.stderr.isatty():
                left = (time.monotonic() - started_s) / len(done) * (len(todo) - len(done))
                sys.stderr.write(f"\r{len(done)} of {len(todo)}, about {left:.0f} s left \033[K")
    print(table(done))
    wrong = [*_shortfalls(done), *_weak_rows(done)]
    print(f"\n{len(done)} runs in {time.monotonic() - started_s:.0f} s; {len(wrong)} did not end as they must")
    for line in wrong:
        print(f"- {line[:400]}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in done], indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
