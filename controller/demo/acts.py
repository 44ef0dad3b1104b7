"""What is played: a list of acts, each with the topology it proposes and the outcome that a sane controller reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ..config import NIGHTLY


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


HALVES, WHOLE = "instances: {a: {gpus: 2}, b: {gpus: 2}}", "instances: {a: {gpus: 4}}"


def without_free_cards(strategy: str) -> tuple[Act, ...]:
    """The same candidates on a box whose cards all serve: as TP2×2 they roll, as TP4 they are swapped."""
    rolls = strategy == "rolling"
    instances = HALVES if rolls else WHOLE
    form = "TP2×2" if rolls else "TP4"

    def act(title: str, expected: str, letter: str, bake_s: float, moral: str = "") -> Act:
        text = shipped(f"demo-{letter}.yaml").replace("instances: {a: {gpus: 2}}", instances)
        options = {"bake_s": bake_s, "strategy": "any" if letter == "a" else strategy}
        return Act(title, expected, text, f"demo-{letter}.yaml", options=options, moral=moral)

    return (
        act(f"a {form} goes live on all four cards", "promoted", "a", 3),
        act(
            f"a better {form} is proposed: there is no free card",
            "promoted",
            "b",
            6,
            "one half kept serving while the other was replaced" if rolls else "requests waited, none was lost",
        ),
        act(
            "one that leaks its thinking is proposed",
            "rejected",
            "c",
            6,
            "users never saw it, and what made room for it came back first",
        ),
        act(
            "one that passes its gates, and degrades under users",
            "rolled_back",
            "d",
            20,
            "rolled back by itself, by the way it had come",
        ),
        Act("a manual rollback to the release before", "rolled_back", moral="the same way once more"),
    )


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
            moral="its cards had been given away: it came back onto them, users noticed nothing",
        ),
    )


def by_night() -> tuple[Act, ...]:
    """A TP2 is live; three candidates wait for the window, of which one leaks, one is slow and one is better."""
    night = {"bake_s": 6, "window": NIGHTLY}
    slow = shipped("demo-b.yaml").replace("name: demo-b", "name: demo-slow").replace("--itl-ms, 10", "--itl-ms, 40")
    return (
        Act("a TP2 is live, by day", "promoted", shipped("demo-a.yaml"), "demo-a.yaml", options={"bake_s": 3}),
        Act(
            "the first of the night leaks its thinking",
            "rejected",
            shipped("demo-c.yaml"),
            "demo-c.yaml",
            options=night,
            moral="the next one gets its turn",
        ),
        Act(
            "the second is slower than live",
            "rejected",
            slow,
            "demo-slow.yaml",
            options=night,
            moral="it writes as well as live, and a third as fast",
        ),
        Act("the third is better", "promoted", shipped("demo-b.yaml"), "demo-b.yaml", options=night),
    )
