"""What the loop needs of the world: one look at it, and one way to act on it."""

from __future__ import annotations

from typing import Protocol

from ..core.actions import Effect, Outcome
from ..core.records import Now, State
from ..core.seen import Seen


class World(Protocol):
    """Everything outside the journal. Both methods return within a second; long work is begun here and seen later."""

    def observe(self, state: State) -> Seen:
        """One observation, taken whole."""
        ...

    def act(self, action: Effect, state: State, seen: Seen) -> Outcome:
        """Find or do: the same action after a crash must not do it twice. Never raises; never decides."""
        ...

    def now(self) -> Now:
        """The clocks."""
        ...
