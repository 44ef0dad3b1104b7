"""Ids as reports show them and no list has them: `J20.model`, `P17.listed`, and the words for how a gate ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gates.invariants import RULES

MODEL: Final = "model"
OF_HEALTH: Final[Mapping[str, str]] = {
    "P17.listed": "whether /v1/models lists the name that was asked for, which the gate health looks at"
}
WORDS: Final[Mapping[str, str]] = {
    "silent": "the engine stopped answering in the middle of the run, or answered without end; what came before counts",
    "deadline": "the gate's own time was over before everything was looked at; what failed before fails",
    "access": "the endpoint wants a key, or refuses the one that was given",
    "gate": "the gate itself broke; what it last said is in its log",
    "generates": "a probe of the gate health, streamed or whole: a short question is answered with tokens and an end",
    "counters": "the gate health looks whether the engine's own counters moved with its probes",
}
"""Shown in the place of a check."""


def base_of(shown: str) -> str:
    """The check or rule that an id with a part belongs to: J20 of `J20.model`."""
    return shown.partition(".")[0]


def part_of(rule: str) -> str:
    """Under which id a report shows what a model can commit, where the rule's own id is taken."""
    return f"{rule}.{MODEL}"


def means(shown: str) -> str | None:
    """What an id with a part stands for, as the rest of a sentence; None where no report shows it."""
    if shown in OF_HEALTH:
        return OF_HEALTH[shown]
    rule, _, part = shown.partition(".")
    if part != MODEL or rule not in RULES:
        return None
    return (
        f"breaches of {rule} that a model can commit by itself (those that only a server can stand under {rule} alone)"
    )


def parts_of(base: str) -> tuple[str, ...]:
    """The ids with a part that reports show of a rule."""
    return tuple(shown for shown in (part_of(base), *OF_HEALTH) if base_of(shown) == base)


def shown_parts() -> frozenset[str]:
    """Every id with a part that the gates `smoke`, `acceptance` and `own-set` may show."""
    return frozenset(part_of(rule) for rule in RULES)
