"""All checks, in the order in which they are asked: deterministic and cheap ones first, those that may hurt last."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gates import parts
from gates.errors import GateUsageError, UnknownGateError, nearest
from gates.invariants import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gates.acceptance.check import Check

GROUPS = {
    "P": "protocol",
    "J": "tool calls",
    "F": "result feedback and several turns",
    "T": "thinking",
    "O": "output sanity",
    "A": "accuracy",
}


@cache
def checks() -> tuple[Check, ...]:
    """Every check of every group. Imported when asked for: most commands need none."""
    from gates.acceptance import groups

    return groups.ALL


def find(check_id: str) -> Check:
    """Raises `GateUsageError`."""
    known = {check.id: check for check in checks()}
    if check_id in known:
        return known[check_id]
    shown = parts.means(check_id)
    if shown is not None:
        base = parts.base_of(check_id)
        instead = f"the check is {base}" if base in known else _RULE.format(base)
        raise GateUsageError(f"{check_id} cannot be chosen: so a report shows {shown}; {instead}.")
    if check_id in RULES:
        raise GateUsageError(f"{check_id} cannot be chosen: {_RULE.format(check_id)}.")
    raise UnknownGateError(f"There is no check {check_id!r}; {nearest(check_id, known)}")


_RULE = "{} is a rule for every answer, judged whatever is asked; choose a check (`gate list`)"


def select(words: Iterable[str]) -> frozenset[str]:
    """Check ids and group letters as ids. Raises `GateUsageError`."""
    chosen: set[str] = set()
    for word in words:
        if word in GROUPS:
            chosen |= {check.id for check in checks() if check.group == word}
        else:
            chosen.add(find(word).id)
    return frozenset(chosen)
