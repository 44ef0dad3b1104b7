"""The gate and the ledger: what live showed and how far starts lie apart come from it, and no verdict hangs on it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates.contract import Deployment, Verdict
from gates.ledger.rows import Kind
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger
from gates.strict import read_model
from gates.throughput.book import Book
from gates.throughput.plain import plain_run, read_run
from gates.throughput.records import DECODE, Cell, CellKey, Run
from gates.throughput.settings import ThroughputSettings

SMALL: dict[str, Any] = {
    "workloads": [{"name": "chat", "prompt_tokens": 60, "answer_tokens": 16}],
    "ladder": [{"concurrency": 1}],
    "rounds": [3],
    "warmups": 1,
    "requests_per_stream": 1,
    "margin": 0.9,
    "compared": ["decode_tok_per_s"],
    # What is tested here is no timing, and the box may be slow.
    "max_client_error": 1.0,
    "max_core_share": 1.0,
}
BOX = {"gpus": ["Card", "Card"], "driver": "550.54", "host": "box1"}
LIVE = Deployment(release="old@0a1b2c3d", digest="0a1b2c3d" * 8, topology="old", hardware=BOX)
CANDIDATE = Deployment(
    release="new@99887766", digest="99887766" * 8, topology="new", hardware=BOX, start="new-a-1", flags=("--slots", "8")
)
Measure = Callable[..., Verdict]


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.sqlite")


@pytest.fixture
def measure(judge: Judge, engines: Engines, book: Ledger) -> Measure:
    """The gate as the daemon asks for it, against an engine of 100 tok/s."""

    def run(**fields: Any) -> Any:
        asked = {"profile": SMALL, "candidate": CANDIDATE, "ledger": str(book.path), "engine": "emulator", **fields}
        return judge("throughput", engines("--itl-ms", "10", "--ttft-ms", "30"), **asked)

    return run


def run_of(rate: float, *, concurrency: int = 1, digest: str = LIVE.digest, answer_tokens: int = 16) -> Run:
    """Three rounds around `rate` tok/s per user."""
    workloads = [{"name": "chat", "prompt_tokens": 60, "answer_tokens": answer_tokens}]
    settings = read_model(ThroughputSettings, SMALL | {"workloads": workloads}, "settings")
    cell = Cell(CellKey("chat", concurrency), 3, {DECODE: [rate, rate * 1.01, rate * 0.99]})
    definition = {"chat": settings.definition(settings.workloads[0])}
    engine = {"name": "emulator", "release": LIVE.release, "digest": digest}
    return Run("2026-11-20T02:00:00Z", 60.0, "emu", definition, [cell], engine)


def sentences(verdict: Verdict) -> dict[str, str]:
    return {check.id: check.sentence for check in verdict.checks}


def test_a_run_is_kept_under_its_release_and_its_start(measure: Measure, book: Ledger) -> None:
    verdict = measure()
    assert verdict.verdict == "pass", verdict.sentence
    [row] = book.rows(Selection())
    assert verdict.measurements["ledger"] == {"run": row.run, "rows": [row.id]}
    about = row.configuration
    assert (about.release, about.digest, about.topology) == (CANDIDATE.release, CANDIDATE.digest, "new")
    assert (about.engine, about.flags, about.box) == ("emulator", ("--slots", "8"), BOX)
    assert (row.kind, row.start, row.recorded_by) == (Kind.RESTART, "new-a-1", "gate throughput")
    [shown] = read_run(verdict.measurements["run"]).cells
    assert row.cell.rounds[DECODE] == pytest.approx(shown.rounds[DECODE], rel=1e-5)
    assert verdict.measurements["hardware"]["driver"] == "550.54"


def test_what_live_showed_comes_from_the_ledger(measure: Measure, book: Ledger) -> None:
    shown = book.record(run_of(100), who="ada", hardware=BOX)
    book.record(run_of(99999, answer_tokens=64), who="ada", hardware=BOX)
    book.record(run_of(99999, digest=CANDIDATE.digest), who="ada", hardware=BOX)
    book.record(run_of(99999), who="ada", hardware={**BOX, "gpus": ["Other"]})
    book.record(run_of(99999, concurrency=3), who="ada", hardware=BOX)
    verdict = measure(live=LIVE, baseline={"measurements": {"run": "is not looked at"}})
    assert verdict.verdict == "pass", verdict.sentence
    assert "excluded" in sentences(verdict)["baseline.decode_tok_per_s"]
    assert "baseline: what old@0a1b2c3d showed on 2026-11-20" in " ".join(verdict.measurements["notes"])
    assert verdict.measurements["baseline"] == {"release": "old@0a1b2c3d", "runs": [shown.run]}
    [decode] = verdict.measurements["compared"]
    assert (decode["name"], decode["higher_is_better"]) == ("decode rate per user", True)
    assert len(verdict.measurements["run"]["cells"]) == 1, "a ladder that names its rungs is not made longer"
    book.record(run_of(99999), who="ada", hardware=BOX)
    slow = measure(live=LIVE)
    assert slow.verdict == "fail"
    assert "baseline.decode_tok_per_s" in slow.sentence


def test_without_the_ledger_the_rollout_that_made_it_live_counts_where_the_hardware_is_the_same(
    measure: Measure, book: Ledger
) -> None:
    before = measure(candidate=CANDIDATE.model_copy(update={"digest": LIVE.digest}), ledger=None).measurements
    same = measure(live=LIVE, baseline={"measurements": before})
    assert "excluded" in sentences(same)["baseline.decode_tok_per_s"]
    newer = LIVE.model_copy(update={"hardware": {**BOX, "driver": "560"}})
    other = measure(live=newer, baseline={"measurements": before})
    assert other.verdict == "pass"
    assert "driver 550.54 then, 560 now" in sentences(other)["baseline"]
    assert "`cutover bench --live" in sentences(other)["baseline"]
    assert len(book.rows(Selection())) == 2


def test_live_measured_by_another_profile_is_one_sentence_before_anything_is_sent(
    measure: Measure, book: Ledger
) -> None:
    before = {"run": plain_run(run_of(100, answer_tokens=256)), "hardware": BOX}
    verdict = measure(live=LIVE, baseline={"measurements": before})
    assert verdict.verdict == "inconclusive"
    assert verdict.sentence == (
        "baseline: workload chat is not the baseline's (answer_tokens 16 here, 256 then): in a quiet hour "
        "`cutover bench --live --profile` with this profile measures live for it"
    )
    assert verdict.measurements["again"] is False
    assert not book.rows(Selection()), "no round could make them comparable"
    book.record(run_of(100), who="ada", hardware=BOX)
    again = measure(live=LIVE, baseline={"measurements": before})
    assert "excluded" in sentences(again)["baseline.decode_tok_per_s"], "what is measured for it counts"
    assert "again" not in again.measurements


def test_a_baseline_of_too_few_rounds_is_not_measured_against_for_nothing(measure: Measure, book: Ledger) -> None:
    told = run_of(100)
    short = replace(told, cells=[replace(told.cells[0], rounds={DECODE: [100.0]})])
    before = {"run": plain_run(short), "hardware": BOX}
    verdict = measure(live=LIVE, profile=SMALL | {"rounds": [3, 5]}, baseline={"measurements": before})
    assert verdict.verdict == "inconclusive"
    assert "3 on each side are needed; only a baseline of more rounds helps" in verdict.sentence
    assert verdict.measurements["again"] is False
    [row] = book.rows(Selection())
    assert row.rounds == 3, "more rounds of the candidate could change nothing"


def test_workloads_that_the_profile_does_not_ask_are_no_part_of_the_baseline(measure: Measure) -> None:
    told = run_of(100)
    long = replace(told.cells[0], key=CellKey("long", 1))
    more = replace(told, cells=[*told.cells, long], workloads={**told.workloads, "long": {"prompt_tokens": 8000}})
    verdict = measure(live=LIVE, baseline={"measurements": {"run": plain_run(more), "hardware": BOX}})
    assert "excluded" in sentences(verdict)["baseline.decode_tok_per_s"]


@pytest.mark.parametrize("starts", [4, 5])
def test_five_measured_starts_say_how_far_starts_lie_apart(measure: Measure, book: Ledger, starts: int) -> None:
    for number in range(starts):
        book.record(
            run_of(100 * (1 + 0.04 * (number % 2))), who="ada", hardware=BOX, kind=Kind.RESTART, start=str(number)
        )
    verdict = measure(live=LIVE)
    said = " ".join(verdict.measurements["baseline_notes"])
    assert (f"measured over {starts} restarts" in said) == (starts == 5), said
    assert ("assumed 1.0%" in said) == (starts == 4), said
    narrow = measure(live=LIVE, profile=SMALL | {"margin": 0.047})
    assert ("take a margin of" in narrow.sentence) == (starts == 5)
    assert (narrow.measurements.get("again") is False) == (starts == 5)


# --- several starts of live -------------------------------------------------------------------------------------------


def started(book: Ledger, rate: float, day: int, start: str = "", **words: Any) -> None:
    told = replace(run_of(rate, **words), started_at=f"2026-11-{day:02}T02:00:00Z")
    book.record(told, who="ada", hardware=BOX, kind=Kind.RESTART if start else Kind.CELL, start=start)


def baseline_of(book: Ledger) -> tuple[int, list[float], str]:
    """Over how many starts it counts, its rounds, and what is said of it."""
    asking = Book(book, live=LIVE)
    found = asking.baseline(read_model(ThroughputSettings, SMALL, "settings"))
    assert found is not None
    [only] = found.cells
    return asking.starts, [*only.rounds[DECODE]], " ".join(asking.notes)


def test_every_start_of_live_counts_as_one(book: Ledger) -> None:
    for day, rate in ((20, 100.0), (21, 104.0), (22, 102.0)):
        started(book, rate, day, start=f"old-a-{day}")
    starts, rounds, said = baseline_of(book)
    assert (starts, len(rounds)) == (3, 9)
    assert {100.0, 102.0, 104.0} < set(rounds)
    assert "showed on 2026-11-22, over 3 starts (ledger, run " in said


def test_the_same_start_twice_is_one_start(book: Ledger) -> None:
    for day in (20, 21):
        started(book, 100, day, start="old-a-1")
    assert baseline_of(book)[0] == 1


def test_what_may_be_the_same_start_or_another_time_counts_as_one(book: Ledger) -> None:
    started(book, 100, 1, start="old-a-1")
    started(book, 110, 20, start="old-a-2")
    assert baseline_of(book)[0] == 1, "three weeks before is another time"
    started(book, 120, 21, start="old-a-3")
    started(book, 140, 21, start="old-a-4", concurrency=2)
    assert baseline_of(book)[0] == 2, "another rung says nothing of this one"
    started(book, 130, 22)
    starts, rounds, _ = baseline_of(book)
    assert (starts, rounds[0]) == (1, 130), "whose start it was nobody said"


def test_more_starts_of_live_carry_a_smaller_margin(measure: Measure, book: Ledger) -> None:
    narrow = SMALL | {"margin": 0.04}
    started(book, 60, 20, start="old-a-1")
    assert "take a margin of" in measure(live=LIVE, profile=narrow).sentence
    for day in (21, 22, 23):
        started(book, 60, day, start=f"old-a-{day}")
    verdict = measure(live=LIVE, profile=narrow)
    assert "margin" not in sentences(verdict), verdict.sentence
    assert "excluded" in sentences(verdict)["baseline.decode_tok_per_s"]


def test_a_ledger_that_is_held_is_said_and_changes_nothing(measure: Measure, book: Ledger) -> None:
    book.record(run_of(100), who="ada", hardware=BOX)
    with contextlib.closing(sqlite3.connect(book.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        verdict = measure(live=LIVE)
    assert verdict.verdict == "pass", verdict.sentence
    [said] = [check for check in verdict.checks if check.id == "ledger"]
    assert said.warn
    assert "another process has held the ledger" in said.sentence
    assert "ledger" not in verdict.measurements
    assert "baseline.decode_tok_per_s" in sentences(verdict), "what is in it can be read"


@pytest.mark.parametrize("spoil", [b"this is no database", None])
def test_a_ledger_that_cannot_be_used_is_said_and_changes_nothing(
    measure: Measure, book: Ledger, spoil: bytes | None
) -> None:
    if spoil is None:
        book.path.mkdir(parents=True)
    else:
        book.path.parent.mkdir()
        book.path.write_bytes(spoil * 400)
    verdict = measure(live=LIVE)
    assert verdict.verdict == "pass", verdict.sentence
    assert "the ledger could not be read" in sentences(verdict)["ledger"]
    assert verdict.checks[-1].id == "baseline"


def test_a_client_that_breaks_is_no_measurement_and_no_traceback(
    measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes die as soon as they begin, as where memory is short."""
    dying = tmp_path / "dying"
    dying.mkdir()
    (dying / "sitecustomize.py").write_text(
        "import os, sys\nif 'gates.load.worker' in sys.orig_argv:\n    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(dying))
    verdict = measure(profile=SMALL | {"ladder": [{"concurrency": 2}], "client_processes": 2})
    assert verdict.verdict == "inconclusive"
    assert "chat.c2.measurement: the load client broke" in verdict.sentence


def test_the_roofline_says_the_share_of_each_cell(measure: Measure, book: Ledger) -> None:
    sizes = {"weights_bytes": 6.5e9, "kv_bytes_per_token": 57344, "bandwidth_bytes_per_s": 1e12}
    verdict = measure(profile=SMALL | {"roofline": sizes})
    [row] = book.rows(Selection())
    share = row.cell.figures["roofline_share"]
    # 6.5 ms of 10 by the emulator's law; a slow box has longer steps.
    assert 0 < (share.value or 0) < 0.9
    assert share.n == 3
    assert any("chat c1 uses" in note and "of the memory bandwidth" in note for note in verdict.measurements["notes"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kv_bytes_per_token": None, "layers": 64}, "needs kv_bytes_per_token, or layers, kv_heads and head_dim"),
        ({"expert_bytes": 1e9}, "expert_bytes needs experts"),
        ({"bandwith_bytes_per_s": 1}, "bandwith_bytes_per_s"),
    ],
)
def test_a_roofline_that_cannot_be_is_one_sentence(measure: Measure, wrong: dict[str, Any], said: str) -> None:
    sizes = {"weights_bytes": 6.5e9, "kv_bytes_per_token": 57344, "bandwidth_bytes_per_s": 1e12, **wrong}
    verdict = measure(profile=SMALL | {"roofline": sizes})
    assert verdict.verdict == "error"
    assert said in verdict.sentence


def test_a_table_does_not_cost_a_load_client() -> None:
    code = (
        "import sys, gates.ledger.store, gates.ledger.draw; print('uvloop' in sys.modules, 'httptools' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.split() == ["False", "False"]
