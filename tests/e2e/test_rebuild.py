"""A journal is damaged while users are served: it is made anew of what runs, and the next daemon adopts that."""

from __future__ import annotations

import json
import time

from controller.cli import main
from controller.store.condition import look


def test_a_damaged_journal_is_made_anew_of_what_runs(stage, profile, make, clients, capsys):
    """Users, pids and the warm way back survive a journal that does not."""
    for name in ("first", "second"):
        rollout = stage.propose(make(name, extra=f"gates: {profile}\n"), name)
        assert stage.finish(rollout)["phase"] == "promoted"
    before = stage.get("/v1/status")
    pids = {a["id"]: a["pid"] for seat in ("live", "previous") for a in before[seat]["attempts"]}
    assert len(pids) == 2
    load = clients(streams=4)
    stage.stop_daemon()

    def cutover(*words):
        capsys.readouterr()
        code = main(["--config", str(stage.config_file), *words])
        return code, capsys.readouterr()

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
