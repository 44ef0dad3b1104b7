"""Which rows: the filters of `cutover ledger`, and how dates are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from gates.errors import GateUsageError
from gates.ledger.encoding import MODEL, UNNAMED
from gates.ledger.rows import Kind, Source

_NAMED: Final = (
    "(topology GLOB ?{n} OR release GLOB ?{n} OR length(?{n}) > 3 AND digest GLOB ?{n} || '*' "
    f"OR {UNNAMED} AND {MODEL} GLOB ?{{n}})"
)
_AGO: Final = re.compile(r"(\d{1,5})\s*([hdw])")
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True)
class Selection:
    """None: no matter. Names may hold `*` and `?`. `since` and `until`: ISO 8601, UTC; both are included.

    `topology` also takes a release or the beginning of its digest (four characters), and the model of what has neither;
    `engine` also `name version`.
    `retracted` None: rows that were and rows that were not.
    """

    sources: tuple[Source, ...] = (Source.OURS,)
    topology: str | None = None
    engine: str | None = None
    workload: str | None = None
    since: str | None = None
    until: str | None = None
    kind: Kind | None = None
    retracted: bool | None = None

    def sql(self) -> tuple[str, list[str]]:
        """A condition with question marks, and what they stand for."""
        conditions = [f"source IN ({', '.join('?' * len(self.sources))})"]
        values: list[str] = [*self.sources]
        for condition, value in (
            (_NAMED, self.topology),
            ("(engine GLOB ?{n} OR engine || ' ' || engine_version GLOB ?{n})", self.engine),
            ("workload GLOB ?{n}", self.workload),
            ("started_at >= ?{n}", self.since),
            ("started_at <= ?{n}", self.until),
            ("kind = ?{n}", self.kind),
        ):
            if value is not None:
                values.append(value)
                conditions.append(condition.replace("{n}", str(len(values))))
        if self.retracted is not None:
            conditions.append(f"at IS {'NOT ' if self.retracted else ''}NULL")
        return " AND ".join(conditions), values

    @property
    def words(self) -> str:
        """The filters as they were given, for a sentence."""
        named = ("topology", "engine", "workload", "since", "until")
        return " ".join(f"--{name} {value}" for name in named if (value := getattr(self, name)) is not None)


def read_date(text: str, option: str, now: datetime, *, end_of_day: bool = False) -> str:
    """`2026-09-14`, `2026-09-14T22:00`, `7d`, `12h`, `2w` as ISO 8601 in UTC. Raises `GateUsageError`.

    Without a zone it is UTC, as in the table.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            moment = now - int(ago[1]) * _UNITS[ago[2]]
        else:
            moment = datetime.fromisoformat(text.strip())
            if end_of_day and len(text.strip()) == len("2026-09-14"):
                moment += timedelta(days=1, seconds=-1)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise GateUsageError(
            f"{option} {text!r} is no date; expected one as 2026-09-14, 2026-09-14T22:00 (UTC), or 12h, 7d, 2w for ago"
        ) from None
    return moment.isoformat(timespec="seconds")
