"""`cutover bench`: how fast is an endpoint, at which load. No daemon is asked, unless for `--live`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .options import Json
from .session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gates.throughput.command import Benched, Plan
    from launch.topology import Topology

    from .session import Session

_EVIDENCE = "bench-evidence"


def bench(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="Base URL, with or without /v1.")] = None,
    live: Annotated[bool, typer.Option("--live", help="What is live now. Only in quiet hours: it loads it.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The served model name, where there are several.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME|FILE", help="Workloads and floors: matrix, uni_bench, …")
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency", metavar="1,2,4", help="These rungs for every workload, in place of the profile's."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, metavar="N", help="So many of each cell.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=4096, metavar="N", help="Sequences that the engine runs at once."),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option("--topology", metavar="FILE", help="What runs there: flags and limits are read in it."),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option("--capability", metavar="KEY=VALUE|FILE", help="As thinking=switch, or a file; repeatable."),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key.")
    ] = None,
    metrics_url: Annotated[
        str | None, typer.Option("--metrics-url", metavar="URL", help="The engine's metrics, where not at /metrics.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE", help="A --json answer of before to compare with; its rungs are measured too."
        ),
    ] = None,
    deadline_s: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            min=1.0,
            metavar="SECONDS",
            help="It ends by then; what is missing is said. Without it an hour, or the profile's where that is longer.",
        ),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw throughput and latency against concurrency.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="The same as a page.")] = None,
    evidence: Annotated[Path | None, typer.Option("--evidence", metavar="DIR", help="Keep the evidence here.")] = None,
    keep: Annotated[bool, typer.Option("--ledger/--no-ledger", help="Keep the measurements in the ledger.")] = True,
    ledger_file: Annotated[
        Path | None, typer.Option("--ledger-file", metavar="FILE", help="In this one, not in the state directory's.")
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Beside the rows in the ledger.")] = "",
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="NAME",
            help="Name this start of the engine: how far starts lie apart is learnt from five. --live knows its own.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure an endpoint over a ladder of concurrencies.

    Exit code: 0 measured and fast enough, 10 a floor missed or requests failed, 11 could not tell, 12 the bench broke,
    1 nobody answers there, 130 interrupted: what was measured by then is still shown and kept.
    """
    session = session_of(ctx, as_json=as_json)
    from gates.options import capability_of, read_baseline
    from gates.progress import shown
    from gates.throughput.command import Plan, left_unjudged, run_bench

    if live == (url is not None):
        raise UsageError("cutover bench needs one of URL and --live")
    kept_in = (ledger_file or session.config().ledger) if keep else None
    _refuse_where_nothing_can_be_written(html, kept_in)
    plan = Plan(
        endpoint=url or f"http://{session.config().public}",
        model=model,
        profile=profile,
        changes=_changes(concurrency, rounds, limit),
        capability=capability_of(capability or ()),
        api_key_env=api_key_env,
        metrics_urls=(metrics_url,) if metrics_url is not None else (),
        baseline=read_baseline(baseline),
        deadline_s=deadline_s,
        start=start or "",
        ledger=kept_in,
    )
    plan = _of_live(session, plan) if live else plan
    plan = _of_topology(plan, topology) if topology is not None else plan
    if unjudged := left_unjudged(profile, plan.changes):
        _aside(f"limits: --concurrency leaves out {', '.join(unjudged)}, so what the profile wants there is not judged")
    with tempfile.TemporaryDirectory(prefix="cutover-bench-") as scratch, shown() as on_progress:
        benched = run_bench(replace(plan, evidence_dir=evidence or Path(scratch)), on_progress)
    try:
        _tell(session, benched, plot=plot, evidence_kept=evidence is not None)
    finally:
        # A closed pipe or terminal, and a page that cannot be written, lose no measurement.
        if keep:
            _save(benched, plan, note)
    if html is not None:
        _draw(benched, html)
    raise typer.Exit(benched.exit_code)


