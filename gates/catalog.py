"""The gates that come with the product: what each catches, its settings, and its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from gates.errors import UnknownGateError, nearest

if TYPE_CHECKING:
    from gates.contract import Verdict
    from gates.strict import StrictModel
    from gates.trial import Trial


@dataclass(frozen=True)
class Gate:
    """One built-in judge. Its module is imported when it is needed: a gate's process starts for one of them."""

    name: str
    summary: str
    catches: str
    module: str
    settings_class: str

    def settings(self) -> type[StrictModel]:
        return cast("type[StrictModel]", getattr(import_module(self.module), self.settings_class))

    def run(self, trial: Trial) -> Verdict:
        judge = cast("Callable[[Trial], Verdict]", import_module(self.module).run)
        return judge(trial)


_ALL: Final = (
    Gate(
        name="health",
        summary="tokens come out, streamed and whole, from the model that was asked",
        catches=(
            "A server that answers 200 on its health page and generates nothing; another model on the port; a stream "
            "that is cut; an engine whose own counters stand still."
        ),
        module="gates.health",
        settings_class="HealthSettings",
    ),
    Gate(
        name="smoke",
        summary="acceptance in its smallest tier: about twenty checks and 85 requests; ends at the first block",
        catches="What is plainly broken, within a minute and before anything else touches the candidate.",
        module="gates.acceptance.gate",
        settings_class="SmokeSettings",
    ),
    Gate(
        name="acceptance",
        summary="tool calls, result feedback, thinking, protocol and output sanity, in tiers",
        catches=(
            "What users would have found in production: wrong or cut arguments, lost calls and results, leaked "
            "thinking, broken streams, garbage under load. `list` names every check."
        ),
        module="gates.acceptance.gate",
        settings_class="AcceptanceSettings",
    ),
    Gate(
        name="own-set",
        summary="your own requests are answered as your file expects, streamed and whole",
        catches=(
            "What only your own work shows: the tool that your agent needs, the wording that your prompt insists on, "
            "the JSON that your code parses. One JSON object a line: id, messages, tools, expect."
        ),
        module="gates.own_gate",
        settings_class="OwnSetSettings",
    ),
    Gate(
        name="throughput",
        summary="fast enough for one user and for several, and not slower than what was live",
        catches=(
            "A topology that is right and slow, or fast for one user and not for sixteen: floors per concurrency from "
            "the profile, a cliff in the candidate's own ladder, and a non-inferiority test against the baseline's "
            "rounds. Without usage, with foreign load, a warm cache or a client that was itself too slow the verdict "
            "is inconclusive, never a number."
        ),
        module="gates.throughput",
        settings_class="ThroughputSettings",
    ),
)

BUILT_IN: Final[Mapping[str, Gate]] = {gate.name: gate for gate in _ALL}


def find(name: str) -> Gate:
    """Raises `UnknownGateError`."""
    gate = BUILT_IN.get(name)
    if gate is None:
        raise UnknownGateError(f"There is no gate {name!r}; {nearest(name, BUILT_IN)}")
    return gate
