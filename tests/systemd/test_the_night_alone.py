"""A night with nobody there: three proposals of the day, users who stream, and in the morning a page that says it.

One leaks its thinking, one is slow, one is better. The same with the daemon killed five times, and with a reboot.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from operator_kit import CONFIG, Box

pytestmark = [pytest.mark.init, pytest.mark.timeout(540)]

CONFIG_FILE = "/etc/cutover/cutover.yaml"
STATE = "/var/lib/cutover"
NIGHT_S = 400.0  # for what takes about one minute on a box with nothing else to do
OPENS_IN_S = 8  # at least: proposals are filed by day
PROFILE = """\
stop_early: true
gates:
  - {name: health, deadline_s: 30, settings: {probes: 1, timeout_s: 15}}
  - {name: smoke, deadline_s: 90, settings: {timeout_s: 20}}
  - name: throughput
    deadline_s: 60
    settings:
      workloads: [{name: chat, prompt_tokens: 150, answer_tokens: 48}]
      ladder: [{concurrency: 1}]
      rounds: [3]
      warmups: 1
      requests_per_stream: 1
      margin: 0.25
      compared: [decode_tok_per_s]
      max_client_error: 0.3
"""


def topology(name: str, itl_ms: int, *flags: str) -> str:
    timing = ("--start-s", "0.2", "--ttft-ms", "40", "--itl-ms", str(itl_ms), "--thinking", "on", *flags)
    listed = ", ".join(f'"{flag}"' for flag in timing)
    return (
        f"name: {name}\nserves: [emu]\nengine: emulator\nflags: [{listed}]\ninstances: {{a: {{gpus: 2}}}}\n"
        "capability: {thinking: switch, parallel_calls: true}\nstop_grace_s: 5\ngates: /etc/cutover/night.yaml\n"
    )


@pytest.fixture(scope="module")
def home(box: Box) -> Box:
    """Installed by the docs, with a release that is live and was measured."""
    box.run(f"rm -rf {STATE}")
    box.write(CONFIG_FILE, CONFIG)
    box.write("/etc/cutover/night.yaml", PROFILE)
    box.tell_boots_apart()
    box.by_the_docs("Install", box.versions[0])
    box.settle_daemon()
    box.propose(topology("live", 24), "--wait --timeout 200")
    return box


class Night:
    """One window of its own name, so that each test has a night of its own on the same date."""

    def __init__(self, box: Box, window: str, itl_ms: int) -> None:
        self.box, self.window = box, window
        start = box.run(f'date -u -d "@$(( ($(date +%s) + {OPENS_IN_S} + 59) / 60 * 60 ))" +%H:%M').strip()
        self.configure(f'schedules: {{{window}: {{start: "{start}", duration: 20m, timezone: UTC}}}}\n')
        options = f"--window {window}"
        box.propose(topology(f"leaks-{window}", itl_ms, "--fault", "leak-think"), options)
        box.propose(topology(f"slow-{window}", 60), options)
        box.propose(topology(f"better-{window}", itl_ms), options)
        assert [w["window"] for w in self.queue()] == [window] * 3

    def configure(self, schedules: str) -> None:
        """A schedule is read when the daemon starts."""
        self.box.write(CONFIG_FILE, f"{CONFIG}quiet: {{patience: 1s}}\n{schedules}")
        self.box.run("systemctl restart cutover")
        self.box.settle_daemon()

    def queue(self) -> list[dict[str, Any]]:
        code, said = self.box.container.ask("/opt/cutover/bin/cutover queue --json")
        return list(json.loads(said)["queue"]) if code == 0 else [{"window": self.window}]

    def is_over(self) -> bool:
        return not self.queue() and self.box.status().get("rollout") is None

    def await_morning(self) -> dict[str, Any]:
        """The report of the night, which is over as soon as there is no such window any more."""
        self.box.container.until(self.is_over, NIGHT_S, "the night to be over")
        self.configure("")
        written = f"ls {STATE}/reports/{self.window}@*.html"
        self.box.container.until(lambda: self.box.container.ask(written)[0] == 0, 60.0, "the report")
        name = self.box.run(f"basename {STATE}/reports/{self.window}@*.html .html").strip()
        return dict(json.loads(self.box.cutover(f"report --night {name} --json")))


def judge(box: Box, night: Night, report: dict[str, Any]) -> None:
    live = box.settle()["live"]["release"]
    assert live.startswith(f"better-{night.window}@")
    ended = {r["release"].partition("@")[0].partition("-")[0]: r for r in report["rollouts"] if r["kind"] == "propose"}
    assert {name: r["phase"] for name, r in ended.items()} == {
        "leaks": "rejected",
        "slow": "rejected",
        "better": "promoted",
    }, report
    assert "smoke" in ended["leaks"]["why"]
    assert "throughput" in ended["slow"]["why"]
    assert report["night"]["live_after"] == live


def test_the_better_one_is_live_in_the_morning(home):
    with home.streams():
        night = Night(home, "first", 16)
        report = night.await_morning()
    judge(home, night, report)
    assert report["users"]["lost"] == 0


def test_the_same_with_the_daemon_killed_five_times(home):
    with home.streams():
        night = Night(home, "second", 10)
        home.container.until(lambda: home.status().get("rollout") is not None, 120.0, "the window to open")
        for _ in range(5):
            time.sleep(3.0)
            daemon = home.daemon_pid()
            home.run(f"kill -9 {daemon}")
            home.container.until(lambda gone=daemon: home.daemon_pid() not in (0, gone), 60.0, "another daemon")
        report = night.await_morning()
    judge(home, night, report)
    assert report["users"]["lost"] == 0


def test_the_same_with_a_reboot_in_the_middle(home):
    night = Night(home, "third", 6)
    home.container.until(lambda: (home.status().get("rollout") or {}).get("phase") == "gating", 120.0, "a gate")
    home.container.reboot()
    home.settle_daemon()
    report = night.await_morning()
    judge(home, night, report)
    assert [r for r in report["rollouts"] if "the host was rebooted" in r["why"]]
