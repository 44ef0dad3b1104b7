"""Commands that ask the daemon for something: they file it, say what to do next, and can wait for the outcome."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from ..durations import duration_s
from ..errors import UsageError
from .moment import in_full, moment
from .options import Json, Overrule, RolloutId, Timeout, Wait, overruled, rollout_path
from .session import Session, session_of

if TYPE_CHECKING:
    from .client import Client

TopologyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The topology, a YAML file.")]
Force = Annotated[
    bool, typer.Option("--force", help="Even if it takes away a model name that users have now from live.")
]
Strategy = Annotated[
    Literal["auto", "any", "blue-green", "rolling", "swap"],
    typer.Option(
        "--strategy",
        help="How it gets its cards. auto: what the configuration allows (blue-green, rolling); "
        "swap stops live first and holds requests; any: the cheapest that fits.",
    ),
]
Approval = Annotated[bool, typer.Option("--require-approval", help="Stop before the cutover until `cutover approve`.")]
Gates = Annotated[
    str | None, typer.Option("--gates", metavar="NAME|FILE", help="Another gate profile than the topology's.")
]


def plan(
    ctx: typer.Context,
    file: TopologyFile,
    strategy: Strategy = "any",
    gates: Gates = None,
    require_approval: Approval = False,
    force: Force = False,
    overrule: Overrule = None,
    as_json: Json = False,
) -> None:
    """Show what proposing FILE would do.

    Which cards, which steps, how long dark, what it costs to go back. Changes nothing.
    """
    session = session_of(ctx, as_json=as_json)
    body = _topology(file)
    client = session.client()
    asked = {
        "force": force,
        "strategy": strategy,
        "require_approval": require_approval,
        "gates": _profile(gates),
        "overruled": overruled(overrule),
    }
    answer = client.post("/v1/plan", {**body, **asked}, keyed=False)
    if as_json:
        session.emit(answer)
        return
    from .draw_plan import draw_plan
    from .terminal import show

    show(draw_plan(answer["plan"], client.get("/v1/status"), str(file)))


def propose(  # noqa: PLR0913, PLR0917 - the options of a command
    ctx: typer.Context,
    file: TopologyFile,
    wait: Wait = False,
    timeout: Timeout = None,
    plan_digest: Annotated[
        str | None, typer.Option("--plan", metavar="DIGEST", help="Only if the plan is still this one; else refused.")
    ] = None,
    strategy: Strategy = "auto",
    require_approval: Approval = False,
    bake: Annotated[
        float | None, typer.Option("--bake", min=0.0, metavar="SECONDS", help="Watch that long after the cutover.")
    ] = None,
    gates: Gates = None,
    force: Force = False,
    overrule: Overrule = None,
    wait_for_free: Annotated[
        float | None,
        typer.Option(
            "--wait-for-free",
            min=0.0,
            metavar="SECONDS",
            help="While its cards are not to be had (somebody else's job, a closed card): wait that long.",
        ),
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="NAME", help="Begin only while this window is open, for example nightly.")
    ] = "",
    priority: Annotated[
        int, typer.Option("--priority", min=-1000, max=1000, help="Among those that wait, higher goes first.")
    ] = 0,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="WHEN", help="Not begun by then (3d, 06:00, 2026-12-01): skipped."),
    ] = None,
    finish_by: Annotated[
        str | None,
        typer.Option("--finish-by", metavar="WHEN", help="Promoted by then, or everything is as it was."),
    ] = None,
    approval_expires: Annotated[
        str | None,
        typer.Option("--approval-expires", metavar="DURATION", help="With --require-approval: wait that long for it."),
    ] = None,
    trial: Annotated[bool, typer.Option("--trial", help="Start and judge it, and never switch to it.")] = False,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Kept with the rollout.")] = "",
    as_json: Json = False,
) -> None:
    """Propose FILE as the next live topology.

    It is started beside what is live or in its place, judged by its gates, switched to, watched, and taken back if it
    is worse.
    """
    session = session_of(ctx, as_json=as_json)
    body = {
        **_topology(file),
        "force": force,
        "strategy": strategy,
        "require_approval": require_approval,
        "bake_s": bake,
        "gates": _profile(gates),
        "overruled": overruled(overrule),
        "plan_digest": plan_digest,
        "wait_for_free_s": wait_for_free,
        "window": window,
        "priority": priority,
        "expires_at": moment("--expires", expires, time.time()),
        "finish_by": moment("--finish-by", finish_by, time.time()),
        "approval_s": _seconds("--approval-expires", approval_expires),
        "trial": trial,
        "note": note,
    }
    client = session.client()
    answer = client.post("/v1/rollouts", body)
    said = [
        f"{name} {in_full(body[key])}"
        for name, key in (("expires", "expires_at"), ("finishes by", "finish_by"))
        if body[key]
    ]
    _noted({"notes": [*answer["notes"], *said]}, as_json=as_json)
    _filed(session, client, answer, wait=wait, timeout_s=timeout)


def rollback(ctx: typer.Context, wait: Wait = False, timeout: Timeout = None, as_json: Json = False) -> None:
    """Go back to the previous release.

    At once where it is still warm, else it is started again first. During a bake: end the bake, and back. Before a
    switch what is being tried is aborted and live itself goes back; `cutover abort` ends only what is being tried.
    """
    session = session_of(ctx, as_json=as_json)
    client = session.client()
    answer = client.post("/v1/rollback")
    _noted(answer, as_json=as_json)
    _filed(session, client, answer, wait=wait, timeout_s=timeout, back=True)


def restart(ctx: typer.Context, wait: Wait = False, timeout: Timeout = None, as_json: Json = False) -> None:
    """Give the live release fresh processes.

    By the way of every rollout: started beside the old ones, proved, switched to, watched.
    """
    session = session_of(ctx, as_json=as_json)
    client = session.client()
    _filed(session, client, client.post("/v1/restart"), wait=wait, timeout_s=timeout)


def approve(ctx: typer.Context, rollout: RolloutId, as_json: Json = False) -> None:
    """Let a rollout that waits for approval go on."""
    session = session_of(ctx, as_json=as_json)
    client = session.client()
    _filed(session, client, client.post(f"{rollout_path(rollout)}/approve"), done="goes on")


def abort(ctx: typer.Context, rollout: RolloutId, as_json: Json = False) -> None:
    """End a rollout.

    Production stays, or comes back if it had been switched already.
    """
    session = session_of(ctx, as_json=as_json)
    client = session.client()
    _filed(session, client, client.post(f"{rollout_path(rollout)}/abort"), done="is being ended")


def stop(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where no terminal could be asked.")] = False,
    as_json: Json = False,
) -> None:
    """Take production out of service.

    Live drains and stops, users get 503 until `cutover rollback`. The daemon and the front door go on.
    """
    session = session_of(ctx, as_json=as_json)
    if not yes and (as_json or not sys.stdin.isatty()):
        raise UsageError("this takes production out of service, and nobody can be asked here: say so with --yes")
    client = session.client()
    if not yes:
        live = client.get("/v1/status")["live"]
        serving = live["release"] if live else "nothing"
        typer.confirm(f"{serving} serves users now; stop it?", abort=True)
    _said(session, client.post("/v1/stop", keyed=False))


def freeze(
    ctx: typer.Context,
    why: Annotated[str, typer.Argument(metavar="WHY", help="What everybody is told who wonders.")],
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="It ends by itself then: 8h, 06:00, 2026-12-01T06:00.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let nothing begin by itself until `cutover unfreeze`.

    Queued proposals wait; what runs goes on; people may still roll back. There is one freeze at a time: whose it
    takes the place of is said.
    """
    session = session_of(ctx, as_json=as_json)
    until_s = moment("--until", until, time.time())
    answer = session.client().post("/v1/freeze", {"why": why, "until": until_s}, keyed=False)
    ends = f"; this one ends {in_full(until_s)}" if until_s is not None else ""
    _said(session, {**answer, "sentence": answer["sentence"] + _was_to_end(answer.get("replaced")) + ends})


