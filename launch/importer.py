"""A topology from what somebody runs by hand: a start script, and the server it started where that still runs.

What runs is preferred to what the script says, and every difference is told. What cannot be known is written as a
line with the mark ``# cutover: ?`` and asked as a question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch import topology_rules
from launch.engines import base
from launch.engines.base import engine, secret_name
from launch.errors import TopologyError
from launch.running_server import RunningServer, look
from launch.server_command import ServerCommand, recognise, with_absolute_program
from launch.shell_reading import ShellCommand, read_commands
from launch.topology import Topology, parse
from launch.topology_yaml import MARK, Draft, word

_SCRIPT_MAX_BYTES = 1024 * 1024
_NAME_MAX = 40
_CLIENT_KEYS = frozenset({"--api-key", "VLLM_API_KEY", "LLAMA_API_KEY"})  # what a server demands of its clients


@dataclass(frozen=True)
class ImportResult:
    """The topology as YAML with marks, the questions that the marks stand for, and the topology when it is valid."""

    topology_yaml: str
    questions: tuple[str, ...]
    topology: Topology | None


@dataclass
class _Server:
    """One server of the script: its command line and where it would run."""

    command: ServerCommand
    environment: dict[str, str]
    folder: Path
    secrets: list[str] = field(default_factory=list)
    unresolved: tuple[str, ...] = ()
    sourced: tuple[str, ...] = ()


def import_script(path: Path, *, port: int | None = None) -> ImportResult:
    """Turn a start script into a topology; with `port`, look at the server that listens there too.

    TopologyError when the script cannot be read; a script that is beyond us becomes ``engine: script``.
    """
    text = _read(path)
    commands = read_commands(text, path.absolute().parent)
    servers = [server for command in commands if not command.conditional and (server := _server(command)) is not None]
    running = look(port) if port is not None else None
    routers = [server for server in servers if server.command.engine == "smg"]
    workers = [server for server in servers if server.command.engine != "smg"]
    draft = Draft(f"Imported from {path.name}.")
    draft.add("name", word(_name(path)))
    if not workers and (running is None or running.command is None):
        return _as_script(path, draft, running)
    if not workers and running is not None and running.command is not None:
        draft.note(f"the script could not be read; this is the server on port {port}, process {running.pid}")
        workers = [_Server(running.command, dict(running.environment), running.folder)]
    chosen = _chosen(workers, port, draft)
    if running is not None:
        chosen = [_as_running(server, running, draft) if server is chosen[0] else server for server in chosen]
    return _as_engine(chosen, routers, running, draft)


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _SCRIPT_MAX_BYTES:
        raise TopologyError(f"{path}: {len(content)} bytes are too large for a start script")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path}: not a text file; give the start script itself") from error


def _server(command: ShellCommand) -> _Server | None:
    recognised = recognise(command.words)
    if recognised is None:
        return None
    search_path = os.environ.get("PATH", "/usr/bin:/bin")
    words = with_absolute_program(recognised.command, folder=command.folder, venv=command.venv, search_path=search_path)
    return _Server(
        command=replace(recognised, command=words),
        environment={name: value for name, value in command.environment.items() if not secret_name(name)},
        folder=command.folder,
        secrets=[name for name in command.environment if secret_name(name)],
        unresolved=command.unresolved,
        sourced=command.sourced,
    )


def _chosen(workers: list[_Server], port: int | None, draft: Draft) -> list[_Server]:
    """The servers that become the instances: all that are alike, or the one on the port."""
    first = next((one for one in workers if port is not None and one.command.port == port), workers[0])
    alike = [one for one in workers if one is not first and _likeness(one) == _likeness(first)]
    others = len(workers) - len(alike) - 1
    if others:
        draft.ask(
            f"the script starts {others} more server(s) with other flags; one topology has one set of flags: "
            "import them as topologies of their own, or make the flags equal",
        )
    return sorted([first, *alike], key=lambda one: (one is not first, one.command.port or 0))


def _likeness(server: _Server) -> tuple[object, ...]:
    one = server.command
    environment = {name: value for name, value in server.environment.items() if name != "CUDA_VISIBLE_DEVICES"}
    return one.engine, one.command, one.model, one.serves, one.flags, sorted(environment.items())


def _as_running(server: _Server, running: RunningServer, draft: Draft) -> _Server:
    """The server with what its process really has; every difference is noted."""
    if running.command is None:
        draft.ask(
            f"process {running.pid} on the port has a command line that is not known; the script is taken as it is"
        )
        return server
    real = running.command
    for name in ("command", "model", "serves", "flags"):
        said, is_ = getattr(server.command, name), getattr(real, name)
        if said != is_:
            draft.note(f"{name}: the script says {_flat(said)}; process {running.pid} runs with {_flat(is_)}, taken")
    environment = {**server.environment, **running.environment}
    for name, value in running.environment.items():
        if server.environment.get(name, value) != value:
            draft.note(
                f"env {name}: the script says {server.environment[name]}; process {running.pid} has {value}, taken"
            )
    return replace(
        server,
        command=real,
        environment=environment,
        folder=running.folder,
        secrets=sorted({*server.secrets, *running.secrets}),
        unresolved=(),
    )


def _as_engine(
    servers: Sequence[_Server], routers: Sequence[_Server], running: RunningServer | None, draft: Draft
) -> ImportResult:
    first = servers[0]
    one = first.command
    model = _model(one, first.folder, draft)
    draft.add("serves", _serves(one, model, running, draft))
    draft.add("engine", one.engine)
    draft.add("command", _listed(one.command))
    if not one.command[0].startswith("/"):
        draft.ask(f"where is {one.command[0]}? Write its full path into command", key="command")
    if model is not None and one.engine != "emulator":
        draft.add("model", word(model))
    draft.add_flags("flags", one.flags)
    for text in first.unresolved:
        draft.ask(f"the script computes {text} when it starts; write the value it has", key="flags")
    for text in one.refused:
        draft.ask(f"{text} is not taken over: {_why_refused(one, text)}")
    _environment(first, draft)
    _secrets(first, draft)
    _instances(servers, draft)
    _router(routers, draft)
    if base.has_flag(one.flags, "--reasoning-parser"):
        draft.hint("capability: {thinking: switch}", "can clients switch thinking off? none | always | switch")
    return _finished(draft)


def _as_script(path: Path, draft: Draft, running: RunningServer | None) -> ImportResult:
    """No server's command line was found: keep the script, and say what it must do."""
    names = running.serves if running is not None else ()
    draft.add("serves", _listed(names or ("unknown",)))
    if not names:
        draft.ask("which model names does it serve? Write them into serves", key="serves")
    draft.add("engine", "script")
    draft.add("script", word(str(path.absolute())))
    draft.ask(
        "no server's command line was found in the script; it must listen on $HOST:$PORT, use only the GPUs of "
        "CUDA_VISIBLE_DEVICES, and stay in the foreground (docs/launch-contract.md)",
        key="script",
    )
    draft.add("instances", "{a: {gpus: 1}}")
    draft.ask("how many GPUs does it use?", key="instances")
    return _finished(draft)


