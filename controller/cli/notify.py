"""`cutover notify`: who is told what happens, and whether they can be reached. Needs no daemon."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import CutoverError, NotFoundError
from .options import Json, examples
from .session import session_of

if TYPE_CHECKING:
    from ..config import Config
    from ..notify.destination import Destination
    from ..notify.outbox import Lane
    from ..notify.target import Target
    from .checks import Check

app = typer.Typer(
    help="Who is told what happens (`notify` in the configuration; docs/notifications.md): test, list.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    "test", epilog=examples("cutover notify test", "cutover notify test ops --json | jq '.results[].sentence'")
)
def send_test(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this target.")] = None,
    as_json: Json = False,
) -> None:
    """Send a test message to every target, once, whatever `on` and `min_severity` say.

    Exit code 1 when one of them did not take it. Run it as the daemon's user, who may read the files with the secrets.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..notify.destination import destinations

    results = _send(destinations(_chosen(config, name)))
    reached = all(result["ok"] for result in results)
    if as_json:
        session.emit({"schema": 1, "ok": reached, "results": results})
    else:
        from .terminal import clean

        for result in results:
            sys.stdout.write(clean(f"{'✓' if result['ok'] else '✗'} {result['target']}: {result['sentence']}\n"))
    raise typer.Exit(0 if reached else 1)


@app.command("list", epilog=examples("cutover notify list", "cutover notify list --json | jq '.targets[].waiting'"))
def show(ctx: typer.Context, as_json: Json = False) -> None:
    """List the targets: by which way, of what they are told, when they were last reached, and what waits for them."""
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..notify.outbox import read_lanes

    kept = read_lanes(config.told)
    targets = [_target(target, kept) for target in config.notify]
    if as_json:
        session.emit({"schema": 1, "targets": targets})
        return
    from .terminal import clean

    for target in targets:
        sys.stdout.write(clean(_line(target)))
    if not targets:
        sys.stdout.write("nobody is told anything: `notify` in the configuration is empty\n")


def _chosen(config: Config, name: str | None) -> list[Target]:
    chosen = [target for target in config.notify if name in {None, target.name}]
    if name is not None and not chosen:
        known = ", ".join(target.name for target in config.notify) or "none"
        raise NotFoundError(f"there is no notification target {name} in {config.source}; known: {known}")
    if not chosen:
        raise NotFoundError(f"{config.source} names nobody to tell: add `notify` (docs/notifications.md)")
    return chosen


def _send(to: Sequence[Destination]) -> list[dict[str, Any]]:
    """All at once: one that hangs costs its own ten seconds."""
    from concurrent.futures import ThreadPoolExecutor

    from ..effects.clock import Clock
    from ..notify.courier import Courier
    from ..notify.events import greeting

    event = greeting(Clock().now().wall_s)
    with ThreadPoolExecutor(len(to)) as pool:
        answers = pool.map(lambda destination: Courier(destination).send(event), to)
        return [
            {"target": destination.name, "ok": answer.ok, "sentence": answer.sentence}
            for destination, answer in zip(to, answers, strict=True)
        ]


def _target(target: Target, kept: Mapping[str, Lane]) -> dict[str, Any]:
    """A target with what its destinations have behind and before them; null where this user may not see it."""
    from ..notify.destination import destinations_of

    lanes = [lane for name, lane in kept.items() if name.partition(":")[0] == target.name]
    try:
        destinations_of(target)
        problem = ""
    except CutoverError as error:
        problem = str(error)
    file = target.apprise_file or target.webhook_file
    return {
        "name": target.name,
        "how": "apprise" if target.apprise_file else "webhook",
        "file": str(file) if file else None,
        "signed": target.secret_file is not None,
        "on": [kind.value for kind in target.on],
        "min_severity": target.min_severity.value,
        "problem": problem,
        "waiting": sum(len(lane.waiting) for lane in lanes) if lanes else None,
        "dropped": sum(lane.dropped for lane in lanes) if lanes else None,
        "reached": max((lane.reached_wall_s for lane in lanes if lane.reached_wall_s), default=None),
        "trouble": "; ".join(lane.trouble for lane in lanes if lane.trouble),
    }


def _line(target: Mapping[str, Any]) -> str:
    from ..notify.kinds import CHOSEN
    from .terminal import clock

    kinds = "everything" if len(target["on"]) == len(CHOSEN) else ", ".join(target["on"])
    least = "" if target["min_severity"] == "info" else f" from {target['min_severity']} on"
    parts = [f"{target['how']}{', signed' if target['signed'] else ''}", f"{kinds}{least}"]
    if target["waiting"] is not None:
        parts.append(f"last reached {clock(target['reached'])}, {target['waiting']} waiting")
    parts += [text for text in (target["trouble"], target["problem"]) if text]
    return f"{target['name']}: {'; '.join(parts)}\n"


def check(config: Config) -> Check:
    """For `cutover doctor`: whether every target can be used. Nothing is sent."""
    from ..notify.destination import destinations
    from .checks import Check

    try:
        found = destinations(config.notify)
    except CutoverError as error:
        own = "run this as the daemon's user" in str(error)
        return Check("notifications", None if own else False, str(error), "" if own else "docs/notifications.md")
    names = ", ".join(destination.name for destination in found)
    return Check("notifications", True, f"{names}; `cutover notify test` sends to each")
