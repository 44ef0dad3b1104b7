"""The report of a run as one HTML page that needs nothing else: no script, no font, no picture, no network.

Everything an engine or a gate said is hostile. The template escapes every value, control characters are spelled out,
and the page forbids itself to run or to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from gates.bugs import bugs_of
from gates.errors import GateUsageError
from gates.exhibit import Exhibit, read_exhibit, shortened
from gates.quotes import Quotes, quotes_of
from gates.report import PAGE_NAME, Outcome, counts_in_words, tally_of
from gates.visible import visible

if TYPE_CHECKING:
    from gates.bugs import Bug
    from gates.contract import Check
    from gates.report import RunReport, Step, Tally

_TEMPLATE: Final = Path(__file__).with_name("page.html")
_MAX_EXHIBITS: Final = 3
"""Files of evidence shown with one check; the others are named."""
_MAX_EVIDENCE_CHARS: Final = 4_000_000
"""Evidence on one page; beyond it files are named only, so that a phone can still open the page."""
_TOLD_ELSEWHERE: Final = frozenset({"n", "right", "lower_bound", "production", "reruns", "layer"})
_QUIET: Final = (Outcome.PASSED, Outcome.SKIPPED)


def render(report: RunReport, beside: Path | None = None) -> str:
    """The page. Evidence is read from the directory that the report names, or from `beside` when the run was copied."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"marked": marked, "words": counts_in_words}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    shelf = _Shelf(report.evidence_dir, beside)
    return template.render(
        report=report,
        gates=[_Gate(step, [_Finding.of(check, o, shelf) for o, check in step.checks]) for step in report.steps],
        outcomes=list(Outcome),
        quiet=_QUIET,
        only_quiet=all(outcome in _QUIET for outcome in report.counts),
    )


def write_page(report: RunReport, path: Path, beside: Path | None = None) -> None:
    """Write the page to `path`. Raises `GateUsageError` when that cannot be done."""
    html = render(report, beside)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8", errors="replace")
    except OSError as error:
        raise GateUsageError(f"The page cannot be written to {path}: {error.strerror}.") from None


def refuse_unwritable(page: Path | None) -> None:
    """Raises `GateUsageError` for a page that could not be written: before an hour of asking, not after it."""
    if page is None:
        return
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("ab"):
            pass
    except OSError as error:
        raise GateUsageError(f"The page cannot be written to {page}: {error.strerror}.") from None


def page_of_run(report: RunReport, wanted: Path | None) -> Path | None:
    """Write the page of a run to `wanted`, else beside its evidence; None when there is neither.

    A page that nobody asked for is never why a run fails: it is left out when the evidence directory takes no more.
    """
    if wanted is not None:
        write_page(report, wanted)
        return wanted
    if not report.evidence_dir:
        return None
    page = Path(report.evidence_dir) / PAGE_NAME
    try:
        write_page(report, page)
    except GateUsageError:
        return None
    return page


def marked(text: str, quotes: Quotes) -> Markup:
    """`text` escaped, with what the sentence quotes inside ``<mark>``."""
    parts, at = [], 0
    for begin, end in quotes.spans(text):
        parts += [escape(text[at:begin]), Markup("<mark>{}</mark>").format(text[begin:end])]
        at = end
    return Markup().join([*parts, escape(text[at:])])


@dataclass(frozen=True)
class _Rerun:
    name: str
    problem: str | None
    why_not: str | None


@dataclass(frozen=True)
class _Gate:
    step: Step
    findings: list[_Finding]

    @property
    def measurements(self) -> list[tuple[str, str]]:
        return _listed(self.step.verdict.measurements) if self.step.verdict else []


@dataclass(frozen=True)
class _Finding:
    """One check with everything the page says about it."""

    check: Check
    outcome: Outcome
    quotes: Quotes
    exhibits: list[Exhibit]
    not_shown: list[str]

    @classmethod
    def of(cls, check: Check, outcome: Outcome, shelf: _Shelf) -> _Finding:
        quotes = quotes_of([check.sentence])
        if outcome in _QUIET:
            return cls(check, outcome, quotes, [], list(check.evidence))
        shown = [shelf.take(name, quotes) for name in check.evidence[:_MAX_EXHIBITS]]
        return cls(check, outcome, quotes, shown, check.evidence[_MAX_EXHIBITS:])

    @property
    def tally(self) -> Tally | None:
        return tally_of(self.check.measurements)

    @property
    def layer(self) -> str:
        layer = self.check.measurements.get("layer")
        return layer if isinstance(layer, str) else ""

    @property
    def reruns(self) -> list[_Rerun]:
        listed = self.check.measurements.get("reruns")
        return [
            _Rerun(str(one.get("name", "?")), _text_or_none(one.get("problem")), _text_or_none(one.get("why_not")))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, Mapping)
        ]

    @property
    def bugs(self) -> tuple[Bug, ...]:
        """Public reports of the same."""
        return () if self.outcome in _QUIET else bugs_of(self.check.id)

    @property
    def measurements(self) -> list[tuple[str, str]]:
        return _listed({k: v for k, v in self.check.measurements.items() if k not in _TOLD_ELSEWHERE})


@dataclass
class _Shelf:
    """The files of evidence. Only what lies in the run's own directory is read: a report names files, it is no key."""

    evidence_dir: str
    beside: Path | None
    _chars: int = field(default=0)

    @cached_property
    def _root(self) -> Path | None:
        """The directory that the report names, or the one it was copied to."""
        named = Path(self.evidence_dir) if self.evidence_dir else None
        return named if named is not None and named.is_dir() else self.beside

    def take(self, written: str, quotes: Quotes) -> Exhibit:
        name = written.removeprefix(f"{self.evidence_dir}/") if self.evidence_dir else written
        if self._chars > _MAX_EVIDENCE_CHARS:
            return Exhibit(name, problem="not shown, this page is long enough; the file has it")
        if self._root is None:
            return Exhibit(name, problem="the directory of the evidence is not there")
        root = self._root.resolve()
        try:
            path = (root / name).resolve()
        except (OSError, ValueError):
            return Exhibit(name, problem="this is no path")
        if not path.is_relative_to(root):
            return Exhibit(name, problem="outside the run's own directory, so it is not read")
        exhibit = read_exhibit(path, name, quotes)
        self._chars += _size(exhibit)
        return exhibit


def _size(exhibit: Exhibit) -> int:
    return len(exhibit.text) + sum(
        len(one.request) + len(one.body) + sum(len(arrival.raw) for arrival in one.arrivals)
        for one in exhibit.exchanges
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _listed(measurements: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values; what is no plain value as JSON on one line, cut when it is long."""
    return [
        (str(key), shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 1_000))
        for key, value in measurements.items()
    ]
