"""Options of `gate run` as people type them; shared by `python -m gates run` and `cutover gate run`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gates.errors import GateUsageError


def capability_pair(text: str) -> tuple[str, Any]:
    """`thinking=switch`, `parallel_calls=true`, `max_context_tokens=8192`: the value as YAML would read it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise GateUsageError(f"--capability {text!r}: expected KEY=VALUE, as thinking=switch.")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        return key, value


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
