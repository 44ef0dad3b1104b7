"""`cutover ledger …` and `cutover compare`: what was ever measured, two releases side by side. No daemon is asked."""

from __future__ import annotations

import os
import pwd
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .options import Json, examples
from .session import Session, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gates.ledger.rows import Row, Source
    from gates.ledger.selection import Selection
    from gates.ledger.store import Ledger

app = typer.Typer(
    help="Show every measurement ever taken; add, look at and retract rows. Needs no daemon.",
    invoke_without_command=True,
    epilog=examples(
        "cutover ledger",
        "cutover ledger --topology 'qwen27b*' --since 30d --no-retracted",
        "cutover ledger --matrix decode --ours",
        "cutover ledger --markdown > table.md",
    ),
)
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="This ledger, instead of the one in the state directory."),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="As Markdown, to paste into a thread.")]

_MOST_ROWS = 100


class Metric(StrEnum):
    DECODE = "decode"
    AGGREGATE = "aggregate"
    TTFT_COLD = "ttft-cold"
    TTFT_WARM = "ttft-warm"
    END_TO_END = "end-to-end"
    TOKENS_PER_CHUNK = "tokens-per-chunk"


@app.callback()
def table(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="NAME", help="Of this topology, release or, without either, model; * and ?."
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="Of this engine, as vllm or 'vllm 0.11*'.")
    ] = None,
    workload: Annotated[str | None, typer.Option("--workload", metavar="NAME", help="Of this workload.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Measured since 2026-09-14 (UTC), or 7d, 12h, 2w ago.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DATE", help="Measured up to then.")] = None,
    reference: Annotated[
        bool | None, typer.Option("--reference/--ours", help="Only what was typed in from elsewhere, or only our own.")
    ] = None,
    retracted: Annotated[
        bool | None, typer.Option("--retracted/--no-retracted", help="Only what was retracted, or nothing of it.")
    ] = None,
    matrix: Annotated[
        Metric | None, typer.Option("--matrix", help="One figure: a line per configuration, a column per concurrency.")
    ] = None,
    ledger: LedgerFile = None,
    every: Annotated[
        bool, typer.Option("--all", help=f"Every row in the terminal, not only the newest {_MOST_ROWS}.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, a line per row.")] = False,
    as_markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Show every measurement ever taken; add, look at and retract rows. Needs no daemon."""
    session = session_of(ctx, as_json=as_json)
    if ctx.invoked_subcommand is not None:
        _refuse_options_before(ctx)
        return
    _refuse_two_forms(csv=as_csv, markdown=as_markdown, json=as_json)
    if matrix is not None and (as_csv or as_json):
        raise UsageError("--matrix is drawn, or --markdown; --csv and --json have every row with every figure")
    book = _ledger(session, ledger)
    selection = _selection(topology, engine, workload, since, until, reference, retracted)
    rows = book.rows(selection)
    if as_json:
        from gates.ledger.document import ledger_document

        session.emit(ledger_document(book.path, rows))
    elif as_csv:
        from gates.ledger.writers import as_csv as csv_of

        sys.stdout.write(csv_of(rows))
    elif not rows:
        sys.stdout.write(_why_nothing(book, selection))
    elif matrix is not None:
        _show_matrices(rows, selection.sources, matrix, as_markdown)
    elif as_markdown:
        from gates.ledger.writers import as_markdown as markdown_of

        sys.stdout.write(markdown_of(rows))
    else:
        from gates.ledger.draw import drawn_ledger

        from .terminal import console
        from .terminal import show as show_parts

        show_parts(drawn_ledger(rows, None if every else _MOST_ROWS, width=console().width))


@app.command(epilog=examples("cutover ledger show 17", "cutover ledger show b20261130-020000-3fa9c1 --json"))
def show(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(metavar="ID|RUN", help="A row's number, or a run's id for all its rows.")],
    ledger: LedgerFile = None,
    as_json: Json = False,
) -> None:
    """Show a row, or all rows of a run, with everything that is kept of it."""
    session = session_of(ctx, as_json=as_json)
    rows = _ledger(session, ledger).find(what)
    _tell_rows(session, rows)


@app.command(
    epilog=examples(
        "cutover ledger retract 17 --reason 'all four arms ran on GPU 0'",
        "cutover ledger retract b20261130-020000-3fa9c1 --reason 'the prompt cache answered a quarter of it'",
    )
)
def retract(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(metavar="ID|RUN", help="A row's number, or a run's id for all its rows.")],
    reason: Annotated[str, typer.Option("--reason", metavar="WORDS", help="What the next reader has to know.")],
    ledger: LedgerFile = None,
    as_json: Json = False,
) -> None:
    """Take a row out of every conclusion. It stays in the ledger, and is shown as retracted with the reason."""
    session = session_of(ctx, as_json=as_json)
    rows = _ledger(session, ledger).retract(what, reason=reason, who=who())
    if as_json:
        _tell_rows(session, rows)
    else:
        sys.stdout.write(f"retracted: {_numbers([row.id for row in rows])}; shown as such from now on\n")


@app.command(
    epilog=examples(
        "cutover ledger add --reference forum.yaml",
        "cutover ledger add --reference forum.csv",
        "cutover ledger add --reference origin=https://example.org/t/17 date=2026-09-14 topology=27b-tp4 engine=vllm "
        "workload=8k prompt_tokens=8000 concurrency=4 ttft_cold_s=4.19 decode_tok_per_s=29.6",
    )
)
def add(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|KEY=VALUE...", help="YAML or CSV; or one row key by key (docs/ledger.md)."),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Say that it was measured elsewhere: nothing else is typed in.")
    ] = False,
    ledger: LedgerFile = None,
    as_json: Json = False,
) -> None:
    """Type in what was measured elsewhere. It is kept apart from what this box measured, for good."""
    session = session_of(ctx, as_json=as_json)
    if not reference:
        raise UsageError(
            "only what was measured elsewhere is typed in: say so with --reference; "
            "what is measured here gets in by `cutover bench`"
        )
    from gates.ledger.reference import read_references

    book = _ledger(session, ledger, may_be_new=True)
    rows = book.add_reference(read_references(what or ()), who=who())
    if as_json:
        session.emit({"schema": 1, "rows": list(rows)})
    else:
        sys.stdout.write(f"added as reference: {_numbers(rows)}\n")


def compare(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="A release, topology, run, or the model of what has no name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one after.")],
    reference: Annotated[
        bool, typer.Option("--reference", help="Also with what was typed in from elsewhere; it is labelled.")
    ] = False,
    ledger: LedgerFile = None,
    as_markdown: Markdown = False,
    as_json: Json = False,
) -> None:
    """Compare two releases by the ledger: cell by cell, how sure one can be, and in what they differ.

    Workloads that are not the same on both sides are never compared; when nothing is left the exit code is 5.
    """
    session = session_of(ctx, as_json=as_json)
    _refuse_two_forms(markdown=as_markdown, json=as_json)
    from gates.ledger.compare import compare as compared
    from gates.ledger.compare_views import comparison_document, comparison_drawn, comparison_markdown

    from .terminal import console
    from .terminal import show as show_parts

    found = compared(_ledger(session, ledger), a, b, reference=reference)
    if as_json:
        session.emit(comparison_document(found))
    elif as_markdown:
        sys.stdout.write(comparison_markdown(found))
    else:
        show_parts(comparison_drawn(found, width=console().width))


def who() -> str:
    """The name that stands beside what a person did: of the one who became root, not root's."""
    if os.geteuid() == 0 and os.environ.get("SUDO_USER"):
        return os.environ["SUDO_USER"]
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _ledger(session: Session, named: Path | None, *, may_be_new: bool = False) -> Ledger:
    """A file that somebody names is there, unless something is to be written into it."""
    from gates.ledger.store import Ledger

    if named is not None and not named.exists() and not named.parent.is_dir():
        raise UsageError(f"--ledger {named}: the directory {named.parent} does not exist")
    if named is not None and not named.exists() and not may_be_new:
        raise UsageError(f"--ledger {named}: there is no such file")
    return Ledger(named if named is not None else session.config().ledger)


