"""How an engine is put to sleep, woken, and asked which of the two it is: data that whoever does it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A POST to the engine; `body` None sends none."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Sleeping:
    """The calls in their order. Any answer but 2xx means that it did not happen."""

    sleep: tuple[Call, ...]
    wake: tuple[Call, ...]
    is_asleep: tuple[str, str] | None = None
    """GET path and the key of the boolean in its JSON; None where the engine cannot be asked."""


VLLM = Sleeping(
    # `wait` lets what still runs end; the default aborts it (vllm/entrypoints/serve/dev/sleep/api_router.py, 0.32.0).
    sleep=(Call("/sleep?level=1&mode=wait"),),
    wake=(Call("/wake_up"),),
    is_asleep=("/is_sleeping", "is_sleeping"),
)
SGLANG = Sleeping(
    # Its scheduler dies of an assertion when a request runs while the memory is released, so it is paused before
    # (release_memory_occupation in managers/scheduler_components/weight_updater.py, 0.5.23).
    sleep=(Call("/pause_generation", {"mode": "abort"}), Call("/release_memory_occupation", {})),
    wake=(Call("/resume_memory_occupation", {}), Call("/continue_generation", {})),
)
EMULATED_SGLANG = Sleeping(
    sleep=(Call("/release_memory_occupation", {}),), wake=(Call("/resume_memory_occupation", {}),)
)
