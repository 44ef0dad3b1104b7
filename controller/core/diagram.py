"""Draws the table of phases: `python -m controller.core.diagram > …` writes what docs/phases.md shows."""

from __future__ import annotations

from .records import TERMINAL, Phase
from .table import MOVES


def mermaid() -> str:
    """The state diagram in Mermaid's language, one arrow per pair of phases, events joined."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for phase, moves in MOVES.items():
        by_target: dict[Phase, list[str]] = {}
        for event, target in moves.items():
            by_target.setdefault(target, []).append(event.value)
        lines += [f"    {phase} --> {target}: {' | '.join(events)}" for target, events in by_target.items()]
    lines += [f"    {phase} --> [*]" for phase in Phase if phase in TERMINAL]
    return "\n".join(lines)


if __name__ == "__main__":
    print(mermaid())  # noqa: T201 - that is its job