def _selection(
    topology: str | None,
    engine: str | None,
    workload: str | None,
    since: str | None,
    until: str | None,
    reference: bool | None,
    retracted: bool | None,
) -> Selection:
    from gates.ledger.rows import Source
    from gates.ledger.selection import Selection, read_date

    now = datetime.now(UTC)
    sources = {None: tuple(Source), True: (Source.REFERENCE,), False: (Source.OURS,)}
    return Selection(
        sources=sources[reference],
        topology=topology,
        engine=engine,
        workload=workload,
        since=None if since is None else read_date(since, "--since", now),
        until=None if until is None else read_date(until, "--until", now, end_of_day=True),
        retracted=retracted,
    )


def _show_matrices(rows: Sequence[Row], sources: Sequence[Source], metric: Metric, as_markdown: bool) -> None:
    from gates.ledger.columns import METRICS
    from gates.ledger.draw import drawn_matrices
    from gates.ledger.table import matrices
    from gates.ledger.writers import matrices_as_markdown

    from .terminal import console
    from .terminal import show as show_parts

    for source in sources:
        mine = [row for row in rows if row.source is source]
        found = matrices(mine, METRICS[metric.value])
        if as_markdown and found:
            sys.stdout.write(matrices_as_markdown(found, source))
        elif not as_markdown:
            show_parts(drawn_matrices(found, source, sum(not row.counts for row in mine), width=console().width))


def _tell_rows(session: Session, rows: Sequence[Row]) -> None:
    from gates.ledger.document import rows_document

    if session.as_json:
        session.emit(rows_document(rows))
        return
    from gates.ledger.draw import drawn_row

    from .terminal import show as show_parts

    for position, row in enumerate(rows):
        if position:
            sys.stdout.write("\n")
            sys.stdout.flush()
        show_parts(drawn_row(row))


def _why_nothing(book: Ledger, selection: Selection) -> str:
    known = book.known()
    if not any(known.values()):
        return (
            f"the ledger {book.path} is empty: rows get in by `cutover bench`, and by "
            "`cutover ledger add --reference FILE` for what was measured elsewhere\n"
        )
    names = "; ".join(f"{name}: {', '.join(values)}" for name, values in known.items() if values)
    asked = selection.words or "these options"
    return f"no row of the ledger {book.path} fits {asked}; it has {names}\n"


def _refuse_options_before(ctx: typer.Context) -> None:
    """Filters before a subcommand would be dropped in silence."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if str(ctx.get_parameter_source(str(parameter.name))).endswith("COMMANDLINE")
    ]
    if given:
        raise UsageError(f"{given[0]} belongs to the table: leave it out with `{ctx.invoked_subcommand}`")


def _refuse_two_forms(**forms: bool) -> None:
    given = [f"--{name}" for name, wanted in forms.items() if wanted]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} together: choose one")


def _numbers(rows: Sequence[Any]) -> str:
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(str(row) for row in rows)}"
