"""`cutover report`: what a night decided, and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ..errors import NotFoundError, RefusedError, UsageError
from .options import Json
from .session import Session, session_of

if TYPE_CHECKING:
    from ..report.records import Report
    from .client import Client

LAST = "last"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOST_NIGHTS = 1000


class Format(StrEnum):
    TEXT = "text"
    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


_BY_SUFFIX = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".md": Format.MARKDOWN,
    ".json": Format.JSON,
    ".txt": Format.TEXT,
    "": Format.TEXT,
}


def report(
    ctx: typer.Context,
    night: Annotated[
        str,
        typer.Option(
            "--night",
            metavar="DATE|ID|last",
            help="By its date, or its id where several windows opened then; last: the last that is over.",
        ),
    ] = LAST,
    open_night: Annotated[
        bool, typer.Option("--open-night", help="The one that goes on now, as far as it has come.")
    ] = False,
    form: Annotated[Format | None, typer.Option("--format", help="Else as the name of --out ends; else text.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Into this file: .html, .md, .json or .txt.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a night decided: what ran with its verdict, figures against live, what users met, what waits.

    The daemon writes the same as a page, as Markdown and as JSON into `reports/` of its state directory when a window
    has closed.
    """
    session = session_of(ctx, as_json=as_json or form is Format.JSON)
    wanted = _format(form, out, as_json=as_json)
    client = session.client()
    found = _found(client, night, open_night=open_night)
    if len(found) > 1:
        choices = " or ".join(f"--night {name}" for name in found)
        many = f"{len(found)} windows {'are open now' if open_night else f'opened on {night}'}: {choices} shows one"
        if wanted is not Format.TEXT or out is not None:
            raise UsageError(many)
        sys.stderr.write(f"{many}\n")
    documents = [client.get(f"/v1/nights/{quote(name, safe='@')}/report") for name in found]
    for document in documents:
        _tell(session, document, wanted, out)


def _format(form: Format | None, out: Path | None, *, as_json: bool) -> Format:
    if as_json:
        if form not in {None, Format.JSON}:
            raise UsageError(f"--json and --format {form} are two formats: leave one of them out")
        return Format.JSON
    if form is not None or out is None:
        return form or Format.TEXT
    known = _BY_SUFFIX.get(out.suffix.lower())
    if known is None:
        endings = ", ".join(ending for ending in _BY_SUFFIX if ending)
        raise UsageError(
            f"--out {out}: nothing is written as {out.suffix}; expected a name that ends in one of {endings}, or "
            "--format text|html|markdown|json"
        )
    return known


def _found(client: Client, wanted: str, *, open_night: bool) -> list[str]:
    """Ids of the nights that are meant: one, or all of a date."""
    nights: Sequence[Mapping[str, Any]] = client.get("/v1/nights", limit=_MOST_NIGHTS)["nights"]
    if open_night:
        if wanted != LAST:
            raise UsageError("--open-night and --night name two nights: leave one of them out")
        going_on = [str(night["id"]) for night in nights if night["state"] == "open"]
        if not going_on:
            raise RefusedError(f"no window is open now: {_when(client)}")
        return going_on
    if not nights:
        raise NotFoundError(f"there was no night yet: {_when(client)}")
    if wanted == LAST:
        over = [night for night in nights if night["state"] != "open"] or nights
        return [str(over[-1]["id"])]  # of two windows that opened that day the later one
    found = [str(night["id"]) for night in nights if wanted in {night["id"], night["date"]}]
    if not found and "@" in wanted:
        return [wanted]  # what was written of it may outlive what the journal has
    if not found:
        if not _DATE.fullmatch(wanted):
            raise UsageError(f"--night {wanted}: expected a date (2026-11-30), an id (nightly@2026-11-30) or last")
        raise NotFoundError(f"there is no night {wanted}; the last one is {nights[-1]['id']}")
    return found


def _when(client: Client) -> str:
    """How there will be one."""
    windows = client.get("/v1/queue")["windows"]
    if not windows:
        return (
            "no window is configured; set `schedule` in cutover.yaml, for example "
            '`schedule: {start: "02:00", duration: 4h, timezone: Asia/Taipei}`, restart the daemon, then '
            "`cutover propose FILE --window nightly`"
        )
    opens = ", ".join(f"window {w['name']} opens {w['next_local']} ({w['timezone']})" for w in windows)
    return f"{opens}; `cutover propose FILE --window {windows[0]['name']}`"


def _tell(session: Session, document: Mapping[str, Any], wanted: Format, out: Path | None) -> None:
    from ..report.document import from_document

    if wanted is Format.JSON and out is None:
        session.emit(document)
        return
    try:
        made = from_document(document)
    except ValueError as error:
        raise RefusedError(f"the daemon is of another version: {error}; --json shows what it says") from error
    if wanted is Format.TEXT and out is None:
        from .draw_report import draw_report
        from .terminal import show

        show(draw_report(made))
        return
    text = _text(made, wanted)
    if out is None:
        sys.stdout.write(text)
        return
    from .outfile import put

    put(out, text)
    if not session.as_json:
        sys.stdout.write(f"{out}\n")


def _text(made: Report, wanted: Format) -> str:
    from ..report.document import to_json
    from ..report.markdown import to_markdown
    from ..report.page import to_html

    match wanted:
        case Format.HTML:
            return to_html(made)
        case Format.MARKDOWN:
            return to_markdown(made)
        case Format.JSON:
            return to_json(made)
    from .draw_report import draw_report
    from .terminal import plain_text

    return plain_text(draw_report(made))