def _model(one: ServerCommand, folder: Path, draft: Draft) -> str | None:
    if one.engine == "emulator":
        return None
    if one.model is None:
        draft.add("model", "/unknown")
        draft.ask("which model? The command line names none", key="model")
        return None
    path = folder / one.model
    if not one.model.startswith("/") and (path.exists() or not topology_rules.is_hub_id(one.model)):
        draft.note(f"model: {one.model} is meant from the folder {folder}")
        return os.path.normpath(path)
    return one.model


def _serves(one: ServerCommand, model: str | None, running: RunningServer | None, draft: Draft) -> str:
    if running is not None and running.serves:
        if one.serves and tuple(one.serves) != running.serves:
            draft.note(f"serves: its /v1/models says {_flat(running.serves)}, taken")
        return _listed(running.serves)
    if one.serves:
        return _listed(one.serves)
    if model is None:
        draft.ask("under which name do clients ask for the model?", key="serves")
        return "[unknown]"
    draft.ask(f"no served name is given, so the engine uses {one.model}; keep it if clients use it", key="serves")
    return _listed((one.model or model,))


def _environment(server: _Server, draft: Draft) -> None:
    kind = engine(server.command.engine)
    kept = {}
    for name, value in sorted(server.environment.items()):
        if name in topology_rules.OWNED_ENV or name in kind.owned_env or name.startswith("CUTOVER_"):
            continue
        if "$" in value or "`" in value:
            draft.ask(f"env {name}={value} is computed by the script; values in env are taken as written: write it out")
            continue
        kept[name] = value
    draft.add_mapping("env", kept)


