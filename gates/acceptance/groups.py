"""The groups of checks, in the order in which a run asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance import calls, load, parallel, structured

if TYPE_CHECKING:
    from gates.acceptance.check import Check

ALL: Final[tuple[Check, ...]] = (
    *calls.CHECKS,
    *parallel.CHECKS,
    *structured.CHECKS,
    *load.CHECKS,
)
