"""`cutover release …` and `cutover import`: what would be launched, what was, and what a hand-written script means."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ExitCode, NotFoundError, RefusedError, UsageError
from .options import Json, examples, release_path
from .session import Session, session_of

if TYPE_CHECKING:
    from launch.release import Release

app = typer.Typer(
    help="Look at frozen topologies: scripts, known incompatibilities, provenance, changes.",
    epilog=examples(
        "cutover release list",
        "cutover release render topologies/qwen27b-tp2x2.yaml",
        "cutover release diff qwen27b-tp2x2 topologies/qwen27b-tp2x2.yaml",
    ),
)
ReleaseName = Annotated[str, typer.Argument(metavar="RELEASE", help="An id, a beginning of one, or a name.")]
ReleaseOrFile = Annotated[str, typer.Argument(metavar="RELEASE|FILE", help="A release, or a topology file.")]


@app.command(
    epilog=examples(
        "cutover release render topologies/qwen27b-tp2x2.yaml",
        "cutover release render topologies/qwen27b-tp2x2.yaml --instance a > a.sh",
    )
)
def render(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The topology, a YAML file.")],
    instance: Annotated[str | None, typer.Option("--instance", metavar="NAME", help="Only this script.")] = None,
    as_json: Json = False,
) -> None:
    """Print the launch scripts that FILE would get.

    What this box lacks of it is told on stderr. Needs no daemon.
    """
    session = session_of(ctx, as_json=as_json)
    release = _frozen(file)
    scripts = dict(release.scripts)
    if instance is not None:
        if instance not in scripts:
            raise NotFoundError(f"{file}: there is no instance {instance}; it has {', '.join(scripts)}")
        scripts = {instance: scripts[instance]}
    if as_json:
        session.emit({**_as_json(release), "scripts": scripts})
        return
    for entry in (*release.manifest["unknown"], *release.manifest["notes"]):
        sys.stderr.write(f"cutover: {_flat(entry)}\n")
    for name, text in scripts.items():
        heading = f"# --- {name} ---\n" if len(scripts) > 1 else ""
        sys.stdout.write(heading + text)


@app.command(
    epilog=examples(
        "cutover release check topologies/qwen27b-tp2x2.yaml",
        "cutover release check topologies/v100-9b-tp4.yaml --compute-capability 7.0",
    )
)
def check(
    ctx: typer.Context,
    release: ReleaseOrFile,
    compute_capability: Annotated[
        str | None,
        typer.Option("--compute-capability", metavar="X.Y", help="Of the oldest card, as 7.0 for a V100."),
    ] = None,
    sleep: Annotated[bool, typer.Option("--sleep", help="As where the release before is kept asleep.")] = False,
    as_json: Json = False,
) -> None:
    """Look for combinations that are known not to work.

    Exit code 5 when a proposal would be refused. docs/preflight.md lists the rules. Needs no daemon.
    """
    session = session_of(ctx, as_json=as_json)
    from launch import compat

    found = _either(session, release)
    report = compat.check(found, compat.Box(_capability(compute_capability), wants_sleep=sleep))
    refused = bool(report.refused())
    if as_json:
        session.emit({"schema": 1, "id": found.id, "refused": refused, **report.as_json()})
    else:
        from .draw_findings import draw_findings
        from .terminal import show

        show(draw_findings(found, report))
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,2})\.(\d)", text)
    if match is None:
        raise UsageError(f"--compute-capability: {text!r} is not like 8.6; nvidia-smi --query-gpu=compute_cap tells it")
    return int(match.group(1)), int(match.group(2))


@app.command(epilog=examples("cutover release show qwen27b-tp2x2@1a2b3c4d", "cutover release show qwen27b --json"))
def show(ctx: typer.Context, release: ReleaseName, as_json: Json = False) -> None:
    """Show a release: its topology and its manifest."""
    session = session_of(ctx, as_json=as_json)
    found = _saved(session, release)
    if as_json:
        session.emit(_as_json(found))
        return
    import yaml

    from .terminal import cleaned

    manifest = yaml.safe_dump(cleaned(dict(found.manifest)), sort_keys=False, allow_unicode=True, width=110)
    sys.stdout.write(f"# {found.id}\n{found.topology.to_yaml()}\n# manifest\n{manifest}")


@app.command(
    epilog=examples(
        "cutover release diff qwen27b-tp2x2@1a2b3c4d qwen27b-tp4@5e6f7a8b",
        "cutover release diff qwen27b-tp2x2 topologies/qwen27b-tp2x2.yaml",
    )
)
def diff(ctx: typer.Context, before: ReleaseOrFile, after: ReleaseOrFile, as_json: Json = False) -> None:
    """Show what changes from the one to the other."""
    session = session_of(ctx, as_json=as_json)
    from launch.release import diff as compare

    found = compare(_either(session, before), _either(session, after))
    if as_json:
        session.emit({"schema": 1, "text": found.text(), "diff": found.to_json()})
    else:
        sys.stdout.write(found.text())


@app.command("list", epilog=examples("cutover release list", "cutover release list --json"))
def listing(ctx: typer.Context, as_json: Json = False) -> None:
    """List every release that was frozen here, the newest first."""
    session = session_of(ctx, as_json=as_json)
    ids = _ids(session)
    if as_json:
        session.emit({"schema": 1, "releases": [{"id": one, "name": one.partition("@")[0]} for one in ids]})
        return
    for one in ids:
        sys.stdout.write(f"{one}\n")
    if not ids:
        sys.stdout.write("none yet: proposing a topology makes its release\n")


def import_script(
    ctx: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The start script that somebody wrote.")],
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Where its server listens now: look at it too.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the topology.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a start script into a topology.

    With --port also the server that it started, as it runs now. Questions that are left go to stderr.
    """
    session = session_of(ctx, as_json=as_json)
    from launch.importer import import_script as read_script

    if output is not None and output.exists() and not force:
        raise RefusedError(f"{output} exists; --force overwrites it")
    result = read_script(script, port=port)
    text = result.topology_yaml if name is None else _renamed(result.topology_yaml, name)
    if output is not None:
        _write(output, text)
    if as_json:
        answer = {"topology": text, "questions": list(result.questions), "complete": result.topology is not None}
        session.emit({"schema": 1, **answer, "file": str(output) if output else None})
        return
    if output is None:
        sys.stdout.write(text)
    for question in result.questions:
        sys.stderr.write(f"? {_flat(question)}\n")
    if output is not None:
        first = "answer what is asked in it, then " if result.questions else ""
        sys.stderr.write(f"written to {output}; next: {first}`cutover plan {output}`\n")


