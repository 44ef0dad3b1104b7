"""How sensitive is the acceptance gate? One row per fault of the emulated engine, none averaged away.

    python benchmarks/gate_sensitivity.py                                   # a slice: every row once
    python benchmarks/gate_sensitivity.py --campaign --json runs.jsonl      # the campaign
    python benchmarks/gate_sensitivity.py --campaign --json runs.jsonl --resume    # what is left of it
    python benchmarks/gate_sensitivity.py --table runs.jsonl                # its tables, without a run
    python benchmarks/gate_sensitivity.py --only args-tail-cut,think-in-content

Four measures: each fault in every answer must be blocked, by a check that should see it; each wire fault in one of
twenty answers must be blocked in 95 % of seeds; a healthy engine must never be; a model that is right often enough
must pass, and one that is not must be blocked. Prints Markdown tables and all that did not end as it must.

`--json` keeps every run as a line of its own, with a digest of the code of the gate and of the emulated engine.
`--resume` counts the runs in that file and does the others. Runs of other code stay in the file and count for nothing:
they say how sensitive some other gate was. `--any-code` counts them all the same.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from campaign_runs import CAMPAIGN, MEASURES, Done, Job, RunsFile, append, digest_of_code, known, planned, run
from campaign_table import shortfalls, tables

_SAY_EVERY_S = 60.0


class Progress:
    """On a terminal one line that changes, elsewhere one line a minute: how many, how long, what is left."""

    def __init__(self, todo: int) -> None:
        self._todo = todo
        self._started_s = self._said_s = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def show(self, done: int, wrong: int) -> None:
        now_s = time.monotonic()
        if not self._terminal and now_s - self._said_s < _SAY_EVERY_S and done < self._todo:
            return
        self._said_s = now_s
        passed_s = now_s - self._started_s
        left_s = passed_s / done * (self._todo - done)
        line = f"{done} of {self._todo} runs in {_minutes(passed_s)}, about {_minutes(left_s)} left; {wrong} wrong"
        sys.stderr.write(f"\r{line}\033[K" if self._terminal else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        if self._terminal:
            sys.stderr.write("\n")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"


def runs_of(todo: list[Job], workers: int) -> Iterator[Done]:
    """Each run as it ends; Ctrl-C and SIGTERM end the campaign, and what is running then is not kept."""
    if not todo:
        return
    with ProcessPoolExecutor(workers, initializer=_as_worker) as pool:
        futures = [pool.submit(run, job) for job in todo]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _as_worker() -> None:
    """Workers leave Ctrl-C to us: a gate that is interrupted would look like one that broke."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What a run leaves behind holds hardly any cycles; `run` looks for them after it, and not a hundred times in it.
    gc.freeze()
    gc.disable()


def campaign(arguments: argparse.Namespace) -> list[Done]:
    """All runs that count: those of the file, then the new ones."""
    jobs = planned(tuple(arguments.measures), arguments.seeds, arguments.first_seed, arguments.only)
    digest = digest_of_code()
    kept = _kept(arguments, digest, set(jobs)) if arguments.resume else []
    known_jobs = {one.job for one in kept}
    todo = [job for job in jobs if job not in known_jobs]
    done = list(kept)
    progress = Progress(len(todo))
    fresh: list[Done] = []
    wrong = 0
    try:
        for one in runs_of(todo, arguments.jobs):
            fresh.append(one)
            if arguments.json:
                append(arguments.json, digest, one)
            wrong += bool(shortfalls([one])) and one.job.measure in ("full", "healthy")
            progress.show(len(fresh), wrong)
    except KeyboardInterrupt:
        progress.end()
        hint = " --resume goes on from here" if arguments.json else " nothing was kept: --json FILE keeps every run"
        print(f"interrupted after {len(fresh)} of {len(todo)} runs;{hint}\n")
    else:
        progress.end()
    return done + fresh


