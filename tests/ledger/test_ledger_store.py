"""What is kept is what was measured; it is retracted, never edited; many write it at once; damage is one sentence."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ledger_kit import CHAT, HARDWARE, cell, run

from gates.ledger.errors import LedgerError, LedgerRefusedError, NoSuchRowError
from gates.ledger.rows import Kind, Source
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger
from gates.throughput.records import DECODE, TTFT, Cell, CellKey, Figure

ALL = Selection(sources=tuple(Source))
NOBODY = 65534


def record(ledger: Ledger, measured=None, **words):
    return ledger.record(measured or run(), who="ada", hardware=HARDWARE, **words)


def test_a_row_has_everything_that_was_known(ledger):
    measured = run(capture_sizes=[1, 2, 4])
    made = record(ledger, measured, note="quiet hours", start="qwen-a-7")
    rows = ledger.rows(ALL)
    assert [row.id for row in rows] == list(made.rows) == [1, 2, 3, 4, 5, 6]
    row = rows[1]
    assert row.cell == measured.cells[1]
    assert row.definition == CHAT
    assert (row.run, row.source, row.kind, row.start) == (made.run, Source.OURS, Kind.CELL, "qwen-a-7")
    assert (row.started_at, row.duration_s) == ("2026-11-20T02:00:00+00:00", 61.5)
    assert (row.recorded_at, row.recorded_by, row.note) == ("2026-11-30T12:00:00+00:00", "ada", "quiet hours")
    c = row.configuration
    assert (c.topology, c.release, c.digest) == ("qwen-tp2", "qwen-tp2@1a2b3c4d", "1a2b3c4d")
    assert (c.engine, c.engine_version, c.model, c.kv_format) == ("sglang", "0.5.2", "qwen3.8-27b", "fp8_e5m2")
    assert (c.flags, c.hardware) == (("--tp-size", "2"), HARDWARE)
    assert c.facts == {"limit": 8, "capture_sizes": [1, 2, 4]}
    assert row.counts


def test_a_figure_is_a_number_with_its_sample(ledger):
    record(ledger)
    row = ledger.find("1")[0]
    assert row.figure(DECODE).n == 5
    assert row.figure("tokens_per_chunk") == Figure(1.7, 900)
    assert row.figure("ttft_p99_s") == Figure(None, 12), "what the sample does not carry stays empty"
    assert row.figure("never measured") == Figure(None, 0)


def test_a_ledger_that_is_not_there_is_empty_and_stays_so(ledger):
    assert ledger.rows(ALL) == ()
    assert ledger.latest("1a2b3c4d") == ()
    assert ledger.tau("sglang") is None
    assert not any(ledger.known().values())
    with pytest.raises(NoSuchRowError, match=r"there is no row 1: the ledger .* is empty"):
        ledger.find("1")
    assert not ledger.path.parent.exists(), "whoever only looks leaves nothing behind"


def test_a_run_is_recorded_once(ledger):
    record(ledger, run_id="r0007-throughput")
    with pytest.raises(LedgerRefusedError, match="the run r0007-throughput is in the ledger already"):
        record(ledger, run_id="r0007-throughput")
    assert len(ledger.rows(ALL)) == 6


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (run(cells=[cell("chat", 1, float("nan"))]), "chat c1 cannot be recorded: .*finite numbers"),
        (run(cells=[cell("chat", 1, 50), cell("chat", 2, float("inf"))]), "chat c2 cannot be recorded"),
        (run(limit=float("nan")), "the configuration cannot be recorded"),
        (run(note=object()), "the configuration cannot be recorded"),
        (run(cells=[cell("other", 1, 50)]), "cells of the workload 'other', and does not say what that is"),
        (run(at="yesterday"), "'yesterday' is no date"),
    ],
)
def test_what_is_no_measurement_does_not_get_in(ledger, measured, said):
    with pytest.raises(LedgerError, match=said):
        record(ledger, measured)
    assert ledger.rows(ALL) == (), "not even the cells before it"


# --- retracting -------------------------------------------------------------------------------------------------------


def test_a_retracted_row_stays_with_its_reason_and_counts_no_more(ledger):
    record(ledger)
    (row,) = ledger.retract("2", reason=" all four arms ran on GPU 0 ", who="bob")
    assert row.retracted is not None
    assert (row.retracted.reason, row.retracted.who) == ("all four arms ran on GPU 0", "bob")
    assert row.retracted.at == "2026-11-30T12:00:00+00:00"
    assert not row.counts
    assert len(ledger.rows(ALL)) == 6
    assert [row.id for row in ledger.rows(Selection(retracted=True))] == [2]
    assert [row.id for row in ledger.rows(Selection(retracted=False))] == [1, 3, 4, 5, 6]
    assert 2 not in [row.id for row in ledger.latest("1a2b3c4d")]


def test_a_whole_run_is_retracted_and_the_first_reason_stays(ledger):
    made = record(ledger)
    record(ledger)
    ledger.retract("3", reason="first", who="ada")
    rows = ledger.retract(made.run, reason="second", who="bob")
    assert [row.retracted.reason for row in rows] == ["second", "second", "first", "second", "second", "second"]
    assert len(ledger.rows(Selection(retracted=False))) == 6
    with pytest.raises(LedgerRefusedError, match=r"3 was retracted already, on 2026-11-30T.* by ada: first"):
        ledger.retract("3", reason="third", who="eve")


def test_retracting_needs_a_row_and_a_reason(ledger):
    record(ledger, run_id="r0001-throughput")
    with pytest.raises(LedgerRefusedError, match="with a reason"):
        ledger.retract("1", reason=" ", who="ada")
    with pytest.raises(NoSuchRowError, match=r"there is no row 99 in the ledger .*; its newest is 6"):
        ledger.retract("99", reason="x", who="ada")
    with pytest.raises(NoSuchRowError, match=r"no row or run r0001-thruput .*did you mean 'r0001-throughput'"):
        ledger.retract("r0001-thruput", reason="x", who="ada")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET engine = 'vllm'",
        "UPDATE cells SET body = '{}'",
        "UPDATE retractions SET reason = ''",
        "DELETE FROM runs",
        "DELETE FROM cells",
        "DELETE FROM retractions",
    ],
)
def test_the_file_itself_refuses_to_be_edited(ledger, statement):
    record(ledger)
    ledger.retract("1", reason="x", who="ada")
    before = ledger.rows(ALL)
    db = sqlite3.connect(ledger.path)
    with pytest.raises(sqlite3.IntegrityError, match="a ledger is never edited"):
        db.execute(statement)
    db.close()
    assert ledger.rows(ALL) == before


# --- many at once -----------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from ledger_kit import HARDWARE, run
from gates.ledger.store import Ledger
ledger = Ledger(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    ledger.record(run(), who=sys.argv[2], hardware=HARDWARE, run_id=f"{sys.argv[2]}-{number}")
    print(number, flush=True)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def writer(path: Path, name: str, runs: int, **words) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(runs)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **words
    )


def test_several_gates_make_and_write_the_same_ledger(ledger):
    writers = [writer(ledger.path, f"w{number}", 8) for number in range(3)]
    ends = [process.communicate(timeout=100) for process in writers]
    assert [process.returncode for process in writers] == [0] * 3, ends
    rows = ledger.rows(ALL)
    assert len(rows) == 3 * 8 * 6
    assert len({row.id for row in rows}) == len(rows)
    assert {row.run for row in rows} == {f"w{w}-{n}" for w in range(3) for n in range(8)}


def test_a_writer_that_is_killed_leaves_whole_runs(ledger):
    process = writer(ledger.path, "w", 100_000)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    told = 3 + len(process.communicate(timeout=60)[0].splitlines())
    by_run: dict[str, int] = {}
    for row in ledger.rows(ALL):
        by_run[row.run] = by_run.get(row.run, 0) + 1
    assert set(by_run.values()) == {6}
    assert len(by_run) >= told, "what was acknowledged is kept"
    record(ledger)


# --- the file ---------------------------------------------------------------------------------------------------------


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def no_database(path: Path) -> None:
    path.write_bytes(b"this is no database " * 500)


def newer(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()


def of_another_program(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE cells (id INTEGER)")
    db.commit()
    db.close()


def edited_by_hand(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER cells_stay")
    db.execute("UPDATE cells SET body = '{}' WHERE id = 4")
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damaged, r"ledger\.sqlite is damaged \(.*nothing was changed: put a backup in its place"),
        (no_database, r"ledger\.sqlite is damaged \(file is not a database\)"),
        (
            newer,
            r"was written by a newer version \(schema 99, this one knows 1\); upgrade cutover, nothing was changed",
        ),
        (of_another_program, "is a database, but no ledger; nothing was changed"),
        (edited_by_hand, "row 4 of the ledger cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(ledger, harm, said):
    record(ledger)
    harm(ledger.path)
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match=said) as caught:
        ledger.rows(ALL)
    assert "\n" not in str(caught.value)
    if harm is not edited_by_hand:
        with pytest.raises(LedgerError, match=said):
            record(ledger)
    assert ledger.path.read_bytes() == before


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot be used .*; nothing was recorded"):
        record(Ledger(tmp_path / "file" / "ledger.sqlite"))
    with pytest.raises(LedgerError, match=r"cannot be used .*; nothing was changed"):
        Ledger(tmp_path).rows(ALL)


def test_a_full_disk_is_a_sentence_and_leaves_nothing_half_written(ledger):
    record(ledger)
    size_bytes = 64 * 1024

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    process = writer(ledger.path, "w", 1000, preexec_fn=little_room)
    told, wrong = process.communicate(timeout=100)
    assert process.returncode == 1
    assert wrong.splitlines()[-1].startswith("gates.ledger.errors.LedgerError: ")
    assert "nothing was recorded" in wrong.splitlines()[-1]
    rows = ledger.rows(ALL)
    assert len(rows) == 6 + 6 * len(told.splitlines()), "whole runs only"
    record(ledger)
    assert len(ledger.rows(ALL)) == len(rows) + 6


READER = """
import os, sys
from pathlib import Path
from gates.ledger import selection, reference, spread
from gates.ledger.rows import Source
from gates.ledger.store import Ledger
ledger = Ledger(Path(sys.argv[1]))
print(len(ledger.rows(selection.Selection(sources=tuple(Source)))))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(len(ledger.rows(selection.Selection(sources=tuple(Source)))))
try:
    ledger.retract("1", reason="x", who="nobody")
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_others_may_read_what_they_may_not_write():
    directory = Path(tempfile.mkdtemp(prefix="cutover-ledger-"))
    try:
        directory.chmod(0o755)
        path = directory / "ledger.sqlite"
        record(Ledger(path))
        path.chmod(0o644)
        command = [sys.executable, "-c", READER, str(path)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True)
    finally:
        shutil.rmtree(directory)
    mine, theirs, refused = done.stdout.splitlines()
    assert (mine, theirs) == ("6", "6")
    assert refused.startswith(f"the ledger {path} cannot be used (")
    assert refused.endswith("nothing was recorded")


