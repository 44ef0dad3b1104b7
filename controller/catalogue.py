"""From a topology file to what the core needs: freeze it, keep it, pin its gate profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates.profile import GateStep
from gates.profile import load as load_profile
from gates.profile import parse as parse_profile
from launch import release as launched
from launch.engines.base import running_at_once
from launch.sleep import can_sleep
from launch.topology import Topology

from .core.records import Instance, Release

HEALTH_DEADLINE_S = 120.0


class Catalogue:
    """The releases directory. Errors are those of `launch` and `gates`; they carry their own exit codes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, topology: Topology) -> Release:
        """Freeze the topology and save it; the same topology on the same box is the same release."""
        frozen = launched.freeze(topology)
        launched.save(frozen, self.directory)
        return record_of(frozen)

    def look(self, topology: Topology) -> launched.Release:
        """The same, but nothing is saved: for whoever only looks."""
        return launched.freeze(topology)

    def find(self, release_id: str) -> launched.Release:
        return launched.load_release(self.directory, release_id)

    def ids(self) -> tuple[str, ...]:
        return launched.list_releases(self.directory)


def record_of(frozen: launched.Release) -> Release:
    topology = frozen.topology
    return Release(
        id=frozen.id,
        name=frozen.name,
        digest=frozen.digest,
        engine=topology.engine,
        serves=tuple(topology.serves),
        instances=tuple(
            Instance(
                name=spec.name,
                role=spec.role,
                gpu_count=spec.gpu_count,
                gpus=spec.gpus,
                health_path=spec.health_path,
                fronted=spec.fronted,
                start_after=spec.start_after,
            )
            for spec in frozen.instances()
        ),
        gates=topology.gates,
        capability=_capability(topology),
        # Only a topology that says so overrules the configuration's `start_s`.
        start_timeout_s=topology.start_timeout_s if "start_timeout_s" in topology.model_fields_set else None,
        stop_grace_s=topology.stop_grace_s,
        can_sleep=can_sleep(topology),
        needs_admin=tuple(_admin_sentence(entry) for entry in frozen.manifest.get("needs_admin", ())),
    )


def _capability(topology: Topology) -> Mapping[str, Any]:
    """What the topology declares, and what its flags say already."""
    running = running_at_once(topology)
    told = {} if running is None else {"max_running": running}
    return told | topology.capability


def _admin_sentence(entry: Any) -> str:
    return ": ".join(str(value) for value in entry.values()) if isinstance(entry, Mapping) else str(entry)


def pinned_profile(name_or_path: str) -> tuple[Mapping[str, Any], ...]:
    """The profile's steps as plain data: what is judged by is fixed at the moment of the proposal."""
    return tuple(_step(step) for step in load_profile(name_or_path).gates)


def parsed_profile(text: str, where: str) -> tuple[Mapping[str, Any], ...]:
    """The same of the text of a file."""
    return tuple(_step(step) for step in parse_profile(Path(where).stem, text, where).gates)


def _step(step: GateStep) -> Mapping[str, Any]:
    return {
        "name": step.name,
        "command": list(step.command) if step.command else None,
        "deadline_s": step.deadline_s,
        "settings": dict(step.settings),
        "observe": step.observe,
    }


def health_only() -> tuple[Mapping[str, Any], ...]:
    """What a restart of the very same release must show: that it generates."""
    return ({"name": "health", "command": None, "deadline_s": HEALTH_DEADLINE_S, "settings": {}, "observe": False},)
