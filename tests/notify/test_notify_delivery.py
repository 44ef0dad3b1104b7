"""Messages on their way: real receivers that fail, redirect and hang, and a daemon that is killed in between."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_world import FakeWorld
from receivers import apprise, webhook

from controller.core.policy import Policy
from controller.core.records import Now, Phase
from controller.core.table import Event as Happening
from controller.loop import Loop
from controller.notify.destination import destinations
from controller.notify.events import greeting
from controller.notify.kinds import Kind
from controller.notify.notifier import UNREACHED_S
from controller.notify.outbox import MOST_WAITING, OLDEST_S, Outbox
from controller.notify.target import Target


def test_it_is_told_once_and_not_again_by_the_next_daemon(box, receiver):
    box.refuse("of long ago")
    hook = receiver()
    first = box.notifier(webhook(hook))
    first.start()
    box.refuse("no card is free")
    told = hook.next()
    box.until(lambda: box.kept("hook")["waiting"] == [])
    first.stop()
    assert told.headers["Content-Type"] == "application/json"
    assert told.json == {
        "schema": 1,
        "id": "r0002.refused.1790000000",
        "kind": "failed",
        "severity": "warning",
        "sentence": "r0002: one@00000000 is refused: no card is free; `cutover show r0002`",
        "wall_s": 1790000000.0,
        "box": told.json["box"],
        "rollout": "r0002",
        "release": "one@00000000",
        "night": None,
        "gpu": None,
        "dropped": 0,
    }
    box.refuse("while nobody looked")
    box.notifier(webhook(hook)).start()
    assert hook.next_ids(1) == ["r0003.refused.1790000000"]
    box.until(lambda: box.kept("hook")["waiting"] == [])
    assert hook.got.empty()


def test_what_happens_before_the_first_look_is_not_missed(box, receiver):
    box.notifier(webhook(receiver()))  # a daemon that is killed before it could do anything
    box.refuse()
    notifier = box.notifier(webhook(receiver()))
    notifier.look()
    assert [event["rollout"] for event in box.kept("hook")["waiting"]] == ["r0001"]


def test_what_was_looked_at_twice_is_told_once(box, receiver):
    """A crash may lose where the reader stood, never what it has told."""
    notifier = box.notifier(webhook(receiver()))
    box.refuse()
    notifier.look()
    kept = json.loads(box.file.read_text())
    box.file.write_text(json.dumps({**kept, "cursor": 0}))
    box.notifier(webhook(receiver())).look()
    assert [event["rollout"] for event in box.kept("hook")["waiting"]] == ["r0001"]


def test_a_receiver_that_fails_twice(box, receiver):
    hook = receiver(500, 503, 200)
    box.notifier(webhook(hook)).start()
    box.refuse()
    assert hook.next_ids(3) == ["r0001.refused.1790000000"] * 3
    box.until(lambda: box.kept("hook")["waiting"] == [])
    assert box.kept("hook")["trouble"] == ""


def test_a_redirect_is_not_followed_and_proxies_are_not_asked(box, receiver, monkeypatch):
    elsewhere = receiver()
    hook = receiver(302, location=f"http://{elsewhere.address}/")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{elsewhere.address}")
    box.notifier(webhook(hook)).start()
    box.refuse()
    hook.next()
    why = box.until(lambda: box.file.exists() and box.kept("hook")["trouble"])
    assert why == "it redirects (302), which is not followed: name the address it leads to"
    assert len(box.kept("hook")["waiting"]) == 1
    assert elsewhere.got.empty()


def test_one_that_hangs_delays_nobody(box, receiver):
    """Neither another target, nor the loop, nor the stop of the daemon; what it did not take waits for it."""
    silent, hook = receiver(hangs=True), receiver()
    notifier = box.notifier(webhook(silent, "silent"), webhook(hook), deadline_s=3600.0)
    notifier.start()
    box.refuse()
    silent.next()
    assert hook.next_ids(1) == ["r0001.refused.1790000000"]
    # It holds that request until the end of this test; all of this happens meanwhile.
    loop = Loop(box.journal, FakeWorld(), Policy())
    rollout = box.propose()
    for _ in range(20):
        loop.step()
    assert box.journal.state.rollouts[rollout].phase is Phase.STARTING
    box.refuse()
    assert len(hook.next_ids(1)) == 1
    notifier.stop()
    assert silent.got.empty()
    assert len(box.kept("silent")["waiting"]) == 2
    assert box.kept("silent")["reached_wall_s"] is None


def test_a_try_has_a_deadline(box, receiver):
    silent = receiver(hangs=True)
    box.notifier(webhook(silent), deadline_s=3.0).start()
    box.refuse()
    assert silent.next_ids(2) == ["r0001.refused.1790000000"] * 2
    assert box.kept("hook")["trouble"] == "no answer within 3 s"


MANUAL = Path(__file__).parents[2] / "docs" / "notifications.md"
DAEMON = """
    import sys
    from pathlib import Path
    from receivers import Box, Clock, Receiver, webhook
    from controller.notify.destination import destinations
    from controller.notify.target import Target
    box = Box(Path(sys.argv[1]), Clock())
    box.notifier(*destinations([Target(name="hook", webhook=sys.argv[2])])).start()
    if sys.argv[3] == "something happens":
        box.refuse()
    sys.stdin.read()
    box.close()
