"""The rules of a topology that look at more than one key: what fits the engine, what is ours, what is a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from launch.engines import base
from launch.engines.base import Engine, Program, engine, engines
from launch.engines.script import Script
from launch.routers.base import router, routers
from launch.strict_yaml import KeyPath

if TYPE_CHECKING:
    from launch.topology import Topology

ROUTER = "router"
"""The instance name of a topology's router; no engine instance may be called so."""

_GPU_NAME = re.compile(r"\d{1,3}|(GPU|MIG)-[0-9A-Za-z/-]+")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")

CAPABILITIES: Mapping[str, type | tuple[str, ...]] = {
    "thinking": ("none", "always", "switch"),
    "tools": bool,
    "thinking_switch": ("enable_thinking", "thinking", "thinking_mode", "reasoning_effort"),
    "interleaved_reasoning": bool,
    "required": bool,
    "named": bool,
    "parallel_calls": bool,
    "json_schema": bool,
    "keeps_reasoning": bool,
    "reasoning_field": ("reasoning", "reasoning_content"),
    "finish_named": ("stop", "tool_calls", "any"),
    "finish_required": ("stop", "tool_calls", "any"),
    "malformed_history": ("refused", "coerced"),
    "foreign_ids": ("accepted", "refused"),
    "max_context_tokens": int,
    "max_running": int,
    "prefix_caching": bool,
}
"""What a topology may say that its server can do; gates judge what is said, and nothing that is not."""

OWNED_ENV: Mapping[str, str] = {
    "HOST": "the address is chosen per attempt; remove it",
    "PORT": "the port is chosen per attempt; remove it",
    "CUDA_VISIBLE_DEVICES": "the GPUs are chosen per attempt; say how many or which in instances.*.gpus",
    "NVIDIA_VISIBLE_DEVICES": "the GPUs are chosen per attempt; say how many or which in instances.*.gpus",
    "HIP_VISIBLE_DEVICES": "the GPUs are chosen per attempt; say how many or which in instances.*.gpus",
    "ROCR_VISIBLE_DEVICES": "the GPUs are chosen per attempt; say how many or which in instances.*.gpus",
}


Objection = tuple[KeyPath, str]


def objections(topology: Topology) -> Iterator[Objection]:
    """Every rule that looks at more than one key; the first objection is what the user reads."""
    if topology.engine not in engines():
        yield ("engine",), f"{topology.engine!r} is not an engine; expected {_one_of(engines(), topology.engine)}"
        return
    kind = engine(topology.engine)
    yield from _program_objections(topology, kind)
    yield from _flag_objections(kind, topology.flags, ("flags",))
    yield from _env_objections(kind, topology.env, ("env",))
    for name, instance in topology.instances.items():
        yield from _env_objections(kind, instance.env, ("instances", name, "env"))
    yield from _gpu_objections(topology, kind)
    yield from _router_objections(topology)
    yield from _capability_objections(topology.capability)


def _program_objections(topology: Topology, kind: Engine) -> Iterator[Objection]:
    if len(set(topology.serves)) != len(topology.serves):
        yield ("serves",), "a name is there twice; keep one"
    if kind.served_names_max is not None and len(topology.serves) > kind.served_names_max:
        yield ("serves",), f"engine {kind.name} serves one name, and {len(topology.serves)} are given; keep one"
    if kind.name == "script":
        if topology.script is None:
            yield ("script",), "engine script needs the path of your start script, e.g. script: /srv/start.sh"
        if topology.command is not None:
            yield ("command",), "engine script runs the script itself; remove command"
    elif topology.script is not None:
        yield ("script",), f"engine {kind.name} starts its own program; remove script, or use engine: script"
    yield from _model_objections(topology, kind)
    if topology.command is not None and "/" in topology.command[0] and not topology.command[0].startswith("/"):
        yield (
            ("command", 0),
            f"{topology.command[0]!r} is a relative path; give the absolute one, or a name found in PATH",
        )


def _model_objections(topology: Topology, kind: Engine) -> Iterator[Objection]:
    if topology.model is None:
        if kind.needs_model:
            yield ("model",), f"engine {kind.name} needs a model: an absolute path, or org/name of a hub"
        return
    if kind.name == "emulator":
        yield ("model",), "the emulator loads no model and takes its name from serves; remove model"
    elif not topology.model.startswith("/") and not is_hub_id(topology.model):
        yield ("model",), f"{topology.model!r} is neither an absolute path nor org/name of a hub; ~ is not resolved"


