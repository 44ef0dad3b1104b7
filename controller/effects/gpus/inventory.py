"""The two inventories behind one door: cards that are declared, and cards that NVML reads in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from ...config import Gpus as GpuSettings
from ...core.seen import Gpu
from ..clock import Clock
from .calls import Calls
from .card import Card, Sheet
from .changes import Changes
from .judge import judge
from .people import in_own_pid_namespace
from .reader import Reader

_ABSENT_POLL_S = 30.0  # where there is no driver one may be loaded, but not every other second
_REOPEN_S = 30.0  # a lost card comes back only to who opens NVML anew, and that is not free
_SELDOM_S = 60.0
_HURRY_S = 0.25  # between two readings while somebody waits for one
_PATIENCE_S = 10.0  # for the first answer: a driver without persistence mode takes that long on many cards
_GLANCE_S = 2.0
_NOT_YET = "NVML has not answered yet"


class DeclaredInventory:
    """`gpus: {kind: none, count: 4}`: a box without cards runs the emulator and CPU engines as if it had them."""

    def __init__(self, count: int) -> None:
        self._cards = tuple(Card(f"gpu-{n}", n) for n in range(count))

    def read(self, ours: Collection[int], held: Collection[str] = ()) -> tuple[Gpu, ...]:  # noqa: ARG002 - nobody is on a card that is not there
        return self.again()

    def again(self) -> tuple[Gpu, ...]:
        return tuple(card.gpu() for card in self._cards)

    def nudge(self) -> None:
        """Nothing is read."""

    def sheet(self) -> Sheet:
        return Sheet("declared", self._cards)

    def facts(self) -> dict[str, Any]:
        return {"inventory": "declared", "gpus": [card.id for card in self._cards]}

    def hardware(self, gpus: Collection[str]) -> dict[str, Any]:  # noqa: ARG002 - cards that are not there are of no kind
        return {}

    def close(self) -> None:
        """Nothing to let go."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the thread last made out; replaced whole, so that readers need no lock."""

    cards: tuple[Card, ...] = ()
    driver: str | None = None
    at_s: float | None = None  # boot time at which NVML last answered
    why: str = ""  # how it failed last
    absent: bool = False  # there is no NVML here, or no driver for it


