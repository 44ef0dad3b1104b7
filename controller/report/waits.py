"""What those who do not begin wait for while their window is open: afterwards nobody could tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

_NUMBERS = re.compile(r"\d[\d.,]*")


class Waits:
    """Each rollout's most frequent reason so far, in its newest wording: the numbers in it change all the time.

    It is kept in memory alone: a daemon that begins anew in the middle of a night knows what it has seen itself.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Counter[str]]] = {}
        self._words: dict[tuple[str, str], str] = {}

    def note(self, night: str, rollout: str, sentence: str) -> None:
        reason = _NUMBERS.sub("#", sentence)
        self._seen.setdefault(night, {}).setdefault(rollout, Counter())[reason] += 1
        self._words[rollout, reason] = sentence

    def of(self, night: str) -> Mapping[str, str]:
        """By rollout id."""
        return {
            rollout: self._words[rollout, reasons.most_common(1)[0][0]]
            for rollout, reasons in self._seen.get(night, {}).items()
        }
