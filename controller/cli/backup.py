"""`cutover backup` and `cutover restore`: what cannot be made again as one file, and back."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotAllowedError, RefusedError
from .options import Json
from .session import Session, session_of

if TYPE_CHECKING:
    from ..config import Config
    from ..store.archive import Packed
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
    """Copy what cannot be made again into one file: journal, ledger, releases, reports and tokens.

    Works while the daemon runs; journal and ledger are copied each as it is at one moment, and checked, before FILE
    gets its name. It is a tar archive. Run directories, evidence and logs are not in it; nor is the configuration.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..effects.clock import Clock
    from ..store.archive import pack

    refuse_the_ballasts_room(config, file)
    packed = pack(config.state_dir, file, Clock().now().wall_s, replace=force)
    document = {
        "schema": 1,
        "file": str(file.absolute()),
        **_facts(packed.journal),
        "ledger": packed.ledger,
        "releases": packed.releases,
        "reports": packed.reports,
        "tokens": packed.tokens,
    }
    tell(session, document, f"{file}: {_words(packed.journal)}; {_besides(packed)}")


def refuse_the_ballasts_room(config: Config, file: Path) -> None:
    """A backup is no way back: it waits for room, or goes to another disk. Raises `RefusedError`."""
    from ..store.ballast import is_spent

    try:
        same = file.absolute().parent.stat().st_dev == config.state_dir.stat().st_dev
        spent = same and is_spent(config.state_dir, config.ballast_mib << 20)
    except OSError:
        return  # whoever writes it says what is wrong
    if spent:
        raise RefusedError(
            f"the disk of {config.state_dir} is full, and what is free on it is kept for the way back: write the "
            "backup to another disk, or make room (`cutover prune --dry-run` says what could go)"
        )


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    force: Annotated[
        bool, typer.Option("--force", help="Although processes run that FILE does not know: they are nobody's then.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put the journal of a backup in its place; the old journal is kept beside it.

    Of the rest of a backup what is missing is put back, and a ledger that is damaged: what is there and sound stays.
    Refused while a daemon runs. FILE is checked first, and nothing is changed when it is damaged or of a newer version.
    What runs is not touched: the next daemon adopts what FILE knows. `cutover doctor --rebuild` is for what it does
    not know.
    """
    session = session_of(ctx, as_json=as_json)
    config = session.config()
    from ..store import archive, copies
    from ..store.database import StateDirectoryLock, StoreError

    as_owner(config)
    lock = StateDirectoryLock(config.state_dir)
    try:
        with _journal_in(file, config) as (journal, place):
            found = _checked(journal, file)
            unknown = _unknown(config, found)
            if unknown and not force:
                raise RefusedError(
                    f"the backup does not know {', '.join(unknown)}, which run: `cutover doctor --rebuild` makes a "
                    "journal of what runs; --force restores all the same, and leaves them to you"
                )
            filled = archive.fill(place, config.state_dir) if place else archive.Filled((), ())
            old = copies.restore(journal, config.journal, numbers_below(config))
    finally:
        lock.release()
    if config.journal.exists() and not (now := _look(config.journal)).usable:
        raise StoreError(f"{now.sentence}; the old one is {old}")
    document = {
        "schema": 1,
        "file": str(file.absolute()),
        "old": str(old) if old else None,
        **_facts(found),
        "put_back": list(filled.put_back),
        "left": list(filled.left),
        "left_to_you": list(unknown),
    }
    told = [f"{config.journal} is {file}: {_words(found)}", *([f"the old journal is {old}"] if old else [])]
    told += [f"put back: {', '.join(filled.put_back)}"] if filled.put_back else []
    from ..effects import nobodys

    tell(session, document, "\n".join([*told, *filled.left, *nobodys.told(config.runs_dir, unknown)]))


@contextlib.contextmanager
def _journal_in(file: Path, config: Config) -> Iterator[tuple[Path, Path | None]]:
    """The journal of a backup, and the directory with what else is in it; earlier versions wrote the journal alone."""
    from ..store import archive

    if not archive.is_archive(file):
        yield file, None
        return
    with archive.unpacked(file, config.state_dir) as place:
        yield place / archive.JOURNAL, place


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


def _checked(journal: Path, file: Path) -> Condition:
    """`file`: as the person who asked knows it."""
    from ..errors import NotFoundError
    from ..store.condition import Kind
    from ..store.database import StoreError

    found = _look(journal)
    said = found.sentence.replace(str(journal), str(file))
    if found.kind is Kind.ABSENT:
        raise NotFoundError(f"there is no backup {file}")
    if found.kind is Kind.NEWER:
        raise RefusedError(f"{said}; install that version of cutover, nothing was changed")
    if found.kind is Kind.NO_DATABASE:  # nor an archive that could be opened
        said = f"{file} is no backup, or was cut short"
    if not found.usable:
        raise StoreError(f"{said}; take another backup, nothing was changed")
    return found


def _unknown(config: Config, found: Condition) -> tuple[str, ...]:
    """An engine that the restored journal does not know would be nobody's, and the front door would leave it."""
    from ..effects.nobodys import nobodys

    known = found.state.attempts if found.state is not None else {}
    return nobodys(config.runs_dir, {name for name, attempt in known.items() if attempt.holds})


def _facts(found: Condition) -> dict[str, Any]:
    state = found.state
    live = state.live.release if state is not None and state.live is not None else None
    return {"journal_schema": found.schema, "entries": found.entries, "live": live}


def _words(found: Condition) -> str:
    facts = _facts(found)
    return f"schema {found.schema}, {found.entries} entries, live is {facts['live'] or 'nothing'}"


def _besides(packed: Packed) -> str:
    counted = ((packed.releases, "release"), (packed.reports, "report"))
    parts = [f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in counted]
    return ", ".join([*parts, "the ledger" if packed.ledger else "no ledger yet", *["tokens"] * packed.tokens])
