"""The provenance manifest: what a release would run on this box, and what could not be told.

``identity`` decides the release's digest: program, engine package, model, files that flags name, router. The rest is
for people: what needs the admin role, what to know, what is unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch import model_files, package_files, programs
from launch.engines import base
from launch.engines.base import Engine, Program, engine
from launch.errors import ProvenanceError
from launch.programs import Command
from launch.routers.base import router
from launch.topology import Topology
from launch.topology_rules import is_hub_id

_COMPANIONS = ("torch", "transformers", "triton", "flashinfer-python", "xgrammar", "sgl-kernel", "sglang-kernel")
_MODEL_MARKS = ("config.json", "adapter_config.json", "params.json", "tokenizer.json")
_WRITING = ("log", "cache", "save", "dump", "output", "trace", "profil", "download")  # in names of flags that write
_SCRIPT_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Provenance:
    """What was found. `identity` is JSON; the programs are resolved; `script_text` is the user's script."""

    identity: dict[str, Any]
    needs_admin: tuple[dict[str, str], ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]
    command: tuple[str, ...]
    router_command: tuple[str, ...]
    script_text: str | None


def gather(topology: Topology, *, check_paths: bool) -> Provenance:
    """Look at the box. With `check_paths` a missing program, model or script is a ProvenanceError.

    Without it (a topology of another box) what is missing is listed under ``unknown``.
    """
    found = _Findings(check_paths=check_paths)
    kind = engine(topology.engine)
    identity: dict[str, Any] = {}
    try:
        script_text = found.script(topology, identity)
        command = found.engine(topology, kind, identity)
        router_command = found.router(topology, identity)
        found.model(topology, kind, identity)
        found.paths(topology, identity)
        found.env_file(topology)
    except OSError as error:
        raise ProvenanceError(f"{error.filename}: cannot be read: {error.strerror}") from error
    found.notes_on(topology, kind)
    return Provenance(
        identity=identity,
        needs_admin=tuple(_needs_admin(topology, kind, command)),
        notes=tuple(found.notes),
        unknown=tuple(found.unknown),
        command=command,
        router_command=router_command,
        script_text=script_text,
    )


