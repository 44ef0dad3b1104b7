"""`cutover ledger` and `cutover compare`, without a daemon."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from pathlib import Path

import pytest
from ledger_kit import CHAT, HARDWARE, cell, run

from gates.ledger.rows import Source
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger
from gates.throughput.records import DECODE

FORUM = """\
origin: https://example.org/t/17
date: 2026-09-14
topology: 27b-tp4-forum
engine: vllm
engine_version: 0.10
gpus: 4x V100-SXM2-32GB
rows:
  - {workload: chat, prompt_tokens: 200, concurrency: 4, ttft_cold_s: 0.27, decode_tok_per_s: 32.8, n: 3}
  - {workload: long, prompt_tokens: 8000, concurrency: 4, ttft_cold_s: 4.19, ttft_warm_s: 0.96, decode_tok_per_s: 29.6}
"""


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    """The ledger of the configuration's state directory."""
    return Ledger(tmp_path / "state" / "ledger.sqlite")


@pytest.fixture
def ask(cutover, config_file):
    return lambda *words: cutover("--config", config_file, *words)


@pytest.fixture
def filled(book: Ledger) -> Ledger:
    """Two releases, the second a tenth slower and two days younger."""
    book.record(run(), who="ada", hardware=HARDWARE)
    slower = run("qwen-tp4@5e6f7a8b", 90.0, at="2026-11-22T02:00:00Z", flags=["--tp-size", "4"])
    book.record(slower, who="ada", hardware=HARDWARE, note="quiet hours")
    return book


@pytest.fixture
def forum(tmp_path: Path) -> Path:
    path = tmp_path / "forum.yaml"
    path.write_text(FORUM)
    return path


# --- the table --------------------------------------------------------------------------------------------------------


def test_an_empty_ledger_says_how_rows_get_in(ask, book):
    done = ask("ledger")
    assert done.code == 0
    assert done.out.startswith(f"the ledger {book.path} is empty: rows get in by `cutover bench`")
    assert "`cutover ledger add --reference FILE`" in done.out
    assert done.out.count("\n") == 1
    assert ask("ledger", "--json").json == {"schema": 1, "ledger": str(book.path), "ours": [], "reference": []}
    assert ask("ledger", "--csv").out.startswith("id,source,kind,retracted,run,")
    assert not book.path.exists()


def test_a_long_ledger_shows_the_newest_rows_and_says_how_to_get_the_others(ask, book):
    for day in range(1, 30):
        book.record(run(at=f"2026-10-{day:02}T02:00:00Z"), who="ada", hardware=HARDWARE)
    total = len(book.rows(Selection()))
    assert total > 100
    shown = ask("ledger").out
    assert shown.splitlines()[-1] == f"the newest 100 rows; {total - 100} more with --all"
    assert "2026-10-29" in shown
    assert "2026-10-01" not in shown
    assert "2026-10-01" in ask("ledger", "--all").out
    assert "--all" not in ask("ledger", "--all").out
    assert len(ask("ledger", "--json").json["ours"]) == total


def test_the_table_has_a_line_per_cell_under_its_configuration(ask, filled):
    done = ask("ledger")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "ours"
    assert (
        lines[2] == "qwen-tp2@1a2b3c4d · sglang 0.5.2 · qwen3.8-27b · KV fp8_e5m2 · 2× RTX 3090 · driver 550.54 · box1"
    )
    assert lines[3] == "flags: --tp-size 2"
    assert lines[4].split() == ["TTFT", "TTFT", "tok/s", "end", "to", "tok/s", "tok", "per"]
    assert lines[5].split()[:3] == ["id", "workload", "users"]
    row = next(line for line in lines if line.split()[:1] == ["2"])
    assert row.split() == ["2", "chat", "200→256", "4", "280.0", "–", "71.4", "–", "285.7", "1.70", "40", "2026-11-20"]
    assert "reference" not in done.out
    assert "7, 8, 9, 10, 11, 12: quiet hours" in lines


