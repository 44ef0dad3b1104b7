"""Launch scripts: one bash script per instance that a person can read, and run by hand.

Same topology and same resolved programs, same bytes: no dates, no host facts. What differs from attempt to attempt
(address, port, GPUs, internal ports, worker list) comes from the environment; docs/launch-contract.md has the list.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from launch.engine_key import KEY, key_variables
from launch.engines import base
from launch.engines.base import Expand, Word, engine
from launch.errors import TopologyError
from launch.routers.base import router
from launch.topology import Instance, Topology
from launch.topology_rules import ROUTER

_SHELLS = frozenset({"sh", "bash", "dash", "ash"})


def render(
    topology: Topology,
    *,
    command: Sequence[str],
    router_command: Sequence[str] = (),
    script_text: str | None = None,
) -> dict[str, str]:
    """The launch script of every instance by name; the router's is called ``router``.

    `command` and `router_command` are the programs with absolute paths where they could be resolved; `script_text`
    is the content of the user's script (engine ``script``).
    """
    scripts = {}
    for name, instance in sorted(topology.instances.items()):
        if topology.engine == "script":
            scripts[name] = _user_script(topology, name, instance, script_text or "")
        else:
            scripts[name] = _engine_script(topology, name, instance, command)
    if topology.router is not None:
        scripts[ROUTER] = _router_script(topology, router_command)
    return scripts


def _engine_script(topology: Topology, name: str, instance: Instance, command: Sequence[str]) -> str:
    kind = engine(topology.engine)
    exports = _exports({**kind.environment(topology), **topology.env, **instance.env})
    execution = _exec(command, [*kind.arguments(topology), *grouped(topology.flags)])
    internal_ports = any("internal_port" in line for line in (*exports, *execution))
    return _joined(
        _header(topology, name, _purpose(topology, instance), usage=f"HOST=127.0.0.1 PORT=8001 ./{name}.sh"),
        ["set -euo pipefail", *_requirements(internal_ports=internal_ports)],
        _gpus(instance),
        ["readonly HOST PORT CUDA_VISIBLE_DEVICES  # a secrets file cannot move the server"],
        _secrets(topology),
        exports,
        _key(kind, topology, instance),
        execution,
    )


def _router_script(topology: Topology, command: Sequence[str]) -> str:
    assert topology.router is not None  # noqa: S101  # asked for only when there is one
    kind = router(topology.router.kind)
    usage = f"HOST=127.0.0.1 PORT=8000 CUTOVER_WORKERS='http://127.0.0.1:8001 http://127.0.0.1:8002' ./{ROUTER}.sh"
    return _joined(
        _header(topology, ROUTER, f"{kind.kind} in front of {len(topology.instances)} instances", usage=usage),
        [
            "set -euo pipefail",
            *_requirements(internal_ports=True),
            ': "${CUTOVER_WORKERS:?addresses of the instances, e.g. CUTOVER_WORKERS=http://127.0.0.1:8001}"',
        ],
        ['read -r -a workers <<<"$CUTOVER_WORKERS"'],
        *_start_router(topology, command, [*kind.arguments(topology), *grouped(topology.router.flags)]),
    )


def _start_router(topology: Topology, command: Sequence[str], lines: Sequence[base.Line]) -> list[list[str]]:
    """As it is; or, before engines that want a key, with that key where there is one."""
    assert topology.router is not None  # noqa: S101  # asked for only when there is one
    with_key = router(topology.router.kind).with_key
    if with_key is None or key_variables(topology, ROUTER) is None:
        return [_exec(command, lines)]
    program, *words = map(quoted, command)
    keyed = " ".join(['"$python" -c', quoted(with_key), '"$program"', *words])
    launcher = [
        f"launcher=({' '.join([program, *words])})",
        f"if [[ -n ${{{KEY}-}} ]]; then  # from the environment: arguments are read by everybody on the box",
        f'  program=$(readlink -f "$(command -v {program})")',
        "  python=${program%/*}/python3  # of the same virtual environment",
        "  [[ -x $python ]] || python=python3",
        f"  launcher=({keyed})",
        "fi",
    ]
    return [launcher, _exec((Expand("${launcher[@]}"),), lines)]


def _user_script(topology: Topology, name: str, instance: Instance, text: str) -> str:
    source = str(topology.script)
    options, body = _shell_options(text, source)
    flags = [f"set -- {' '.join(map(quoted, topology.flags))}"] if topology.flags else []
    return _joined(
        _header(topology, name, _purpose(topology, instance), usage=f"HOST=127.0.0.1 PORT=8001 ./{name}.sh"),
        ["set -euo pipefail", *_requirements(internal_ports=True), "export CUTOVER_PORT_FIRST=$internal_port"],
        _gpus(instance),
        _secrets(topology),
        _exports({"CUTOVER_SCRIPT_DIR": str(Path(source).parent), **topology.env, **instance.env}),
        flags,
        ["set +euo pipefail", *options],
        [f"# ---- {source}, as it was when the release was frozen ----", body.rstrip("\n")],
    )


def _header(topology: Topology, name: str, purpose: str, *, usage: str) -> list[str]:
    return [
        "#!/usr/bin/env bash",
        f"# {topology.name}, instance {name}: {purpose}.",
        "# Rendered by Cutover from a topology; a change belongs there.",
        f"# By hand: {usage}",
    ]


def _purpose(topology: Topology, instance: Instance) -> str:
    names = ", ".join(topology.serves)
    if instance.gpu_names is not None:
        return f"{topology.engine} serves {names} on GPU {', '.join(instance.gpu_names)}"
    counted = {0: "no GPU", 1: "1 GPU"}.get(instance.gpu_count, f"{instance.gpu_count} GPUs")
    return f"{topology.engine} serves {names} on {counted}"


def _requirements(*, internal_ports: bool) -> list[str]:
    lines = [
        ': "${HOST:?address to listen on, e.g. HOST=127.0.0.1}"',
        ': "${PORT:?port to listen on, e.g. PORT=8001}"',
    ]
    if internal_ports:
        lines += [
            "internal_port=${CUTOVER_PORT_FIRST:-$((PORT + 1000))}  # internal sockets count up from here",
            '[[ $internal_port != "$PORT" ]] || internal_port=$((PORT + 1))',
        ]
    return lines


def _gpus(instance: Instance) -> list[str]:
    if not instance.gpu_names:
        return []
    names = quoted(",".join(instance.gpu_names))
    return [f"export CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES-{names}}}"]


def _secrets(topology: Topology) -> list[str]:
    if topology.env_file is None:
        return []
    return [
        "set -a  # read when the instance starts, never part of the release",
        f"source {quoted(topology.env_file)}",
        "set +a",
    ]


def _key(kind: base.Engine, topology: Topology, instance: Instance) -> list[str]:
    """Whoever starts the attempt asks it too: a key of the file's would be one that nobody else brings."""
    names = kind.key_variables(topology.flags) or ()
    at_risk = [n for n in names if topology.env_file is not None or n in {**topology.env, **instance.env}]
    return [f"[[ -z ${{{KEY}-}} ]] || export {name}=${KEY}  # that everybody of ours brings" for name in at_risk]


