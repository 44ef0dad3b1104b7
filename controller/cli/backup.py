"""`cutover backup` and `cutover restore`: the journal as one file, and back."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotAllowedError, RefusedError
from .options import Json
from .session import Session, session_of

if TYPE_CHECKING:
    from ..config import Config
    from ..store.condition import Condition
    from ..store.copies import Numbers

_ATTEMPT = re.compile(r".*-(\d+)")
_GATE_RUN = re.compile(r"r(\d+)-.*")


def backup(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; a new file.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy the journal into one file, as it is at one moment.

    Works while the daemon runs, and is checked before it gets its name. Releases and the ledger are files of their own
    in the state directory.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..store.copies import backup as copy

    found = copy(config.journal, file, replace=force)
    tell(session, {"schema": 1, "file": str(file.absolute()), **_facts(found)}, f"{file}: {_words(found)}")


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    force: Annotated[
        bool, typer.Option("--force", help="Although processes run that FILE does not know: they are nobody's then.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a backup of the journal in its place; the old journal is kept beside it.

    Refused while a daemon runs. FILE is checked first, and nothing is changed when it is damaged or of a newer version.
    What runs is not touched: the next daemon adopts what FILE knows. `cutover doctor --rebuild` is for what it does
    not know.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..store import copies
    from ..store.database import StateDirectoryLock, StoreError

    as_owner(config)
    lock = StateDirectoryLock(config.state_dir)
    try:
        found = _checked(file)
        if not force:
            _refuse_unknown(config, found)
        old = copies.restore(file, config.journal, numbers_below(config))
    finally:
        lock.release()
    if config.journal.exists() and not (now := _look(config.journal)).usable:
        raise StoreError(f"{now.sentence}; the old one is {old}")
    beside = f"; the old journal is {old}" if old else ""
    document = {"schema": 1, "file": str(file.absolute()), "old": str(old) if old else None, **_facts(found)}
    tell(session, document, f"{config.journal} is {file}: {_words(found)}{beside}")


def tell(session: Session, document: dict[str, Any], sentence: str) -> None:
    if session.as_json:
        session.emit(document)
    else:
        sys.stdout.write(f"{sentence}\n")


def as_owner(config: Config) -> None:
    """What is written there is the daemon's: by somebody else, root included, it would not be able to use it."""
    try:
        owner = config.state_dir.stat().st_uid
    except OSError:
        return  # not there yet, or not ours to see: the lock says it
    if owner != os.geteuid():
        raise NotAllowedError(
            f"{config.state_dir} belongs to user {owner}: run this as the daemon's user, `sudo -u '#{owner}' cutover …`"
        )


def numbers_below(config: Config) -> Numbers:
    """The highest numbers that directories of attempts and of gate runs carry."""
    from ..store.copies import Numbers
    from .checks import folders

    attempts = [int(m[1]) for d in folders(config.runs_dir) if (m := _ATTEMPT.fullmatch(d.name))]
    rollouts = [int(m[1]) for d in folders(config.gates_dir) if (m := _GATE_RUN.fullmatch(d.name))]
    return Numbers(max(rollouts, default=0), max(attempts, default=0))


def _look(file: Path) -> Condition:
    from ..store.condition import look

    return look(file)


def _checked(file: Path) -> Condition:
    from ..errors import NotFoundError
    from ..store.condition import Kind
    from ..store.database import StoreError

    found = _look(file)
    if found.kind is Kind.ABSENT:
        raise NotFoundError(f"there is no backup {file}")
    if found.kind is Kind.NEWER:
        raise RefusedError(f"{found.sentence}; install that version of cutover, nothing was changed")
    if not found.usable:
        raise StoreError(f"{found.sentence}; take another backup, nothing was changed")
    return found


def _refuse_unknown(config: Config, found: Condition) -> None:
    """An engine that the restored journal does not know would be nobody's, and the front door would leave it."""
    from .checks import look_at_runs

    known = found.state.attempts if found.state is not None else {}
    running = look_at_runs(config).running
    lost = [name for name in running if name not in known or not known[name].holds]
    lost = [name for name in lost if (config.runs_dir / name).is_dir()]
    if lost:
        raise RefusedError(
            f"the backup does not know {', '.join(lost)}, which run: `cutover doctor --rebuild` makes a journal of what"
            " runs; --force restores all the same, and leaves them to you"
        )


def _facts(found: Condition) -> dict[str, Any]:
    state = found.state
    live = state.live.release if state is not None and state.live is not None else None
    return {"journal_schema": found.schema, "entries": found.entries, "live": live}


def _words(found: Condition) -> str:
    facts = _facts(found)
    return f"schema {found.schema}, {found.entries} entries, live is {facts['live'] or 'nothing'}"
