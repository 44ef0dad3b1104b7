"""Shapes of engines that misbehave as processes. The programs lie in `tests/launch/zoo`; each says what it does."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / "launch" / "zoo"

TERM, KILL = -15, -9  # how a program ended, as `subprocess` tells it
PATIENT_S = 60.0  # of grace: it ends when it is told to, so nobody waits
SHORT_S = 0.4


@dataclass(frozen=True)
class Animal:
    """`ends`: how its program may have ended when it was stopped. `family`: how many processes live when it is ready.

    `victim`: the file with the pid to kill where something dies by itself; else it is the program, and `dies` says what
    is on record then.
    """

    name: str
    words: tuple[str, ...] = ()
    ready: str = "ready*"
    files: int = 1
    family: int = 1
    ends: frozenset[int] = frozenset({TERM})
    grace_s: float = PATIENT_S
    victim: str = ""
    dies: tuple[str, int] = ("killed", KILL)
    listens: bool = False
    bare: bool = True  # needs the standard library only

    @property
    def command(self) -> str:
        """One line of bash."""
        words = [sys.executable, *(["-S", "-I"] if self.bare else []), str(PROGRAMS / f"{self.name}.py")]
        return f"exec {shlex.join(words)} {' '.join(self.words)}".rstrip()


ANIMALS = (
    Animal("ignores_term", ends=frozenset({KILL}), grace_s=SHORT_S),
    Animal("daemonises", ready="grandchild", family=2, ends=frozenset({TERM, KILL}), grace_s=SHORT_S),
    Animal("engine_core", ready="*.pid", files=4, family=4, ends=frozenset({TERM})),
    Animal("retitles", ready="retitled.*", files=2, family=2, bare=False),
    Animal("forks_on", words=("0.02",), ends=frozenset({KILL}), grace_s=SHORT_S),
    Animal("headless", ends=frozenset({TERM, KILL}), grace_s=SHORT_S),
    Animal("listens", words=('"$PORT"', "fork"), ready="port", family=2, listens=True),
    Animal("chatty", words=("4", "stay")),
    Animal("moves_away", files=2, family=2),
    Animal("closes_all", files=2, family=2),
    Animal("hides", words=('"$PORT"',), listens=True),
    Animal("zombie"),
    Animal("dead_inside", words=('"$PORT"',), family=2, listens=True),
    Animal("exits_zero", ready="victim", family=3, ends=frozenset({0, KILL}), grace_s=SHORT_S, victim="victim",
           dies=("exited", 0)),
    Animal("spawns", family=3),
    Animal("deleted_home", family=2),
    Animal("hands_over", ends=frozenset({0, KILL}), grace_s=SHORT_S),
    Animal("respawns", family=2, ends=frozenset({KILL}), grace_s=SHORT_S),
)  # fmt: skip

HIDDEN = {
    "hides": "it has left its directory and closed its log, so that with its shim dead no mark of it is left; a start "
    "on its port is refused and names it",
}
"""Cells of `shim dead` that cannot be, and why."""


def chosen() -> tuple[Animal, ...]:
    """All, or those that the environment names: a planted bug needs one or two to be seen."""
    names = os.environ.get("CUTOVER_ZOO", "").split()
    unknown = set(names) - {animal.name for animal in ANIMALS}
    assert not unknown, f"no such animal: {unknown}"
    return tuple(animal for animal in ANIMALS if not names or animal.name in names)