class NvmlInventory:
    """NVML in a thread of its own: a call that fails or hangs stops nobody, and what it said last is not believed.

    Opening waits at most `start_s` for the first answer and never raises. While NVML fails, or says nothing for
    `stale_s`, every card is untrusted and says why; when it answers again they come back by themselves.
    `contained`: whether pids here may differ from the host's (default: as the kernel says).
    """

    def __init__(
        self, *, start_s: float = _PATIENCE_S, poll_s: float = 2.0, stale_s: float = 15.0, contained: bool | None = None
    ) -> None:
        self._poll_s, self._stale_s = poll_s, stale_s
        self._contained = in_own_pid_namespace() if contained is None else contained
        self._calls = Calls()
        self._reading = _Reading()
        self._ours: frozenset[int] = frozenset()
        self._held: frozenset[str] = frozenset()
        self._last_ours_s: dict[int, float] = {}  # pid → when it was last said to be ours
        self._changes = Changes()
        self._first, self._stop, self._wanted = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="nvml", daemon=True).start()
        self._first.wait(start_s)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reader = Reader(self._calls)
        opened_at_s = seldom_at_s = None
        while not self._stop.is_set():
            try:
                now_s = Clock.boot_s()
                if opened_at_s is None:
                    reader.open()
                    opened_at_s = seldom_at_s = now_s
                elif seldom_at_s is None or now_s - seldom_at_s > _SELDOM_S:
                    reader.read_seldom()
                    seldom_at_s = now_s
                cards = reader.read()
                if any(not card.trusted and not card.mig for card in cards) and now_s - opened_at_s > _REOPEN_S:
                    opened_at_s = None
                # Not the time after: an answer that took long says what was, not what is.
                self._reading = _Reading(cards, reader.driver, now_s, why="")
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread has to go on trying
                opened_at_s = None
                self._reading = self._failed(error)
            self._first.set()
            self._rest(_ABSENT_POLL_S if self._reading.absent else self._poll_s)

    def _rest(self, poll_s: float) -> None:
        """Until the next reading is due, or somebody waits for it."""
        self._stop.wait(min(_HURRY_S, poll_s))
        self._wanted.wait(max(0.0, poll_s - _HURRY_S))
        self._wanted.clear()

    def _failed(self, error: Exception) -> _Reading:
        nvml = self._calls.nvml
        absent = isinstance(error, nvml.NVMLError_LibraryNotFound | nvml.NVMLError_DriverNotLoaded)
        # Once there were cards the driver is missed, not absent.
        absent = absent and not self._reading.cards
        calls = ", ".join(getattr(error, "__notes__", ()))
        return replace(self._reading, why=f"NVML fails: {error}{f' ({calls})' if calls else ''}", absent=absent)

    # --- everybody else -----------------------------------------------------------------------------------------------

    @property
    def absent(self) -> bool:
        """No NVML, or no driver, on this box."""
        return self._reading.absent

    def read(self, ours: Collection[int], held: Collection[str] = ()) -> tuple[Gpu, ...]:
        """`ours`: pids of our attempts; `held`: cards that an attempt of ours holds, also while it ends."""
        now_s, listed = Clock.boot_s(), _listed(self._reading.cards)
        kept = {
            pid: at_s
            for pid, at_s in self._last_ours_s.items()
            if pid in listed or now_s - at_s < self._stale_s  # what is under way may list it yet
        }
        self._last_ours_s = kept | dict.fromkeys(ours, now_s)
        self._ours, self._held = frozenset(ours), frozenset(held)
        reading = self._reading
        sheet = self._sheet(reading)
        self._changes.tell(sheet, silent=not reading.why)
        return tuple(card.gpu() for card in sheet.cards)

    def nudge(self) -> None:
        """Somebody waits for what the cards say now: read them at once."""
        self._wanted.set()

    def again(self) -> tuple[Gpu, ...]:
        """The newest reading, with the pids and cards that were given last."""
        return tuple(card.gpu() for card in self.sheet().cards)

    def sheet(self) -> Sheet:
        """The same with everything that is known of each card."""
        return self._sheet(self._reading)

    def _sheet(self, reading: _Reading) -> Sheet:
        now_s = Clock.boot_s()
        cards = judge(reading.cards, self._pids(reading), self._held, contained=self._contained)
        age_s = None if reading.at_s is None else now_s - reading.at_s
        why = reading.why or self._silence(age_s)
        if why:
            cards = tuple(replace(card, trusted=False, why=card.why or why) for card in cards)
        return Sheet("none" if reading.absent else "nvml", cards, reading.driver, why, age_s)

    def _pids(self, reading: _Reading) -> frozenset[int]:
        """Ours, and what was ours when NVML was asked, or is still listed on a held card: NVML is slower than an end.

        Were those strangers for that while, a plan would be refused for somebody who is not there, and a lease would
        take its memory for theirs. A lease that is over is another matter: who is on the card then is named.
        """
        on_held = _listed(tuple(card for card in reading.cards if card.id in self._held))
        read_at_s = 0.0 if reading.at_s is None else reading.at_s
        recent = {pid for pid, at_s in self._last_ours_s.items() if pid in on_held or at_s >= read_at_s}
        return self._ours | recent

    def _silence(self, age_s: float | None) -> str:
        if age_s is None:
            return f"{_NOT_YET}{self._waits()}"
        return f"NVML has said nothing for {age_s:.0f} s{self._waits()}" if age_s > self._stale_s else ""

    def _waits(self) -> str:
        doing = self._calls.doing
        return f": it hangs in {doing}" if doing else ""

    def facts(self) -> dict[str, Any]:
        sheet = self.sheet()
        return {"inventory": sheet.source, "driver": sheet.driver, "gpus": [card.id for card in sheet.cards]}

    def hardware(self, gpus: Collection[str]) -> dict[str, Any]:
        """What a measurement on these cards was made on, as the ledger keeps it: their names in order, the driver."""
        reading = self._reading
        names = [card.name for card in reading.cards if card.id in gpus and card.name]
        return {
            **({"driver": reading.driver} if reading.driver else {}),
            **({"gpus": names} if names else {}),
        }

    def close(self) -> None:
        """The thread ends after the call that it is in, or with the process."""
        self._stop.set()
        self._wanted.set()


def _listed(cards: tuple[Card, ...]) -> set[int]:
    return {process.pid for card in cards for process in card.processes}


Inventory = DeclaredInventory | NvmlInventory


def open_inventory(settings: GpuSettings, *, in_a_hurry: bool = False) -> Inventory:
    """`auto`: NVML, or the declared cards where there is no NVML; a driver that fails or hangs is no reason for those.

    Never raises, and waits a bounded time: production has to be served while the cards cannot be seen. `in_a_hurry`:
    who goes on looking waits 2 s instead of 10, unless the first answer decides which inventory it is.
    """
    if settings.kind == "none":
        return DeclaredInventory(settings.count)
    decides = settings.kind == "auto" and settings.count > 0
    inventory = NvmlInventory(start_s=_GLANCE_S if in_a_hurry and not decides else _PATIENCE_S)
    if decides and inventory.absent:
        inventory.close()
        return DeclaredInventory(settings.count)
    return inventory
