"""A sweep: a topology file with a matrix, as the topologies that it stands for.

    sweep:
      kv-cache-dtype: [auto, fp8]
      num-speculative-tokens: [0, 1, 2, 3]
      exclude: [{kv-cache-dtype: fp8, num-speculative-tokens: 3}]

Keys other than `exclude`, `require`, `max_arms` and `on_success` are axes (`launch.sweep_axes`). Without its `sweep`
the file is a topology that could be proposed; each arm is that with one value of every axis, under a name of its own.
docs/sweeps.md has all of it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from launch.errors import TopologyError
from launch.strict_yaml import Document, KeyPath, dotted
from launch.sweep_axes import REPLACED, Axis, AxisError, apply, shown
from launch.topology import SWEEP, Topology, checked, document_of, text_of

ARMS = 32
ARMS_MAX = 200
"""How many arms a sweep may have unless it says otherwise, and whatever it says: each is a start and all gates."""
ON_SUCCESS = ("report", "ask", "switch")
_LOOKED_AT_MAX = 100_000
"""So many combinations are held against constraints."""
_COMPARED_MAX = 2_000_000
"""Combinations times constraints: the daemon reads a file within seconds, whoever sends it."""
_NAME_MAX = 63
_CONSTRAINTS = ("exclude", "require")
_KEYS = (*_CONSTRAINTS, "max_arms", "on_success")

Settings = Mapping[str, Any]
"""Axis → value."""


@dataclass(frozen=True)
class SweepArm:
    """One combination: `name` is what people call it within the sweep, `topology` is what is tried."""

    name: str
    settings: Settings
    topology: Topology


@dataclass(frozen=True)
class SweepFile:
    """A sweep as its file says it. `combinations`: of the whole matrix, with those that constraints leave out."""

    base: Topology
    arms: tuple[SweepArm, ...]
    combinations: int
    on_success: str


def load(path: Path) -> SweepFile:
    """Read a sweep file; TopologyError says what is wrong and where."""
    return parse(text_of(path), source=str(path))


def parse(text: str, *, source: str) -> SweepFile:
    """The sweep given as text; `source` names it in errors."""
    document = document_of(text, source=source)
    if SWEEP not in document.value:
        raise TopologyError(
            f"{source}: there is no key {SWEEP} in this file: `cutover propose {source}` proposes it, or give it a "
            f"matrix, e.g. {SWEEP}: {{kv-cache-dtype: [auto, fp8]}}"
        )
    base = checked(replace(document, value={key: part for key, part in document.value.items() if key != SWEEP}))
    block = document.value[SWEEP]
    if not isinstance(block, dict) or not block:
        raise _wrong(document, (), "is empty; it is a mapping of axes, e.g. {kv-cache-dtype: [auto, fp8]}")
    axes = _axes(document, block)
    combinations = math.prod(len(axis.values) for axis in axes)
    on_success = _on_success(document, block)
    arms = tuple(_arms(document, base, axes, _chosen(document, block, axes, combinations)))
    _require_different(document, arms)
    return SweepFile(base, arms, combinations, on_success)


def _wrong(document: Document, path: KeyPath, sentence: str) -> TopologyError:
    place: KeyPath = (SWEEP, *path)
    return TopologyError(f"{document.where(place)}: {dotted(place)}: {sentence}")


# --- the matrix -------------------------------------------------------------------------------------------------------


def _axes(document: Document, block: Mapping[str, Any]) -> tuple[Axis, ...]:
    found: dict[str, Axis] = {}
    within: dict[str, Axis] = {}  # by what an axis sets, and by the flags whose keys it sets
    for name, values in block.items():
        if name in _KEYS:
            continue
        if not isinstance(values, list) or not values or (_mappings(values) and name not in REPLACED):
            close = get_close_matches(name.replace("-", "_"), _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"write its values, e.g. {name}: [a, b]"
            raise _wrong(document, (name,), f"an axis is a list of values; {hint}")
        axis = Axis(name, tuple(values))
        try:
            axis.check()
        except AxisError as error:
            raise _wrong(document, (name,), str(error)) from error
        wholes = tuple(_wholes(axis.target))
        other = within.get(axis.target) or next((found[whole] for whole in wholes if whole in found), None)
        if other is not None:
            raise _wrong(document, (name,), f"sets what {other.name} sets too; keep one of the two axes")
        found[axis.target] = axis
        within |= dict.fromkeys(wholes, axis)
    if not found:
        raise _wrong(document, (), "there is no axis; name a flag with its values, e.g. kv-cache-dtype: [auto, fp8]")
    return tuple(found.values())


def _mappings(values: Sequence[Any]) -> bool:
    return any(isinstance(value, dict) for value in values)


def _wholes(target: str) -> Iterator[str]:
    """What is set, and everything that it is a key in: ``--a.b.c`` → ``--a``, ``--a.b``, ``--a.b.c``."""
    parts = target.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _chosen(
    document: Document, block: Mapping[str, Any], axes: tuple[Axis, ...], combinations: int
) -> tuple[Settings, ...]:
    """The combinations that are tried: the last axis changes fastest, as in nested loops."""
    excluded, required = (_constraints(document, block, key, axes) for key in _CONSTRAINTS)
    limit = _limit(document, block)
    if combinations > (_LOOKED_AT_MAX if excluded or required else limit):
        raise _too_many(document, combinations, limit)
    constraints = len(excluded) + len(required)
    if combinations * constraints > _COMPARED_MAX:
        raise _wrong(
            document,
            (),
            f"{combinations} combinations against {constraints} constraints are too much to look through; leave values "
            "out, or say it in fewer constraints",
        )
    names = [axis.name for axis in axes]
    everything = (dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in axes)))
    chosen = tuple(
        each
        for each in everything
        if not _matches_one(each, excluded) and (not required or _matches_one(each, required))
    )
    if not chosen:
        said = " and ".join(key for key in _CONSTRAINTS if key in block)
        raise _wrong(document, (), f"{said} leave none of {combinations} combinations; loosen a constraint")
    if len(chosen) > limit:
        raise _too_many(document, len(chosen), limit)
    return chosen


def _too_many(document: Document, count: int, limit: int) -> TopologyError:
    more = f"raise max_arms (to {ARMS_MAX} at most)" if limit < ARMS_MAX else "try what matters most first"
    return _wrong(
        document,
        (),
        f"{count} combinations are too many: {limit} arms are tried at most, each with a start and all its gates; "
        f"leave values out, exclude combinations, or {more}",
    )


def _matches_one(combination: Settings, constraints: Sequence[Settings]) -> bool:
    return any(all(combination[axis] == value for axis, value in each.items()) for each in constraints)


# --- what stands beside the axes --------------------------------------------------------------------------------------


def _constraints(document: Document, block: Mapping[str, Any], key: str, axes: Sequence[Axis]) -> tuple[Settings, ...]:
    """Combinations, each some axes with one of their values."""
    listed = block.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) and each for each in listed):
        example = f"{key}: [{{{axes[0].name}: {shown(axes[0].values[0])}}}]"
        raise _wrong(document, (key,), f"is a list of combinations, e.g. {example}")
    values = {axis.name: axis.values for axis in axes}
    for position, each in enumerate(listed):
        for name, value in each.items():
            if name not in values:
                close = get_close_matches(name, values, n=1)
                hint = f"did you mean {close[0]}?" if close else f"axes are {', '.join(values)}"
                raise _wrong(document, (key, position, name), f"there is no axis {name}; {hint}")
            if value not in values[name]:
                known = ", ".join(shown(one) for one in values[name])
                raise _wrong(document, (key, position, name), f"{shown(value)} is no value of {name}; it has {known}")
    return tuple(listed)


def _limit(document: Document, block: Mapping[str, Any]) -> int:
    limit = block.get("max_arms", ARMS)
    if type(limit) is not int or not 1 <= limit <= ARMS_MAX:
        raise _wrong(document, ("max_arms",), f"{shown(limit)} is not accepted; expected a number from 1 to {ARMS_MAX}")
    return limit


def _on_success(document: Document, block: Mapping[str, Any]) -> str:
    wish = block.get("on_success", ON_SUCCESS[0])
    if wish not in ON_SUCCESS:
        raise _wrong(document, ("on_success",), f"{shown(wish)} is not accepted; expected {' | '.join(ON_SUCCESS)}")
    return str(wish)


# --- arms -------------------------------------------------------------------------------------------------------------


def _arms(document: Document, base: Topology, axes: tuple[Axis, ...], chosen: Sequence[Settings]) -> Iterator[SweepArm]:
    labels = _labelled(axes, chosen)
    plain = {key: part for key, part in document.value.items() if key != SWEEP}
    for settings, label, name in zip(chosen, labels, _topology_names(base.name, chosen, labels), strict=True):
        called = ",".join(f"{axis}={text}" for axis, text in label.items())
        place = f"{document.where((SWEEP,))}: {SWEEP}: arm {called}"
        changed = copy.deepcopy(plain) | {"name": name}
        for axis in axes:
            try:
                apply(changed, axis, settings[axis.name])
            except AxisError as error:
                raise _wrong(document, (axis.name,), str(error)) from error
        yield SweepArm(called, settings, checked(_ArmDocument(changed, place, dict.fromkeys(_paths(changed), 0))))


class _ArmDocument(Document):
    """What an axis has put somewhere was written on no line of its own: every place in it is the arm."""

    def where(self, path: KeyPath) -> str:  # noqa: ARG002
        return self.source


def _paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _paths(part, (*path, key))


def _labelled(axes: Sequence[Axis], chosen: Sequence[Settings]) -> Sequence[Mapping[str, str]]:
    known = [(axis.name, axis.values, axis.labels()) for axis in axes]
    return [{name: labels[values.index(each[name])] for name, values, labels in known} for each in chosen]


def _topology_names(base: str, chosen: Sequence[Settings], labels: Sequence[Mapping[str, str]]) -> Sequence[str]:
    """The base's name with the settings, or with the values alone, or with a hash: the first that fits all arms."""
    full = ["-".join([base, *(_slug(f"{axis}-{text}") for axis, text in each.items())]) for each in labels]
    short = ["-".join([base, *(_slug(text) or "none" for text in each.values())]) for each in labels]
    hashed = [f"{base[: _NAME_MAX - 9].rstrip('-')}-{_hash(settings)}" for settings in chosen]
    fitting = (
        names for names in (full, short) if len(set(names)) == len(names) and len(max(names, key=len)) <= _NAME_MAX
    )
    return next(fitting, hashed)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _hash(settings: Settings) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _require_different(document: Document, arms: Sequence[SweepArm]) -> None:
    """Raises for two arms that run the same: the second would be a night lost."""
    known: dict[str, str] = {}
    for arm in arms:
        content = json.dumps({**arm.topology.canonical(), "name": ""}, sort_keys=True)
        other = known.setdefault(content, arm.name)
        if other != arm.name:
            raise _wrong(document, (), f"arms {other} and {arm.name} are the same topology; exclude one of them")
