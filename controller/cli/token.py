"""`cutover token`: who may talk to the daemon over TCP (`api` in the configuration)."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from .options import Json, examples
from .session import session_of

app = typer.Typer(
    help="Bearer tokens for the API over TCP: create, list, revoke. Needs the admin role.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=examples("cutover token create ci --role propose --days 30"))
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; the journal names it with every request.")],
    role: Annotated[str, typer.Option("--role", help="view, propose, approve or admin.")] = "view",
    days: Annotated[float, typer.Option("--days", min=0.0, help="After that many days it opens nothing.")] = 90.0,
    as_json: Json = False,
) -> None:
    """Make a token and print it, this once: only a digest of it is kept."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().post("/v1/tokens", {"name": name, "role": role, "days": days}, keyed=False)
    if as_json:
        session.emit(answer)
        return
    token = answer["token"]
    sys.stderr.write(f"{token['id']}: role {token['role']}, until {_day(token['expires_s'])}; it is not shown again\n")
    sys.stdout.write(f"{answer['secret']}\n")


@app.command("list", epilog=examples("cutover token list", "cutover token list --json"))
def show(ctx: typer.Context, as_json: Json = False) -> None:
    """List the tokens: whose, which role, until when."""
    session = session_of(ctx, as_json=as_json)
    answer = session.client().get("/v1/tokens")
    if as_json:
        session.emit(answer)
        return
    for token in answer["tokens"]:
        end = "expired" if token["expired"] else f"until {_day(token['expires_s'])}"
        sys.stdout.write(f"{token['id']}  {token['role']:<8}  {end}  {token['name']} (by {token['by']})\n")
    if not answer["tokens"]:
        sys.stdout.write("there are no tokens\n")


@app.command(epilog=examples("cutover token revoke t1a2b3c"))
def revoke(
    ctx: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="As `cutover token list` shows it.")],
    as_json: Json = False,
) -> None:
    """Take a token back: from the next request on it opens nothing."""
    from urllib.parse import quote

    session = session_of(ctx, as_json=as_json)
    answer = session.client().post(f"/v1/tokens/{quote(token, safe='')}/revoke", keyed=False)
    if as_json:
        session.emit(answer)
    else:
        sys.stdout.write(f"{answer['sentence']}\n")


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
