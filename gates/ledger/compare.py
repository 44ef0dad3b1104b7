"""Two releases side by side: cell by cell, with how sure one can be, and with everything in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from gates.errors import nearest
from gates.ledger.change import Change, Ladder, changes
from gates.ledger.differences import ABSENT, Difference, configuration_differences, differences
from gates.ledger.errors import LedgerRefusedError, NoSuchRowError
from gates.ledger.rows import DRIVER, GPUS, HOST, Configuration, Row, Source
from gates.ledger.selection import Selection
from gates.ledger.store import newest_by_cell
from gates.ledger.table import groups
from gates.ledger.words import configuration_in_words, counted, remark

if TYPE_CHECKING:
    from gates.ledger.store import Ledger
    from gates.throughput.explain.crossover import Crossover

_MAX_DAYS_APART: Final = 7
_BESIDE_THE_RELEASE: Final = (GPUS, DRIVER, HOST)


@dataclass(frozen=True)
class Side:
    """One of the two: the newest rows that count, one per cell, all of one configuration."""

    asked: str
    rows: tuple[Row, ...]
    others: int = 0
    """How many other configurations were called the same, and are older."""
    left_out: tuple[Row, ...] = ()
    """Of the same configuration, and retracted or no measurement."""

    @property
    def configuration(self) -> Configuration:
        return self.rows[-1].configuration

    @property
    def source(self) -> Source:
        return self.rows[-1].source

    @property
    def measured_at(self) -> str:
        return max(row.started_at for row in self.rows)

    @property
    def label(self) -> str:
        """A reference is called so wherever it is named."""
        name = self.configuration.name
        return f"{name} (reference)" if self.source is Source.REFERENCE else name


@dataclass(frozen=True)
class Unlike:
    """A workload of the same name that is not the same: its cells are not compared."""

    workload: str
    differences: tuple[Difference, ...]

    @property
    def sentence(self) -> str:
        return f"workload {self.workload} is not the same on both sides: " + "; ".join(
            d.words for d in self.differences
        )


@dataclass(frozen=True)
class Comparison:
    """`differences`: of the configurations. `only_a`, `only_b`: cells that the other side lacks."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]
    ladders: tuple[Ladder, ...]
    unlike: tuple[Unlike, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, ...]
    crossovers: tuple[Crossover, ...]
    """Per workload where the one overtakes the other, or that it never does."""
    spread: str
    """What was taken for the spread between starts, in words."""


def side(ledger: Ledger, asked: str, *, reference: bool = False) -> Side:
    """`asked`: a run, a release, the beginning of its digest, a topology, or the model of what has no such name; of
    several the one measured last.

    Rows from elsewhere only with `reference`. Raises `NoSuchRowError`, `LedgerRefusedError`.
    """
    every = _named(ledger, asked)
    mine = [row for row in every if row.source is Source.OURS or reference]
    if every and not mine:
        raise LedgerRefusedError(
            f"{asked} was never measured here, it is a reference; --reference compares with it all the same"
        )
    if not mine:
        known = ledger.known(None if reference else Source.OURS)
        names = [*known["release"], *known["topology"], *known["model"]]
        hint = nearest(asked, names) if names else "nothing was measured here so far"
        raise NoSuchRowError(f"the ledger {ledger.path} has no run, release, topology or model {asked}; {hint}")
    counting = [row for row in mine if row.counts]
    if not counting:
        gone = sum(row.retracted is not None for row in mine)
        raise LedgerRefusedError(
            f"nothing of {asked} can be compared: {gone} of its {counted(len(mine), 'row')} are retracted, "
            f"{len(mine) - gone} are no measurement; see `cutover ledger --topology {asked}`"
        )
    # What was measured here goes before what somebody else says under the same name.
    ours = [row for row in counting if row.source is Source.OURS]
    found = groups(ours or counting)
    rows = newest_by_cell(sorted(found[-1].rows, key=lambda row: (row.started_at, row.id)))
    identity = found[-1].configuration.identity
    left_out = tuple(row for row in mine if not row.counts and row.configuration.identity == identity)
    return Side(asked, rows, others=len(found) - 1, left_out=left_out)


