"""The product as a service: installed by the docs, hardened, restarted, upgraded, killed, rebooted, removed.

The tests are one evening on one box, in this order; each begins when live serves.
"""

from __future__ import annotations

import json
import re

import pytest
from debian_tree import ROOT
from operator_kit import CONFIG, PROFILE, ROUTED, TOPOLOGY, Box

pytestmark = [pytest.mark.init, pytest.mark.timeout(540)]

UNITS = "/etc/systemd/system"
CLOSED = ("cutover.service", "cutover-attempt@x.service", "cutover-frontdoor.service")
WORD = re.compile(r"`(\w+)`")
STATE = "/var/lib/cutover"
BACK_S = 60.0
DOORS_BOOT = f"grep -o 'boot_id[^,]*' {STATE}/frontdoor/run/shim.json"


@pytest.fixture(scope="module")
def installed(box: Box) -> Box:
    box.write("/etc/cutover/cutover.yaml", CONFIG)
    box.write("/etc/cutover/quick.yaml", PROFILE)
    box.tell_boots_apart()
    box.by_the_docs("Install", box.versions[0])
    box.propose(TOPOLOGY, "--wait")
    return box


@pytest.fixture
def live(installed: Box) -> Box:
    installed.settle()
    return installed


def live_attempt(box: Box) -> str:
    [attempt] = box.settle()["live"]["attempts"]
    return str(attempt["id"])


def test_installed_by_the_docs_it_serves(live):
    assert live.unit("ActiveState") == "active"
    assert live.status()["version"] == live.versions[0]
    assert live.answer() == "1 answer"
    modes = live.run(f"stat -c '%a %U %G' {STATE} /run/cutover /run/cutover/cutover.sock {STATE}/journal.sqlite")
    assert modes.split("\n")[:3] == ["700 cutover cutover", "750 cutover cutover", "660 cutover cutover"]
    assert modes.split("\n")[3] == "600 cutover cutover"


def test_a_person_in_the_group_may_propose_and_a_stranger_may_not(live):
    live.run("useradd -G cutover alice && useradd mallory")
    ask = "runuser -u {} -- /opt/cutover/bin/cutover {}"
    assert live.container.ask(ask.format("alice", "status"))[0] == 0
    code, said = live.container.ask(ask.format("mallory", "status"))
    assert (code, "may not talk to the daemon" in said) == (4, True), said
    # What works on files is for the daemon's user, and finds them without being told where.
    live.run(ask.format("cutover", f"backup {STATE}/evening.sqlite"))


def test_the_daemon_the_front_door_and_each_engine_have_a_unit_of_their_own(live):
    attempt, who = live_attempt(live), live.who_runs()
    assert live.unit_of(live.daemon_pid()) == "system.slice/cutover.service"
    for pid in (who["frontdoor"][0], who["frontdoor"][2]):
        assert live.unit_of(pid) == "system.slice/cutover-frontdoor.service"
    shims, engines = live.unit_of(who[attempt][0]), live.unit_of(who[attempt][2])
    assert shims == engines
    assert re.fullmatch(r"cutover\.slice/cutover-attempt@[\d-]+\.service", engines), engines
    # Its name is a number; what a person looks for is in its status.
    said = live.run("systemctl show -P StatusText 'cutover-attempt@*'")
    assert said.strip() == f"{STATE}/runs/{attempt}"


def test_installing_again_changes_nothing_and_what_was_changed_by_hand_is_shown(live):
    live.cutover("install")
    assert {file["found"] for file in json.loads(live.cutover("install --json"))["files"]} == {"same"}
    live.run(f"echo '# mine' >> {UNITS}/cutover.slice")
    code, said = live.container.ask("/opt/cutover/bin/cutover install")
    assert code == 5
    assert "changed by hand: /etc/systemd/system/cutover.slice" in said
    assert "-# mine" in said
    assert live.run(f"tail -n 1 {UNITS}/cutover.slice") == "# mine\n"
    live.cutover("install --force")
    assert "mine" not in live.run(f"cat {UNITS}/cutover.slice")


def test_the_units_are_sound_and_closed(live):
    code, said = live.container.ask(f"systemd-analyze verify $(find {UNITS} -maxdepth 1 -type f -name 'cutover*')")
    assert (code, said) == (0, "")
    # A user's own, which this Debian has no manager for.
    live.cutover("install --user --root /root/image")
    verify = "XDG_RUNTIME_DIR=/run systemd-analyze --user verify"
    code, said = live.container.ask(f"{verify} $(find /root/image -type f)")
    assert (code, said) == (0, "")
    bound = re.search(r"exposure level of at most (\d+\.\d)", (ROOT / "docs/security.md").read_text())
    assert bound, "docs/security.md names the bound"
    threshold = round(float(bound[1]) * 10)
    for unit in CLOSED:
        live.run(f"systemd-analyze security --no-pager --threshold={threshold} {unit}")
    assert live.run(f"grep CapEff /proc/{live.who_runs()[live_attempt(live)][2]}/status").split()[1] == "0" * 16