CHOICES = (
    (("--topology", "qwen-tp4"), range(7, 13)),
    (("--topology", "qwen-tp?"), range(1, 13)),
    (("--topology", "qwen-tp2@1a2b3c4d"), range(1, 7)),
    (("--topology", "5e6f"), range(7, 13)),
    (("--topology", "5e6"), ()),
    (("--engine", "sglang 0.5*"), range(1, 13)),
    (("--engine", "vllm"), ()),
    (("--workload", "long", "--topology", "qwen-tp2"), range(4, 7)),
    (("--since", "2026-11-21"), range(7, 13)),
    (("--until", "2026-11-20"), range(1, 7)),
    (("--since", "2026-11-20T02:00", "--until", "2026-11-20T04:00+02:00"), range(1, 7)),
    (("--since", "9999d", "--ours"), range(1, 13)),
    (("--reference",), ()),
)


def test_rows_are_chosen(ask, filled):
    for words, rows in CHOICES:
        document = ask("ledger", *words, "--json").json
        assert [row["id"] for row in (*document["ours"], *document["reference"])] == list(rows), words


def test_a_filter_that_nothing_fits_says_what_there_is(ask, filled):
    done = ask("ledger", "--topology", "qwen-tp8", "--workload", "chat")
    assert done.code == 0
    assert "fits --topology qwen-tp8 --workload chat; it has topology: qwen-tp2, qwen-tp4; release: " in done.out


def test_numbers_are_whole_on_a_narrow_terminal(ask, filled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in (("ledger",), ("compare", "qwen-tp2", "qwen-tp4")):
        done = ask(*words)
        tables = [line for line in done.out.splitlines() if "200→256" in line or "8000→256" in line]
        assert tables
        assert max(len(line) for line in tables) <= 80
        assert not any(re.search(r"\d…", line) for line in tables)
    row = next(line for line in ask("ledger").out.splitlines() if line.split()[:1] == ["2"])
    assert {"71.4", "285.7", "280.0", "2026-11-20"} <= set(row.split())


@pytest.mark.parametrize("width", [60, 20])
def test_what_has_no_room_is_named_and_the_rest_is_whole(ask, filled, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = ask("ledger").out
    row = next(line for line in out.splitlines() if line.split()[:1] == ["2"])
    assert row.split()[:4] == ["2", "chat", "200→256", "4"]
    assert "71.4" in row.split()
    assert (len(row) <= width) == (width == 60)
    assert "no room here for tok per chunk, TTFT warm ms, end to end" in out
    compared = ask("compare", "qwen-tp2", "qwen-tp4").out
    line = next(line for line in compared.splitlines() if line.startswith("chat 200→256"))
    assert re.search(r" 1 .*-10\.0 % .*worse$", line)
    assert "no room here for rounds" in compared
    assert "release: qwen-tp2@1a2b3c4d → qwen-tp4@5e6f7a8b" in compared or width == 60
    assert not re.search(r"\w…", out + compared)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "last week"), "--since 'last week' is no date; expected one as 2026-09-14"),
        (("--until", "2026-13-01"), "--until '2026-13-01' is no date"),
        (("--since", "99999h ago"), "is no date"),
        (("--csv", "--json"), "--csv and --json together: choose one"),
        (("--matrix", "decode", "--csv"), "--matrix is drawn"),
        (("--topology", "x", "show", "1"), "--topology belongs to the table"),
        (("--ledger", "/no/such/place/ledger.sqlite"), "the directory /no/such/place does not exist"),
    ],
)
def test_what_cannot_be_understood_is_said(ask, filled, words, said):
    done = ask("ledger", *words)
    assert done.code == 2
    told = done.json["error"] if done.out else done.err
    assert said in told
    assert done.err.count("\n") <= 1


def test_json_has_all_of_a_row(ask, filled):
    row = ask("ledger", "--json").json["ours"][1]
    assert row["definition"] == CHAT
    assert (row["workload"], row["concurrency"], row["requests"]) == ("chat", 4, 40)
    assert row["figures"]["tokens_per_chunk"] == {"value": 1.7, "n": 900}
    assert len(row["rounds"]["decode_tok_per_s"]) == 5
    assert (row["flags"], row["hardware"]["driver"], row["facts"]) == (["--tp-size", "2"], "550.54", {"limit": 8})
    assert row["retracted"] is None