Card = Annotated[str, typer.Argument(metavar="GPU", help="Its index, or its id as `cutover status` shows it.")]


def cordon(
    ctx: typer.Context,
    gpu: Card,
    why: Annotated[str, typer.Argument(metavar="WHY", help="What everybody is told who wonders.")],
    as_json: Json = False,
) -> None:
    """Give GPU to nobody until `cutover uncordon`.

    Who holds it keeps it; a plan that needs it is refused and says why.
    """
    session = session_of(ctx, as_json=as_json)
    _said(session, session.client().post(f"/v1/gpus/{quote(gpu, safe='')}/cordon", {"why": why}, keyed=False))


def uncordon(ctx: typer.Context, gpu: Card, as_json: Json = False) -> None:
    """Give a card back that was cordoned, or quarantined because its memory did not return."""
    session = session_of(ctx, as_json=as_json)
    _said(session, session.client().post(f"/v1/gpus/{quote(gpu, safe='')}/uncordon", keyed=False))


def unfreeze(ctx: typer.Context, as_json: Json = False) -> None:
    """Let the queue move again.

    Says whose freeze that was, why it was there, and until when it was meant.
    """
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post("/v1/unfreeze", keyed=False)
    _said(session, {**answer, "sentence": answer["sentence"] + _was_to_end(answer.get("ended"))})


