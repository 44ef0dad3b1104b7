"""`cutover bench` as a person types it, against an emulated engine."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from gate_kit import RawServer, Script, replying
from rich.console import Console
from rich.text import Text

from controller.cli import main
from gates.contract import Verdict
from gates.ledger.selection import Selection
from gates.ledger.store import Ledger
from gates.throughput.command import Benched, Plan, deadline_of, run_bench
from gates.throughput.page import render
from gates.throughput.records import AGGREGATE, DECODE, GAP, TTFT, Cell, CellKey, Figure, Run
from gates.throughput.views import drawn_plot, drawn_run
from launch.engines.emulator.hosted import hosted

QUICK = ("--ttft-ms", "2", "--itl-ms", "1")
PROFILE = """\
gates:
  - name: throughput
    settings:
      workloads:
        - {{name: chat, prompt_tokens: 60, answer_tokens: 16}}
        - {{name: long, prompt_tokens: 100000, answer_tokens: 16, concurrency: [1]}}
      ladder: [{ladder}]
      rounds: [1]
      warmups: 1
      requests_per_stream: 1
      max_client_error: 1.0
      max_core_share: 1.0
"""


Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("COLUMNS", "220")

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["bench", *map(str, words), "--ledger-file", str(tmp_path / "ledger.sqlite")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def profile(tmp_path: Path) -> Callable[[str], Path]:
    def write(ladder: str = "{concurrency: 1}, {concurrency: 2}") -> Path:
        path = tmp_path / "p.yaml"
        path.write_text(PROFILE.format(ladder=ladder))
        return path

    return write


def test_table_bars_page_and_ledger(bench: Bench, profile: Any, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    with hosted(*QUICK) as engine:
        code, out, err = bench(engine.url, "--profile", profile(), "--plot", "--html", page, "--note", "first")
    assert code == 0, err
    assert re.search(r"^chat +2 +2 +1 +", out, re.MULTILINE)
    assert "long c1: 100000 tokens of prompt and 16 of answer do not fit into the context" in out
    assert "█" in out
    assert "round 1 of 1" in err
    html = page.read_text()
    assert html.count("<svg") == 4
    assert not re.search(r"<script|https?://(?!127\.0\.0\.1)|src=", html)
    code = main(["ledger", "--ledger", str(tmp_path / "ledger.sqlite"), "--json"])
    assert code == 0


def test_the_json_answer_is_the_next_ones_baseline(bench: Bench, profile: Any, tmp_path: Path) -> None:
    answer = tmp_path / "before.json"
    with hosted(*QUICK) as engine:
        code, out, _ = bench(engine.url, "--profile", profile(), "--json")
        document = json.loads(out)
        answer.write_text(out)
        again, said, _ = bench(engine.url, "--profile", profile(), "--baseline", answer, "--json")
    assert (code, document["schema"], document["verdict"]) == (0, 1, "pass")
    assert {cell["workload"] for cell in document["measurements"]["run"]["cells"]} == {"chat", "long"}
    # One round on each side decides nothing: known before anything is sent.
    assert again == 2
    assert "1 round in this run; 3 on each side are needed" in said
    assert {tuple(check["evidence"]) for check in document["checks"]} == {()}, "nobody keeps the files"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"measurements": {}}, "nothing was measured"),
        ({"measurements": []}, "nothing was measured"),
        ({"measurements": {"run": {"cells": []}}}, "cannot be read"),
        ({"steps": [{"gate": "health", "verdict": {}}]}, "no verdict of the gate throughput"),
        ({"steps": [{"gate": "throughput", "verdict": None}]}, "no verdict of the gate throughput"),
    ],
)
def test_a_baseline_without_a_measurement_is_refused_before_anything_is_sent(
    bench: Bench, tmp_path: Path, document: Any, said: str
) -> None:
    file = tmp_path / "before.json"
    file.write_text(json.dumps(document))
    code, _, err = bench("http://127.0.0.1:9", "--baseline", file)
    assert (code, said in err) == (2, True), err


def test_a_page_of_nothing_is_not_written_and_the_verdict_stays(bench: Bench, profile: Any, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    with hosted(*QUICK, "--fault", "no-usage") as engine:
        code, out, err = bench(engine.url, "--profile", profile(), "--html", page)
    assert (code, page.exists()) == (11, False), err
    assert "no usage" in out or "speed cannot be measured" in out
    assert "nothing was measured, so" in err


def test_a_floor_that_is_missed_is_exit_code_10(bench: Bench, profile: Any) -> None:
    with hosted(*QUICK) as engine:
        code, out, _ = bench(engine.url, "--profile", profile("{concurrency: 1, min_decode_tok_per_s: 1000000}"))
    assert code == 10
    assert "floor 1e+06 tok/s" in out


def test_flags_of_a_topology_are_kept_beside_the_numbers(bench: Bench, profile: Any, tmp_path: Path) -> None:
    topology = tmp_path / "t.yaml"
    topology.write_text(
        "name: two\nserves: [emu]\nengine: vllm\nmodel: org/m\nflags: [--max-num-seqs, 3]\n"
        "instances: {a: {gpus: 0}, b: {gpus: 0}}\n"
    )
    with hosted(*QUICK, "--dialect", "llamacpp") as engine:
        code, out, err = bench(
            engine.url, "--profile", profile(), "--topology", topology, "--concurrency", "1", "--json"
        )
    assert code == 0, out + err
    engine_said = json.loads(out)["measurements"]["run"]["engine"]
    assert (engine_said["topology"], engine_said["flags"]) == ("two", ["--max-num-seqs", "3"])


@pytest.mark.parametrize(
    ("serves", "words", "said"),
    [
        ("other", (), "serves emu, and the topology two serves other"),
        ("emu", ("--model", "other"), "other was to be measured, and the topology two serves emu"),
    ],
)
def test_another_model_is_not_measured_under_the_name_of_a_topology(
    bench: Bench, profile: Any, tmp_path: Path, serves: str, words: tuple[str, ...], said: str
) -> None:
    topology = tmp_path / "t.yaml"
    topology.write_text(f"name: two\nserves: [{serves}]\nengine: vllm\nmodel: org/m\ninstances: {{a: {{gpus: 0}}}}\n")
    with hosted(*QUICK) as engine:
        code, _, err = bench(engine.url, "--profile", profile(), "--topology", topology, *words)
    assert (code, said in err) == (2, True), err


def test_a_start_that_has_a_name_is_kept_as_one(bench: Bench, profile: Any, tmp_path: Path) -> None:
    with hosted(*QUICK) as engine:
        code, _, err = bench(engine.url, "--profile", profile("{concurrency: 1}"), "--start", "monday")
        again, _, _ = bench(engine.url, "--profile", profile("{concurrency: 1}"))
    assert (code, again) == (0, 0), err
    rows = Ledger(tmp_path / "ledger.sqlite").rows(Selection())
    assert {(str(row.kind), row.start == "monday") for row in rows} == {("restart", True), ("cell", False)}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "one of URL and --live"),
        (("http://127.0.0.1:9", "--live"), 2, "one of URL and --live"),
        (("http://127.0.0.1:9",), 1, "127.0.0.1:9: connection refused; is the endpoint up?"),
        (("http://127.0.0.1:9", "--profile", "smoke"), 2, "has no gate throughput"),
        (("http://127.0.0.1:9", "--profile", "uni_bnch"), 3, "did you mean 'uni_bench'?"),
        (("http://127.0.0.1:9", "--concurrency", "1,many"), 2, "'many' is no rung"),
        (("http://127.0.0.1:9", "--html", "/no/such/place/x.html"), 2, "does not exist"),
        (("http://127.0.0.1:9", "--html", "/tmp"), 2, "--html /tmp is a directory"),
        (("http://127.0.0.1:9", "--baseline", "/no/file"), 2, "cannot be read"),
        (("localhost:8000", "--model", "m"), 2, "not an http or https URL"),
    ],
)
def test_what_is_wrong_is_one_sentence(bench: Bench, words: tuple[str, ...], code: int, said: str) -> None:
    done, _, err = bench(*words)
    assert (done, said in err) == (code, True), err


def test_the_cards_that_somebody_knows_go_before_those_that_are_seen(profile: Any, tmp_path: Path) -> None:
    known = {"gpus": ["Card"], "driver": "550.54"}
    with hosted(*QUICK) as engine:
        benched = run_bench(
            Plan(engine.url, profile=profile("{concurrency: 1}"), evidence_dir=tmp_path, hardware=known)
        )
    assert known.items() <= dict(benched.hardware).items()
    assert benched.hardware["host"]


@pytest.mark.parametrize(("width", "missing"), [(30, "requests"), (80, "stalls, longest, tok/chunk, p99"), (200, "")])
def test_numbers_are_whole_on_a_narrow_terminal(width: int, missing: str) -> None:
    rounds = {DECODE: [1234.5], AGGREGATE: [98765.0], TTFT: [0.123], GAP: [0.0123]}
    cell = Cell(CellKey("technical", 128), 256, rounds, {"longest_stall_s": Figure(0.0456, 9)})
    told = io.StringIO()
    console = Console(file=told, width=width)
    for part in drawn_run(Run("2026-11-20T02:00:00Z", 60.0, "emu", {"technical": {}}, [cell]), width=width):
        console.print(part, soft_wrap=isinstance(part, Text))
    line = next(line for line in told.getvalue().splitlines() if line.startswith("technical"))
    assert {"technical", "128", "123.0", "1234", "98765"} <= set(line.split())
    assert "…" not in told.getvalue()
    assert ("no room here for" in told.getvalue()) == bool(missing)
    assert missing in told.getvalue()


def test_who_queues_beyond_the_limit_is_seen() -> None:
    rounds = {DECODE: [50.0], AGGREGATE: [400.0], TTFT: [0.0577], GAP: [0.02]}
    cells = [Cell(CellKey("chat", c), 6 * c, rounds, {"ttft_max_s": Figure(2.384, 6 * c)}) for c in (8, 10)]
    run = Run("2026-11-20T02:00:00Z", 60.0, "emu", {"chat": {}}, cells, {"limit": 8})
    told = io.StringIO()
    for part in (*drawn_run(run), *drawn_plot(run)):
        Console(file=told, width=200).print(part, soft_wrap=isinstance(part, Text))
    queued = (
        "chat c10 is beyond the engine's limit of 8: 2 of 10 streams find no place at a time, "
        "the longest wait for a first token was 2.38 s (n 60)"
    )
    assert told.getvalue().count(" beyond ") == 1
    assert queued in told.getvalue()
    assert re.search(r"c10 +57.7 ms █+ longest 2.38 s \(n 60\)", told.getvalue())
    verdict = Verdict(gate="throughput", verdict="pass", sentence="", started_at="", duration_s=0.0)
    page = render(Benched(verdict, run, {}, ()))
    assert queued in unescape(page)
    assert "chat c10: 57.7 ms (median of 1 round; longest 2.38 s (n 60))" in page


@pytest.mark.parametrize(
    ("place", "said"), [("taken", "file is not a database"), ("taken/ledger.sqlite", "nothing can be written there")]
)
def test_a_ledger_that_cannot_be_used_is_told_before_an_hour_of_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, said: str
) -> None:
    (tmp_path / "taken").write_text("no ledger " * 99)
    code = main(["bench", "http://127.0.0.1:9", "--ledger-file", str(tmp_path / place)])
    err = capsys.readouterr().err
    assert (code, said in err) == (1, True), err


def test_an_endpoint_that_wants_a_key_says_so_before_it_is_asked_what_it_serves(
    bench: Bench, raw_server: Callable[[Script], RawServer]
) -> None:
    server = raw_server(replying("401 Unauthorized", "application/json", b"{}"))
    code, _, err = bench(server.url)
    assert (code, "wants an API key (HTTP 401)" in err) == (2, True), err


@pytest.mark.parametrize(
    ("profile", "asked_s", "deadline_s"),
    [(None, None, 3600), ("matrix", None, 14400), ("standard", None, 3600), ("matrix", 60.0, 60), (None, 7200.0, 7200)],
)
def test_a_bench_has_an_hour_or_what_its_profile_needs(
    profile: str | None, asked_s: float | None, deadline_s: float
) -> None:
    assert deadline_of(Plan("http://127.0.0.1:9", None, profile=profile, deadline_s=asked_s)) == deadline_s


def test_a_baseline_of_one_round_is_refused_too(bench: Bench, tmp_path: Path) -> None:
    cell = {"workload": "chat", "concurrency": 1, "requests": 2, "rounds": {DECODE: [50.0]}, "figures": {},
            "failures": {}, "problem": None}  # fmt: skip
    run = {"started_at": "", "duration_s": 1, "model": "emu", "workloads": {"chat": {}}, "cells": [cell]}
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"measurements": {"run": run}}))
    code, _, err = bench("http://127.0.0.1:9", "--baseline", file)
    assert (code, "1 round in the baseline; 3 on each side are needed" in err) == (2, True), err


def test_the_path_of_a_client_and_a_name_that_is_not_served(bench: Bench, profile: Any) -> None:
    words = ("--profile", profile("{concurrency: 1}"), "--json", "--plot")
    with hosted(*QUICK) as engine:
        code, out, err = bench(f"{engine.url}/v1/chat/completions", *words)
        wrong, said, _ = bench(engine.url, "--model", "gpt-5", *words)
    assert (code, "plot: stdout is JSON" in err) == (0, True), out + err
    assert wrong == 2
    assert "does not serve the model 'gpt-5'; it serves emu; say which with --model" in said


def test_an_endpoint_that_is_not_there_fails_with_a_sentence(bench: Bench, profile: Any) -> None:
    code, _, err = bench("http://127.0.0.1:9", "--model", "m", "--profile", profile())
    assert (code, "connection refused; is the endpoint up?" in err) == (1, True), err