def test_csv_is_a_line_per_row(ask, filled):
    done = ask("ledger", "--csv", "--topology", "qwen-tp2")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 6
    assert (rows[1]["release"], rows[1]["concurrency"], rows[1]["n"]) == ("qwen-tp2@1a2b3c4d", "4", "40")
    assert (rows[1]["flags"], rows[1]["gpus"], rows[1]["source"]) == ("--tp-size 2", "2× RTX 3090", "ours")
    assert float(rows[1]["decode_tok_per_s"]) == pytest.approx(71.4, abs=0.1)


def test_the_matrix_has_releases_side_by_side(ask, filled):
    done = ask("ledger", "--matrix", "decode", "--workload", "chat")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["c1", "c4", "c8"] in lines
    assert ["qwen-tp2@1a2b3c4d", "90.9", "71.4", "55.6"] in lines
    assert lines[0][:1] == ["ours:"]
    assert done.out.splitlines()[1].startswith("sglang 0.5.2 · ")
    markdown = ask("ledger", "--matrix", "aggregate", "--workload", "chat", "--markdown").out
    assert "|  | c1 | c4 | c8 |" in markdown


def test_what_engines_wrote_cannot_act_on_the_terminal(ask, book):
    evil = run("qwen\x1b[2J@1a2b3c4d", cells=[cell("chat", 1, 50, problem="\x1b]0;x\x07stop")], version="0|5\n<b>")
    book.record(evil, who="ada", hardware={"gpus": ["a\x9bb"]})
    for words in ((), ("--markdown",), ("--csv",), ("--matrix", "decode")):
        said = ask("ledger", *words).out
        assert not set(said) & {"\x1b", "\x07", "\x9b"}
    markdown = ask("ledger", "--markdown").out
    assert r"0\|5 \<b\>" in markdown


# --- show, retract ----------------------------------------------------------------------------------------------------


def test_show_has_every_figure_with_its_sample(ask, filled):
    done = ask("ledger", "show", 2)
    assert done.code == 0
    assert "row 2, ours: chat 200→256, 4 at once" in done.out
    assert "tokens_per_chunk" in done.out
    assert "prompt_tokens 200" in done.out
    assert "limit 8" in done.out
    document = ask("ledger", "show", filled.find("7")[0].run, "--json").json
    assert [row["id"] for row in document["rows"]] == list(range(7, 13))


def test_show_of_what_is_not_there(ask, filled):
    done = ask("ledger", "show", 99)
    assert (done.code, done.out) == (3, "")
    assert done.err == f"cutover: there is no row 99 in the ledger {filled.path}; its newest is 12\n"


def test_a_retracted_row_is_shown_as_such_everywhere(ask, filled):
    done = ask("ledger", "retract", 2, "--reason", "all four arms ran on GPU 0")
    assert (done.code, done.out) == (0, "retracted: row 2; shown as such from now on\n")
    table = ask("ledger").out
    assert [line.split()[:3] for line in table.splitlines()].count(["✗", "2", "chat"]) == 1
    line = next(line for line in table.splitlines() if line.startswith("✗ 2: retracted 20"))
    assert line.endswith(": all four arms ran on GPU 0")
    assert "~~2~~ | ~~chat 200→256~~" in ask("ledger", "--markdown").out
    assert "all four arms ran on GPU 0" in ask("ledger", "--csv").out
    assert ask("ledger", "--json").json["ours"][1]["retracted"]["reason"] == "all four arms ran on GPU 0"
    assert "RETRACTED" in ask("ledger", "show", 2).out
    assert "1 row left out: retracted, or no measurement" in ask("ledger", "--matrix", "decode").out
    assert [row["id"] for row in ask("ledger", "--retracted", "--json").json["ours"]] == [2]
    assert 2 not in [row["id"] for row in ask("ledger", "--no-retracted", "--json").json["ours"]]
    again = ask("ledger", "retract", 2, "--reason", "again")
    assert again.code == 5
    assert "was retracted already" in again.err
    assert ask("ledger", "retract", 3, "--reason", " ").code == 5
    assert ask("ledger", "retract", 3).code == 2


