"""`gate list`, `gate explain` and `gate report`, as people call them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from gate_kit import Engines
from rich.console import Console

from gates import listing
from gates.__main__ import main
from gates.acceptance import register
from gates.errors import UnknownGateError
from gates.invariants import RULES
from gates.profile import parse

ROOT = Path(__file__).resolve().parents[2]


def drawn(part, width=100) -> str:
    console = Console(width=width, markup=False, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(part)
    return captured.get()


def said(capsys, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 160])
def test_the_list_names_everything(width):
    found = listing.listed()
    text = drawn(listing.drawn_list(found), width)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    names = {line.split()[0] for line in lines if line.split()}
    assert {check.id for check in register.checks()} <= names
    assert set(RULES) <= names
    assert {"health", "acceptance", "throughput", "standard", "smoke"} <= names
    groups = [check["group"] for check in found["checks"]]
    assert set(groups) <= set(found["groups"])


def test_the_list_as_json(capsys):
    document = json.loads(said(capsys, "list", "--json"))
    assert document["schema"] == 1
    assert {"id", "name", "group", "tier", "modes", "rule", "catches", "warns"} == set(document["checks"][0])
    assert [rule["id"] for rule in document["rules"]] == list(RULES)


@pytest.mark.parametrize("check", register.checks(), ids=lambda check: check.id)
def test_every_check_explains_itself(check):
    found = listing.explained(check.id)
    text = " ".join(drawn(listing.drawn_explanation(found)).split())
    for part in (check.name, check.asks, check.holds, check.catches, check.rule_words, str(check.tier)):
        assert " ".join(part.split()) in text
    assert found["means"].endswith(".")
    assert f"check: {check.id} reason:" in text
    assert all(bug["shape"] in text or len(bug["shape"]) > 60 for bug in found["bugs"])


def test_a_check_with_the_bugs_behind_it(capsys):
    out = " ".join(said(capsys, "explain", "J01").split())
    assert "vllm#38274" not in out
    assert "vllm#10781 (streamed answers only)" in out
    document = json.loads(said(capsys, "explain", "j01", "--json"))
    assert (document["kind"], document["id"], document["group"]) == ("check", "J01", "J")
    assert document["only_where"] == ["the capability says tools: true"]
    assert {"row", "reports", "shape", "mode", "needs", "faults", "checks"} <= set(document["bugs"][0])


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_explains_itself(rule):
    found = listing.explained(rule)
    text = " ".join(drawn(listing.drawn_explanation(found)).split())
    assert RULES[rule] in text
    assert found["kind"] in ("rule", "check")


@pytest.mark.parametrize(
    ("word", "id_", "said"),
    [
        ("J20.model", "J20", "As J20.model a report shows: breaches of J20 that a model can commit by itself"),
        ("j20.model", "J20", "check: J20.model reason:"),
        ("P11.model", "P11", "As P11.model a report shows"),
        ("P17.listed", "P17", "As P17.listed a report shows: whether /v1/models lists the name"),
        ("silent", "silent", "A failure: says: the engine stopped answering"),
        ("generates.stream.1", "generates", "a probe of the gate health, streamed or whole"),
    ],
)
def test_what_a_report_shows_explains_itself_as_it_is_written_there(word, id_, said):
    found = listing.explained(word)
    assert found["id"] == id_
    assert said in " ".join(drawn(listing.drawn_explanation(found)).split())


def test_a_part_that_no_report_shows():
    with pytest.raises(
        UnknownGateError, match=r"No report shows 'P17\.served'; of P17 they show P17\.model and P17\.listed"
    ):
        listing.explained("P17.served")


def test_a_gate_with_its_settings(capsys):
    document = json.loads(said(capsys, "explain", "acceptance", "--json"))
    assert document["kind"] == "gate"
    assert document["settings"]["concurrency"] > 0
    assert "  concurrency: " in said(capsys, "explain", "acceptance")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("acceptence", "did you mean 'acceptance'?"), ("J0l", "did you mean 'J0"), ("walk-the-dog", "`gate list` names")],
)
def test_what_is_not_there_and_what_is_nearest(word, hint):
    with pytest.raises(UnknownGateError) as caught:
        listing.explained(word)
    assert hint in str(caught.value)


def test_the_waiver_that_is_shown_is_one_that_a_profile_takes():
    shown = listing.explained("J01")["waive"].replace("YYYY-MM-DD", "2026-12-31")
    profile = parse("mine", shown.replace("2026-12-31", _soon()), "mine.yaml")
    assert profile.gates[0].settings["waivers"][0]["check"] == "J01"


def _soon() -> str:
    return (datetime.now(UTC).date() + timedelta(days=30)).isoformat()


def gates(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates", *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"} | environment,
    )


def test_a_run_leaves_its_page_beside_the_evidence_and_another_where_it_is_wanted(engines: Engines, tmp_path: Path):
    run = ("run", "--endpoint", engines(), "--model", "other", "--gate", "health", "--evidence", str(tmp_path / "ev"))
    done = gates(*run, "--json")
    page = tmp_path / "ev" / "report.html"
    assert (done.returncode, f"page: {page}" in done.stderr) == (10, True), done.stderr
    assert "it serves emu" in page.read_text()
    (tmp_path / "r.json").write_text(done.stdout)
    again = gates("report", str(tmp_path / "r.json"))
    assert again.returncode == 0, "the verdict of then is not the outcome of now"
    assert f"page: {tmp_path / 'r.html'}" in again.stderr
    assert "it serves emu" in " ".join(again.stdout.split())
    assert (tmp_path / "r.html").read_text() == page.read_text()
    elsewhere = gates(*run, "--html", str(tmp_path / "here" / "page.html"))
    assert "it serves emu" in (tmp_path / "here" / "page.html").read_text(), elsewhere.stderr


def test_what_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "r.json").write_text("{}")
    assert main(["report", str(tmp_path / "r.json")]) == 2
    assert 'has no "schema": 1' in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_on_a_terminal_a_run_keeps_one_line(engines: Engines, tmp_path: Path):
    """A real pseudo-terminal: the live line is redrawn in place and is gone at the end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gates", "run", "--endpoint", engines(), "--model", "emu", "--gate", "health",
         "--evidence", str(tmp_path)],
        stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    seen = _everything(ours)
    os.close(ours)
    assert process.wait(60) == 0
    assert b"\x1b[2K" in seen, "the line is drawn over"
    assert b"health: pass: emu generates" in seen
    assert b"generates.stream.1: pass" not in seen


def _everything(descriptor: int) -> bytes:
    seen = b""
    while select.select([descriptor], [], [], 60)[0]:
        try:
            data = os.read(descriptor, 4096)
        except OSError:  # the other end has closed
            break
        if not data:
            break
        seen += data
    return seen
