"""`cutover sweep` against a real daemon with emulated engines; figures so far apart that a slow box is no matter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

PROFILE = {
    "gates": [
        {
            "name": "throughput",
            "deadline_s": 120,
            "settings": {
                "workloads": [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}],
                "ladder": [{"concurrency": 1}],
                "rounds": [5],
                "warmups": 1,
                "requests_per_stream": 1,
                "margin": 0.9,
                "compared": ["decode_tok_per_s"],
                # What is tested here is no timing, and the box may be slow.
                "max_client_error": 1.0,
                "max_core_share": 1.0,
            },
        },
    ]
}


@pytest.fixture
def on_box(box, cutover):
    return lambda *words: cutover("--config", box.config, *words)


@pytest.fixture
def sweep_file(box):
    """A file with a matrix around an emulated engine of 24 ms per token."""
    profile = box.stage.directory / "figures.yaml"
    profile.write_text(json.dumps(PROFILE))

    def make(name: str, matrix: str = "") -> Path:
        file = box.topology(name, "--itl-ms", "24", gates=str(profile))
        file.write_text(f"{file.read_text()}sweep: {matrix}\n" if matrix else file.read_text())
        return file

    return make


@pytest.mark.slow
def test_a_sweep_from_its_file_to_its_pick(box, on_box, sweep_file, wait_until):
    first = sweep_file("to-be-beaten")
    promoted = box.stage.finish(box.stage.propose(first.read_text(), str(first), bake_s=0), 120)
    assert promoted["phase"] == "promoted", promoted["why"]
    file = sweep_file(
        "swept", "{itl-ms: [24, 3], slots: [8, 16], exclude: [{itl-ms: 3, slots: 16}, {itl-ms: 24, slots: 8}]}"
    )
    dry = on_box("sweep", file, "--dry-run")
    assert dry.code == 0
    assert dry.out.startswith("2 arms of 4 combinations; gates throughput; on success: report\n")
    assert "itl-ms=3,slots=8    swept-itl-ms-3-slots-8@" in dry.out
    assert "without a window live is not measured anew" in dry.err
    live = box.live()
    filed = on_box("sweep", file, "--note", "which step")
    assert filed.code == 0
    sweep_id = filed.out.split()[0]
    assert f"{sweep_id} (sweep swept, 2 arms) is filed" in filed.out
    path = f"/v1/sweeps/{sweep_id}"
    done = wait_until(lambda: (found := box.stage.get(path))["decided"] and found, 120)
    assert (done["pick"], done["against"], done["left"]) == ("itl-ms=3,slots=8", live, 0)
    assert box.live() == live
    assert {arm["phase"] for arm in done["arms"]} == {"measured"}
    shown = on_box("sweep", "show", sweep_id)
    assert shown.code == 0
    assert shown.out.startswith(f"{sweep_id} sweep swept  pick: itl-ms=3,slots=8\n")
    rows = [line for line in shown.out.splitlines() if "●" in line]
    assert [row.split()[1] for row in rows] == [arm["name"] for arm in done["arms"]]
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert "better" in rows[0]
    assert f"ratios to {live} (│), 95 %, one-sided; bounds hold for 2 arms together" in shown.out
    assert "not anchored: it ran outside of a window" in shown.out
    assert f"{sweep_id}  swept  pick: itl-ms=3,slots=8" in on_box("sweep", "list").out
    assert on_box("sweep", "show", sweep_id, "--json").json == box.stage.get(path)
    decided = on_box("sweep", "withdraw", sweep_id)
    assert decided.code == 5
    assert f"{sweep_id} is decided already: itl-ms=3,slots=8 is better than live" in decided.err


def test_withdrawn(box, on_box, sweep_file, wait_until):
    assert on_box("freeze", "exam week").code == 0
    try:
        document = on_box("sweep", "run", sweep_file("taken-back", "{itl-ms: [4, 3]}"), "--json").json
        sweep = document["sweep"]
        assert (
            document["sentence"] == "queued: root has frozen the box (exam week)"
            or "frozen the box" in (document["sentence"])
        )
        assert {arm["standing"] for arm in sweep["arms"]} == {"waits"}
        assert "the next arm waits: frozen by" in on_box("sweep", "show", sweep["id"]).out
        first = sweep["arms"][0]["rollout"]
        assert f"{first} and 1 more of sweep {sweep['id']}" in on_box("status").out
        assert f"(arm of {sweep['id']}), and 1 more  " in on_box("queue").out
        assert [each["priority"] for each in on_box("queue", "--json").json["queue"]] == [-1, -1]
        done = on_box("sweep", "withdraw", sweep["id"])
        assert done.code == 0
        assert f"{sweep['id']} (taken-back) is withdrawn by" in done.out
    finally:
        on_box("unfreeze")
    path = f"/v1/sweeps/{sweep['id']}"
    wait_until(lambda: box.stage.get(path)["left"] == 0)
    after = box.stage.get(path)
    assert {arm["phase"] for arm in after["arms"]} == {"aborted"}
    assert after["pick"] is None


def test_one_refused_arm_refuses_the_sweep_by_name(box, on_box, sweep_file, wait_until):
    engine = f"[{sys.executable}, -m, launch.engines.emulator]"
    file = sweep_file("half", f"{{command: [{engine}, [/nowhere/python, -m, launch.engines.emulator]]}}")
    before = box.stage.get("/v1/sweeps")
    refused = on_box("sweep", file)
    assert refused.code == 5
    assert "arm command=#2 is refused: " in refused.err
    assert "/nowhere/python" in refused.err
    assert "or leave out what is refused with --skip-refused; nothing was filed" in refused.err
    assert box.stage.get("/v1/sweeps") == before
    dry = on_box("sweep", file, "--dry-run")
    assert (dry.code, "2 arms of 2 combinations, 1 refused" in dry.out) == (0, True)
    some = on_box("sweep", file, "--skip-refused", "--priority", "-5")
    assert "1 arm, 1 left out) is filed" in some.out
    assert "left out, " in some.err
    assert on_box("sweep", "withdraw", some.out.split()[0]).code == 0
    wait_until(lambda: box.stage.get("/v1/status")["rollout"] is None and not box.stage.get("/v1/status")["queue"])
    none = on_box("sweep", sweep_file("none", "{command: [[/nowhere/python]]}"), "--skip-refused")
    assert none.code == 5
    assert "every arm is refused, command=python" in none.err


@pytest.mark.parametrize(
    ("matrix", "words", "code", "sentence"),
    [
        ("{itl-ms: [4]}", ("--window", "never"), 2, "--window: there is no window never (configured: none)"),
        ("{itl-ms: [4]}", ("--gates", "smoke"), 2, "the profile smoke has no gate throughput, so that arms would be"),
        ("{itl-ms: [4]}", ("--on-success", "ask", "--strategy", "swap"), 2, "ask does not go with --strategy swap"),
        ("{itl-ms: [4]}", ("--expires", "soon"), 2, "--expires soon: expected a duration"),
        ("{itl-ms: [4, 4]}", (), 2, "sweep.itl-ms: the value 4 is there twice; keep one"),
        ("{itl-ms: [4, 5], exclude: [{itl-ms: 4}, {itl-ms: 5}]}", (), 2, "exclude leave none of 2 combinations"),
    ],
)
def test_one_clear_sentence(on_box, sweep_file, matrix, words, code, sentence):
    done = on_box("sweep", sweep_file("wrong", matrix), *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("cutover: ")
    assert sentence in done.err


def test_a_matrix_is_not_proposed_and_what_is_not_there_is_not_found(on_box, sweep_file):
    file = sweep_file("both", "{itl-ms: [4]}")
    done = on_box("propose", file)
    assert done.code == 2
    assert f"`cutover sweep {file}` tries them all" in done.err
    for words in (("show", "s9999"), ("withdraw", "../s1"), ("show", "a/b")):
        done = on_box("sweep", *words)
        assert (done.code, "there is no sweep" in done.err) == (3, True)
    assert on_box("sweep", "--dry-run").code == 2