def test_a_cell_that_is_no_measurement_says_why(ask, book):
    book.record(run(cells=[cell("chat", 1, 50, problem="the client was the limit")]), who="ada", hardware={})
    assert "no measurement: the client was the limit" in ask("ledger").out


# --- add --reference --------------------------------------------------------------------------------------------------


def test_a_reference_is_kept_apart(ask, filled, forum):
    assert ask("ledger", "add", "--reference", forum).out == "added as reference: rows 13, 14\n"
    document = ask("ledger", "--json").json
    assert len(document["ours"]) == 12
    assert [row["id"] for row in document["reference"]] == [13, 14]
    row = document["reference"][1]
    assert (row["origin"], row["engine_version"], row["requests"]) == ("https://example.org/t/17", "0.10", 0)
    assert row["hardware"] == {"gpus": ["V100-SXM2-32GB"] * 4}
    assert row["figures"]["ttft_warm_s"] == {"value": 0.96, "n": 0}
    table = ask("ledger").out
    ours, heading, theirs = table.partition("reference (measured elsewhere)\n")
    assert heading
    assert "forum" not in ours
    assert "qwen-tp2" not in theirs
    assert "from https://example.org/t/17" in theirs
    assert [row["id"] for row in ask("ledger", "--reference", "--json").json["reference"]] == [13, 14]
    assert ask("ledger", "--ours", "--json").json["reference"] == []
    assert filled.latest("27b-tp4-forum") == ()


def test_one_row_is_added_key_by_key(ask, book):
    words = ("origin=a friend", "date=2026-09-14", "topology=tp2", "workload=chat", "concurrency=2", "n=6")
    done = ask("ledger", "add", "--reference", *words, "decode_tok_per_s=36.5", "flags=--a 'b c'", "--json")
    assert done.json == {"schema": 1, "rows": [1]}
    row = ask("ledger", "--json").json["reference"][0]
    assert row["flags"] == ["--a", "b c"]
    assert row["figures"] == {"decode_tok_per_s": {"value": 36.5, "n": 6}}


def test_only_references_are_typed_in(ask, book, forum):
    done = ask("ledger", "add", forum)
    assert done.code == 2
    assert "say so with --reference" in done.err
    assert ask("ledger", "add", "--reference").code == 2
    assert not book.path.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("origin,date,topology,workload,concurrency,decod_tok_per_s\n",
         "bad.csv:1: column 6 'decod_tok_per_s' is not known; did you mean 'decode_tok_per_s'?"),
        ("origin,date,topology,workload,concurrency,decode_tok_per_s\na,2026-09-14,t,chat,2,36.5\na,2026-09-14,t,chat,two,36",
         "bad.csv:3: column concurrency: expected a whole number from 1; got 'two'"),
        ("origin,date,topology,workload,concurrency,decode_tok_per_s\na,2026-09-14,t,chat,2\n",
         "bad.csv:2: 5 values for 6 columns"),
    ],
)  # fmt: skip
def test_a_wrong_csv_is_told_with_line_and_column_and_adds_nothing(ask, book, tmp_path, text, said):
    file = tmp_path / "bad.csv"
    file.write_text(text)
    done = ask("ledger", "add", "--reference", file)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not book.path.exists()


def test_the_csv_of_another_ledger_is_read_and_what_does_not_count_there_does_not_here(ask, cutover, filled, tmp_path):
    ask("ledger", "retract", 2, "--reason", "all arms on GPU 0")
    bob, other = tmp_path / "bob.csv", tmp_path / "other.sqlite"
    bob.write_text(ask("ledger", "--csv").out)
    done = cutover("ledger", "add", "--reference", bob, "--ledger", other, "--json")
    assert (done.code, len(done.json["rows"])) == (0, 12), done.err
    rows = {row.id: row for row in Ledger(other).rows(Selection(sources=(Source.REFERENCE,)))}
    assert rows[1].figure(DECODE).value == pytest.approx(filled.find("1")[0].figure(DECODE).value)
    assert (rows[1].origin, rows[1].configuration.release) == (
        f"bob.csv, run {filled.find('1')[0].run}", "qwen-tp2@1a2b3c4d",
    )  # fmt: skip
    assert (rows[2].counts, rows[2].cell.problem) == (False, "retracted there: all arms on GPU 0")


