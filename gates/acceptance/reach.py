"""Which checks a gate can ask: its tier, what it leaves out, and what was wanted that it would never ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gates import catalog
from gates.acceptance import register
from gates.acceptance.check import Tier
from gates.strict import read_model

if TYPE_CHECKING:
    from gates.acceptance.gate import AcceptanceSettings


@dataclass(frozen=True)
class Reach:
    """How far one gate goes. `gate` is its name; `tier` the highest that it asks; `without` ids that it leaves out."""

    gate: str
    tier: Tier
    without: frozenset[str] = frozenset()

    def of(self, words: Iterable[str]) -> frozenset[str]:
        """The ids that it asks when only these checks and groups are wanted; without any all of its tier."""
        wanted = register.select(words)
        return frozenset(
            check.id
            for check in register.checks()
            if (not wanted or check.id in wanted)
            and check.id not in self.without
            and check.tier.order <= self.tier.order
        )


def reach_of(gate: str, settings: AcceptanceSettings) -> Reach:
    """Raises `GateUsageError` for a check that there is not."""
    return Reach(gate, Tier(settings.tier), register.select(settings.without))


def reach_as_written(gate: str, settings: Mapping[str, Any]) -> Reach:
    """The same of the gate `smoke` or `acceptance` with settings as a profile has them."""
    read: Any = read_model(catalog.find(gate).settings(), settings, f"settings of gate {gate}")
    return reach_of(gate, read)


@dataclass(frozen=True)
class OutOfReach:
    """A check or group that no gate asks. `needs`: the lowest tier that has it; None where only `without` is why."""

    word: str
    needs: Tier | None
    why: str


def out_of_reach(words: Iterable[str], gates: Sequence[Reach]) -> OutOfReach | None:
    """The first of `words` of which none of `gates`, of which there is one, asks anything."""
    for word in words:
        if any(gate.of([word]) for gate in gates):
            continue
        tiers = [check.tier for check in register.checks() if check.id in register.select([word])]
        needs, goes = min(tiers, key=lambda tier: tier.order), max((g.tier for g in gates), key=lambda tier: tier.order)
        what = f"group {word} begins in" if word in register.GROUPS else f"{word} is a check of"
        if needs.order > goes.order:
            return OutOfReach(word, needs, f"{what} the tier {needs}")
        left_out = " and ".join(gate.gate for gate in gates if gate.tier.order >= needs.order)
        return OutOfReach(word, None, f"{word} is left out by `without` of {left_out}")
    return None