def _was_to_end(freeze: Mapping[str, Any] | None) -> str:
    """By the clock of this machine, which is that of whoever reads it."""
    if freeze is None:
        return ""
    until_s = freeze["until_wall_s"]
    return ", which had no end" if until_s is None else f", which was to end {in_full(until_s)}"


def _topology(file: Path) -> dict[str, Any]:
    """The file's text for the daemon. Read and checked here first: a mistake needs no daemon to be told."""
    from launch import strict_yaml
    from launch.topology import load

    load(file)
    with file.open("rb") as stream:
        text = stream.read(strict_yaml.MAX_BYTES).decode()
    return {"topology": text, "source": str(file.absolute())}


def _profile(name: str | None) -> str | None:
    """A file is meant as seen from here, not from where the daemon runs; names of profiles stay names."""
    if name is None or ("/" not in name and not name.endswith((".yaml", ".yml"))):
        return name
    return str(Path(name).expanduser().absolute())


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def _noted(answer: dict[str, Any], *, as_json: bool) -> None:
    for said in () if as_json else answer["notes"]:
        sys.stderr.write(f"{said}\n")


def _filed(
    session: Session,
    client: Client,
    answer: dict[str, Any],
    *,
    wait: bool = False,
    timeout_s: float | None = None,
    back: bool = False,
    done: str = "is filed",
) -> None:
    rollout = answer["rollout"]
    if wait:
        from .follow import wait_for

        if answer["sentence"]:
            aside = sys.stderr if session.as_json else sys.stdout
            aside.write(f"{rollout['id']} is {answer['sentence']}\n")
            aside.flush()
        raise typer.Exit(wait_for(session, client, rollout["id"], timeout_s, back=back))
    if session.as_json:
        session.emit(answer)
        return
    more = f"; {answer['sentence']}" if answer["sentence"] else ""
    sys.stdout.write(f"{rollout['id']} ({rollout['kind']} {rollout['release']}) {done}{more}\n")
    sys.stdout.write(f"follow it with `cutover watch {rollout['id']}`\n")


def _said(session: Session, answer: dict[str, Any]) -> None:
    if session.as_json:
        session.emit(answer)
    else:
        sys.stdout.write(answer["sentence"] + "\n")
