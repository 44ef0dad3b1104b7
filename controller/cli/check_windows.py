"""What `cutover doctor` says of the windows in the configuration. Reads nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from ..config import Config
from .checks import Check
from .terminal import span


def windows(config: Config, wall_s: float) -> Iterator[Check]:
    """When each opens next; a hint where `quiet.patience` never ends in one of them. Nothing where there is none."""
    known = config.windows
    if not known:
        return
    openings = [(schedule, schedule.current(wall_s) or schedule.next(wall_s)) for schedule in known.values()]
    told = "; ".join(
        f"{schedule.window}: {schedule.local(opening.opens_s):%a %Y-%m-%d %H:%M} ({schedule.zone_name}), "
        f"for {span(schedule.duration_s)}"
        for schedule, opening in openings
    )
    patience_s = config.quiet.patience
    short = [schedule for schedule in known.values() if schedule.duration_s <= patience_s]
    if not short:
        yield Check("windows", True, told)
        return
    named = ", ".join(f"{schedule.window} for {span(schedule.duration_s)}" for schedule in short)
    yield Check(
        "windows",
        None,
        f"{told}; quiet.patience is {span(patience_s)}, and {named}: without a quiet moment the measurement of live is "
        "not given up in it, and whoever is compared with live waits as long as its time allows",
        "a `quiet: {patience: …}` well below the shortest window, so that its night goes on with older figures of live",
    )