def test_a_date_to_come_is_refused(ask):
    words = ("origin=a", "topology=t", "workload=chat", "concurrency=1", "decode_tok_per_s=5")
    done = ask("ledger", "add", "--reference", *words, "date=2999-01-01")
    assert (done.code, "expected a date that has been" in done.err) == (2, True), done.err


def test_a_ledger_that_is_named_is_there(ask, tmp_path):
    for words in (("ledger",), ("ledger", "show", 1), ("compare", "a", "b")):
        done = ask(*words, "--ledger", tmp_path / "typo.sqlite")
        assert (done.code, "typo.sqlite: there is no such file" in done.err) == (2, True), done.err


# --- compare ----------------------------------------------------------------------------------------------------------


def test_compare_says_cell_by_cell_what_changed_and_in_what_the_two_differ(ask, filled):
    done = ask("compare", "qwen-tp2", "qwen-tp4")
    assert done.code == 0
    assert "A  qwen-tp2@1a2b3c4d · sglang 0.5.2" in done.out
    assert ["--tp-size", "2", "4"] in [line.split() for line in done.out.splitlines()]
    line = next(line for line in done.out.splitlines() if line.startswith("chat 200→256") and " 71.4 " in line)
    assert line.split()[3:9] == ["71.4", "5", "64.3", "5", "-10.0", "%"]
    assert line.rstrip().endswith("worse")
    assert "all 6 cells" in done.out
    assert "spread between starts assumed 1.0%" in done.out
    assert "!" not in done.out, "nothing to warn of"


def test_compare_as_json_and_markdown(ask, filled):
    document = ask("compare", "qwen-tp2", "5e6f7a8b", "--json").json
    assert (document["schema"], document["a"]["name"], document["b"]["source"]) == (1, "qwen-tp2@1a2b3c4d", "ours")
    change = document["changes"][0]
    assert (change["workload"], change["concurrency"], change["metric"]) == ("chat", 1, "decode_tok_per_s")
    assert change["share"] == pytest.approx(-0.1)
    assert change["low"] < -0.1 < change["high"] < 0
    assert change["says"] == "worse"
    assert {"field": "flags.--tp-size", "a": "2", "b": "4"} in document["differences"]
    markdown = ask("compare", "qwen-tp2", "qwen-tp4", "--markdown").out
    assert markdown.startswith("## qwen-tp2@1a2b3c4d → qwen-tp4@5e6f7a8b\n")
    assert "| --tp-size | 2 | 4 |" in markdown
    assert ask("compare", "qwen-tp2", "qwen-tp4", "--markdown", "--json").code == 2


def test_compare_refuses_another_workload_and_names_the_field(ask, filled):
    other = {"chat": {**CHAT, "answer_tokens": 512}}
    filled.record(run("qwen-tp8@77777777", workloads=other, cells=[cell("chat", 1, 50)]), who="ada", hardware=HARDWARE)
    done = ask("compare", "qwen-tp2", "qwen-tp8")
    assert (done.code, done.out) == (5, "")
    assert "do not compare: workload chat is not the same on both sides: answer_tokens: 256 → 512" in done.err
    assert ask("compare", "qwen-tp2", "qwen-tp8", "--json").json["exit_code"] == 5