"""


def test_killed_between_the_message_and_its_note(receiver, tmp_path):
    """It comes twice, with the same id, and is not lost."""
    running: list[subprocess.Popen[str]] = []

    def daemon(what: str = "nothing happens") -> subprocess.Popen[str]:
        words = [sys.executable, "-c", textwrap.dedent(DAEMON), str(tmp_path), f"http://{hook.address}/", what]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        running.append(subprocess.Popen(words, stdin=subprocess.PIPE, text=True, env=environment))
        return running[-1]

    hook = receiver(on_arrival=lambda: os.kill(running[0].pid, signal.SIGKILL) if len(running) == 1 else None)
    with daemon("something happens") as first:
        assert first.wait(60) == -signal.SIGKILL
    with daemon() as second:
        assert hook.next_ids(2) == ["r0001.refused.1790000000"] * 2
        second.communicate("", 60)
    kept = json.loads((tmp_path / "notify.json").read_text())["targets"]["hook"]
    assert (kept["waiting"], kept["dropped"], hook.got.empty()) == ([], 0, True)


def test_a_queue_is_bounded_and_says_what_it_dropped(box, receiver, clock):
    hook = receiver(500, 200)
    outbox = Outbox(box.file, [webhook(hook)], 0, clock.now)
    events = [replace(greeting(clock.wall_s), id=f"e{n}", kind=Kind.FAILED) for n in range(MOST_WAITING + 3)]
    outbox.put(events, 0, {})
    assert box.kept("hook")["dropped"] == 3
    box.notifier(webhook(hook)).start()
    first, again, next_one = (hook.next().json for _ in range(3))
    assert [(told["id"], told["dropped"]) for told in (first, again, next_one)] == [("e3", 3), ("e3", 3), ("e4", 0)]


def test_what_is_a_day_old_is_not_news(box, receiver, clock):
    hook = receiver()
    notifier = box.notifier(webhook(hook))
    box.refuse()
    notifier.look()
    clock.turn(OLDEST_S + 1)
    box.refuse()
    notifier.start()
    told = hook.next().json
    assert (told["rollout"], told["dropped"]) == ("r0002", 1)


def test_an_hour_without_an_answer_is_an_alarm(box, receiver, clock):
    hook = receiver(500)
    notifier = box.notifier(webhook(hook))
    notifier.start()
    box.refuse()
    box.until(lambda: box.file.exists() and box.kept("hook")["trouble"])
    assert notifier.alarms == ()
    clock.turn(UNREACHED_S)
    (said,) = notifier.alarms
    assert said == (
        "notification target hook has not been reached for 60 min: it answers 500; 1 message waits; "
        "`cutover notify test hook`"
    )
    notifier.stop()
    assert box.notifier(webhook(hook)).alarms == (said,)  # the next daemon knows it too


def test_only_what_was_chosen(box, receiver):
    all_, some, worst = receiver(), receiver(), receiver()
    box.notifier(
        webhook(all_, "all"), webhook(some, "some", on=["promoted"]), webhook(worst, "worst", min_severity="critical")
    ).start()
    box.refuse()
    assert len(all_.next_ids(1)) == 1
    box.until(lambda: box.kept("all")["waiting"] == [])
    assert box.kept("some")["waiting"] == box.kept("worst")["waiting"] == []
    assert some.got.empty()
    assert worst.got.empty()


def test_alarms_are_told_and_quarantine_only_once(box, receiver, clock):
    from controller.core import actions as act
    from controller.core.records import Closed

    hook = receiver()
    notifier = box.notifier(webhook(hook))
    box.do(act.CloseCard("GPU-1", Closed("", "9 GiB are not back", 1.0)))
    box.alarms = ["GPU-1 is quarantined: 9 GiB are not back; look at `cutover gpus`", "live is down"]
    notifier.look()
    clock.turn(60)
    notifier.look()
    notifier.look()
    assert [event["kind"] for event in box.kept("hook")["waiting"]] == ["quarantined", "alarm"]
    assert box.kept("hook")["waiting"][1]["sentence"] == "live is down"


def test_the_signature_is_of_the_body_as_it_came(box, receiver, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123\n")
    secret.chmod(0o600)
    hook = receiver()
    box.notifier(webhook(hook, secret_file=secret)).start()
    box.refuse("Grüße")
    told = hook.next()
    expected = hmac.new(b"0123456789abcdef0123", told.body, hashlib.sha256).hexdigest()
    assert told.headers["X-Cutover-Signature"] == f"sha256={expected}"
    told_to_do: dict[str, Any] = {}  # what a reader of the manual would write
    exec(MANUAL.read_text().split("```python")[1].split("```")[0], told_to_do)  # noqa: S102 - our own page
    assert told_to_do["is_from_cutover"](told.body, f"sha256={expected}", "0123456789abcdef0123")
    assert not told_to_do["is_from_cutover"](told.body + b" ", f"sha256={expected}", "0123456789abcdef0123")
    assert "Grüße" in told.json["sentence"]


def test_apprise_for_real(box, receiver, tmp_path):
    """Two services in one file: the one that is down does not make the other hear everything twice."""
    up, down = receiver(), receiver(500)
    notifier = box.notifier(*apprise(tmp_path, f"json://{up.address}/", f"json://{down.address}/"))
    notifier.start()
    rollout = box.propose()
    box.move(rollout, Happening.DEADLINE, "it waited for 7 days")
    assert len({down.next().body for _ in range(2)}) == 1
    told = up.next().json
    assert told["title"].startswith("cutover on ")
    assert told["title"].endswith(": failed")
    assert told["type"] == "warning"
    assert told["message"] == (
        "r0001: one@00000000 is skipped: it waited for 7 days; `cutover show r0001`\n[r0001.skipped.1790000000]"
    )
    notifier.stop()
    assert up.got.empty()
    assert box.kept("ops")["waiting"] == []
    assert box.kept("ops:2")["trouble"] == "JSON did not take it (500)"


def test_a_disk_that_takes_nothing_stops_nobody(box, receiver, tmp_path):
    hook = receiver()
    box.file = tmp_path / "not there" / "notify.json"
    box.notifier(webhook(hook)).start()
    box.refuse()
    assert hook.next_ids(1) == ["r0001.refused.1790000000"]
    box.file.parent.mkdir()
    box.refuse()
    assert hook.next_ids(1) == ["r0002.refused.1790000000"]
    box.until(lambda: box.file.exists() and box.kept("hook")["waiting"] == [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"targets": 3}'])
def test_a_broken_note_is_as_none(box, receiver, text):
    box.refuse("of before")
    box.file.write_text(text)
    hook = receiver()
    notifier = box.notifier(webhook(hook))
    box.refuse("of now")
    notifier.look()
    assert [event["rollout"] for event in box.kept("hook")["waiting"]] == ["r0002"]


def test_a_journal_from_an_older_backup(box, receiver):
    """Its lines have numbers that were looked at before: it goes on from its end."""
    hook = receiver()
    box.file.write_text('{"schema": 1, "cursor": 5000, "alarms": {}, "recent": [], "targets": {}}')
    notifier = box.notifier(webhook(hook))
    box.refuse()
    notifier.look()
    assert [event["rollout"] for event in box.kept("hook")["waiting"]] == ["r0001"]


def test_a_target_that_is_gone_and_one_that_is_new(box, receiver):
    hook = receiver(500)
    before = box.notifier(webhook(hook, "old"))
    box.refuse()
    before.look()
    assert len(box.kept("old")["waiting"]) == 1
    after = box.notifier(webhook(hook, "new"))
    box.refuse()
    after.look()
    assert [event["rollout"] for event in box.kept("new")["waiting"]] == ["r0002"]


def test_without_targets_nothing_is_begun(box):
    notifier = box.notifier()
    notifier.start()
    notifier.stop()
    assert notifier.alarms == ()
    assert not box.file.exists()


FAILED = replace(greeting(1.0), id="r1", kind=Kind.FAILED)
HOOK = destinations([Target(name="hook", webhook="http://127.0.0.1:9/told")])[0]


def test_a_clock_that_is_wrong_for_a_moment_loses_nothing_that_is_to_be_told(tmp_path):
    wall_s = [1_790_000_000.0]
    box = Outbox(tmp_path / "notify.json", (HOOK,), 0, lambda: Now("boot", 100.0, wall_s[0]))
    box.put([replace(FAILED, wall_s=wall_s[0])], 1, {})
    assert box.next("hook") is not None
    for jump_s in (2 * OLDEST_S, -2 * OLDEST_S):
        wall_s[0] += jump_s
        assert box.next("hook") is not None


def test_the_same_told_by_two_lines_is_told_once(tmp_path):
    box = Outbox(tmp_path / "notify.json", (HOOK,), 0, lambda: Now("boot", 100.0, 2.0))
    box.put([FAILED, FAILED], 1, {})
    assert box.next("hook") == (FAILED, 0)
    box.taken("hook", FAILED, 0)
    assert box.next("hook") is None
