"""A throughput gate in a rollout: what it measures is in the ledger, and the next candidate is held against that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.cli import main
from gates.ledger.rows import Kind
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger

pytestmark = pytest.mark.timeout(300)
# Coarse on purpose: a box that runs other tests beside this one is a slow client.
PROFILE = """\
gates:
  - {name: health, deadline_s: 60, settings: {probes: 1}}
  - name: throughput
    deadline_s: 120
    settings:
      workloads: [{name: chat, prompt_tokens: 60, answer_tokens: 16}]
      ladder: [{concurrency: 1}, {concurrency: 4}]
      rounds: [3]
      warmups: 1
      margin: 0.9
      compared: [decode_tok_per_s]
      max_client_error: 1.0
      max_core_share: 1.0
"""


@pytest.fixture
def measuring(tmp_path: Path) -> str:
    path = tmp_path / "measuring.yaml"
    path.write_text(PROFILE)
    return str(path)


def throughput_of(stage, rollout):
    [run] = [gate["run"] for gate in rollout["gates"] if gate["gate"] == "throughput"]
    request = json.loads((stage.config.gates_dir / f"{run}.request.json").read_text())
    return request, json.loads((stage.config.gates_dir / run / "verdict.json").read_text().splitlines()[-1])


@pytest.mark.slow
def test_a_gate_keeps_its_run_and_the_next_candidate_is_compared_with_it(stage, make, measuring):
    pair = make("pair", "--slots", "8", instances="{a: {gpus: 1}, b: {gpus: 1}}")
    first = stage.finish(stage.propose(pair, "pair.yaml", gates=measuring))
    assert first["phase"] == "promoted", first["why"]
    request, verdict = throughput_of(stage, first)
    book = Ledger(stage.config.state_dir / "ledger.sqlite")
    rows = book.rows(Selection())
    assert [row.cell.key.concurrency for row in rows] == [1, 4]
    assert {row.id for row in rows} == set(verdict["measurements"]["ledger"]["rows"])
    attempts = sorted(attempt["id"] for attempt in first["attempts"])
    for row in rows:
        about = row.configuration
        assert (about.release, about.topology, about.engine) == (first["release"], "pair", "emulator")
        assert "--slots" in about.flags
        assert about.facts["limit"] == 16
        assert about.hardware["host"]
        assert (row.kind, row.start) == (Kind.RESTART, "+".join(attempts))
        # Both pages together count every request, and the daemon's own probes beside them are no foreign load.
        assert row.cell.problem is None
        assert row.cell.figures["engine_finished"].value >= row.cell.requests
    assert len(request["candidate"]["metrics_urls"]) == 2
    assert request["live"] is None

    second = stage.finish(stage.propose(make("two"), "two.yaml", gates=measuring))
    assert second["phase"] == "promoted", second["why"]
    request, verdict = throughput_of(stage, second)
    assert request["live"]["digest"] == rows[0].configuration.digest
    assert any(f"baseline: what {first['release']} showed" in note for note in verdict["measurements"]["notes"])
    assert "baseline.decode_tok_per_s" in {check["id"] for check in verdict["checks"]}
    shown = book.rows(Selection())[2:]
    assert len(shown) == 2

    # In quiet hours a person may measure what is live: the same release in the same start.
    bench = ["bench", "--live", "--profile", measuring, "--concurrency", "1"]
    assert main(["--config", str(stage.config_file), *bench]) == 0
    again = book.rows(Selection())[-1]
    assert again.configuration.identity == shown[0].configuration.identity
    assert (again.kind, again.start, again.cell.problem) == (Kind.RESTART, shown[0].start, None)
    assert again.cell.figures["engine_finished"].value >= again.cell.requests