def _renamed(text: str, name: str) -> str:
    """The topology under another name; the name is checked where every topology is."""
    lines = [f"name: {name}" if line.startswith("name:") else line for line in text.split("\n")]
    from launch.topology import parse

    parse(f"name: {name}\nserves: [x]\nengine: emulator\ninstances: {{a: {{gpus: 0}}}}\n", source="--name")
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _frozen(file: Path) -> Release:
    from launch.release import freeze
    from launch.topology import load

    return freeze(load(file), check_paths=False)


def _either(session: Session, text: str) -> Release:
    """A file where there is one or where it can be nothing else, a release otherwise."""
    path = Path(text)
    if path.is_file() or path.suffix in {".yaml", ".yml"} or "/" in text:
        return _frozen(path)
    return _saved(session, text)


def _saved(session: Session, name: str) -> Release:
    """From the daemon; where none answers, from the releases directory."""
    answer = _asked(session, release_path(name))
    from launch import release as launched

    if answer is None:
        return launched.load_release(session.config().releases_dir, name)
    from launch.topology import parse

    topology = parse(answer["topology"], source=answer["id"], rules=False)
    return launched.Release(
        answer["id"], topology.name, answer["digest"], topology, answer["scripts"], answer["manifest"]
    )


def _ids(session: Session) -> list[str]:
    answer = _asked(session, "/v1/releases")
    if answer is not None:
        return [str(one["id"]) for one in answer["releases"]]
    from launch.release import list_releases

    return list(list_releases(session.config().releases_dir))


def _asked(session: Session, path: str) -> dict[str, Any] | None:
    """None when nobody answers, or when this user may not ask but may read the files."""
    from ..errors import NotAllowedError
    from .client import NoDaemonError

    try:
        return session.client().get(path)
    except NoDaemonError:
        return None
    except NotAllowedError:
        if not os.access(session.config().releases_dir, os.R_OK | os.X_OK):
            raise
        return None


def _as_json(release: Release) -> dict[str, Any]:
    """The same document as the API gives."""
    return {
        "schema": 1,
        "id": release.id,
        "digest": release.digest,
        "topology": release.topology.to_yaml(),
        "scripts": dict(release.scripts),
        "manifest": dict(release.manifest),
    }


def _flat(entry: Any) -> str:
    """A manifest entry as a line: sentences are themselves, mappings their values."""
    from .terminal import clean

    text = ": ".join(str(value) for value in entry.values()) if isinstance(entry, dict) else str(entry)
    return clean(text)
