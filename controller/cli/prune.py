"""`cutover prune`: remove what is old, now; or only say what that would be."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import CutoverError
from .options import Json
from .session import session_of

if TYPE_CHECKING:
    from ..config import Config
    from ..core.records import State
    from ..effects.remnants import Removal


def prune(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove run directories, gate evidence and old logs beyond what `keep` in the configuration says.

    Never what runs, is live, previous or of an open rollout. The daemon does the same once an hour; this also looks for
    what `cutover gate run` has left in the temporary directory. Exit code 1 when something could not be removed.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..effects.clock import Clock
    from ..effects.remnants import removals, remove, stray_evidence
    from .backup import as_owner

    if not dry_run:
        as_owner(config)
    now_wall_s = Clock().now().wall_s
    found = (*removals(config, _state(config), now_wall_s), *stray_evidence(config, now_wall_s))
    troubles = [] if dry_run else [trouble for removal in found if (trouble := remove(removal))]
    if as_json:
        session.emit(_document(found, troubles, dry_run=dry_run))
    else:
        _tell(found, troubles, dry_run=dry_run)
    raise typer.Exit(1 if troubles else 0)


def _state(config: Config) -> State:
    """Raises `CutoverError` where nobody can tell what is still wanted."""
    from ..core.records import State
    from ..store.condition import Kind, look

    found = look(config.journal)
    if found.kind is Kind.ABSENT and not config.runs_dir.is_dir():
        return State()
    if found.state is None:
        raise CutoverError(f"{found.sentence}: without it nobody knows what is still wanted, nothing was removed")
    return found.state


def _document(found: Iterable[Removal], troubles: list[str], *, dry_run: bool) -> dict[str, Any]:
    removed = [{"path": str(r.paths[0]), "size_bytes": r.size_bytes, "why": r.why} for r in found]
    return {"schema": 1, "dry_run": dry_run, "removed": removed, "not_removed": troubles}


def _tell(found: tuple[Removal, ...], troubles: list[str], *, dry_run: bool) -> None:
    for removal in found:
        sys.stdout.write(f"{removal.size_bytes / (1 << 20):9.1f} MiB  {removal.paths[0]}: {removal.why}\n")
    total_mib = sum(removal.size_bytes for removal in found) / (1 << 20)
    what = "would be removed" if dry_run else "were removed"
    sys.stdout.write(
        f"{len(found) - len(troubles)} things of {total_mib:.1f} MiB {what}\n" if found else "nothing is old\n"
    )
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")