def test_what_would_take_something_from_the_engines_is_left_out(live):
    """Whoever adds one of these to the unit has to read in docs/security.md first why it is not there."""
    table = (ROOT / "docs/security.md").read_text().split("| left out | because |", 1)[1].split("\n\n", 1)[0]
    left_out = {name for row in table.splitlines() if row.startswith("| `") for name in WORD.findall(row.split("|")[1])}
    assert {"DeviceAllow", "PrivateTmp", "MemoryDenyWriteExecute"} <= left_out
    for name in ("cutover", "cutover-attempt@x"):
        unit = live.run(f"systemctl cat {name}")
        assert {word for word in left_out if re.search(rf"^{word}=", unit, re.MULTILINE)} == set()
        # A setting that implies one of them would be seen here: with any DeviceAllow, nothing else can be opened.
        assert live.run(f"systemctl show -P DevicePolicy -P DeviceAllow {name}").split() == ["auto"]


def test_a_router_and_its_workers_run_in_the_closed_unit(live):
    rollout = live.propose_up_to_approval(ROUTED)
    assert len(live.who_runs()) == 1 + 1 + 3
    live.cutover(f"abort {rollout}")
    live.container.until(lambda: len(live.who_runs()) == 1 + 1, BACK_S, "the candidate to end")


def test_a_group_that_the_daemon_may_not_give_its_socket_to_is_named(live):
    live.write("/etc/cutover/cutover.yaml", f"{CONFIG}socket_group: games\n")
    live.container.ask("systemctl restart cutover")
    said = live.run("journalctl --unit=cutover --lines=20 --no-pager")
    assert "socket_group: the daemon's user is not in the group games" in said
    live.write("/etc/cutover/cutover.yaml", CONFIG)
    live.run("systemctl restart cutover")


def test_the_kernel_ends_an_engine_before_the_daemon_and_the_door(live):
    who = live.who_runs()
    score = "cat /proc/{}/oom_score_adj"
    engine, door = who[live_attempt(live)], who["frontdoor"]
    scores = [int(live.run(score.format(pid))) for pid in (live.daemon_pid(), door[2], engine[0], engine[2])]
    assert live.unit("OOMScoreAdjust") == "-500"
    if scores == [0, 0, 0, 0]:
        pytest.skip("this machine has no CAP_SYS_RESOURCE: systemd itself could not protect anybody")
    assert scores == [-500, -500, -500, 0]


def test_a_restart_of_the_daemon_cuts_nobody(live):
    who, daemon = live.who_runs(), live.daemon_pid()
    with live.streams():
        live.run("systemctl restart cutover")
        live.settle()
    assert live.who_runs() == who
    assert live.daemon_pid() != daemon


def test_kill_9_of_the_daemon_cuts_nobody(live):
    who, daemon = live.who_runs(), live.daemon_pid()
    with live.streams():
        live.run(f"kill -9 {daemon}")
        live.container.until(lambda: live.daemon_pid() not in (0, daemon), BACK_S, "the daemon")
        live.settle()
    assert live.who_runs() == who


def test_a_daemon_that_hangs_is_started_again_by_the_watchdog(live):
    live.write("/etc/systemd/system/cutover.service.d/short.conf", "[Service]\nWatchdogSec=10\n")
    live.run("systemctl daemon-reload && systemctl restart cutover")
    live.settle()
    who, daemon = live.who_runs(), live.daemon_pid()
    fed = live.unit("WatchdogTimestampMonotonic")
    live.container.until(
        lambda: live.unit("WatchdogTimestampMonotonic") != fed, BACK_S, "the loop to feed its watchdog"
    )
    with live.streams():
        live.run(f"kill -STOP {daemon}")
        live.container.until(lambda: live.daemon_pid() not in (0, daemon), BACK_S, "the watchdog")
        live.settle()
    assert live.who_runs() == who
    live.run(
        "rm /etc/systemd/system/cutover.service.d/short.conf && systemctl daemon-reload && systemctl restart cutover"
    )


def test_without_its_socket_an_engine_starts_in_the_daemons_unit_and_serves(live):
    live.run("systemctl stop cutover-attempt.socket")
    before = live_attempt(live)
    live.run(f"kill -9 {live.who_runs()[before][2]}")
    live.container.until(lambda: live.settle() and live_attempt(live) != before, BACK_S, "another attempt")
    who = live.who_runs()
    assert live.unit_of(who[live_attempt(live)][2]) == "system.slice/cutover.service"
    with live.streams():
        live.run("systemctl restart cutover")
        live.settle()
    assert live.who_runs() == who
    assert live.run("systemctl is-active cutover-attempt.socket").strip() == "active"


