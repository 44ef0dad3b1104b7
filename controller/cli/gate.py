"""`cutover gate …`: the judges without a daemon, against any OpenAI-compatible endpoint."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Json, examples
from .session import session_of

app = typer.Typer(help="Judge an endpoint by the gates. Needs no daemon.")
INTERRUPTED = 130  # as a shell reports SIGINT


@app.command(
    epilog=examples(
        "cutover gate run --endpoint http://127.0.0.1:8000 --model qwen3.8-27b",
        "cutover gate run --endpoint http://127.0.0.1:8000 --model qwen3.8-27b --profile smoke --json",
        "cutover gate run --endpoint $URL --model m --gate toolcalls --capability thinking=switch",
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
            "--capability", metavar="KEY=VALUE", help="What the model can do, as thinking=switch; repeatable."
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="A --json report of before to compare with.")
    ] = None,
    metrics_url: Annotated[
        str | None, typer.Option("--metrics-url", metavar="URL", help="The engine's metrics, where not at /metrics.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option("--evidence", metavar="DIR", help="Keep the evidence here.")] = None,
    as_json: Json = False,
) -> None:
    """Run a profile's gates. Exit code: 0 pass, 10 fail, 11 could not tell, 12 a gate broke."""
    session = session_of(ctx, as_json=as_json)
    from gates.options import capability_pair, read_baseline
    from gates.run import run_profile

    with _cancelled_by_signals() as cancel:
        report = run_profile(
            endpoint,
            model,
            profile,
            only=gate or (),
            evidence_dir=evidence,
            api_key_env=api_key_env,
            capability=dict(capability_pair(text) for text in capability or ()),
            baseline=read_baseline(baseline),
            metrics_url=metrics_url,
            on_progress=_progress,
            cancel=cancel,
        )
    if as_json:
        session.emit(report.to_dict())
    else:
        from .terminal import console

        console().print(report.table())
    raise typer.Exit(INTERRUPTED if cancel.is_set() else report.exit_code)


@app.command("list", epilog=examples("cutover gate list"))
def listing(ctx: typer.Context, as_json: Json = False) -> None:
    """List the gates and the profiles that ship."""
    session = session_of(ctx, as_json=as_json)
    from gates.catalog import BUILT_IN
    from gates.profile import DIRECTORY, load

    profiles = [load(file.stem) for file in sorted(DIRECTORY.glob("*.yaml"))]
    if as_json:
        session.emit(
            {
                "schema": 1,
                "gates": [{"name": g.name, "summary": g.summary} for g in BUILT_IN.values()],
                "profiles": [
                    {"name": p.name, "description": p.description, "gates": [step.name for step in p.gates]}
                    for p in profiles
                ],
            }
        )
        return
    for one in BUILT_IN.values():
        sys.stdout.write(f"{one.name:12} {one.summary}\n")
    sys.stdout.write("\nprofiles\n")
    for p in profiles:
        sys.stdout.write(f"{p.name:12} {p.description} ({', '.join(step.name for step in p.gates)})\n")


@app.command(epilog=examples("cutover gate explain toolcalls"))
def explain(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="GATE", help="See `cutover gate list`.")],
    as_json: Json = False,
) -> None:
    """Say what a gate catches, and which settings it has."""
    session = session_of(ctx, as_json=as_json)
    from gates.catalog import find

    one = find(name)
    settings = {key: field.get_default(call_default_factory=True) for key, field in one.settings().model_fields.items()}
    if as_json:
        shown = json.loads(json.dumps(settings, default=_plain))
        session.emit({"schema": 1, "name": one.name, "summary": one.summary, "catches": one.catches, "settings": shown})
        return
    sys.stdout.write(f"{one.name}: {one.summary}\n\nCatches: {one.catches}\n\nSettings, with their defaults\n")
    for key, value in settings.items():
        sys.stdout.write(f"  {key}: {json.dumps(value, default=_plain, ensure_ascii=False)}\n")


@contextlib.contextmanager
def _cancelled_by_signals() -> Iterator[threading.Event]:
    """Gates run in sessions of their own and do not hear Ctrl-C: they are ended, and what was found is still shown."""
    cancel = threading.Event()
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, set | frozenset | tuple) else str(value)


def _progress(fields: Mapping[str, Any]) -> None:
    """One line on stderr per word from a gate; called from other threads, so one write each."""
    from .terminal import clean

    said = fields.get("sentence") or fields.get("log") or ("started" if fields.get("started") else "")
    left = f" (then {', '.join(fields['left'])})" if fields.get("left") else ""
    verdict = f"{fields['verdict']}: " if "verdict" in fields else ""
    check = f" {fields['check']}" if "check" in fields else ""
    sys.stderr.write(clean(f"{fields.get('gate')}{check}: {verdict}{said}{left}") + "\n")