def _kept(arguments: argparse.Namespace, digest: str, jobs: set[Job]) -> list[Done]:
    """The runs that the file holds of these jobs; says what it holds beside them."""
    if not arguments.json.exists():
        return []
    file = RunsFile.read(arguments.json)
    kept = [one for one in file.of(None if arguments.any_code else digest) if one.job in jobs]
    said = f"{arguments.json}: {len(kept)} of these {len(jobs)} runs are there"
    other = sum(code != digest for code, _ in file.runs)
    if other and arguments.any_code:
        said += f"; {other} runs are of other code and count too (--any-code)"
    elif other:
        said += f"; {other} runs are of other code than {digest} and are done again (--any-code would count them)"
    print(said + (f"; {file.unreadable} lines cannot be read" if file.unreadable else ""), file=sys.stderr)
    return kept


def from_file(path: Path, *, any_code: bool) -> tuple[list[Done], str]:
    """The runs of the newest code in the file, and a sentence on the others."""
    file = RunsFile.read(path)
    digests = list(file.digests())
    if not digests:
        sys.exit(f"--table: {path} holds no run")
    newest = file.runs[-1][0]
    done = file.of(None if any_code else newest)
    said = f"{len(done)} runs of the code {newest}"
    others = sum(code != newest for code, _ in file.runs)
    if others and any_code:
        said = f"{len(done)} runs of {len(digests)} states of the code"
    elif others:
        said += f"; {others} runs of other code are left out (--any-code counts them)"
    return done, said + (f"; {file.unreadable} lines cannot be read" if file.unreadable else "")


def _report(done: list[Done], said: str) -> int:
    print(tables(done))
    wrong = shortfalls(done)
    cpu_s = sum(one.cpu_s for one in done)
    print(f"\n{said}; {_minutes(cpu_s)} of CPU; {len(wrong)} findings" + (":" if wrong else ""))
    for line in wrong:
        print(f"- {line[:400]}")
    return 1 if wrong else 0


def _seeds(text: str) -> Mapping[str, int]:
    """`40`, or `full=40,fraction=40,healthy=100,model=300`; what is not named has one."""
    if text.isdigit():
        return dict.fromkeys(MEASURES, int(text))
    pairs = dict(pair.partition("=")[::2] for pair in text.split(","))
    if not set(pairs) <= set(MEASURES) or not all(value.isdigit() for value in pairs.values()):
        raise argparse.ArgumentTypeError(
            f"expected a number, or MEASURE=NUMBER,… of {', '.join(MEASURES)}, not {text!r}"
        )
    return dict.fromkeys(MEASURES, 1) | {name: int(value) for name, value in pairs.items()}


def _faults(text: str) -> frozenset[str]:
    only = frozenset(filter(None, text.split(",")))
    unknown = only - set(known())
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no fault {min(unknown)!r}; `cutover emulate --list-faults` lists them"
        )
    return only


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_seeds, default=_seeds("1"), metavar="N", help="or MEASURE=N,MEASURE=N")
    parser.add_argument("--campaign", action="store_const", const=CAMPAIGN, dest="seeds", help=f"as many as {CAMPAIGN}")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=_faults, default=frozenset(), metavar="FAULT,FAULT")
    parser.add_argument("--measures", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every run to it")
    parser.add_argument("--resume", action="store_true", help="count the runs in that file, do the others")
    parser.add_argument("--any-code", action="store_true", help="count runs of other code as well")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only print the tables of this file")
    arguments = parser.parse_args()
    if arguments.table:
        if not arguments.table.is_file():
            parser.error(f"--table: there is no file {arguments.table}")
        return _report(*from_file(arguments.table, any_code=arguments.any_code))
    if arguments.resume and not arguments.json:
        parser.error("--resume needs --json FILE, which holds the runs that are there")
    if arguments.json and not arguments.resume and arguments.json.exists():
        parser.error(f"{arguments.json} is there already; --resume goes on with it, another name begins anew")
    # Also where a shell has put us into the background, and where a timer ends us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started_s = time.monotonic()
    done = campaign(arguments)
    return _report(done, f"{len(done)} runs, {_minutes(time.monotonic() - started_s)}")


if __name__ == "__main__":
    sys.exit(main())