# --- what gates ask ---------------------------------------------------------------------------------------------------


def test_latest_is_the_newest_of_every_cell_that_counts(ledger):
    digest = "1a2b3c4d" + "0" * 56
    old = record(ledger, run(at="2026-11-01T00:00:00Z"))
    new = record(
        ledger, run(at="2026-11-02T00:00:00Z", digest=digest, cells=[cell("chat", 1, 90), cell("chat", 4, 60)])
    )
    record(ledger, run(at="2026-11-03T00:00:00Z", cells=[cell("chat", 1, 10, problem="the client was the limit")]))
    gone = record(ledger, run(at="2026-11-04T00:00:00Z", cells=[cell("chat", 1, 20)]))
    record(ledger, run("qwen-tp4@5e6f7a8b", at="2026-11-05T00:00:00Z"))
    ledger.retract(gone.run, reason="foreign load", who="ada")
    for name in (digest, "1a2b3c4d"):
        assert [row.id for row in ledger.latest(name)] == [*old.rows[2:], *new.rows]
    assert [row.id for row in ledger.latest("1a2b3c4d", workload=CHAT)] == [old.rows[2], *new.rows]
    assert ledger.latest("1a2b3c4d", workload={**CHAT, "answer_tokens": 512}) == ()
    assert ledger.latest("1a2b3c4d" + "1" * 56) == tuple(ledger.find(str(n))[0] for n in old.rows)
    with pytest.raises(LedgerError, match="no digest of a release; expected at least 8"):
        ledger.latest("1a2b")


