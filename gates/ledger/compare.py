"""Two releases side by side: cell by cell, with how sure one can be, and with everything in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from gates.errors import nearest
from gates.ledger.change import Change, Ladder, changes
from gates.ledger.curves import Shape, shapes
from gates.ledger.differences import ABSENT, Difference, configuration_differences, differences
from gates.ledger.errors import LedgerRefusedError, NoSuchRowError
from gates.ledger.rows import DRIVER, GPUS, HOST, Configuration, Row, Source, canonical
from gates.ledger.selection import Selection
from gates.ledger.store import newest_by_cell
from gates.ledger.table import groups, workload_key, workload_names
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
    shapes_a: tuple[Shape, ...]
    shapes_b: tuple[Shape, ...]
    """Of each side's own ladders: cliffs, and the law of the step time."""
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
    only_a, only_b = _only(one, other, pairs, unlike), _only(other, one, pairs, unlike)
    if not pairs:
        raise LedgerRefusedError(_refusal(one, other, unlike, only_a, only_b))
    names = workload_names([*one.rows, *other.rows])
    found = changes(ledger, pairs, names)
    return Comparison(
        a=one,
        b=other,
        differences=configuration_differences(one.configuration, other.configuration),
        changes=found.changes,
        ladders=found.ladders,
        unlike=unlike,
        only_a=only_a,
        only_b=only_b,
        warnings=tuple(_warnings(one, other, unlike)),
        crossovers=found.crossings,
        shapes_a=shapes(one.rows, names),
        shapes_b=shapes(other.rows, names),
        spread=found.spread,
    )


def _named(ledger: Ledger, asked: str) -> Sequence[Row]:
    try:
        return [row for row in ledger.find(asked) if row.run == asked]
    except NoSuchRowError:
        return ledger.rows(Selection(sources=tuple(Source), topology=asked))


def _pairs(a: Side, b: Side) -> tuple[list[tuple[Row, Row]], tuple[Unlike, ...]]:
    """Cells of the same workload, and the workloads that only share a name.

    A name may stand for several workloads: each is compared with its like alone. A reference that says little is like
    several: it is held against one of them.
    """
    pairs: list[tuple[Row, Row]] = []
    unlike: list[Unlike] = []
    for name in dict.fromkeys(row.cell.key.workload for row in a.rows):
        mine, theirs = _by_definition(a, name), _by_definition(b, name)
        taken: set[int] = set()
        likes = [
            (one, other)
            for one in mine
            for other in theirs
            if not _workload_differences(one[-1], other[-1]) and _rungs(one) & _rungs(other)
        ]
        # Where most can be compared goes first, then what was measured last.
        likes.sort(key=lambda like: (len(_rungs(like[0]) & _rungs(like[1])), like[0][-1].id, like[1][-1].id))
        for one, other in reversed(likes):
            at = {row.cell.key.concurrency: row for row in other}
            cells = [(row, at[row.cell.key.concurrency]) for row in one if row.cell.key.concurrency in at]
            vague = {row.id for row in (*one, *other) if row.source is Source.REFERENCE}
            if taken.isdisjoint(vague):
                pairs += [pair for pair in cells if taken.isdisjoint(row.id for row in pair)]
                taken |= vague | {row.id for pair in cells for row in pair}
        if mine and theirs and not any(not _workload_differences(x[-1], y[-1]) for x in mine for y in theirs):
            unlike.append(Unlike(name, _workload_differences(mine[-1][-1], theirs[-1][-1])))
    return pairs, tuple(unlike)


def _by_definition(side: Side, name: str) -> list[list[Row]]:
    """The rows of the workloads that have this name, a list for each, the one measured last at the end."""
    found: dict[str, list[Row]] = {}
    for row in side.rows:
        if row.cell.key.workload == name:
            found.setdefault(canonical(row.definition), []).append(row)
    return sorted(found.values(), key=lambda rows: rows[-1].id)


def _rungs(rows: Sequence[Row]) -> set[int]:
    return {row.cell.key.concurrency for row in rows}


def _workload_differences(one: Row, other: Row) -> tuple[Difference, ...]:
    """Somebody else's table rarely says everything: of a reference only what both say is held against it."""
    found = differences(one.definition, other.definition)
    if Source.REFERENCE in (one.source, other.source):
        return tuple(difference for difference in found if ABSENT not in (difference.a, difference.b))
    return found


def _only(one: Side, other: Side, pairs: Sequence[tuple[Row, Row]], unlike: Sequence[Unlike]) -> tuple[str, ...]:
    """With the reason where the other side has rows that do not count. A name that is several workloads is not enough
    to say which.
    """
    compared = {row.id for pair in pairs for row in pair}
    told = {each.workload for each in unlike}
    names = workload_names([*one.rows, *other.rows])
    gone = {(canonical(row.definition), row.cell.key): row for row in other.left_out}
    said = []
    for row in one.rows:
        if row.id not in compared and row.cell.key.workload not in told:
            lost = gone.get((canonical(row.definition), row.cell.key))
            why = "" if lost is None else f" (row {lost.id} of {other.label}: {remark(lost)})"
            said.append(f"{names[workload_key(row)]} c{row.cell.key.concurrency}{why}")
    return tuple(said)


def _refusal(a: Side, b: Side, unlike: Sequence[Unlike], only_a: Sequence[str], only_b: Sequence[str]) -> str:
    names = f"{a.label} and {b.label}"
    if unlike:
        told = "; ".join(one.sentence for one in unlike)
        return f"{names} do not compare: {told}; measure both with the same workload"
    return f"{names} have no cell in common: {a.label} has {', '.join(only_a)}, {b.label} has {', '.join(only_b)}"


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
