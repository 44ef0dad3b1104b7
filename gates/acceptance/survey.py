"""Checks that are no series of tries: they see what the run has seen, and decide by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.contract import VerdictKind

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Tier
    from gates.wire import Exchange


KEPT: Final = "recorded"


@dataclass(frozen=True)
class Surveyed:
    """What a survey found. `exchanges` become evidence, `measurements` go into the report and the next baseline."""

    verdict: VerdictKind
    sentence: str
    exchanges: tuple[Exchange, ...] = ()
    measurements: Mapping[str, Any] = field(default_factory=dict)
    warn: bool = False
    """Passed, and people should see what was found."""
    skipped: bool = False
    """It could not be asked here; what it measured is kept all the same."""


@dataclass(frozen=True)
class Surroundings:
    """What a survey may look at besides asking."""

    seed: str
    tier: Tier
    concurrency: int
    baseline: Mapping[str, Any]
    """`measurements` of the same gate on production; empty where there is none."""
    live: Asker | None = None
    """Production itself, for conversations that go from one to the other."""
    metrics_url: str | None = None

    def before(self, check_id: str) -> Mapping[str, Any]:
        """What this check measured on production; empty where it was not asked there."""
        for kind in ("checks", KEPT):
            measured = self.baseline.get(kind)
            found = measured.get(check_id) if isinstance(measured, Mapping) else None
            if isinstance(found, Mapping) and found:
                return found
        return {}


def keep(asker: Asker, check_id: str, **measurements: Any) -> None:
    """Record what a check saw that has nothing to decide yet: the next run's baseline."""
    asker.trial.measurements.setdefault(KEPT, {})[check_id] = measurements


def passed(sentence: str, **measurements: Any) -> Surveyed:
    return Surveyed(VerdictKind.PASS, sentence, measurements=measurements)


def warned(sentence: str, **measurements: Any) -> Surveyed:
    return Surveyed(VerdictKind.PASS, sentence, measurements=measurements, warn=True)


def failed(sentence: str, *exchanges: Exchange, **measurements: Any) -> Surveyed:
    return Surveyed(VerdictKind.FAIL, sentence, exchanges, measurements)


def undecided(sentence: str, **measurements: Any) -> Surveyed:
    return Surveyed(VerdictKind.INCONCLUSIVE, sentence, measurements=measurements)


def skipped(sentence: str, **measurements: Any) -> Surveyed:
    """For a survey that measured something without being able to judge; otherwise raise `Skip`."""
    return Surveyed(VerdictKind.INCONCLUSIVE, sentence, measurements=measurements, skipped=True)
