"""Options of `gate run` as people type them; shared by `python -m gates run` and `cutover gate run`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gates.capability import Capability
from gates.errors import GateUsageError
from gates.strict import read_model
from gates.yaml_text import mapping_in, read_text

_BLOCK: Final = "expected what a topology has under `capability`, as `gate probe` prints it"


def capability_of(words: Iterable[str]) -> dict[str, Any]:
    """What ``--capability`` says, given any number of times: ``KEY=VALUE``, or a file with a whole block of them.

    The later wins, so that a pair after a file corrects it. Raises `GateUsageError`.
    """
    said: dict[str, Any] = {}
    for word in words:
        if "=" in word and not _is_file(Path(word)):
            key, value = _pair(word)
            said[key] = value
        else:
            said |= _block(word)
    return said


def _pair(text: str) -> tuple[str, Any]:
    """`thinking=switch`, `parallel_calls=true`, `max_context_tokens=8192`: the value as YAML would read it."""
    key, _, value = text.partition("=")
    if not key:
        raise GateUsageError(f"--capability {text!r}: expected KEY=VALUE, as thinking=switch, or a file.")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        return key, value


def _block(name: str) -> Mapping[str, Any]:
    """Of a topology, of what `gate probe` prints (also with ``--json``), or the bare keys."""
    path = Path(name)
    if not _is_file(path):
        raise GateUsageError(
            f"--capability {name!r}: expected KEY=VALUE, as thinking=switch, or a file; there is no such file."
        )
    where = f"--capability {name}"
    document = mapping_in(read_text(path, "a capability"), where, _BLOCK)
    block = document.get("capability", document)
    if not isinstance(block, dict) or not all(isinstance(key, str) for key in block):
        raise GateUsageError(f"{where}: capability: {_BLOCK}.")
    read_model(Capability, block, where)
    return block


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, say
        return False


def read_baseline(path: Path | None) -> Mapping[str, Any] | None:
    """The `--json` report of an earlier run, to compare with."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise GateUsageError(f"--baseline {path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        raise GateUsageError(f"--baseline {path}: is not JSON; expected the --json report of an earlier run.") from None
    if not isinstance(document, dict) or not ({"steps", "measurements"} & set(document)):
        raise GateUsageError(f"--baseline {path}: expected the --json report of an earlier run.")
    return document