def compare(ledger: Ledger, a: str, b: str, *, reference: bool = False) -> Comparison:
    """What changes from `a` to `b`.

    Raises `LedgerRefusedError` when no cell of the two can be compared, `NoSuchRowError` for a name nobody knows.
    """
    one, other = side(ledger, a, reference=reference), side(ledger, b, reference=reference)
    pairs, unlike = _pairs(one, other)
    if not pairs:
        raise LedgerRefusedError(_refusal(one, other, unlike))
    found = changes(ledger, pairs)
    return Comparison(
        a=one,
        b=other,
        differences=configuration_differences(one.configuration, other.configuration),
        changes=found.changes,
        ladders=found.ladders,
        unlike=unlike,
        only_a=_only(one, other),
        only_b=_only(other, one),
        warnings=tuple(_warnings(one, other, unlike)),
        crossovers=found.crossings,
        spread=found.spread,
    )


def _named(ledger: Ledger, asked: str) -> Sequence[Row]:
    try:
        return [row for row in ledger.find(asked) if row.run == asked]
    except NoSuchRowError:
        return ledger.rows(Selection(sources=tuple(Source), topology=asked))


def _pairs(a: Side, b: Side) -> tuple[list[tuple[Row, Row]], tuple[Unlike, ...]]:
    """Cells of the same name whose workloads are the same, and the workloads that only share a name."""
    pairs: list[tuple[Row, Row]] = []
    unlike: dict[str, Unlike] = {}
    for mine in _by_name(a).items():
        key, rows = mine
        others = _by_name(b).get(key, [])
        # A workload may have changed under its name: the newest of what both have counts.
        like = [(one, other) for one in rows for other in others if not _workload_differences(one, other)]
        if like:
            pairs.append(like[-1])
        elif others:
            name = key[0]
            unlike.setdefault(name, Unlike(name, _workload_differences(rows[-1], others[-1])))
    return pairs, tuple(unlike.values())


def _by_name(side: Side) -> Mapping[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in side.rows:
        found.setdefault((row.cell.key.workload, row.cell.key.concurrency), []).append(row)
    return found


def _workload_differences(one: Row, other: Row) -> tuple[Difference, ...]:
    """Somebody else's table rarely says everything: of a reference only what both say is held against it."""
    found = differences(one.definition, other.definition)
    if Source.REFERENCE in (one.source, other.source):
        return tuple(difference for difference in found if ABSENT not in (difference.a, difference.b))
    return found


def _only(one: Side, other: Side) -> tuple[str, ...]:
    """With the reason where the other side has rows that do not count."""
    has = _by_name(other)
    gone = {(row.cell.key.workload, row.cell.key.concurrency): row for row in other.left_out}
    said = []
    for name, concurrency in _by_name(one):
        if (name, concurrency) not in has:
            row = gone.get((name, concurrency))
            why = "" if row is None else f" (row {row.id} of {other.label}: {remark(row)})"
            said.append(f"{name} c{concurrency}{why}")
    return tuple(said)


def _refusal(a: Side, b: Side, unlike: Sequence[Unlike]) -> str:
    names = f"{a.label} and {b.label}"
    if unlike:
        told = "; ".join(one.sentence for one in unlike)
        return f"{names} do not compare: {told}; measure both with the same workload"
    only_a, only_b = ", ".join(_only(a, b)), ", ".join(_only(b, a))
    return f"{names} have no cell in common: {a.label} has {only_a}, {b.label} has {only_b}"


def _warnings(a: Side, b: Side, unlike: Sequence[Unlike]) -> list[str]:
    said = [f"{one.sentence}; its cells are not compared" for one in unlike]
    for one in (a, b):
        if one.source is Source.REFERENCE:
            origin = one.rows[-1].origin
            said.append(f"{one.label} was not measured here but typed in from {origin}; what it does not say of its "
                        "workload cannot be checked")  # fmt: skip
        if one.others:
            said.append(f"{one.asked} was measured in {one.others + 1} configurations; this is the newest, "
                        f"{configuration_in_words(one.configuration)}; name a run to choose another")  # fmt: skip
    other = _hardware_differences(a.configuration, b.configuration)
    if other:
        said.append("not measured on the same box: " + "; ".join(d.words for d in other) + "; numbers may differ "
                    "for that alone")  # fmt: skip
    if a.configuration.model != b.configuration.model and a.configuration.model and b.configuration.model:
        said.append(f"not the same model: {a.configuration.model} → {b.configuration.model}")
    days = abs((datetime.fromisoformat(a.measured_at) - datetime.fromisoformat(b.measured_at)).days)
    if days > _MAX_DAYS_APART:
        said.append(f"measured {days} days apart: what changed on the box in between is in the difference too")
    return said


def _hardware_differences(a: Configuration, b: Configuration) -> tuple[Difference, ...]:
    found = configuration_differences(a, b)
    fields = {f"hardware.{key}" for key in _BESIDE_THE_RELEASE}
    return tuple(difference for difference in found if difference.field in fields)