def _flag_objections(program: Program, flags: tuple[str, ...], path: KeyPath) -> Iterator[Objection]:
    if isinstance(program, Script):
        return  # its arguments are its own affair
    if flags and not flags[0].startswith("-"):
        yield (
            (*path, 0),
            f"{flags[0]!r} is a value without a flag; the first word must be a flag such as --max-model-len",
        )
    for position, word in enumerate(flags):
        name = base.flag_name(word)
        if name is None:
            continue
        if re.match(r"--?[\w-]+\s", word):
            flag, value = word.split(None, 1)
            yield (*path, position), f"{word!r} is one word for the engine; write two: {flag}, {value}"
        owned = base.meant_flag(program, name, program.owned_flags)
        if owned is not None:
            reads = name if name == owned else f"{name} (read as {owned})"
            yield (*path, position), f"{reads} is not accepted: {program.owned_flags[owned]}"


def _env_objections(kind: Engine, env: Mapping[str, str], path: KeyPath) -> Iterator[Objection]:
    for name in env:
        why = {**OWNED_ENV, **kind.owned_env}.get(name)
        if why is None and name.startswith("CUTOVER_"):
            why = "names that start with CUTOVER_ belong to the attempt; rename it"
        if why is None and base.secret_name(name):
            why = "the name says secret, and a release is readable; put it into a file and name that in env_file"
        if why is not None:
            yield (*path, name), f"{name} is not accepted here: {why}"


def _gpu_objections(topology: Topology, kind: Engine) -> Iterator[Objection]:
    taken: dict[str, str] = {}
    for name, instance in topology.instances.items():
        path: KeyPath = ("instances", name, "gpus")
        if name == ROUTER:
            yield ("instances", name), f"{ROUTER!r} is the router's own name; call the instance something else"
        for position, gpu in enumerate(instance.gpu_names or ()):
            if not _GPU_NAME.fullmatch(gpu):
                yield (
                    (*path, position),
                    f"{gpu!r} is not a GPU; expected an index such as 0, or a UUID such as GPU-5a1b…",
                )
            if gpu in taken:
                yield (*path, position), f"GPU {gpu} is taken by instance {taken[gpu]} already; give each its own"
            taken[gpu] = name
        wanted = kind.gpus_wanted(topology.flags)
        if wanted is not None and instance.gpu_count and wanted > instance.gpu_count:
            yield path, f"the flags ask for {wanted} GPUs, and the instance has {instance.gpu_count}; make them agree"


def _router_objections(topology: Topology) -> Iterator[Objection]:
    if topology.router is None:
        return
    kind = topology.router.kind
    if kind not in routers():
        yield ("router", "kind"), f"{kind!r} is not a router; expected {_one_of(routers(), kind)}"
        return
    yield from _flag_objections(router(kind), topology.router.flags, ("router", "flags"))


def _capability_objections(capability: Mapping[str, str | bool | int]) -> Iterator[Objection]:
    for key, value in capability.items():
        path: KeyPath = ("capability", key)
        expected = CAPABILITIES.get(key)
        if expected is None:
            yield path, f"is not a known capability; expected {_one_of(CAPABILITIES, key)}"
        elif isinstance(expected, tuple):
            if value not in expected:
                yield path, f"{value!r} is not accepted; expected {' | '.join(expected)}"
        elif type(value) is not expected:
            kinds = {bool: "true or false", str: "a word", int: "a whole number"}
            yield path, f"{value!r} is not accepted; expected {kinds[expected]}"


def is_hub_id(model: str) -> bool:
    """True for ``org/name`` (with ``:quant`` for llama.cpp): a model of a hub, not a folder of this box."""
    return _HUB_ID.fullmatch(model) is not None


def _one_of(known: Mapping[str, Any], given: str) -> str:
    """``vllm | sglang | …``, with the nearest one first as a question when there is one."""
    close = get_close_matches(given, known, n=1)
    listed = " | ".join(known)
    return f"{listed}; did you mean {close[0]}?" if close else listed