def test_compare_names_where_the_curves_cross(ask, filled):
    rates = {1: 70.0, 4: 60.0, 8: 59.0}
    cells = [cell("chat", concurrency, rate) for concurrency, rate in rates.items()]
    filled.record(run("qwen-pp2@77777777", cells=cells), who="ada", hardware=HARDWARE)
    done = ask("compare", "qwen-tp2", "qwen-pp2")
    assert done.code == 0
    line = next(line for line in done.out.splitlines() if "cross near" in line)
    assert line.startswith("chat, ")
    assert line.endswith("qwen-tp2@1a2b3c4d is better below, qwen-pp2@77777777 above")
    (crossover,) = ask("compare", "qwen-tp2", "qwen-pp2", "--json").json["crossovers"]
    assert 4 < crossover["at"] < 8
    assert crossover["workload"] == "chat"


def test_two_runs_of_one_release_are_told_apart(ask, filled):
    again = filled.record(run(rate=50.0), who="ada", hardware=HARDWARE)
    first = filled.find("1")[0].run
    done = ask("compare", first, again.run)
    assert f"· run {first} · measured" in done.out
    assert f"· run {again.run} · measured" in done.out
    assert "A is better throughout, from c1 to c8" in done.out


def test_compare_warns_of_another_box(ask, filled):
    filled.record(run("qwen-h200@77777777", 300), who="ada", hardware={"gpus": ["H200"], "driver": "550.54"})
    done = ask("compare", "qwen-tp2", "qwen-h200")
    assert done.code == 0
    assert "! not measured on the same box: cards: 2× RTX 3090 → H200; host: box1 → –" in done.out


def test_compare_leaves_retracted_rows_out_and_says_so(ask, filled):
    ask("ledger", "retract", 8, "--reason", "one card was throttled")
    done = ask("compare", "qwen-tp2", "qwen-tp4")
    assert "only A has chat c4 (row 8 of qwen-tp4@5e6f7a8b: retracted" in done.out
    assert "all 5 cells" in done.out
    for row in (7, 9, 10, 11, 12):
        ask("ledger", "retract", row, "--reason", "one card was throttled")
    gone = ask("compare", "qwen-tp2", "qwen-tp4")
    assert gone.code == 5
    assert "nothing of qwen-tp4 can be compared: 6 of its 6 rows are retracted" in gone.err


def test_compare_takes_references_only_when_told_and_labels_them(ask, filled, forum):
    ask("ledger", "add", "--reference", forum)
    refused = ask("compare", "qwen-tp2", "27b-tp4-forum")
    assert refused.code == 5
    assert "it is a reference; --reference compares with it all the same" in refused.err
    done = ask("compare", "qwen-tp2", "27b-tp4-forum", "--reference")
    assert done.code == 0
    assert "B  27b-tp4-forum (reference) · vllm 0.10" in done.out
    assert "! 27b-tp4-forum (reference) was not measured here but typed in from https://example.org/t/17" in done.out
    line = next(line for line in done.out.splitlines() if " 32.8 " in line)
    assert line.rstrip().endswith("no rounds: cannot tell how sure")


def test_compare_of_what_nobody_knows(ask, filled):
    done = ask("compare", "qwen-tp2", "qwen-tp44")
    assert (done.code, done.out) == (3, "")
    assert "no run, release, topology or model qwen-tp44; did you mean 'qwen-tp4'?" in done.err


def test_a_ledger_that_is_damaged_or_somebody_elses(ask, filled, tmp_path):
    db = sqlite3.connect(tmp_path / "other.sqlite")
    db.execute("CREATE TABLE t (x)")
    db.commit()
    db.close()
    done = ask("ledger", "--ledger", tmp_path / "other.sqlite")
    assert (done.code, done.out) == (1, "")
    assert "is a database, but no ledger" in done.err
    filled.path.write_bytes(b"nonsense " * 1000)
    for words in (("ledger",), ("ledger", "show", "1"), ("compare", "a", "b"), ("ledger", "--json")):
        done = ask(*words)
        assert done.code == 1
        assert "is damaged (file is not a database)" in done.out + done.err
        assert "Traceback" not in done.err


def test_it_runs_as_a_program(cutover_program, config_file, filled):
    done = cutover_program("--config", str(config_file), "ledger", "--topology", "qwen-tp2")
    assert (done.code, done.err) == (0, "")
    assert "qwen-tp2@1a2b3c4d" in done.out
