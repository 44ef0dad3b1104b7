"""Commands where no daemon answers: what they can do, and what they say when they cannot."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import sys
import textwrap
from pathlib import Path

import pytest

from controller.cli.check_strays import strays, whose
from controller.cli.checks import Runs, instance_ports
from controller.cli.client import Client, NoDaemonError
from controller.config import parse_config
from controller.core.alarms import CANDIDATE, LEAVING, LIVE, PREVIOUS
from launch import attempts, release, topology
from launch.ports import first_in_use, outgoing_ports

ROOT = Path(__file__).parents[2]
EMULATED = "name: {name}\nserves: [emu]\nengine: emulator\nflags: [--itl-ms, {itl}]\ninstances: {{a: {{gpus: 1}}}}\n"


@pytest.fixture
def topology_file(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(EMULATED.format(name="one", itl="4"))
    return path


# --- nobody answers ---

ASKING = (
    ("status",), ("history",), ("show", "r0001"), ("watch",), ("watch", "r0001"), ("rollback",), ("restart", "--wait"),
    ("stop", "--yes"), ("abort", "r0001"), ("approve", "r0001"), ("freeze", "why"), ("unfreeze",), ("logs",),
    ("logs", "-f"),
)  # fmt: skip


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_one_sentence_says_that_nobody_answers(cutover, config_file, words):
    done = cutover("--config", config_file, *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"cutover: no daemon answers on {config_file.parent}/state/cutover.sock")
    assert str(config_file) in done.err
    assert "cutover serve" in done.err
    assert done.err.count("\n") == 1


def test_the_same_as_json(cutover, config_file):
    done = cutover("--config", config_file, "status", "--json")
    assert done.code == done.json["exit_code"] == 1
    assert done.json["error"].startswith("no daemon answers")
    assert done.err == ""


def test_a_socket_can_be_named(cutover, tmp_path):
    done = cutover("--socket", tmp_path / "other.sock", "status")
    assert done.code == 1
    assert f"on {tmp_path}/other.sock (from --socket)" in done.err


# --- what is given is checked before anybody is asked ---

BAD_TOPOLOGIES = {
    "missing": (None, "cannot be read: No such file"),
    "broken": ("name: [", "bad.yaml:2: not valid YAML"),
    "engine": (EMULATED.format(name="x", itl=1).replace("emulator", "vlm"), "vllm"),
    "key": (
        EMULATED.format(name="x", itl=1) + "instancs: 1\n",
        "bad.yaml:6: unknown key instancs; did you mean instances",
    ),
    "alias": ("name: &a x\nserves: [*a]\n", "bad.yaml:2: the alias *a is not accepted"),
    "duplicate": ("name: a\nname: b\n", "bad.yaml:2: name: the key is there twice"),
    "large": ("#" * 70_000, "too large for a topology"),
    "binary": (b"\xff\xfe", "not UTF-8"),
    "list": ("- a\n", "a topology is a mapping"),
}


@pytest.mark.parametrize("command", ["propose", "plan"])
@pytest.mark.parametrize("case", BAD_TOPOLOGIES)
def test_a_bad_topology_is_told_with_its_place(cutover, config_file, tmp_path, command, case):
    content, expected = BAD_TOPOLOGIES[case]
    file = tmp_path / "bad.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = cutover("--config", config_file, command, file)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stat_dir: /x\n", ":1: unknown key `stat_dir`; did you mean `state_dir`?"),
        ("public: here\n", ":1: `public`: expected host:port"),
        ("public: {\n", "not valid YAML"),
    ],
)
def test_a_bad_configuration_is_told_with_its_place(cutover, config_file, text, expected):
    config_file.write_text(text)
    done = cutover("--config", config_file, "status")
    assert done.code == 2
    assert expected in done.err


def test_a_configuration_that_is_not_there(cutover, tmp_path):
    done = cutover("--config", tmp_path / "none.yaml", "status")
    assert done.code == 2
    assert "none.yaml cannot be read" in done.err


# --- serve refuses ---


def test_serve_in_a_directory_that_cannot_be_written(cutover_program, tmp_path):
    (tmp_path / "file").write_text("")
    config = tmp_path / "cutover.yaml"
    config.write_text(f"state_dir: {tmp_path}/file/state\nsocket: {tmp_path}/s\n")
    done = cutover_program("--config", config, "serve")
    assert done.code == 1
    assert f"cutover: the state directory {tmp_path}/file/state cannot be written" in done.err
    assert "Traceback" not in done.err


def test_serve_where_the_public_port_is_taken(cutover_program, config_file):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config_file.write_text(config_file.read_text() + f"public: 127.0.0.1:{port}\n")
        done = cutover_program("--config", config_file, "serve")
    assert done.code == 5
    assert f"127.0.0.1:{port} is taken by process {os.getpid()}" in done.err
    assert "Traceback" not in done.err


def test_serve_without_the_front_door_binary(cutover_program, config_file):
    config_file.write_text(config_file.read_text() + "haproxy: /no/such/haproxy\n")
    done = cutover_program("--config", config_file, "serve")
    assert done.code == 2
    assert "/no/such/haproxy is not there" in done.err
    assert "Traceback" not in done.err


def test_serve_on_a_damaged_journal(cutover_program, config_file, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "journal.sqlite").write_bytes(b"this is no database" * 1000)
    done = cutover_program("--config", config_file, "serve")
    assert done.code == 1
    assert "journal.sqlite cannot be opened" in done.err
    assert "Traceback" not in done.err


# --- releases ---


def test_render_prints_the_script(cutover, topology_file):
    done = cutover("release", "render", topology_file)
    assert done.code == 0
    assert done.out.startswith("#!/usr/bin/env bash\n")
    assert "--itl-ms 4" in done.out
    as_json = cutover("release", "render", topology_file, "--json").json
    assert as_json["scripts"] == {"a": done.out}
    assert as_json["id"].startswith("one@")


def test_render_of_another_box_says_what_is_missing(cutover, tmp_path):
    file = tmp_path / "far.yaml"
    file.write_text("name: far\nserves: [m]\nengine: vllm\nmodel: /no/model\ninstances: {a: {gpus: 2}, b: {gpus: 2}}\n")
    both = cutover("release", "render", file)
    assert both.code == 0
    assert "/no/model" in both.err
    assert "# --- a ---\n" in both.out
    only = cutover("release", "render", file, "--instance", "b")
    assert only.out.startswith("#!")
    missing = cutover("release", "render", file, "--instance", "c")
    assert missing.code == 3
    assert "no instance c; it has a, b" in missing.err


def test_releases_are_read_from_the_directory(cutover, config_file, tmp_path, topology_file):
    assert "none yet" in cutover("--config", config_file, "release", "list").out
    saved = release.freeze(topology.load(topology_file))
    release.save(saved, tmp_path / "state" / "releases")
    assert cutover("--config", config_file, "release", "list").out == f"{saved.id}\n"
    shown = cutover("--config", config_file, "release", "show", "one")
    assert shown.code == 0
    assert saved.digest in shown.out
    document = cutover("--config", config_file, "release", "show", "one", "--json").json
    assert document["manifest"]["digest"] == saved.digest
    absent = cutover("--config", config_file, "release", "show", "two")
    assert absent.code == 3
    assert "there is no release 'two'" in absent.err


def test_diff_between_a_release_and_a_file(cutover, config_file, tmp_path, topology_file):
    saved = release.freeze(topology.load(topology_file))
    release.save(saved, tmp_path / "state" / "releases")
    other = tmp_path / "two.yaml"
    other.write_text(EMULATED.format(name="two", itl="9"))
    done = cutover("--config", config_file, "release", "diff", "one", other)
    assert done.code == 0
    assert "flags.--itl-ms: 4 → 9" in done.out
    document = cutover("--config", config_file, "release", "diff", topology_file, other, "--json").json
    assert {"part": "topology", "where": "name", "before": "one", "after": "two"} in document["diff"]["changes"]
    same = cutover("--config", config_file, "release", "diff", "one", topology_file)
    assert "do not differ" in same.out


# --- import ---


def test_import_writes_a_topology_and_asks(cutover, tmp_path):
    script = tmp_path / "start.sh"
    script.write_text(
        "export CUDA_VISIBLE_DEVICES=0,1\nvllm serve /no/model --served-model-name m --tensor-parallel-size 2\n"
    )
    file = tmp_path / "live.yaml"
    done = cutover("import", script, "-o", file, "--name", "live-now")
    assert (done.code, done.out) == (0, "")
    assert "? " in done.err
    assert "name: live-now" in file.read_text()
    again = cutover("import", script, "-o", file)
    assert again.code == 5
    assert "--force overwrites it" in again.err
    assert "name: live-now" in file.read_text()
    assert cutover("import", script, "-o", file, "--force").code == 0
    document = cutover("import", script, "--json").json
    assert "engine: vllm" in document["topology"]
    assert document["questions"]


def test_import_of_what_is_not_there(cutover, tmp_path):
    done = cutover("import", tmp_path / "none.sh")
    assert done.code == 2
    assert "none.sh: cannot be read" in done.err
    (tmp_path / "start.sh").write_text("vllm serve m\n")
    bad_name = cutover("import", tmp_path / "start.sh", "--name", "Bad Name")
    assert bad_name.code == 2
    assert "'Bad Name' is not a name" in bad_name.err


# --- doctor ---


def checks_of(done):
    return {check["name"]: check for check in done.json["checks"]}


def test_doctor_without_a_daemon(cutover, config_file):
    done = cutover("--config", config_file, "doctor", "--json")
    assert done.code == 0
    checks = checks_of(done)
    assert [name for name, check in checks.items() if check["ok"] is False] == []
    assert checks["daemon"]["ok"] is None
    assert checks["daemon"]["sentence"].startswith("not started yet")
    assert "smg" in checks["router"]["sentence"]
    assert checks["live"]["ok"] is None
    assert checks["HAProxy"]["sentence"].startswith("HAProxy 2.")
    assert checks["GPUs"]["sentence"] == "2 declared"
    shown = cutover("--config", config_file, "doctor")
    assert shown.code == 0
    assert "– daemon" in shown.out
    assert "→ `cutover serve`" in shown.out
    assert "✓ HAProxy" in shown.out
    named = cutover("--socket", config_file.parent / "no.sock", "--config", config_file, "doctor")
    assert named.code == 1, "who names a socket expects a daemon behind it"
    (config_file.parent / "state").mkdir()
    (config_file.parent / "state" / "journal.sqlite").touch()
    gone = cutover("--config", config_file, "doctor")
    assert gone.code == 1
    assert "✗ daemon" in gone.out


def test_doctor_warns_of_ports_that_the_kernel_hands_out(cutover, config_file):
    outgoing, _ = outgoing_ports()
    # A block that nobody's connection is using just now.
    first = next(p for p in range(outgoing.stop - 200, outgoing.start, -100) if first_in_use(range(p, p + 100)) is None)
    with config_file.open("a") as file:
        file.write(f"instance_ports: {first}-{first + 99}\n")
    done = cutover("--config", config_file, "doctor", "--json")
    ports = checks_of(done)["instance ports"]
    assert (done.code, ports["ok"]) == (0, None)
    assert "ip_local_port_range" in ports["sentence"]
    assert "ip_local_reserved_ports" in ports["remedy"]


def test_doctor_finds_what_is_wrong(cutover, config_file, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with sqlite3.connect(state / "journal.sqlite") as db:
        db.execute("CREATE TABLE journal (seq INTEGER)")
    db.close()
    damaged = bytearray((state / "journal.sqlite").read_bytes())
    damaged[100:200] = b"\xff" * 100
    (state / "journal.sqlite").write_bytes(damaged)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config_file.write_text(
            f"state_dir: {state}\ngpus: {{kind: none, count: 2}}\nhaproxy: /no/haproxy\n"
            f"public: 127.0.0.1:{port}\ninstance_ports: {max(port - 20, 1024)}-{min(port + 20, 65535)}\n"
        )
        checks = checks_of(cutover("--config", config_file, "doctor", "--json"))
    assert checks["state directory"]["remedy"] == f"chmod 0750 {state}"
    assert checks["journal"]["ok"] is False
    assert "/no/haproxy is not there" in checks["HAProxy"]["sentence"]
    assert f"process {os.getpid()}" in checks["public address"]["sentence"]
    assert f"the own `public` (127.0.0.1:{port}) lies among them" in checks["instance ports"]["sentence"]
    assert "nobody else" not in checks["instance ports"]["remedy"], "nobody else is the trouble"


def test_no_configuration_of_the_docs_puts_an_own_address_among_the_instances():
    """The first look at the box to try it on was red."""
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    block = text.partition("state_dir: /tmp/cutover-try\n")[2].partition("\n\n")[0]
    defaults = {"state_dir": "/tmp/cutover-try", "socket": "/tmp/s"}
    for written in (textwrap.dedent("    " + block.lstrip()), "bake: {seconds: 900}"):
        found = instance_ports(parse_config(written, "docs", defaults), frozenset())
        assert "lies among them" not in found.sentence


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_production_is_not_stopped_where_nobody_can_be_asked(cutover, config_file, more):
    done = cutover("--config", config_file, "stop", *more)
    assert (done.code, f"{done.out}{done.err}".count("\n")) == (2, 1)
    assert "say so with --yes" in f"{done.out}{done.err}"
    assert cutover("--config", config_file, "stop", "--yes", *more).code == 1, "that no daemon answers comes after"


def test_doctor_tells_a_bad_configuration(cutover, config_file):
    config_file.write_text("nonsense: 1\n")
    done = cutover("--config", config_file, "doctor")
    assert done.code == 1
    assert "unknown key `nonsense`" in done.out


def test_doctor_names_strays(cutover, config_file, tmp_path, wait_until):
    run_dir = tmp_path / "state" / "runs" / "lost-a-1"
    program = (sys.executable, "-c", "import time; time.sleep(300)")
    identity = attempts.start(attempts.AttemptSpec(attempt_id="lost-a-1", run_dir=run_dir, argv=program))
    try:
        pids = wait_until(lambda: attempts.observe(run_dir).pids)
        healthy = checks_of(cutover("--config", config_file, "doctor", "--json"))
        assert healthy["strays"]["sentence"] == "none; 1 of ours run"
        os.kill(identity.pid, signal.SIGKILL)
        wait_until(lambda: attempts.observe(run_dir).status is attempts.Status.STRAYS)
        stray = checks_of(cutover("--config", config_file, "doctor", "--json"))["strays"]
        assert stray["ok"] is False
        assert f"lost-a-1: pids {pids[0]}" in stray["sentence"]
    finally:
        attempts.request_stop(run_dir)
        attempts.kill_strays(run_dir, force=True)
        wait_until(lambda: not attempts.observe(run_dir).pids)


def test_doctor_says_that_nobody_starts_the_front_door_again(cutover, config_file, tmp_path, wait_until):
    """Its shim is dead and no daemon runs: it serves on until it dies."""
    run_dir = tmp_path / "state" / "frontdoor" / "run"
    program = (sys.executable, "-c", "import time; time.sleep(300)")
    identity = attempts.start(attempts.AttemptSpec(attempt_id="frontdoor", run_dir=run_dir, argv=program, keep=True))
    try:
        (pid,) = wait_until(lambda: attempts.observe(run_dir).pids)
        assert checks_of(cutover("--config", config_file, "doctor", "--json"))["front door"]["ok"] is None
        os.kill(identity.pid, signal.SIGKILL)
        wait_until(lambda: attempts.observe(run_dir).status is attempts.Status.STRAYS)
        found = checks_of(cutover("--config", config_file, "doctor", "--json"))["front door"]
        assert (found["ok"], f"when pid {pid} dies, users are served no more" in found["sentence"]) == (False, True)
        assert "start the daemon" in found["remedy"]
    finally:
        attempts.request_stop(run_dir)
        attempts.kill_strays(run_dir, force=True)
        wait_until(lambda: not attempts.observe(run_dir).pids)


def test_who_looks_hears_soon_of_a_daemon_that_hangs(tmp_path):
    """One that was stopped (`kill -STOP`), or whose disk hangs, has its socket still: the kernel takes all comers."""
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "s"))
        hung.listen()
        with pytest.raises(NoDaemonError, match="it hangs, or the box has no time for it; users are served without it"):
            Client(tmp_path / "s", "here", look_timeout_s=0.05).get("/v1/status")


def runs(**strays):
    named = {name.replace("_", "-"): pids for name, pids in strays.items()}
    return Runs(running={}, strays=named, ports=frozenset(), cards=frozenset(), hidden=False)


@pytest.mark.parametrize(
    ("role", "remedy"),
    [
        (LIVE, "`cutover restart` heals that"),
        (PREVIOUS, "a way back it is all the same"),
        (CANDIDATE, "once it is live, `cutover restart`"),
        (LEAVING, "the daemon ends it"),
    ],
)
def test_an_engine_whose_shim_died_has_an_owner_and_nobody_is_told_to_end_it(role, remedy):
    found = strays(runs(n_a_1=(7, 8)), {"n-a-1": role})
    assert (found.ok, found.sentence) == (False, f"the shim of n-a-1 ({role}) is dead, its pids 7, 8 live on")
    assert remedy in found.remedy
    assert "kill" not in found.remedy


def test_what_no_journal_knows_is_told_beside_it_with_its_own_pid():
    found = strays(runs(n_a_1=(7,), n_b_2=(9,)), {"n-a-1": LIVE})
    assert "without an owner: n-b-2: pids 9; the shim of n-a-1 (live) is dead, its pids 7 live on" in found.sentence
    assert "(`kill 9`)" in found.remedy
    assert "kill 7" not in found.remedy


def test_without_a_daemon_nobody_knows_whose_they_are():
    found = strays(runs(n_a_1=(7, 8)), None)
    assert found.sentence == "processes of ours whose shim is dead: n-a-1: pids 7, 8"
    assert found.remedy == "start the daemon: it keeps what serves users, and ends the rest"


def test_whose_an_attempt_is():
    seat = {"attempts": [{"id": "n-a-1"}]}
    status = {"live": seat, "previous": None}
    listed = [("n-a-1", "ready"), ("n-a-2", "starting"), ("n-a-3", "retiring"), ("n-a-4", "stopped")]
    held = whose(status, [{"id": name, "state": state} for name, state in listed])
    assert held == {"n-a-1": LIVE, "n-a-2": CANDIDATE, "n-a-3": LEAVING}
