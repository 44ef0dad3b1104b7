"""`cutover gate …`: the judges without a daemon, against any OpenAI-compatible endpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, examples
from .session import session_of

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Judge an endpoint by the gates. Needs no daemon.",
    epilog=examples(
        "cutover gate run --endpoint http://127.0.0.1:8000 --model qwen3.8-27b --profile smoke",
        "cutover gate list",
        "cutover gate explain J07",
    ),
)


@app.command(
    epilog=examples(
        "cutover gate run --endpoint http://127.0.0.1:8000 --model qwen3.8-27b",
        "cutover gate run --endpoint http://127.0.0.1:8000 --model qwen3.8-27b --profile smoke --json",
        "cutover gate run --endpoint $URL --model m --gate acceptance --capability thinking=switch --html page.html",
    )
)
def run(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="URL", help="Base URL, with or without /v1.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The served model name.")],
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|FILE", help="Which gates, in which order.")
    ] = "standard",
    gate: Annotated[list[str] | None, typer.Option("--gate", metavar="NAME", help="Only this one; repeatable.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key.")
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option(
            "--capability",
            metavar="KEY=VALUE|FILE",
            help="What the model can do, as thinking=switch, or a file with a topology's capability; repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="A --json report of before to compare with.")
    ] = None,
    metrics_url: Annotated[
        str | None, typer.Option("--metrics-url", metavar="URL", help="The engine's metrics, where not at /metrics.")
    ] = None,
    live: Annotated[
        str | None,
        typer.Option("--live", metavar="URL", help="Production, for what is asked of both; nothing that loads it is."),
    ] = None,
    live_model: Annotated[
        str | None, typer.Option("--live-model", metavar="NAME", help="The model's name there, where it is another.")
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="ID", help="Only this check (J01) or group (J) of acceptance; repeatable."),
    ] = None,
    evidence: Annotated[Path | None, typer.Option("--evidence", metavar="DIR", help="Keep the evidence here.")] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="The report as a page. Otherwise it lies beside the evidence."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a profile's gates. Exit code: 0 pass, 10 fail, 11 could not tell, 12 a gate broke."""
    session = session_of(ctx, as_json=as_json)
    from gates.cancel import INTERRUPTED, cancelled_by_signals
    from gates.options import capability_of, read_baseline
    from gates.page import page_of_run, refuse_unwritable
    from gates.progress import shown
    from gates.run import run_profile

    refuse_unwritable(html)
    with cancelled_by_signals() as cancel, shown() as on_progress:
        report = run_profile(
            endpoint,
            model,
            profile,
            only=gate or (),
            evidence_dir=evidence,
            api_key_env=api_key_env,
            capability=capability_of(capability or ()),
            baseline=read_baseline(baseline),
            metrics_url=metrics_url,
            live_endpoint=live,
            live_model=live_model,
            checks=check or (),
            on_progress=on_progress,
            cancel=cancel,
        )
    if as_json:
        session.emit(report.to_dict())
    else:
        _print(report.table())
    page = page_of_run(report, html)
    if page is not None:
        _say_where(page)
    raise typer.Exit(INTERRUPTED if cancel.is_set() else report.exit_code)


@app.command(epilog=examples("cutover gate report report.json", "cutover gate report report.json --html page.html"))
def report(
    ctx: typer.Context,
    saved: Annotated[Path, typer.Argument(metavar="REPORT.json", help="What `cutover gate run --json` printed.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Where to; otherwise the same name with .html.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a saved report again, and make its page. The exit code is not the verdict."""
    session = session_of(ctx, as_json=as_json)
    from gates.page import write_page
    from gates.report import read_report

    again = read_report(saved)
    page = html or saved.with_suffix(".html")
    write_page(again, page, beside=saved.parent)
    if as_json:
        session.emit({"schema": 1, "page": str(page), "verdict": str(again.verdict), "sentence": again.sentence})
    else:
        _print(again.table())
        _say_where(page)


@app.command(
    epilog=examples(
        "cutover gate probe --endpoint http://127.0.0.1:8000 --model qwen",
        "cutover gate probe --endpoint http://127.0.0.1:8000 --model qwen --capability thinking=switch --json",
    )
)
def probe(
    ctx: typer.Context,
    endpoint: Annotated[str, typer.Option("--endpoint", metavar="URL", help="Base URL, with or without /v1.")],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The served model name.")],
    api_key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable with the API key.")
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", metavar="KEY=VALUE|FILE", help="Known already; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out what an endpoint can do, for the capability of a topology: some forty short requests."""
    session = session_of(ctx, as_json=as_json)
    from gates.acceptance.probing import probed_document, probed_text, probed_within
    from gates.options import capability_of

    declared = capability_of(capability or ())
    found = probed_within(endpoint, model, declared, api_key_env)
    if as_json:
        session.emit(probed_document(found))
    else:
        from rich.text import Text

        from .terminal import show

        show([Text(probed_text(found))])  # not folded: it may be saved as a file


@app.command("list", epilog=examples("cutover gate list"))
def listing(ctx: typer.Context, as_json: Json = False) -> None:
    """List the gates, the profiles that ship, and every check."""
    session = session_of(ctx, as_json=as_json)
    from gates.listing import drawn_list, listed

    found = listed()
    if as_json:
        session.emit(found)
    else:
        _print(drawn_list(found))


@app.command(epilog=examples("cutover gate explain J07", "cutover gate explain acceptance"))
def explain(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="CHECK|RULE|GATE", help="See `cutover gate list`.")],
    as_json: Json = False,
) -> None:
    """Say what a check asks, when it blocks, what it catches, and which public bugs are behind it."""
    session = session_of(ctx, as_json=as_json)
    from gates.listing import drawn_explanation, explained

    found = explained(name)
    if as_json:
        session.emit(found)
    else:
        _print(drawn_explanation(found))


def _print(part: RenderableType) -> None:
    from .terminal import console

    console().print(part)


def _say_where(page: Path) -> None:
    sys.stdout.flush()  # on one terminal the report comes first
    sys.stderr.write(f"page: {page}\n")
