"""What the ledger holds: rows. One row is one cell of one run, with everything that makes its numbers what they are."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gates.throughput.records import Cell, Figure, Run

TTFT_COLD: Final = "ttft_cold_s"
TTFT_WARM: Final = "ttft_warm_s"
END_TO_END: Final = "end_to_end_tok_per_s_p50"
TOKENS_PER_CHUNK: Final = "tokens_per_chunk"
GPUS: Final = "gpus"
DRIVER: Final = "driver"
HOST: Final = "host"
_ENGINE_KEYS: Final = ("name", "version", "release", "digest", "topology", "flags", "kv_format")


class Source(StrEnum):
    """Who measured. The two are never in one table, and a comparison mixes them only when it is told to."""

    OURS = "ours"
    REFERENCE = "reference"
    """Typed in from elsewhere."""


class Kind(StrEnum):
    """What a run was for."""

    CELL = "cell"
    RESTART = "restart"
    """One of several starts of the same engine, measured to learn how far starts lie apart."""


@dataclass(frozen=True)
class Configuration:
    """All that makes a number what it is, beside its workload. Empty text: nobody knew.

    `hardware` is plain data; the keys that the ledger itself knows are `gpus` (a list of names), `driver` and `host`.
    `facts`: whatever else was known of the engine.
    """

    topology: str = ""
    release: str = ""
    """`name@digest8`."""
    digest: str = ""
    engine: str = ""
    engine_version: str = ""
    model: str = ""
    kv_format: str = ""
    flags: tuple[str, ...] = ()
    hardware: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def box(self) -> dict[str, Any]:
        """What tells boxes apart: `gpus`, `driver` and `host`, as far as they are known.

        Two cards of one kind in one host are the same here, whatever their serial numbers.
        """
        return {key: self.hardware[key] for key in (GPUS, DRIVER, HOST) if self.hardware.get(key)}

    @property
    def identity(self) -> str:
        """Equal for configurations whose rows belong into one table."""
        return canonical(
            [self.topology, self.release, self.digest, self.engine, self.engine_version, self.model, self.kv_format,
             self.flags, self.box, self.endpoint]
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        """Where it was measured, for what has no name of its own: two engines of one model are not one. Else empty."""
        return "" if self.release or self.topology else _text(self.facts.get("endpoint"))

    @property
    def name(self) -> str:
        """How people call it, and what selections take."""
        return self.release or self.topology or self.model or "unnamed"


@dataclass(frozen=True)
class Retraction:
    """Why a row does not count any more. `at`: ISO 8601, UTC."""

    reason: str
    who: str
    at: str


@dataclass(frozen=True)
class Row:
    """One measurement. `definition` is the whole workload; `start` tells starts of the engine apart; `origin` is where
    a reference was taken from. Times are ISO 8601, UTC.
    """

    id: int
    run: str
    source: Source
    kind: Kind
    started_at: str
    recorded_at: str
    recorded_by: str
    configuration: Configuration
    definition: Mapping[str, Any]
    cell: Cell
    start: str = ""
    origin: str = ""
    note: str = ""
    duration_s: float = 0.0
    retracted: Retraction | None = None

    @property
    def counts(self) -> bool:
        """May something be concluded from it?"""
        return self.retracted is None and self.cell.problem is None

    def figure(self, name: str) -> Figure:
        """A number by name: of a metric the median of its rounds (`n` counts rounds), else the figure as kept."""
        rounds = self.cell.rounds.get(name)
        if rounds:
            return Figure(statistics.median(rounds), len(rounds))
        return self.cell.figures.get(name, Figure(None, 0))

    @property
    def rounds(self) -> int:
        """The most rounds that any metric has."""
        return max((len(values) for values in self.cell.rounds.values()), default=0)


def configuration_of(run: Run, hardware: Mapping[str, Any]) -> Configuration:
    """What `run.engine` says, by the names that the ledger knows; the rest of it is kept as `facts`."""
    known = run.engine
    release = _text(known.get("release"))
    topology, at, digest = release.partition("@")
    flags = known.get("flags") or ()
    return Configuration(
        topology=_text(known.get("topology")) or (topology if at else ""),
        release=release,
        digest=_text(known.get("digest")) or (digest if at else release),
        engine=_text(known.get("name")),
        engine_version=_text(known.get("version")),
        model=run.model,
        kv_format=_text(known.get("kv_format")),
        flags=(flags,) if isinstance(flags, str) else tuple(str(flag) for flag in flags),
        hardware=dict(hardware),
        facts={key: value for key, value in known.items() if key not in _ENGINE_KEYS},
    )


def canonical(data: Any) -> str:
    """Plain data as one text: equal data, equal text. Raises `ValueError` for what JSON cannot carry."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def gpus_in_words(hardware: Mapping[str, Any]) -> str:
    """`4× V100-SXM2-32GB`; empty when nobody knew."""
    names = hardware.get(GPUS)
    if isinstance(names, str) or not isinstance(names, Sequence):
        return _text(names)
    counted = {str(name): [str(other) for other in names].count(str(name)) for name in names}
    return ", ".join(f"{count}× {name}" if count > 1 else name for name, count in counted.items())


def _text(value: Any) -> str:
    return "" if value is None else str(value)