def _changes(concurrency: str | None, rounds: int | None, limit: int | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if concurrency is not None:
        words = [word.strip() for word in concurrency.split(",")]
        bad = next((word for word in words if not word.isdecimal() and word not in ("limit", "beyond")), None)
        if bad is not None:
            raise UsageError(f"--concurrency {concurrency}: {bad!r} is no rung; expected numbers, limit or beyond")
        changes["concurrency"] = [int(word) if word.isdecimal() else word for word in words]
    if rounds is not None:
        changes["rounds"] = [rounds]
    if limit is not None:
        changes["limit"] = limit
    return changes


def _of_live(session: Session, plan: Plan) -> Plan:
    """What the daemon knows of it: the release, this start of it, and where its engines show their own counters."""
    status = session.client().get("/v1/status")
    seat = status["live"]
    if seat is None:
        raise UsageError("nothing is live, so there is nothing to bench: `cutover status`")
    engines = [attempt for attempt in seat["attempts"] if attempt["role"] == "engine"]
    from gates.contract import start_of
    from launch.topology import parse

    from .options import release_path

    release = session.client().get(release_path(seat["release"]))
    known = _told_by(plan, parse(release["topology"], source=release["id"], rules=False))
    return replace(
        known,
        model=plan.model or seat["serves"][0],
        metrics_urls=plan.metrics_urls or tuple(f"http://127.0.0.1:{each['port']}/metrics" for each in engines),
        start=plan.start or start_of(each["id"] for each in engines),
        engine_version=str(release["manifest"]["identity"].get("engine", {}).get("version") or ""),
        about={**known.about, "release": release["id"], "digest": release["digest"]},
        hardware=_cards_of(session, engines),
    )


def _cards_of(session: Session, engines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As the gates of rollouts are told it, so that a measurement of live counts as one of the same release.

    Who may not see the engine's processes takes all cards of the box for its own.
    """
    box = session.client().get("/v1/gpus")
    ours = {gpu for attempt in engines for gpu in attempt["gpus"]}
    names = [card["name"] for card in box["cards"] if card["id"] in ours and card.get("name")]
    return {key: value for key, value in (("driver", box.get("driver")), ("gpus", names)) if value}


def _of_topology(plan: Plan, file: Path) -> Plan:
    from launch.topology import load

    topology = load(file)
    return replace(_told_by(plan, topology), serves=topology.serves)


def _told_by(plan: Plan, topology: Topology) -> Plan:
    """Flags, limits and capability, for what the endpoint does not say itself."""
    from launch.engines.base import running_at_once

    running = running_at_once(topology)
    told = {} if running is None else {"max_running": running}
    return replace(
        plan,
        model=plan.model or (topology.serves[0] if len(topology.serves) == 1 else None),
        capability={**told, **topology.capability, **plan.capability},
        flags=tuple(topology.flags),
        instances=len(topology.instances),
        engine=topology.engine,
        about={"topology": topology.name, **plan.about},
    )


def _refuse_where_nothing_can_be_written(html: Path | None, ledger: Path | None) -> None:
    """Before an hour of measuring, not after it."""
    if html is not None and html.is_dir():
        raise UsageError(f"--html {html} is a directory; name a file in it")
    if html is not None and not html.absolute().parent.is_dir():
        raise UsageError(f"--html {html}: the directory {html.parent} does not exist")
    if ledger is not None:
        from gates.ledger.store import Ledger

        Ledger(ledger).refuse_unwritable()


def _tell(session: Session, benched: Benched, *, plot: bool, evidence_kept: bool) -> None:
    if session.as_json:
        session.emit(benched.document(evidence_kept=evidence_kept))
        if plot:
            _aside("plot: stdout is JSON, so nothing is drawn; --html FILE draws a page beside it")
        return
    from rich.text import Text

    from gates.throughput.views import drawn_plot, drawn_run

    from .terminal import clean, console, show

    if benched.run is not None:
        show(drawn_run(benched.run, benched.notes, width=console().width))
        if plot:
            show(drawn_plot(benched.run))
    # Cells that are no measurement stand under the table already.
    told = ".measurement"
    bad = [c for c in benched.verdict.checks if (c.verdict != "pass" or c.warn) and not c.skipped and told not in c.id]
    for check in bad:
        show([Text(clean(f"{'warned' if check.warn else check.verdict}  {check.id}: {check.sentence}"))])
    show([Text(clean(f"{benched.verdict.verdict}: {benched.verdict.sentence}"), style="bold")])


def _draw(benched: Benched, html: Path) -> None:
    if benched.run is None:
        _aside(f"page: nothing was measured, so {html} was not written")
        return
    from gates.throughput.page import write_page

    write_page(benched, html)
    _aside(f"page: {html}")


def _save(benched: Benched, plan: Plan, note: str) -> None:
    if benched.run is None or plan.ledger is None:
        return
    from gates.ledger.rows import Kind
    from gates.ledger.store import Ledger
    from gates.ledger.words import counted

    from .ledger import who

    run, whole = benched.run, benched.interrupted is None
    if benched.interrupted is not None:
        # A cell with fewer rounds is a measurement; one that was not begun is none, and half a ladder is no start.
        run = replace(run, cells=[cell for cell in run.cells if cell.requests])
        note = "; ".join(filter(None, (note, benched.interrupted)))
    if not run.cells:
        _aside("ledger: nothing was measured, so nothing is kept")
        return
    recorded = Ledger(plan.ledger).record(
        run,
        who=who(),
        hardware=benched.hardware,
        note=note,
        kind=Kind.RESTART if plan.start and whole else Kind.CELL,
        start=plan.start,
    )
    _aside(f"ledger: run {recorded.run}, {counted(len(recorded.rows), 'row')}")


def _aside(sentence: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{sentence}\n")
