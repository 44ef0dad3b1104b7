"""What is told, and how much it matters. Nothing but words: the configuration reads them."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What happened."""

    FAILED = "failed"  # a rollout did not come through, and production is as it was
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    NEEDS_APPROVAL = "needs_approval"
    ROLLBACK_FAILED = "rollback_failed"  # the box could not go back: what serves stays
    QUARANTINED = "quarantined"  # a GPU that was not given back whole
    ALARM = "alarm"  # something needs somebody
    MISSED = "missed"  # a window passed while nobody was awake
    REPORT = "report"  # a night is over
    SWEEP = "sweep"  # every arm of a sweep was tried
    TEST = "test"  # somebody asks whether they can be reached; told to every target


CHOSEN = tuple(kind for kind in Kind if kind is not Kind.TEST)
"""What a target can choose from."""


class Severity(StrEnum):
    """In order."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return tuple(Severity).index(self)
