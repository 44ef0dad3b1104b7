"""What cannot be made again, in one file that `tar` reads: journal, ledger, releases, reports and tokens.

Both databases are copied by SQLite's own online backup, while others write them. Not in it: run directories, evidence
and logs, which are large and of the past, and what the daemon makes anew. The last member, `backup.json`, has the
digest of every other: what was cut short, or has a flipped bit, is not taken for a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import RefusedError
from .condition import Condition, look
from .copies import copy_database, put_in_place, refuse_existing, removed_if_broken, sync, words
from .database import StoreError

JOURNAL, LEDGER, TOKENS, RELEASES, REPORTS = "journal.sqlite", "ledger.sqlite", "tokens.json", "releases", "reports"
LAST = "last-backup.json"
"""Beside the journal: when the last backup was made, and where to. For `cutover doctor`."""

_INDEX = "backup.json"
_NAME = r"[^/.][^/]*"
_MEMBERS = re.compile(
    rf"{JOURNAL}|{LEDGER}|{TOKENS}|{_INDEX}|{REPORTS}/{_NAME}|{RELEASES}/{_NAME}/{_NAME}|{RELEASES}/{_NAME}/scripts/{_NAME}"
)
_FOLDERS = re.compile(rf"{RELEASES}/{_NAME}")  # for their times: the newest release of a name is what the name means
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Packed:
    """`journal` is what the copy in it was found to be; the others are counted."""

    journal: Condition
    ledger: bool
    releases: int
    reports: int
    tokens: bool


@dataclass(frozen=True, slots=True)
class Filled:
    """`put_back`: names below the state directory. `left`: sentences about what is there already and stays."""

    put_back: tuple[str, ...]
    left: tuple[str, ...]


def pack(state_dir: Path, target: Path, now_wall_s: float, *, replace: bool = False) -> Packed:
    """Write the archive; it is forced to disk and only then given its name.

    Raises `NotFoundError` where there is no journal, `RefusedError` where `target` exists and may not be replaced,
    `StoreError` where something cannot be read or written, or a database is damaged: an older backup, in which it may
    be sound, is not replaced then.
    """
    refuse_existing(state_dir / JOURNAL, target, replace=replace)
    if target.absolute().parent.resolve() == state_dir.resolve() and target.name in {JOURNAL, LEDGER, TOKENS, LAST}:
        raise RefusedError(f"{target} is a file of the daemon's own: name another")
    new = target.with_name(f".{target.name}.new")
    try:
        with removed_if_broken(new):
            new.unlink(missing_ok=True)
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
                packed = _pack(state_dir, tar, new, now_wall_s)
            sync(new)
            new.replace(target)
            sync(target.parent)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{state_dir} could not be backed up to {target}: {words(error)}") from error
    _remember(state_dir, target, now_wall_s)
    return packed


def _pack(state_dir: Path, tar: tarfile.TarFile, beside: Path, now_wall_s: float) -> Packed:
    """The journal first: every release that it names is there when releases are taken."""
    digests: dict[str, str] = {}
    copy = beside.with_name(f"{beside.name}.database")
    with removed_if_broken(copy):
        copy_database(state_dir / JOURNAL, copy)
        journal = look(copy)
        if not journal.usable:
            raise StoreError(f"the journal cannot be backed up: {journal.sentence}")
        digests[JOURNAL] = _add(tar, JOURNAL, copy)
        has_ledger = _is_there(state_dir / LEDGER)
        if has_ledger:
            copy_database(state_dir / LEDGER, copy)
            if damage := damage_of(copy):
                where = state_dir / LEDGER
                raise StoreError(
                    f"the ledger {where} is damaged ({damage}); nothing was backed up: see `cutover doctor`"
                )
            digests[LEDGER] = _add(tar, LEDGER, copy)
        copy.unlink()
    for folder in sorted((state_dir / RELEASES).glob("*@*")):
        if _FOLDERS.fullmatch(str(folder.relative_to(state_dir))):
            tar.add(folder, str(folder.relative_to(state_dir)), recursive=False, filter=_nobodys)
    for path in _plain(state_dir):
        with contextlib.suppress(FileNotFoundError):  # a report that has just become too old
            digests[str(path.relative_to(state_dir))] = _add(tar, str(path.relative_to(state_dir)), path)
    index = json.dumps({"schema": 1, "made_wall_s": now_wall_s, "files": digests}, indent=1).encode()
    about = tarfile.TarInfo(_INDEX)
    about.size, about.mode, about.mtime = len(index), 0o600, int(now_wall_s)
    tar.addfile(about, io.BytesIO(index))
    return Packed(
        journal=journal,
        ledger=has_ledger,
        releases=len({name.split("/")[1] for name in digests if name.startswith(f"{RELEASES}/")}),
        reports=len({Path(name).stem for name in digests if name.startswith(f"{REPORTS}/")}),
        tokens=TOKENS in digests,
    )


def _plain(state_dir: Path) -> Iterator[Path]:
    """Files that are written as a whole, and so are read as a whole. What is only being written has a dot before it."""
    found = [state_dir / TOKENS, *(state_dir / REPORTS).glob("*"), *(state_dir / RELEASES).glob("*/*")]
    found += (state_dir / RELEASES).glob("*/scripts/*")
    for path in sorted(found):
        if path.is_file() and not path.is_symlink() and _MEMBERS.fullmatch(str(path.relative_to(state_dir))):
            yield path


def _add(tar: tarfile.TarFile, name: str, path: Path) -> str:
    """Its digest, taken of what is packed."""
    with path.open("rb") as file:
        about = _nobodys(tar.gettarinfo(arcname=name, fileobj=file))
        digesting = _Digesting(file)
        tar.addfile(about, digesting)
    return digesting.digest.hexdigest()


def _nobodys(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    return about


class _Digesting:
    """A file that is read through, and digested on the way."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _remember(state_dir: Path, target: Path, now_wall_s: float) -> None:
    """For `cutover doctor`; a backup that only its owner could note down is one all the same."""
    new = state_dir / f".{LAST}.new"
    with contextlib.suppress(OSError):
        new.write_text(json.dumps({"schema": 1, "wall_s": now_wall_s, "file": str(target.absolute())}) + "\n")
        new.replace(state_dir / LAST)


