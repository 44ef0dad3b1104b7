"""What real models wrote, as wire traffic of every dialect: parsed rightly it passes, left in the content it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mutation import DIALECTS
from recorded_outputs import NoPackageError, Replay, Row, Rows, altered, fetch, problem, read

LEAST_SHARE = 0.99
LEAST_BY_RULES = 0.90


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    cache = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("outputs") if cache is None else cache.mkdir("recorded-outputs")
    try:
        return read(fetch(Path(folder)))
    except NoPackageError as error:
        pytest.skip(str(error))


@dataclass
class Count:
    """How many rows came out right, and why the others did not; a row is right when it is so in both modes."""

    of: int
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return 1 - len(self.wrong) / self.of

    def note(self, row: Row, reason: str | None) -> None:
        if reason is not None:
            self.wrong.setdefault(row.id, reason)

    def shown(self, what: str) -> str:
        lines = [f"{what}: {self.of - len(self.wrong)} of {self.of}"]
        return "\n  ".join([*lines, *(f"{row}: {reason}" for row, reason in self.wrong.items())])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_calls_that_real_models_wrote(rows: Rows, dialect: str) -> None:
    replay = Replay(dialect)
    calling = rows.calling
    passes, fails, by_rules = Count(len(calling)), Count(len(calling)), Count(len(calling))
    for row in calling:
        for streamed in (True, False):
            mode = "stream" if streamed else "whole"
            parsed = replay.answer(row, row.parsed, streamed=streamed)
            wrong = problem(row, parsed) or altered(row, parsed)
            passes.note(row, None if wrong is None else f"{mode}: {wrong}")
            unparsed = replay.answer(row, row.unparsed, streamed=streamed)
            fails.note(row, None if problem(row, unparsed) else f"{mode}: nothing was found wrong")
            by_rules.note(row, None if unparsed.breaches else f"{mode}: {row.raw[:60]!r} breaks no rule")
    print(f"{dialect}: {rows.total} rows, {rows.licensed} of a licence to be used, {len(rows.expected)} with a parse")
    print(passes.shown("  the parse on the wire passes"))
    print(fails.shown("  the raw text left in the content fails"))
    print(by_rules.shown("  of those seen by the rules for every answer, whatever was asked"))
    assert passes.share >= LEAST_SHARE, passes.shown("passes")
    assert fails.share >= LEAST_SHARE, fails.shown("fails")
    # A leak must be seen also where nobody expects a call: in a bake, or beside another question.
    assert by_rules.share >= LEAST_BY_RULES, by_rules.shown("by rules")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_without_a_call_that_real_models_wrote(rows: Rows, dialect: str) -> None:
    """No call is expected here, so a raw text is wrong only where it shows; a thought that was cut may not."""
    replay = Replay(dialect)
    passes, fails = Count(len(rows.silent)), Count(sum(row.shows_markup for row in rows.silent))
    for row in rows.silent:
        for streamed in (True, False):
            parsed = replay.answer(row, row.parsed, streamed=streamed)
            passes.note(row, problem(row, parsed) or altered(row, parsed))
            if row.shows_markup and not problem(row, replay.answer(row, row.unparsed, streamed=streamed)):
                fails.note(row, f"{row.raw[:60]!r} looks like an answer")
    print(passes.shown(f"{dialect}: answers without a call pass"))
    print(fails.shown("  the raw text left in the content fails, where it is not the answer itself"))
    assert passes.share >= LEAST_SHARE, passes.shown("passes")
    assert all(not _marked(row) for row in rows.silent if row.id in fails.wrong), fails.shown("fails")


def _marked(row: Row) -> bool:
    """Does the raw text hold anything that only a template writes?"""
    return any(sign in row.raw for sign in ("<|", "|>", "</", "[/", "[THINK"))


def test_the_package_has_the_rows_that_are_counted_on(rows: Rows) -> None:
    assert (rows.total, rows.licensed, len(rows.expected), len(rows.calling)) == (469, 394, 368, 306)