def test_latest_wants_the_same_hardware_where_it_is_named(ledger):
    record(ledger)
    assert len(ledger.latest("1a2b3c4d", hardware={"gpus": ["RTX 3090", "RTX 3090"]})) == 6
    assert ledger.latest("1a2b3c4d", hardware={"gpus": ["RTX 3090"]}) == ()
    assert ledger.latest("1a2b3c4d", hardware={**HARDWARE, "driver": "560"}) == ()
    assert ledger.latest("1a2b3c4d", hardware={"power_limit_w": 260}) == (), "what nobody noted is not agreement"


def restarts(ledger: Ledger, release: str, rates: list[float], **words):
    for number, rate in enumerate(rates):
        record(ledger, run(release, rate, **words), kind=Kind.RESTART, start=f"{release}-{number}")


def test_tau_is_the_spread_between_starts(ledger):
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100, 102])
    tau = ledger.tau("sglang", engine_version="0.5.2", digest="1a2b3c4d", hardware=HARDWARE)
    assert tau is not None
    assert tau.sd == pytest.approx(0.0140, abs=1e-4), "ln 1.02 / sqrt 2"
    assert tau.restarts == 2
    first_tokens = ledger.tau("sglang", metric=TTFT)
    assert first_tokens is not None
    assert first_tokens.sd == pytest.approx(tau.sd)


