"""How two configurations differ, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gates.ledger.rows import GPUS, Configuration, canonical, gpus_in_words

ABSENT: Final = "–"
_MAX_SHOWN: Final = 200
_FACTS: Final = "engine facts"
_CALLED: Final = {GPUS: "cards", "gpu_uuids": "card ids", "limit": "engine's limit", "": "words of the command"}


@dataclass(frozen=True)
class Difference:
    """One field. `ABSENT` where a side does not have it or does not say."""

    field: str
    a: str
    b: str

    @property
    def name(self) -> str:
        """The field as people call it."""
        name = self.field.removeprefix("hardware.").removeprefix(f"{_FACTS}.").removeprefix("flags.")
        return _CALLED.get(name, name)

    @property
    def words(self) -> str:
        return f"{self.name}: {self.a} → {self.b}"


def configuration_differences(a: Configuration, b: Configuration) -> tuple[Difference, ...]:
    """Everything but the workload."""
    return differences(_plain(a), _plain(b))


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Of plain data, nested mappings by dotted names, in the order in which they were written."""
    one, other = dict(_flattened(a)), dict(_flattened(b))
    return tuple(
        Difference(field, _shown(one.get(field)), _shown(other.get(field)))
        for field in {**one, **other}
        if canonical(one.get(field)) != canonical(other.get(field))
    )


def flags_by_name(flags: Sequence[str]) -> dict[str, str]:
    """`--tp-size 2 --enable-x --a=b` as name → value; a flag that is given twice keeps both values."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in flags:
        if word.startswith("-") and not re.fullmatch(r"-\d[\d.]*", word):
            name, equals, value = word.partition("=")
            found.setdefault(name, []).extend([value] if equals else [])
        else:
            found.setdefault(name, []).append(word)
    return {key: " ".join(values) or "on" for key, values in found.items()}


def _plain(c: Configuration) -> dict[str, Any]:
    hardware = {key: gpus_in_words(c.hardware) if key == GPUS else value for key, value in c.hardware.items()}
    named = {
        "topology": c.topology,
        "release": c.release or c.digest,
        "engine": c.engine,
        "engine version": c.engine_version,
        "model": c.model,
        "KV format": c.kv_format,
    }
    return {
        **{key: value for key, value in named.items() if value},
        "flags": flags_by_name(c.flags),
        "hardware": hardware,
        _FACTS: dict(c.facts),
    }


def _flattened(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    text = ABSENT if value is None else value if isinstance(value, str) else canonical(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
