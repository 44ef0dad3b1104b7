"""What a run is asked to measure, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gates.throughput.records import Run

if TYPE_CHECKING:
    from gates.capability import Capability
    from gates.endpoint import Endpoint
    from gates.throughput.cells import CellRun


@dataclass(frozen=True)
class Subject:
    """What is measured. `flags`: the engine's native ones; so many `instances` of it stand behind the endpoint.

    `metrics_urls`: a page for each of its engine servers, together they count everything; none: the endpoint's own.
    """

    endpoint: Endpoint
    model: str
    capability: Capability
    metrics_urls: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    instances: int = 1
    engine: str | None = None
    engine_version: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the release, for the record: `topology`, `release`, `digest`."""


@dataclass(frozen=True)
class Progress:
    """Rounds of cells done of how many, and how long the rest will take, where that can be told."""

    done: int
    of: int
    sentence: str
    left_s: float | None


@dataclass(frozen=True)
class Measured:
    """The record of the run, the cells with their evidence, and what people should know about it besides."""

    run: Run
    cells: Sequence[CellRun]
    hardware: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = field(default_factory=list)
    interrupted: str | None = None
    """How far it came where a person ended it."""


Listen = Callable[[Progress], None]
Enough = Callable[[Run, int], str | None]
"""Called with everything so far after each number of rounds that the settings name, and after a round in which
requests failed: why to stop, or None."""
