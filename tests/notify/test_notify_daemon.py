"""A whole daemon that tells: what it does, and what of its targets it keeps to itself."""

from __future__ import annotations

from controller.demo.stage import Stage

TOKEN = "T0kenT0kenT0kenT0kenT0ken"
TOO_LARGE = "name: large\nserves: [m]\nengine: emulator\ninstances: {a: {gpus: 2}}\ngates: demo\n"


def test_a_daemon_tells_and_ends_while_a_target_hangs(receiver, tmp_path):
    hook, silent = receiver(), receiver(hangs=True)
    file = tmp_path / "url"
    file.write_text(f"http://{hook.address}/{TOKEN}\n")
    file.chmod(0o600)
    targets = [
        {"name": "hook", "webhook_file": str(file), "on": ["failed"]},
        {"name": "silent", "webhook": f"http://{silent.address}/"},
    ]
    with Stage(tmp_path / "stage", {"gpus": {"kind": "none", "count": 1}, "notify": targets}) as stage:
        rollout = stage.propose(TOO_LARGE, "large.yaml")
        told = hook.next().json
        assert (told["kind"], told["rollout"]) == ("failed", rollout)
        assert f"{rollout}: large@" in told["sentence"]
        assert " is refused: " in told["sentence"]
        silent.next()
        daemon = stage.daemon
        stage.stop_daemon()
        assert daemon is not None
        assert daemon.returncode == 0
    seen = [path for path in (tmp_path / "stage").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert seen == []
