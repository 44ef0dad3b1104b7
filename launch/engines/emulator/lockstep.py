"""Engine steps that all streams share: with `--lockstep` every running stream's chunk is due in the same instant."""


class Lockstep:
    """Times of steps, nanoseconds. The first stream that asks for the step after this one decides when it is."""

    def __init__(self) -> None:
        self._next_ns = 0

    def first(self, due_ns: int, gap_ns: int, *, alone: bool) -> int:
        """When a stream whose prefill ends at `due_ns` has its first token: with the next step from then on."""
        if alone:
            self._next_ns = due_ns
        steps = max(0, -(-(due_ns - self._next_ns) // gap_ns)) if gap_ns else 0
        return self._next_ns + steps * gap_ns

    def after(self, due_ns: int, gap_ns: int) -> int:
        """The step after the one at `due_ns`."""
        if due_ns >= self._next_ns:
            self._next_ns = due_ns + gap_ns
        # Where the engine is late, somebody who has just begun may be further on: nobody skips a step for that.
        return min(self._next_ns, due_ns + gap_ns)
