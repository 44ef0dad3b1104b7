"""Sleep on cards that a C library makes up: their memory follows what the engines hold, and their locks are real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from nvml_kit import Cards, build_double, card_lines, uuid_of

from controller.demo.stage import Stage

pytestmark = pytest.mark.timeout(300)

AWAKE_MIB = 20_000
USES = ("--vram-mib", str(AWAKE_MIB), "--start-s", "2")  # time for the cards to show what is taken
WHOLE = f"{{a: {{gpus: [{uuid_of(0)}, {uuid_of(1)}]}}}}"


class Played:
    """Shows on both cards what the engines of the stage say that they hold, until it is closed."""

    def __init__(self, cards: Cards) -> None:
        self.cards = cards
        self.stage: Stage | None = None
        self.show({})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def show(self, held_mib: dict[str, int]) -> None:
        used_mib = 4 + sum(held_mib.values())
        self.cards.show(*card_lines(0, used_mib), *card_lines(1, used_mib))

    def _play(self) -> None:
        while not self._over.wait(0.1):
            if self.stage is not None:
                with suppress(httpx.HTTPError, OSError):
                    self.show(dict(self._holders(self.stage.get("/v1/status"))))

    def _holders(self, status) -> Iterator[tuple[str, int]]:
        shown = [status[name] for name in ("live", "previous", "rollout") if status[name]]
        for attempt in (a for place in shown for a in place["attempts"] if a["state"] != "stopped"):
            if attempt["start_s"] is None:  # memory is taken before anybody is answered
                yield attempt["id"], AWAKE_MIB
                continue
            with suppress(httpx.HTTPError):
                said = httpx.get(f"http://127.0.0.1:{attempt['port']}/server_info", timeout=2, trust_env=False)
                yield attempt["id"], int(said.json()["vram_mib"])

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    played = Played(Cards(build_double(tmp_path), tmp_path / "cards"))
    settings = {
        "gpus": {"kind": "nvml"},
        "bake": {"seconds": 1, "interval_s": 0.5},
        "lock_dir": str(tmp_path),
        "sleep": {"deadline_s": 5},
    }
    try:
        with Stage(tmp_path / "stage", settings, played.cards.environment) as begun:
            played.stage = begun
            yield begun
    finally:
        played.close()


@pytest.mark.slow
def test_cards_and_their_locks_are_lent_when_the_memory_shows_it(stage, make, profile):
    def propose(name: str, *flags: str):
        text = make(name, *USES, *flags, instances=WHOLE)
        ended = stage.finish(stage.propose(text, f"{name}.yaml", gates=profile, strategy="any"), 120)
        assert ended["phase"] == "promoted", ended["why"]
        return ended

    def back() -> str:
        ended = stage.finish(stage.post("/v1/rollback")["rollout"]["id"], 120)
        assert ended["phase"] == "rolled_back", ended["why"]
        return ended["why"]

    propose("one")
    pid = stage.get("/v1/status")["live"]["attempts"][0]["pid"]
    propose("keeps", "--fault", "sleeps-but-keeps-memory")
    assert stage.get("/v1/status")["previous"]["attempts"][0]["state"] == "asleep"
    # What says that it sleeps and keeps its memory is stopped, and who is woken after it shows its memory again.
    assert "(woken)" in back()
    events = [event["why"] for event in stage.get("/v1/events?limit=500")["events"]]
    assert any("it was put to sleep 5 s ago" in why and "MiB in use, expected" in why for why in events)
    status = stage.get("/v1/status")
    assert [a["pid"] for a in status["live"]["attempts"]] == [pid]
    assert status["previous"]["attempts"] == []
    assert status["gpus"][0]["memory_used_mib"] >= AWAKE_MIB
