"""A journal loses its log, then is damaged, while users are served: what runs goes on, and so does who decides."""

from __future__ import annotations

import json
import signal
import time

import pytest

from controller.cli import main
from controller.store.condition import look


def lose_the_log(stage):
    """Removed under the daemon, put back by it, and nothing lost when it is killed then."""
    log = stage.config.journal.with_name("journal.sqlite-wal")
    log.unlink()
    stage.post("/v1/freeze", {"why": "written to a file that has no name"})
    assert stage.until(log.exists, 20)
    stage.stop_daemon(signal.SIGKILL)
    stage.start_daemon()
    assert stage.get("/v1/status")["freeze"]["why"] == "written to a file that has no name"
    stage.post("/v1/unfreeze")


@pytest.mark.slow
def test_a_damaged_journal_is_made_anew_of_what_runs(stage, profile, make, clients, capsys):
    """Users, pids and the warm way back survive a journal that does not."""
    for name in ("first", "second"):
        rollout = stage.propose(make(name, extra=f"gates: {profile}\n"), name)
        assert stage.finish(rollout)["phase"] == "promoted"
    before = stage.get("/v1/status")
    pids = {a["id"]: a["pid"] for seat in ("live", "previous") for a in before[seat]["attempts"]}
    assert len(pids) == 2
    load = clients(streams=4)
    lose_the_log(stage)

    def cutover(*words):
        capsys.readouterr()
        code = main(["--config", str(stage.config_file), *words])
        return code, capsys.readouterr()

    kept = str(stage.directory / "kept.sqlite")
    assert cutover("backup", kept)[0] == 0
    assert cutover("restore", kept)[0] == 5, "a daemon runs"
    stage.stop_daemon()

    code, said = cutover("doctor", "--rebuild")
    assert code == 5, "a sound journal is not thrown away"
    assert "nothing to rebuild" in said.err

    journal = stage.config.journal
    journal.write_bytes(journal.read_bytes()[:6000])
    code, said = cutover("doctor", "--json")
    found = next(c for c in json.loads(said.out)["checks"] if c["name"] == "journal")
    assert (code, found["ok"]) == (1, False)
    assert "is truncated: 6000 of" in found["sentence"]
    assert "--rebuild" in found["remedy"]

    assert cutover("restore", kept)[0] == 0
    assert look(journal).state.live.release == before["live"]["release"]
    journal.write_bytes(journal.read_bytes()[:6000])
    begun_s = time.monotonic()
    code, said = cutover("doctor", "--rebuild", "--json")
    assert code == 0, said
    assert time.monotonic() - begun_s < 10, "promised"
    told = json.loads(said.out)
    assert (told["live"], told["previous"]) == (before["live"]["release"], before["previous"]["release"])
    assert set(told["kept"]) == set(pids)
    assert look(journal).usable
    assert not look(type(journal)(told["old"])).usable, "the damaged one is kept"

    stage.start_daemon()
    assert stage.until(lambda: stage.get("/v1/status")["front_door"]["slots"], 20)
    after = stage.get("/v1/status")
    assert {a["id"]: a["pid"] for s in ("live", "previous") for a in after[s]["attempts"]} == pids
    assert after["front_door"]["pid"] == before["front_door"]["pid"]
    back = stage.post("/v1/rollback", {})["rollout"]["id"]
    assert stage.finish(back)["phase"] == "rolled_back"
    assert stage.get("/v1/status")["live"]["release"] == before["previous"]["release"]
    sums = load.stop()
    assert sums["sent"] > 0
    assert not sums.get("failed"), sums