class _Findings:
    """Collects notes and unknowns while the parts of the manifest are made."""

    def __init__(self, *, check_paths: bool) -> None:
        self.check_paths = check_paths
        self.notes: list[str] = []
        self.unknown: list[str] = []

    def script(self, topology: Topology, identity: dict[str, Any]) -> str | None:
        if topology.script is None:
            return None
        path = Path(topology.script)
        if not path.is_file():
            self._missing(f"script: {path} does not exist; give the path of your start script")
            return ""
        if path.stat().st_size > _SCRIPT_MAX_BYTES:
            raise ProvenanceError(
                f"script: {path} is larger than {_SCRIPT_MAX_BYTES} bytes; that is not a start script"
            )
        content = path.read_bytes()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProvenanceError(f"script: {path} is not UTF-8 text; engine script takes a bash script") from error
        identity["script"] = {"path": str(path), "sha256": hashlib.sha256(content).hexdigest()}
        if "PORT" not in text:
            self.notes.append(f"script: {path} never mentions PORT; its server must listen on $HOST:$PORT")
        return text

    def engine(self, topology: Topology, kind: Engine, identity: dict[str, Any]) -> tuple[str, ...]:
        words = topology.command or kind.default_command
        if not words:
            identity["engine"] = {"name": kind.name, "version": None}
            self.unknown.append("engine version: a script can start anything")
            return ()
        remedy = f"give the full path in command, e.g. {_example(kind)}"
        command = programs.resolve(words, what=f"engine {kind.name}", remedy=remedy, required=self.check_paths)
        facts: dict[str, Any] = {"name": kind.name, "program": command.words[0], "version": None}
        if not command.found:
            self.unknown.append(f"engine version: the program {words[0]} is not on this box")
        elif kind.package is not None:
            self._package(topology, kind, command, facts)
        else:
            facts |= self._binary(command)
        identity["engine"] = facts
        return command.words

    def _package(self, topology: Topology, kind: Engine, command: Command, facts: dict[str, Any]) -> None:
        assert kind.package is not None  # noqa: S101  # asked before
        if kind.name == "emulator":
            facts |= _own_version()
            return
        python = programs.interpreter(command)
        folders = _import_folders(topology, python) if python is not None else ()
        if not folders:
            self.unknown.append(f"engine version: {command.words[0]} keeps its packages where we do not look")
            return
        installed = package_files.find(kind.package, folders)
        if installed is None:
            self._missing(
                f"engine {kind.name}: the Python package {kind.package} is not installed for {python}; "
                f"name the interpreter of the engine's venv, e.g. {_example(kind)}",
            )
            return
        facts["package"] = package_files.describe(installed)
        facts["version"] = installed.version
        facts["packages"] = package_files.versions(_COMPANIONS, folders)
        facts["environment_sha256"] = package_files.environment_digest(folders)
        if changed := facts["package"]["changed_files_count"]:
            self.notes.append(f"engine: {changed} files of {installed.folder} were changed after installation")

    def _binary(self, command: Command) -> dict[str, Any]:
        """A binary's identity: its bytes, the libraries beside it, and the working copy it was built in."""
        program = command.program.resolve()
        beside = sorted(program.parent.glob("lib*.so*"))
        facts: dict[str, Any] = {
            "sha256": _sha256(program),
            "libraries": {file.name: _sha256(file) for file in beside if file.is_file()},
        }
        copies = (folder for folder in program.parents if (folder / ".git").exists() and (folder / "ggml").is_dir())
        source = next(copies, None)
        if source is not None:
            facts["source"] = package_files.working_copy(source)
            facts["version"] = facts["source"]["commit"]
        if facts.get("version") is None:
            self.unknown.append("engine version: the program is known by the hash of its bytes only")
        return facts

    def router(self, topology: Topology, identity: dict[str, Any]) -> tuple[str, ...]:
        if topology.router is None:
            return ()
        kind = router(topology.router.kind)
        remedy = f"install it with: pip install 'cutover[router]' (it brings {kind.kind})"
        command = programs.resolve(
            kind.default_command, what=f"router {kind.kind}", remedy=remedy, required=self.check_paths
        )
        facts: dict[str, Any] = {"kind": kind.kind, "program": command.words[0], "version": None}
        python = programs.interpreter(command)
        folders = package_files.site_folders(python) if python is not None else ()
        installed = package_files.find(kind.package, folders) if kind.package is not None else None
        if installed is not None:
            facts["version"] = installed.version
            facts["package"] = package_files.describe(installed)
        else:
            self.unknown.append(f"router version: the program {command.words[0]} could not be looked into")
        identity["router"] = facts
        return command.words

    def model(self, topology: Topology, kind: Engine, identity: dict[str, Any]) -> None:
        if topology.model is None:
            return
        if not topology.model.startswith("/") and is_hub_id(topology.model):
            identity["model"] = {"path": topology.model, "kind": "hub", "local": False}
            self.unknown.append(f"model: {topology.model} is not local; the engine fetches what the hub has then")
            return
        path = Path(topology.model)
        try:
            model_files.check(path, gguf_file=kind.name == "llamacpp")
        except ProvenanceError as error:
            self._missing(str(error))
            return
        identity["model"] = {**model_files.describe(path), "local": True}

    def paths(self, topology: Topology, identity: dict[str, Any]) -> None:
        """Files and model folders that flags read: draft model, chat template, projector, …"""
        described = []
        for text in _read_paths(topology.flags):
            path = Path(text)
            if path.is_file() or (path.is_dir() and any((path / name).is_file() for name in _MODEL_MARKS)):
                described.append(model_files.describe(path))
            elif not path.exists():
                self.unknown.append(f"flags: {text} is not on this box")
        if described:
            identity["paths"] = described

    def env_file(self, topology: Topology) -> None:
        if topology.env_file is None:
            return
        path = Path(topology.env_file)
        try:
            found = path.stat()
        except PermissionError:
            self.unknown.append(f"env_file: {path} is not readable for us; the engine's user must be able to read it")
            return
        except FileNotFoundError:
            self._missing(f"env_file: {path} does not exist; create it (chmod 600), or remove the key")
            return
        mode = found.st_mode
        if self.check_paths and found.st_uid not in {0, os.geteuid()}:
            raise ProvenanceError(
                f"env_file: {path} belongs to another user (uid {found.st_uid}), and every start runs it; "
                f"chown it to root or to the user of the daemon",
            )
        if self.check_paths and mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ProvenanceError(
                f"env_file: {path} can be written by others, and every start runs it; chmod 600 {path}"
            )
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            self.notes.append(f"env_file: {path} can be read by others; chmod 600 {path}")

    def notes_on(self, topology: Topology, kind: Engine) -> None:
        if kind.metrics_flag is not None and not base.has_flag(topology.flags, kind.metrics_flag):
            self.notes.append(
                f"flags: without {kind.metrics_flag} the engine shows no counters, and a busy one looks silent",
            )
        wanted = kind.gpus_wanted(topology.flags)
        for name, instance in sorted(topology.instances.items()):
            if wanted is not None and instance.gpu_count > wanted:
                self.notes.append(f"instances.{name}: holds {instance.gpu_count} GPUs, and the flags use {wanted}")

    def _missing(self, sentence: str) -> None:
        if self.check_paths:
            raise ProvenanceError(sentence)
        self.unknown.append(sentence)