def _secrets(server: _Server, draft: Draft) -> None:
    names = sorted({*server.secrets, *(flag for flag in server.command.secrets)})
    others = [name for name in names if name not in _CLIENT_KEYS]
    if others:
        draft.hint("env_file: /etc/cutover/secrets.env", f"write {', '.join(others)} into such a file (chmod 600)")
    if len(others) < len(names):
        keys = ", ".join(name for name in names if name in _CLIENT_KEYS)
        draft.ask(
            f"the server wants a key of its clients ({keys}): it is left out. Clients' keys are checked at the public "
            "address (api_keys_file); engines get one of the daemon's own, where they can be told one"
        )
    for file in server.sourced:
        draft.ask(f"the script reads {file} first; if it holds secrets, name it in env_file, else write it into env")


def _instances(servers: Sequence[_Server], draft: Draft) -> None:
    shown = []
    for number, server in enumerate(servers):
        name = chr(ord("a") + number) if len(servers) <= 26 else f"i{number}"
        devices = server.environment.get("CUDA_VISIBLE_DEVICES")
        shown.append(f"{name}: {{gpus: {_gpus(server.command, devices, draft)}}}")
    draft.add("instances", "{" + ", ".join(shown) + "}")


def _gpus(one: ServerCommand, devices: str | None, draft: Draft) -> str:
    wanted = engine(one.engine).gpus_wanted(one.flags)
    if devices is not None and "$" not in devices:
        names = [name for name in devices.split(",") if name]
        if names:
            draft.note(f"instances: GPUs {devices} as found; a count ({len(names)}) would let Cutover choose")
        return f"[{', '.join(names)}]" if names else "0"
    if one.engine == "llamacpp" or wanted is None:
        draft.ask("CUDA_VISIBLE_DEVICES is not set; how many GPUs does it use?", key="instances")
    return str(wanted or 1)


def _router(routers: Sequence[_Server], draft: Draft) -> None:
    if not routers:
        return
    draft.add("router.kind", "smg")
    draft.add_flags("router.flags", routers[0].command.flags)
    if len(routers) > 1:
        draft.ask("the script starts more than one router; a topology has one")


def _finished(draft: Draft) -> ImportResult:
    text = draft.yaml()
    try:
        topology: Topology | None = parse(text, source="the imported topology")
    except TopologyError as error:
        draft.ask(f"it is not accepted as it stands: {error}")
        topology = None
    return ImportResult(draft.yaml(), tuple(draft.questions), topology)


def _why_refused(one: ServerCommand, text: str) -> str:
    flag = base.flag_name(text.split(maxsplit=1)[0]) or text
    owned: Mapping[str, str] = engine(one.engine).owned_flags
    return owned.get(flag, "Cutover sets it")


def _listed(words: Sequence[str]) -> str:
    return f"[{', '.join(word(one, inside=True) for one in words)}]"


def _flat(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _name(path: Path) -> str:
    stem = (
        path.stem
        if path.stem not in {"start", "run", "serve", "launch"}
        else f"{path.absolute().parent.name}-{path.stem}"
    )
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:_NAME_MAX] or "imported"


__all__ = ["MARK", "ImportResult", "import_script"]