def _exports(environment: Mapping[str, Word]) -> list[str]:
    return [f"export {name}={quoted(value)}" for name, value in sorted(environment.items())]


def _exec(command: Sequence[Word], lines: Sequence[base.Line]) -> list[str]:
    rows = [f"exec {' '.join(map(quoted, command))}"]
    rows += [f"  {' '.join(map(quoted, line))}" for line in lines]
    return [" \\\n".join(rows)]


def _joined(*paragraphs: Sequence[str]) -> str:
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs if paragraph) + "\n"


def quoted(word: Word) -> str:
    """One word of bash, as it is or in the quotes it needs."""
    return f'"{word.text}"' if isinstance(word, Expand) else shlex.quote(word)


def grouped(flags: Sequence[str]) -> Iterator[base.Line]:
    """The flags in their order, each with the values that follow it."""
    line: list[str] = []
    for word in flags:
        if base.flag_name(word) is not None and line:
            yield tuple(line)
            line = []
        line.append(word)
    if line:
        yield tuple(line)


def _shell_options(text: str, source: str) -> tuple[list[str], str]:
    """The options of the script's first line as a ``set`` of ours, and the text without that line."""
    if not text.startswith("#!"):
        return [], text
    first, _, body = text.partition("\n")
    words = first[2:].split()
    if words and words[0].endswith("/env"):
        words = words[1:]
    if not words or words[0].rsplit("/", 1)[-1] not in _SHELLS:
        raise TopologyError(
            f"{source}: starts with {first!r}; engine script takes a bash or sh script: wrap the program in one",
        )
    options = [word for word in words[1:] if re.fullmatch(r"-[A-Za-z]+", word)]
    return [f"set {option}" for option in options], body