def test_tau_pools_releases_and_never_mixes_their_levels(ledger):
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100, 102])
    restarts(ledger, "qwen-tp4@5e6f7a8b", [300, 306, 303])
    tau = ledger.tau("sglang")
    assert tau is not None
    assert tau.sd == pytest.approx(0.0114, abs=2e-4)
    assert tau.restarts == 4, "five starts less one, for the second mean"


def test_tau_compares_the_rungs_that_every_start_has(ledger):
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100])
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100], cells=[cell("chat", 1, 100 / 1.1)])
    assert ledger.tau("sglang") is None, "the same start measured twice is one start"
    record(ledger, run(cells=[cell("chat", 1, 100 / 1.1)]), kind=Kind.RESTART, start="other")
    tau = ledger.tau("sglang")
    assert tau is not None
    assert tau == (pytest.approx(0.0, abs=1e-9), 2)


def test_tau_is_unknown_until_restarts_were_measured(ledger):
    record(ledger)
    record(ledger, run(rate=120))
    assert ledger.tau("sglang") is None, "two runs are not two starts"
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100, 102])
    assert ledger.tau("vllm") is None
    assert ledger.tau("sglang", engine_version="0.6") is None
    assert ledger.tau("sglang", digest="5e6f7a8b") is None
    assert ledger.tau("sglang", hardware={"host": "box2"}) is None
    for row in ledger.rows(Selection(kind=Kind.RESTART)):
        ledger.retract(str(row.id), reason="the cards were throttled", who="ada")
    assert ledger.tau("sglang") is None


def test_tau_takes_the_workloads_that_most_starts_had(ledger):
    restarts(ledger, "qwen-tp2@1a2b3c4d", [100, 102])
    other = {"chat": {**CHAT, "answer_tokens": 32}}
    record(ledger, run(cells=[cell("chat", 1, 400)], workloads=other), kind=Kind.RESTART, start="another profile")
    tau = ledger.tau("sglang")
    assert tau is not None
    assert (tau.sd, tau.restarts) == (pytest.approx(0.0140, abs=1e-4), 2)


def test_noise_of_rounds_is_no_spread_between_starts(ledger):
    """One level, 3 % between rounds: the medians of three lie apart by themselves."""
    noisy = [(96, 98, 103), (99, 102, 104), (97, 100, 101), (95, 99, 103), (98, 101, 104)]
    for number, rates in enumerate(noisy):
        only = Cell(CellKey("chat", 1), 6, {DECODE: rates})
        record(ledger, run(cells=[only]), kind=Kind.RESTART, start=str(number))
    medians = [row.figure(DECODE).value or 0.0 for row in ledger.rows(Selection())]
    assert statistics.stdev(map(math.log, medians)) > 0.015
    tau = ledger.tau("sglang")
    assert tau is not None
    assert tau.restarts == 5
    assert tau.sd < 0.005


def test_a_quick_look_does_not_hide_a_measurement(ledger):
    whole = record(ledger, run(cells=[cell("chat", 1, 100)]))
    record(ledger, run(cells=[cell("chat", 1, 200, rounds=1)], at="2026-11-29T02:00:00Z"))
    assert [row.id for row in ledger.latest("1a2b3c4d", rounds=3)] == list(whole.rows)
    assert ledger.latest("1a2b3c4d")[0].rounds == 1


def test_a_file_that_is_held_is_waited_for_as_long_as_one_likes(ledger):
    record(ledger)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"another process has held the ledger .* nothing was recorded"):
            record(Ledger(ledger.path, patience_s=0.1))
        assert len(ledger.rows(Selection())) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files in a directory of somebody else's")
def test_what_root_measures_first_belongs_to_whom_the_directory_belongs(tmp_path):
    """Else the daemon's gates, which are not root's, could record nothing after it."""
    os.chown(tmp_path, 65534, 65534)
    record(Ledger(tmp_path / "ledger.sqlite"))
    assert {file.stat().st_uid for file in tmp_path.iterdir()} == {65534}
