"""What runs and is in no journal is named with its cards until it has ended."""

from __future__ import annotations

import json
import sys
import time

from controller.effects.nobodys import nobodys, told
from launch import attempts
from launch.attempts import AttemptSpec, Status, observe


def test_what_the_journal_does_not_know_is_named_with_its_cards(tmp_path):
    assert nobodys(tmp_path / "none", ()) == ()
    run_dir = tmp_path / "n-a-5"
    program = (sys.executable, "-c", "import time; time.sleep(300)")
    identity = attempts.start(AttemptSpec(attempt_id="n-a-5", run_dir=run_dir, argv=program))
    try:
        assert nobodys(tmp_path, {"n-a-5"}) == (), "it has an owner"
        (tmp_path / "n-a-4").mkdir()
        assert nobodys(tmp_path, ()) == ("n-a-5",)
        assert told(tmp_path, ["n-a-5"])[0].startswith("n-a-5 runs and the journal does not know it")
        (run_dir / "owner.json").write_text(json.dumps({"gpus": ["gpu-0", "gpu-1"]}))
        assert "n-a-5 runs on gpu-0, gpu-1 and" in told(tmp_path, ["n-a-5"])[0]
        assert f"`kill {identity.pid}` ends it" in told(tmp_path, ["n-a-5"])[0]
    finally:
        attempts.request_stop(run_dir)
    give_up_at_s = time.monotonic() + 30
    while (seen := observe(run_dir)).status is not Status.EXITED or seen.pids:
        assert time.monotonic() < give_up_at_s
        time.sleep(0.01)
    assert told(tmp_path, ["n-a-5", "n-a-6"]) == []
