"""What a person can get wrong when asking for a judgement. A gate's own findings are verdicts, never exceptions."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class GateUsageError(Exception):
    """One clear sentence: what is wrong, where, what was expected, what to do."""

    exit_code = 2


class UnknownGateError(GateUsageError):
    """A gate, profile or file that does not exist."""

    exit_code = 3


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` when something known is close to `word`, else what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}"
