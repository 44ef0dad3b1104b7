"""The commands against a real daemon with emulated engines: every word that people type, once."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import httpx
import pytest

from controller.demo.stage import Stage

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def on_box(box, cutover):
    return lambda *words: cutover("--config", box.config, *words)


# --- reaching it ---


def test_a_control_socket_that_was_removed_comes_back(box, on_box):
    """By who tidies /run, say: the way back leads through it."""
    box.stage.config.socket.unlink()
    assert box.stage.until(lambda: on_box("status").code == 0, 20)
    assert box.stage.config.socket.stat().st_mode & 0o777 == 0o660


# --- looking ---


def test_status_says_what_is_live(box, on_box):
    release = box.live()
    shown = on_box("status")
    assert shown.code == 0
    assert release in shown.out
    assert "GPU 0" in shown.out
    assert box.stage.config.public in shown.out
    document = on_box("status", "--json").json
    assert (document["schema"], document["live"]["release"]) == (1, release)


def test_history_and_show(box, on_box):
    first = on_box("history", "--json").json["rollouts"][0]
    assert first["id"] == "r0001"
    assert "r0001" in on_box("history").out
    shown = on_box("show", "r0001")
    assert shown.code == 0
    for part in ("promoted", "health  pass", "is live from now on", "switch at the front door"):
        assert part in shown.out
    document = on_box("show", "r0001", "--json").json
    assert document["phase"] == "promoted"
    assert document["events"][0]["action"] == "Propose"


@pytest.mark.parametrize(
    "words",
    [
        ("show", "r9999"),
        ("watch", "r9999"),
        ("abort", "r9999"),
        ("approve", "../r1"),
        ("logs", "nobody"),
        ("show", "a/b"),
    ],
    ids=" ".join,
)
def test_an_id_that_does_not_exist(on_box, words):
    done = on_box(*words)
    assert (done.code, done.out) == (3, ""), done
    assert done.err.startswith("cutover: ")
    as_json = on_box(*words, "--json").json
    assert as_json["exit_code"] == 3


def test_a_report_needs_a_night_and_says_how_to_get_one(on_box, box):
    done = on_box("report")
    assert (done.code, done.out) == (3, "")
    assert "there was no night yet: no window is configured; set `schedule` in cutover.yaml" in done.err
    assert on_box("report", "--night", "nightly@2026-11-30").code == 3
    assert box.stage.get("/v1/nights") == {"schema": 1, "nights": []}


def test_logs_of_live(box, on_box):
    attempt = box.stage.get("/v1/status")["live"]["attempts"][0]["id"]
    for name in ("live", attempt, "a"):
        done = on_box("logs", name, "--lines", "3")
        assert done.code == 0
        assert len(done.out.splitlines()) == 3
    assert "listening on" in on_box("logs").out
    document = on_box("logs", "live", "--json").json
    assert document["logs"][0]["attempt"] == attempt
    assert on_box("logs", "candidate").code == 3
    assert on_box("logs", "-f", "--json").code == 2


def test_doctor_of_a_box_in_order(box, on_box):
    done = on_box("doctor", "--json")
    hints = {"disk", "router", "backup"}  # of this machine, and that nobody has made a backup yet
    assert [c for c in done.json["checks"] if c["ok"] is not True and c["name"] not in hints] == []


def test_releases_through_the_daemon(box, on_box):
    release = box.live()
    assert release in on_box("release", "list").out
    assert release in on_box("release", "show", release).out
    changed = on_box("release", "diff", release, box.topology("other", "--slots", "9"))
    assert "flags.--slots: " in changed.out
    assert "→ 9" in changed.out
    assert on_box("release", "show", "none@12345678").code == 3


# --- proposing ---


def test_a_plan_is_drawn_and_can_be_insisted_on(box, on_box):
    live = box.stage.get("/v1/status")["live"]["attempts"][0]["id"]
    file = box.topology("planned", "--slots", "7")
    drawn = on_box("plan", file)
    assert drawn.code == 0
    assert f"{live} LIVE" in drawn.out
    digest = on_box("plan", file, "--json").json["plan"]["digest"]
    assert f"--plan {digest}" in drawn.out
    other = on_box("propose", file, "--plan", "0123456789ab", "--wait")
    assert other.code == 5
    assert f"the plan is {digest} now" in other.out
    too_large = on_box("plan", box.topology("large", gpus=9))
    assert too_large.code == 5
    assert "needs 9 GPUs and this box has 4" in too_large.err


def test_a_better_one_is_promoted_and_watched(box, on_box):
    done = on_box("propose", box.topology("better", "--slots", "31"), "--bake", "0", "--wait", "--note", "for a test")
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert any(line.endswith("gate health (1/1)") for line in lines)
    assert " is promoted" in lines[-1]
    assert box.live().startswith("better@")
    rollout = lines[-1].split()[0]
    again = on_box("watch", rollout)
    assert (again.code, again.out) == (0, done.out)
    as_json = on_box("watch", rollout, "--json")
    documents = [json.loads(line) for line in as_json.out.splitlines()]
    assert documents[0]["action"] == "Propose"
    assert documents[-1]["phase"] == "promoted"
    assert documents[-1]["options"]["note"] == "for a test"


def test_a_bad_one_is_rejected(box, on_box):
    verdict = {
        "contract": 1, "gate": "sour", "verdict": "fail", "sentence": "no taste",
        "checks": [{"id": "T1", "verdict": "fail", "sentence": "it is \x1b[31msour", "evidence": ["t1.json"]}],
    }  # fmt: skip
    says = box.stage.directory / "sour.json"
    says.write_text(json.dumps(verdict))
    gates = box.stage.directory / "sour-gates.yaml"
    gates.write_text(f"gates:\n  - {{name: sour, run: [/bin/cat, {says}]}}\n")
    before = box.live()
    done = on_box("propose", box.topology("sour"), "--gates", gates, "--wait", "--json")
    assert done.code == 10, done
    assert done.json["phase"] == "rejected", "stdout is the rollout and nothing else"
    assert "gate sour: fail" in done.err
    shown = on_box("show", done.json["id"]).out
    assert "T1: it is sour" in shown
    assert "/evidence/t1.json" in shown
    assert box.live() == before


def test_one_that_dies_is_failed_with_its_last_words(box, on_box):
    done = on_box("propose", box.topology("dies", "--fault", "dies-loading"), "--wait")
    assert done.code == 1, done
    rollout = done.out.splitlines()[-1].split()[0]
    assert "EngineCore encountered a fatal error" in on_box("show", rollout).out


def test_one_that_forgets_a_name_is_refused(box, on_box):
    done = on_box("propose", box.topology("nameless", serves="other"), "--wait")
    assert done.code == 5
    assert "does not serve emu" in done.out


def test_profiles_are_checked_when_proposing(box, on_box):
    done = on_box("propose", box.topology("x"), "--gates", "no-such-profile")
    assert (done.code, done.out) == (2, "")
    assert "no-such-profile" in done.err


def test_a_plan_is_refused_like_its_proposal(box, on_box):
    questions = box.stage.directory / "bad.jsonl"
    questions.write_text('{"id": "one"}\n')
    profile = box.stage.directory / "own.yaml"
    profile.write_text(f"gates: [{{name: own-set, settings: {{file: {questions}}}}}]\n")
    for gates, said in (("standrd", "did you mean 'standard'"), ("nofile.yaml", "nofile.yaml"), (profile, "jsonl:1:")):
        file = box.topology("judged", gates=str(gates))
        planned, proposed = on_box("plan", file), on_box("propose", file)
        assert (planned.code, planned.out) == (proposed.code, proposed.out) == (2, "")
        assert planned.err == proposed.err
        assert said in planned.err


def test_a_freeze_holds_the_queue(box, on_box):
    assert on_box("freeze", "exam week").code == 0
    try:
        filed = on_box("propose", box.topology("frozen"))
        assert filed.code == 0
        assert "has frozen the box (exam week)" in filed.out
        rollout = filed.out.split()[0]
        assert f"cutover watch {rollout}" in filed.out
        assert "FROZEN" in on_box("status").out
        waiting = on_box("propose", box.topology("frozen"), "--wait", "--timeout", "0.3")
        assert waiting.code == 13
        assert "is still queued" in waiting.out
        assert "is queued behind 1 other; " in waiting.out
        assert "has frozen the box (exam week)" in waiting.out
        second = waiting.out.split()[-1].strip("`")
        for one in (rollout, second):
            assert on_box("abort", one).code == 0
            ended = on_box("watch", one)
            assert ended.code == 1
            assert "is withdrawn by" in ended.out
        over = on_box("abort", rollout)
        assert over.code == 5
        assert "is over" in over.err
        other = on_box("freeze", "a demonstration", "--until", "3d", "--json").json
        assert (other["replaced"]["why"], other["replaced"]["until_wall_s"]) == ("exam week", None)
        assert "takes the place of the freeze of" in other["sentence"]
        assert "(exam week), which had no end; this one ends " in other["sentence"]
    finally:
        ended = on_box("unfreeze")
        assert ended.code == 0
    assert re.search(r"the freeze of \S+ \(a demonstration\) is over, which was to end \w+ \d{4}-", ended.out)
    again = on_box("unfreeze")
    assert again.code == 5
    assert "nothing is frozen" in again.err


def test_approval_is_asked_and_given(box, on_box, cutover_begun, wait_until):
    early = on_box("approve", "r0001")
    assert early.code == 5
    assert "does not wait for an approval" in early.err
    filed = on_box("propose", box.topology("asked", "--slots", "30"), "--require-approval", "--bake", "0", "--json")
    rollout = filed.json["rollout"]["id"]
    wait_until(lambda: box.stage.rollout(rollout)["phase"] == "awaiting_approval", 120)
    watching = cutover_begun("--config", box.config, "watch", rollout)
    assert on_box("approve", rollout).out.startswith(f"{rollout} ")
    out, _ = watching.communicate(timeout=120)
    assert watching.returncode == 0, out
    assert f"waits for `cutover approve {rollout}`" in out


def test_two_daemons_on_one_state_directory(box, cutover_program):
    done = cutover_program("--config", box.config, "serve")
    assert done.code == 5
    assert f"another daemon (pid {box.stage.daemon.pid}) uses the state directory" in done.err
    assert "Traceback" not in done.err


def test_a_live_footer_on_a_terminal(box):
    """On a terminal the lines come above a footer that says what is going on; nothing else is left behind."""
    file = box.topology("seen", "--slots", "29", "--start-s", "2")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "controller", "--config", str(box.config), "propose", str(file), "--wait"]
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    with subprocess.Popen([*words, "--bake", "0"], stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as seen:
        os.close(theirs)
        said = b""
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    chunk = os.read(ours, 65_536)
                except OSError:  # the other end is closed
                    break
                if not chunk:
                    break
                said += chunk
        else:
            seen.kill()
    os.close(ours)
    assert seen.returncode == 0, said[-2000:]
    text = said.decode()
    assert "▶ r" in text
    assert "starting" in text
    assert text.endswith("none to worry about at the end\r\n"), text[-300:]


def test_watching_everything_ends_with_ctrl_c(box, cutover_begun):
    watching = cutover_begun("--config", box.config, "watch")
    assert watching.stdout.readline().strip(), "it begins with what happened last"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert (watching.returncode, err) == (130, "")


# --- production moves: a box of its own ---


@pytest.fixture
def own_box(tmp_path_factory, box):
    with Stage(tmp_path_factory.mktemp("own"), {"gpus": {"kind": "none", "count": 4}, "start_s": 90}) as stage:
        yield type(box)(stage)


def test_back_and_forth(own_box, cutover, cutover_begun, wait_until):
    def run(*words):
        return cutover("--config", own_box.config, *words)

    nothing = run("rollback")
    assert nothing.code == 5
    assert "no previous release" in nothing.err
    assert run("restart").code == 5
    assert run("stop", "--yes").code == 5
    first = own_box.ensure_live()
    assert run("restart", "--wait", "--timeout", "0").code == 13
    assert run("abort", "r0002").code == 0
    wait_until(lambda: own_box.stage.rollout("r0002")["over"], 120)

    # During a bake, `rollback` ends it: what was asked for is done, and whoever waited for the proposal is told.
    proposing = cutover_begun(
        "--config", own_box.config, "propose", own_box.topology("second", "--slots", "9"), "--bake", "3600", "--wait"
    )
    wait_until(lambda: (own_box.stage.get("/v1/status")["rollout"] or {}).get("phase") == "baking", 120)
    assert own_box.live().startswith("second@")
    second = own_box.stage.get("/v1/status")["live"]["attempts"][0]["id"]
    followed = cutover_begun("--config", own_box.config, "logs", "-f", second)
    back = run("rollback", "--wait")
    assert back.code == 0, back
    assert "is rolled back" in back.out
    out, _ = proposing.communicate(timeout=120)
    assert proposing.returncode == 14, out
    assert own_box.live() == first
    logged, said = followed.communicate(timeout=120)
    assert followed.returncode == 0
    assert "listening on" in logged
    assert "has ended" in said

    # Without production: stopped by hand, brought back cold.
    assert run("stop", "--yes").code == 0
    wait_until(lambda: own_box.live() is None)
    assert "nothing serves users" in run("status").out
    assert "nothing is live now" in run("logs").err
    cold = run("rollback", "--wait", "--json")
    assert cold.code == 0, cold
    assert (cold.json["phase"], cold.json["release"]) == ("rolled_back", first)
    assert cold.json["times"]["rollback_s"] > 0

    # A daemon that is killed and started again while somebody waits: said, and waited for.
    own_box.stage.post("/v1/freeze", {"why": "test"})
    waiting = cutover_begun("--config", own_box.config, "propose", own_box.topology("third"), "--bake", "0", "--wait")
    wait_until(lambda: own_box.stage.get("/v1/status")["queue"])
    own_box.stage.stop_daemon(signal.SIGKILL)
    time.sleep(0.5)
    own_box.stage.start_daemon()
    own_box.stage.post("/v1/unfreeze")
    out, said = waiting.communicate(timeout=200)
    assert waiting.returncode == 0, out + said
    assert "the daemon does not answer: trying again" in said
    assert own_box.live().startswith("third@")


# --- the socket itself ---


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status", "exit_code"),
    [
        ("GET", "/v1/nothing", b"", {}, 404, 3),
        ("DELETE", "/v1/status", b"", {}, 405, 3),
        ("POST", "/v1/rollouts", b"\xff\xfe{", {"content-type": "application/json"}, 400, 2),
        ("POST", "/v1/rollouts", b"x" * 600_000, {"content-type": "application/json"}, 413, 2),
    ],
    ids=["no such path", "no such method", "not utf-8", "too large"],
)
def test_every_error_of_the_api_has_the_same_shape(box, method, path, content, headers, status, exit_code):
    socket = httpx.HTTPTransport(uds=str(box.stage.config.socket))
    with httpx.Client(transport=socket, base_url="http://cutover") as api:
        answer = api.request(method, path, content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json()["exit_code"] == exit_code
    assert answer.json()["error"]
