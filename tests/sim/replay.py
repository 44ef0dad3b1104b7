"""`python tests/sim/replay.py SEED`: play one history and tell its last decisions, each with its `why`.

`python tests/sim/replay.py 0-20000 [--jobs 2]` plays many and tells how long they took; `--first` ends with the first
that breaks something, `--nights` plays those alone in which windows open.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, repeat
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from sim_histories import STEPS, History, is_night  # noqa: E402 - where it lies is known above only
from simulation import Violated  # noqa: E402

CHUNK = 250


def play(seeds: Iterable[int], steps: int = STEPS) -> tuple[int, list[str]]:
    """How many were played, and the stories of those that broke something."""
    count, stories = 0, []
    for seed in seeds:
        count += 1
        try:
            History(seed, steps).play()
        except Violated as broken:
            stories.append(str(broken))
    return count, stories


def play_many(seeds: Iterable[int], jobs: int, within_s: float = math.inf) -> tuple[int, list[str], float]:
    """How many were played, the stories of those that broke something, and the seconds of CPU that it took.

    None is begun when `within_s` are over, but for what is left of the last 250.
    """
    played, stories, cpu_s = 0, [], 0.0
    with ProcessPoolExecutor(jobs) as pool:
        for count, found, spent_s in pool.map(_timed, _chunks(seeds), repeat(time.monotonic() + within_s)):
            played, cpu_s = played + count, cpu_s + spent_s
            stories += found
    return played, stories, cpu_s


def first_broken(seeds: Iterable[int]) -> int:
    for seed in seeds:
        try:
            History(seed).play()
        except NameError:
            raise  # a mutant that names what is not there shows nothing
        except Exception as broken:  # noqa: BLE001 - a bug may end in any way
            print(f"{broken}\nbroken by seed {seed}")
            return 1
    return 0


def _timed(seeds: list[int], until_s: float) -> tuple[int, list[str], float]:
    """`until_s`: by the monotonic clock, which is one for all processes."""
    if time.monotonic() > until_s:
        return 0, [], 0.0
    begun_s = time.process_time()
    count, stories = play(seeds)
    return count, stories, time.process_time() - begun_s


def _chunks(seeds: Iterable[int]) -> Iterator[list[int]]:
    several = iter(seeds)
    while chunk := list(islice(several, CHUNK)):
        yield chunk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", help="one seed, or a range such as 0-20000")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--nights", action="store_true", help="of these seeds only those in which windows open")
    options = parser.parse_args()
    first, _, end = options.seeds.partition("-")
    if not end:
        history = History(int(first), options.steps)
        try:
            history.play()
        except Violated as broken:
            print(broken)
            return 1
        print("\n".join(history.sim.tale()))
        print(f"seed {first}: everything holds; the daemon was killed {history.sim.kills} times")
        return 0
    seeds = [seed for seed in range(int(first), int(end)) if is_night(seed) or not options.nights]
    if options.first:
        return first_broken(seeds)
    played, stories, cpu_s = play_many(seeds, options.jobs)
    print("\n\n".join(stories))
    print(f"{played} histories, {len(stories)} broken; {cpu_s / max(played, 1) * 1000:.1f} ms of CPU each")
    return 1 if stories else 0


if __name__ == "__main__":
    sys.exit(main())
