"""`cutover notify` and what `doctor` says of it, without a daemon; and a daemon that tells."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from controller.cli import main

TOKEN = "T0kenT0kenT0kenT0kenT0ken"


@pytest.fixture
def cutover(capsys, tmp_path):
    """Run one command with this configuration: exit code, stdout, stderr."""

    def run(configuration: str, *words: str) -> tuple[int, str, str]:
        file = tmp_path / "cutover.yaml"
        file.write_text(f"state_dir: {tmp_path}/state\ngpus: {{kind: none}}\n{configuration}")
        capsys.readouterr()
        code = main(["--config", str(file), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def secret(folder: Path, name: str, content: str) -> Path:
    file = folder / name
    file.write_text(content)
    file.chmod(0o600)
    return file


def test_test_says_for_each_how_it_went(cutover, receiver, tmp_path):
    up, down = receiver(), receiver(503)
    url = secret(tmp_path, "down", f"http://{down.address}/{TOKEN}\n")
    configuration = (
        f"notify:\n  - {{name: up, webhook: 'http://{up.address}/', on: [failed]}}\n"
        f"  - {{name: down, webhook_file: {url}}}\n"
    )
    code, out, err = cutover(configuration, "notify", "test", "--json")
    assert code == 1
    assert json.loads(out) == {
        "schema": 1,
        "ok": False,
        "results": [
            {"target": "up", "ok": True, "sentence": "taken (200)"},
            {"target": "down", "ok": False, "sentence": "it answers 503"},
        ],
    }
    assert TOKEN not in out + err
    told = up.next().json
    assert (told["kind"], told["severity"], told["id"].split(".")[0]) == ("test", "info", "test")
    code, out, _ = cutover(configuration, "notify", "test", "up")
    assert (code, out) == (0, "✓ up: taken (200)\n")


def test_what_cannot_be_tested(cutover, tmp_path):
    code, _, err = cutover("notify: [{name: up, webhook: 'https://example.org/'}]\n", "notify", "test", "upp")
    assert (code, "there is no notification target upp in" in err, "known: up" in err) == (3, True, True)
    code, out, _ = cutover("", "notify", "test", "--json")
    assert (code, "names nobody to tell" in json.loads(out)["error"]) == (3, True)
    code, _, err = cutover(f"notify: [{{name: a, apprise_file: {tmp_path}/none}}]\n", "notify", "test")
    assert (code, "cannot be read: No such file" in err) == (2, True)


def test_apprise_that_knows_no_such_service(cutover, tmp_path):
    file = secret(tmp_path, "urls", f"nonsense://{TOKEN}\n")
    code, out, err = cutover(f"notify: [{{name: ops, apprise_file: {file}}}]\n", "notify", "test")
    assert code == 1
    assert out == f"✗ ops: URL 1 of {file} is none that apprise knows, or one of its parts is missing\n"
    assert TOKEN not in out + err


def test_list_says_who_is_told_what(cutover, tmp_path):
    file = secret(tmp_path, "urls", f"slack://{TOKEN}/{TOKEN}/{TOKEN}\n")
    configuration = (
        f"notify:\n  - {{name: ops, apprise_file: {file}, min_severity: warning}}\n"
        f"  - {{name: hook, webhook: 'https://example.org/', on: [report], secret_file: {tmp_path}/none}}\n"
    )
    code, out, err = cutover(configuration, "notify", "list", "--json")
    assert code == 0
    ops, hook = json.loads(out)["targets"]
    assert (ops["how"], ops["file"], ops["min_severity"], ops["problem"], ops["waiting"]) == (
        "apprise", str(file), "warning", "", None,
    )  # fmt: skip
    assert (hook["on"], hook["signed"]) == (["report"], True)
    assert "none cannot be read" in hook["problem"]
    code, out, _ = cutover(configuration, "notify", "list")
    assert out.startswith("ops: apprise; everything from warning on\nhook: webhook, signed; report; notify: hook: ")
    assert TOKEN not in out + err
    assert cutover("", "notify", "list")[1].startswith("nobody is told anything")


def test_list_knows_what_waits(cutover, box, receiver, tmp_path):
    from receivers import webhook

    hook = receiver(500)
    (tmp_path / "state").mkdir()
    box.file = tmp_path / "state" / "notify.json"
    notifier = box.notifier(webhook(hook))
    notifier.start()
    box.refuse()
    box.until(lambda: box.file.exists() and box.kept("hook")["trouble"])
    _, out, _ = cutover(f"notify: [{{name: hook, webhook: 'http://{hook.address}/told'}}]\n", "notify", "list")
    assert out == "hook: webhook; everything; last reached —, 1 waiting; it answers 500\n"


@pytest.mark.parametrize("kept", ["[]", '{"targets": []}', '{"targets": {"hook": {}}}', "{"])
def test_list_of_what_cannot_be_understood(cutover, tmp_path, kept):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "notify.json").write_text(kept)
    code, out, _ = cutover("notify: [{name: hook, webhook: 'https://example.org/'}]\n", "notify", "list")
    assert (code, out) == (0, "hook: webhook; everything\n")


def test_doctor_looks_at_the_targets(cutover, tmp_path):
    def notifications(configuration: str) -> dict[str, object]:
        _, out, _ = cutover(configuration, "doctor", "--json")
        return next(check for check in json.loads(out)["checks"] if check["name"] == "notifications")

    good = notifications("notify: [{name: hook, webhook: 'https://example.org/'}]\n")
    assert (good["ok"], good["sentence"]) == (True, "hook; `cutover notify test` sends to each")
    bad = notifications(f"notify: [{{name: ops, apprise_file: {tmp_path}/none}}]\n")
    assert (bad["ok"], "cannot be read" in str(bad["sentence"])) == (False, True)


def test_a_daemon_with_a_target_that_cannot_be_used_does_not_start(tmp_path):
    file = tmp_path / "cutover.yaml"
    file.write_text(f"state_dir: {tmp_path}/state\nnotify: [{{name: ops, apprise_file: {tmp_path}/none}}]\n")
    words = [sys.executable, "-m", "controller", "--config", str(file), "serve"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    assert f"notify: ops: {tmp_path}/none cannot be read: No such file or directory" in done.stderr
    assert not (tmp_path / "state" / "journal.sqlite").exists()
