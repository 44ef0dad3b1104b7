"""What is played: a list of acts, each with the topology it proposes and the outcome that a sane controller reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Act:
    """One proposal or rollback. `topology` is YAML text; empty means a manual rollback."""

    title: str
    expected: str  # phase in which it must end
    topology: str = ""
    source: str = ""
    gates: str = "demo"
    options: Mapping[str, Any] = field(default_factory=dict)
    moral: str = ""


def shipped(name: str) -> str:
    return (resources.files("launch") / "topologies" / name).read_text()


def emulated() -> tuple[Act, ...]:
    """A TP2 is live on two of four cards; a better, a leaking and a degrading candidate follow; then back by hand."""
    return (
        Act(
            "a TP2 goes live on two of the four cards",
            "promoted",
            shipped("demo-a.yaml"),
            "demo-a.yaml",
            options={"bake_s": 3},
        ),
        Act(
            "a better TP2 is proposed for the two free cards",
            "promoted",
            shipped("demo-b.yaml"),
            "demo-b.yaml",
            options={"bake_s": 6},
            moral="the release before it stays warm",
        ),
        Act(
            "one that leaks its thinking is proposed",
            "rejected",
            shipped("demo-c.yaml"),
            "demo-c.yaml",
            moral="users never saw it; the warm release gave way for it, as the plan said",
        ),
        Act(
            "one that passes its gates, and degrades under users",
            "rolled_back",
            shipped("demo-d.yaml"),
            "demo-d.yaml",
            options={"bake_s": 20},
            moral="rolled back by itself onto the warm release",
        ),
        Act(
            "a manual rollback to the release before",
            "rolled_back",
            moral="its cards had been given away: it was started again, users noticed nothing",
        ),
    )
