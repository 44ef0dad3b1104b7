"""The commands of `cutover`, in the order in which a newcomer meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import (
    ask,
    backup,
    bench,
    doctor,
    gate,
    gpus,
    install,
    ledger,
    logs,
    look,
    notify,
    nudge,
    prune,
    queue,
    release,
    report,
    serve,
    sweep,
    token,
    tools,
    uninstall,
)
from .options import examples
from .session import session_of

EXIT_CODES = (
    "Exit codes: 0 done or pass, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 refused in this state, 10 rejected "
    "or gate failed, 11 inconclusive, 12 gate error, 13 still running when --timeout ended, 14 rolled back, "
    "15 rollback failed."
)

app = typer.Typer(
    help="Move a language model server to another topology: started beside, proved, switched to, watched, taken back.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: it starts in half the time, and reads the same in a pipe.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cutover {version('cutover')}")
        raise typer.Exit


@app.callback()
def everywhere(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Instead of $CUTOVER_CONFIG, /etc/cutover, ~/.config/cutover."),
    ] = None,
    socket: Annotated[
        Path | None,
        typer.Option("--socket", metavar="PATH", help="The daemon's socket, instead of the configured one."),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Global options; they come before the command."""
    session = session_of(ctx)
    session.config_path = config
    session.socket_path = socket


app.command(
    epilog=examples(
        "cutover demo", "cutover demo --strategy swap", "cutover demo --night", "cutover demo --engine vllm --yes"
    )
)(tools.demo)
app.command(epilog=examples("cutover serve", "cutover --config ./cutover.yaml serve"))(serve.serve)
app.command(
    epilog=examples(
        "cutover install --dry-run",
        "sudo /opt/cutover/bin/cutover install",
        "cutover install --user",
        "cutover install --root /mnt/image --json",
    )
)(install.install)
app.command(epilog=examples("cutover uninstall --dry-run", "sudo cutover uninstall --stop-everything"))(
    uninstall.uninstall
)
app.command(epilog=examples("cutover nudge", "cutover nudge --json | jq -r .sentence"))(nudge.nudge)
app.command("import", epilog=examples("cutover import ~/start.sh --port 8000 -o live.yaml"))(release.import_script)
app.command(epilog=examples("cutover plan topologies/qwen27b-tp2x2.yaml"))(ask.plan)
app.command(
    epilog=examples(
        "cutover propose topologies/qwen27b-tp2x2.yaml --wait",
        "cutover propose next.yaml --bake 1800 --require-approval --note 'longer context'",
        "cutover propose next.yaml --plan 4f1c0d2a9b7e --wait --timeout 3600 --json",
        "cutover propose next.yaml --window nightly --priority 5 --expires 3d",
    )
)(ask.propose)
app.command(epilog=examples("cutover status", "cutover status --json | jq .live.release"))(look.status)
app.command(epilog=examples("cutover watch", "cutover watch r0003"))(look.watch)
app.command(epilog=examples("cutover history", "cutover history -n 100 --json"))(look.history)
app.command(epilog=examples("cutover show r0003"))(look.show)
app.command(epilog=examples("cutover queue", "cutover queue --json | jq -r '.queue[].waits_for'"))(queue.queue)
app.command(epilog=examples("cutover withdraw r0005"))(queue.withdraw)
app.command(epilog=examples("cutover reorder r0005 10"))(queue.reorder)
app.command(
    epilog=examples(
        "cutover report",
        "cutover report --night 2026-11-30 --out report.html",
        "cutover report --format markdown | mail -s 'last night' team@example.org",
        "cutover report --json | jq -r '.headline[]'",
    )
)(report.report)
app.command(epilog=examples("cutover approve r0003"))(ask.approve)
app.command(epilog=examples("cutover abort r0003"))(ask.abort)
app.command(epilog=examples("cutover rollback --wait"))(ask.rollback)
app.command(epilog=examples("cutover restart --wait"))(ask.restart)
app.command(epilog=examples("cutover stop", "cutover stop --yes"))(ask.stop)
app.command(epilog=examples("cutover logs -f", "cutover logs candidate --lines 200", "cutover logs qwen27b-tp2x2-a-7"))(
    logs.logs
)
app.command(epilog=examples("cutover freeze 'exam week'", "cutover freeze 'demo for the dean' --until 18:00"))(
    ask.freeze
)
app.command(epilog=examples("cutover unfreeze"))(ask.unfreeze)
app.command(epilog=examples("cutover gpus", "cutover gpus --watch", "cutover gpus --json | jq '.cards[].state'"))(
    gpus.gpus
)
app.command(epilog=examples("cutover cordon 3 'fan is broken, part comes on Friday'"))(ask.cordon)
app.command(epilog=examples("cutover uncordon 3"))(ask.uncordon)
app.command(epilog=examples("cutover doctor", "cutover doctor --json", "cutover doctor --rebuild"))(doctor.doctor)
app.command(epilog=examples("cutover backup /backup/cutover.tar", "cutover backup nightly.tar --force --json"))(
    backup.backup
)
app.command(epilog=examples("cutover restore /backup/cutover.tar"))(backup.restore)
app.command(epilog=examples("cutover prune --dry-run", "cutover prune --json | jq '.removed[].path'"))(prune.prune)
app.command(
    epilog=examples(
        "cutover bench http://127.0.0.1:8000",
        "cutover bench http://127.0.0.1:8000 --profile uni_bench --plot",
        "cutover bench $URL --topology qwen27b-tp2x2.yaml --profile matrix --html bench.html",
        "cutover bench --live --rounds 5 --json > live.json",
    )
)(bench.bench)
app.add_typer(notify.app, name="notify")
app.add_typer(sweep.app, name="sweep")
app.add_typer(token.app, name="token")
app.add_typer(release.app, name="release")
app.add_typer(gate.app, name="gate")
app.add_typer(ledger.app, name="ledger")
app.command(
    epilog=examples(
        "cutover compare qwen27b-tp2x2 qwen27b-tp4",
        "cutover compare qwen27b-tp2x2@1a2b3c4d qwen27b-tp2x2@5e6f7a8b --markdown",
        "cutover compare qwen27b-tp4 27b-tp4-forum --reference --json",
    )
)(ledger.compare)
app.command(
    # Everything after the name is the emulator's, its --help too.
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)(tools.emulate)