def test_the_timer_starts_a_daemon_that_does_not_run_and_fails_where_none_can(live):
    live.write(f"{UNITS}/cutover-nightly.timer.d/often.conf", "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/5\n")
    live.run("systemctl stop cutover; systemctl daemon-reload; systemctl start cutover-nightly.timer")
    said = "journalctl --unit=cutover-nightly --output=cat --no-pager"
    live.container.until(lambda: "is live, no rollout is running" in live.run(said), BACK_S, "a nudge")
    assert live.unit("ActiveState") == "active"
    live.write("/etc/cutover/cutover.yaml", f"{CONFIG}nonsense: 1\n")
    live.container.ask("systemctl restart cutover")
    how = "systemctl show -P Result cutover-nightly.service"
    live.container.until(lambda: live.run(how).strip() == "exit-code", BACK_S, "the timer's unit to fail")
    live.run("systemctl stop cutover-nightly.timer")
    live.write("/etc/cutover/cutover.yaml", CONFIG)
    live.run(f"rm -r {UNITS}/cutover-nightly.timer.d; systemctl daemon-reload; systemctl restart cutover")
    live.settle()


def test_an_upgrade_leaves_engines_and_front_door_alone_and_carries_a_rollout_on(live):
    with live.streams():
        rollout = live.propose_up_to_approval(TOPOLOGY.replace("name: box", "name: next"))
        who = live.who_runs()
        live.by_the_docs("Upgrade", live.versions[1])
        assert live.settle()["version"] == live.versions[1]
        assert live.who_runs() == who, "the door, live and the candidate"
        live.cutover(f"approve {rollout}")
        live.cutover(f"watch {rollout}")
    assert live.status()["live"]["release"].startswith("next@")
    assert live.who_runs() == who


def test_kill_9_of_the_front_door_needs_no_daemon(live):
    live.run("systemctl stop cutover")
    who = live.who_runs()
    live.run(f"kill -9 {who['frontdoor'][2]}")
    live.container.until(lambda: live.answer() == "1 answer", BACK_S, "the front door")
    now = live.who_runs()
    assert now["frontdoor"][:2] == who["frontdoor"][:2], "its shim is another one"
    assert now["frontdoor"][2] != who["frontdoor"][2]
    live.run("systemctl start cutover")
    live.settle()
    assert live.who_runs() == now, "the daemon did not adopt"


def test_kill_9_of_the_front_doors_shim_cuts_nobody(live):
    who = live.who_runs()
    with live.streams():
        live.run(f"kill -9 {who['frontdoor'][0]}")
        live.run("sleep 2")
    # Nobody would start that one again, when it dies too, but the daemon.
    live.run(f"kill -9 {who['frontdoor'][2]}")
    live.container.until(lambda: live.answer() == "1 answer", BACK_S, "the front door")
    live.settle()
    now = live.who_runs()
    assert now["frontdoor"][0] != who["frontdoor"][0]


def test_kill_9_of_an_engine_is_a_start_in_its_place(live):
    before = live_attempt(live)
    live.run(f"kill -9 {live.who_runs()[before][2]}")
    live.container.until(lambda: live.settle() and live_attempt(live) != before, BACK_S, "another attempt")
    assert live.answer() == "1 answer"


def test_kill_9_of_an_engines_shim_cuts_nobody(live):
    attempt = live_attempt(live)
    engine = live.who_runs()[attempt]
    with live.streams():
        live.run(f"kill -9 {engine[0]}")
        live.container.until(lambda: any(attempt in a for a in live.status()["alarms"]), BACK_S, "an alarm")
    assert live.who_runs()[attempt][2:] == engine[2:]


def test_a_reboot_brings_production_back(live):
    before, boot = live.status()["live"], live.run(DOORS_BOOT)
    live.container.reboot()
    seen = live.settle()
    assert live.run(DOORS_BOOT) != boot
    assert seen["live"]["release"] == before["release"]
    assert {a["id"] for a in seen["live"]["attempts"]}.isdisjoint(a["id"] for a in before["attempts"])
    assert live.answer() == "1 answer"
    live.container.until(lambda: live.status().get("alarms") == [], BACK_S, "the alarms to end")


def test_a_daemon_that_is_stopped_leaves_production_and_what_is_removed_is_gone(live):
    who = live.who_runs()
    live.run("systemctl stop cutover")
    assert live.answer() == "1 answer"
    assert live.who_runs() == who
    # A person who looks in the meantime, as root, leaves nothing behind that the daemon could not use.
    live.container.ask("/opt/cutover/bin/cutover doctor")
    code, said = live.container.ask("/opt/cutover/bin/cutover serve")
    assert (code, "run this as the daemon's user" in said) == (4, True), said
    assert live.run(f"find {STATE} /run/lock/cutover* ! -user cutover 2>/dev/null || true") == ""
    gone = json.loads(live.cutover("uninstall --json"))
    assert {one["id"]: one["pid"] for one in gone["still_running"]} == {name: facts[0] for name, facts in who.items()}
    assert live.answer() == "1 answer"
    assert live.container.ask("systemctl cat cutover")[0] != 0
    live.cutover("install")
    live.run("systemctl enable --now cutover")
    live.settle()
    assert live.who_runs() == who
    sockets = live.run("systemctl is-active cutover-attempt.socket cutover-frontdoor.socket")
    assert sockets.split() == ["active", "active"]
    live.by_the_docs("Remove", live.versions[1])
    assert live.who_runs() == {}
    assert live.run("find /proc -maxdepth 1 -user cutover") == ""
    assert live.container.ask("systemctl cat cutover")[0] != 0