def last_backup(state_dir: Path) -> tuple[float, str] | None:
    """When the last one was made (seconds since the epoch), and where to; None: nobody knows of one."""
    try:
        document = json.loads((state_dir / LAST).read_bytes())
        return float(document["wall_s"]), str(document["file"])
    except (OSError, ValueError, TypeError, LookupError):
        return None


# --- back -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def unpacked(source: Path, state_dir: Path) -> Iterator[Path]:
    """A directory below `state_dir` with what the archive holds; it is gone afterwards.

    Raises `StoreError` where it is no backup, is damaged or was cut short; nothing else was touched then.
    """
    place = state_dir / ".restore"
    shutil.rmtree(place, ignore_errors=True)
    try:
        place.mkdir(mode=0o700)
        with tarfile.open(source, "r:") as tar:
            _extract(tar, place, source)
        yield place
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"{source} is damaged or was cut short ({error}); {_OTHER}") from error
    except OSError as error:
        raise StoreError(f"{source} could not be unpacked to {place}: {words(error)}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


_OTHER = "take another backup, nothing was changed"


def _extract(tar: tarfile.TarFile, place: Path, source: Path) -> None:
    """Only members that a backup has, as plain files: what else an archive can hold is written nowhere."""
    digests: dict[str, str] = {}
    folders: dict[str, float] = {}
    for member in tar:
        if member.isdir() and _FOLDERS.fullmatch(member.name):
            folders[member.name] = member.mtime
            continue
        if not member.isreg() or not _MEMBERS.fullmatch(member.name) or member.name in digests:
            raise StoreError(f"{source} is no backup of cutover, it holds {member.name!r}; {_OTHER}")
        path = place / member.name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        inside = tar.extractfile(member)
        with path.open("xb") as file:
            digest = hashlib.sha256()
            while inside is not None and (data := inside.read(_CHUNK_BYTES)):
                digest.update(data)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o600 if path.parent == place else member.mode & 0o750)
        os.utime(path, (member.mtime, member.mtime))
        digests[member.name] = digest.hexdigest()
    for name, at_s in folders.items():
        if (place / name).is_dir():
            os.utime(place / name, (at_s, at_s))
    digests.pop(_INDEX, None)
    if digests != _listed(place / _INDEX):
        raise StoreError(f"{source} is damaged or was cut short: what it holds is not what it lists; {_OTHER}")


def _listed(index: Path) -> Mapping[str, str]:
    try:
        files = json.loads(index.read_bytes())["files"]
    except (OSError, ValueError, TypeError, LookupError):
        return {"": "no list"}  # which no archive holds
    return files if isinstance(files, dict) and JOURNAL in files else {"": "no journal"}


def is_archive(path: Path) -> bool:
    """Else it is the journal alone, as earlier versions wrote it, or no backup at all."""
    try:
        return tarfile.is_tarfile(path)
    except OSError:
        return False


def fill(place: Path, state_dir: Path) -> Filled:
    """Put back what is missing in `state_dir`, and a ledger that is damaged; what is there and sound stays.

    A release is what its digest says, wherever it is from; a ledger that goes on is newer than its copy; and a token
    that was revoked since must not come back. Raises `StoreError`.
    """
    put_back: list[str] = []
    left: list[str] = []
    try:
        for kind in (RELEASES, REPORTS):
            for path in sorted((place / kind).glob("*")):
                (state_dir / kind).mkdir(exist_ok=True, mode=0o750)
                if not (state_dir / kind / path.name).exists():
                    path.rename(state_dir / kind / path.name)
                    put_back.append(f"{kind}/{path.name}")
        if (place / TOKENS).exists() and not (state_dir / TOKENS).exists():
            (place / TOKENS).rename(state_dir / TOKENS)
            put_back.append(TOKENS)
        if (place / LEDGER).exists():
            put_back += [LEDGER] if _put_ledger(place / LEDGER, state_dir / LEDGER, left) else []
        sync(state_dir)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{state_dir} could not be filled from the backup: {words(error)}") from error
    return Filled(tuple(put_back), tuple(left))


def _put_ledger(new: Path, ledger: Path, left: list[str]) -> bool:
    if damage := damage_of(new):
        raise StoreError(f"the ledger in the backup is damaged ({damage}); {_OTHER}")
    damage = damage_of(ledger) if _is_there(ledger) else ""
    if _is_there(ledger) and not damage:
        left.append(f"{ledger} is sound and stays; move it away first to have the one of the backup")
        return False
    if old := put_in_place(new, ledger):
        left.append(f"the ledger that was there is kept as {old}" + (f" ({damage})" if damage else ""))
    return True


def _is_there(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def damage_of(path: Path) -> str:
    """What is wrong with an SQLite file, in a few words; empty: it is sound. Reads all of it."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as db:
            said = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        said = str(error)
    return "" if said == "ok" else " ".join(said.split())
