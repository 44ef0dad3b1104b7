"""`cutover nudge`: the loop looks, and says what it waits for."""

from __future__ import annotations


def test_it_says_what_the_daemon_waits_for(cutover, box):
    before = box.stage.get("/v1/status")["now"]
    done = cutover("--config", box.config, "nudge", "--json")
    assert done.code == 0
    assert done.json["sentence"] == before, "nothing was to be done"
    assert (done.json["looked"], done.json["windows"]) == (True, [])
    assert cutover("--config", box.config, "nudge").out == f"{before}\n"


def test_without_a_daemon_it_fails(cutover, config_file):
    done = cutover("--config", config_file, "nudge")
    assert done.code == 1
    assert "no daemon answers" in done.err