def _needs_admin(topology: Topology, kind: Engine, command: Sequence[str]) -> Iterator[dict[str, str]]:
    """What in the topology opens the box: where it is written, what it is, and why it needs the admin role."""
    yield from _flags_that_open(kind, topology.flags, "flags")
    if topology.router is not None:
        yield from _flags_that_open(router(topology.router.kind), topology.router.flags, "router.flags")
    environments = {"env": topology.env} | {f"instances.{n}.env": one.env for n, one in topology.instances.items()}
    for where, environment in sorted(environments.items()):
        for name in sorted(environment):
            why = base.admin_env_reason(kind, name)
            if why is not None:
                yield {"where": f"{where}.{name}", "what": name, "why": why}
    if topology.script is not None:
        yield {"where": "script", "what": topology.script, "why": "runs a script"}
    elif topology.command is not None and not programs.is_known(command, kind.known_commands):
        why = f"is not a way of starting {kind.name} that we know"
        yield {"where": "command", "what": " ".join(topology.command), "why": why}


def _flags_that_open(program: Program, flags: Sequence[str], where: str) -> Iterator[dict[str, str]]:
    for position, name in base.flag_names(flags):
        flag = base.meant_flag(program, name, program.admin_flags)
        if flag is not None:
            yield {"where": f"{where}[{position}]", "what": flag, "why": program.admin_flags[flag]}


def _import_folders(topology: Topology, python: Path) -> tuple[Path, ...]:
    """Where the engine's interpreter imports from: PYTHONPATH of the topology first."""
    extra = [Path(part) for part in topology.env.get("PYTHONPATH", "").split(":") if part.startswith("/")]
    return (*extra, *package_files.site_folders(python))


def _read_paths(flags: Sequence[str]) -> Iterator[str]:
    """Absolute paths in the values of flags that read: ``/x``, ``--flag=/x``, and strings inside a JSON value."""
    flag = ""
    for word in flags:
        flag = base.flag_name(word) or flag
        if any(part in flag for part in _WRITING):
            continue
        value = word.split("=", 1)[1] if word.startswith("-") and "=" in word else word
        try:
            values = list(_strings(json.loads(value))) if value.startswith("{") else [value]
        except (ValueError, RecursionError):
            continue
        yield from (text for text in values if text.startswith("/"))


def _strings(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, (dict, list)):
        for item in document.values() if isinstance(document, dict) else document:
            yield from _strings(item)


def _example(kind: Engine) -> str:
    """A command with a full path, to copy from an error."""
    program, *words = kind.default_command
    path = "/opt/venv/bin/python" if words else f"/opt/llama.cpp/build/bin/{program}"
    return f"command: [{', '.join((path, *words))}]"


def _own_version() -> dict[str, Any]:
    """The emulated engine is part of this product: its version and the hash of its files."""
    from importlib.metadata import PackageNotFoundError, version

    folder = Path(__file__).parent / "engines" / "emulator"
    digest = hashlib.sha256()
    for file in sorted(folder.glob("**/*.py")):
        digest.update(f"{file.relative_to(folder)}\0{_sha256(file)}\n".encode())
    try:
        number = version("cutover")
    except PackageNotFoundError:
        number = None
    return {"version": number, "sha256": digest.hexdigest()}


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
