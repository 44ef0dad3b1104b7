"""What a terminal shows: the report, and one line of progress while gates run."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gates.contract import Check, Verdict, VerdictKind
from gates.errors import GateUsageError
from gates.profile import GateStep, Profile
from gates.progress import Position, shown
from gates.report import Outcome, RunReport, Step, read_report, tally_of
from gates.run import run_profile

PASS, FAIL, UNSURE = VerdictKind.PASS, VerdictKind.FAIL, VerdictKind.INCONCLUSIVE


def check(name: str, verdict: VerdictKind = PASS, sentence: str = "as it should be", **more) -> Check:
    return Check(id=name, verdict=verdict, sentence=sentence, **more)


def report_of(*checks: Check, verdict: VerdictKind = PASS, evidence_dir: str = "/tmp/ev") -> RunReport:
    said = Verdict(gate="acceptance", verdict=verdict, sentence="what the gate says", checks=list(checks), duration_s=3)
    steps = (
        Step("acceptance", observe=False, verdict=said, why_not=""),
        Step("throughput", observe=True, verdict=None, why_not="not run: gate acceptance said fail"),
    )
    return RunReport("http://h", "m", "standard", verdict, steps, "2026-01-01T00:00:00+00:00", 3.0, evidence_dir)


MIXED = (
    check("P01"),
    check("J01", measurements={"n": 40, "right": 40, "lower_bound": 0.9367}),
    check("J14", UNSURE, "skipped: the capability does not say parallel_calls: true", skipped=True),
    check("T11", sentence="reasoning_tokens is 0", warn=True, rule="reasoning is counted"),
    check("J06", sentence="cut at </parameter>", waived="vllm#44060, until 2027-01-31", rule="the value is whole"),
    check(
        "J07",
        FAIL,
        "arguments end after 8192 bytes",
        rule="parses, end sentinel present (at most 1 failures in 12 tries)",
        evidence=["/tmp/ev/acceptance/003-j07.json"],
        measurements={"n": 12, "right": 3, "lower_bound": 0.1, "production": {"n": 12, "right": 12}, "layer": "parser"},
    ),
)


def test_what_blocks_comes_first_with_sentence_rule_evidence_and_figures():
    text = report_of(*MIXED, verdict=FAIL).text(100)
    order = [text.index(f"{name} ") for name in ("J07", "J06", "T11", "P01")]
    assert order == sorted(order)
    assert "1 failed, 1 waived, 1 warned, 2 passed, 1 skipped" in text
    flat = " ".join(text.split())
    assert "rule parses, end sentinel present (at most 1 failures in 12 tries)" in flat
    assert "tried 3 of 12 right, at least 10.0 % (production 12 of 12)" in flat
    assert "evidence acceptance/003-j07.json" in flat
    assert "layer parser" in flat
    assert "tried 40 of 40 right, at least 93.7 %" in flat
    assert "throughput (observing)" not in text.split("not run")[0].splitlines()[-2]
    assert "not run: gate acceptance said fail" in text


def test_waivers_are_always_shown_even_when_everything_passes():
    text = report_of(check("J06", waived="vllm#44060, until 2027-01-31")).text(100)
    assert "waived: J06: vllm#44060, until 2027-01-31" in text
    assert "1 waived" in text


def test_many_passes_take_few_lines():
    many = [check(f"P{i:02}", measurements={"n": 32, "right": 32, "lower_bound": 0.92}) for i in range(60)]
    many += [check(f"F{i:02}", UNSURE, "skipped: no tools", skipped=True) for i in range(20)]
    text = report_of(*many, check("J01", FAIL, "no call")).text(100)
    assert len(text.splitlines()) < 30
    assert "P59 32/32 ≥ 92 %" in " ".join(text.split())
    assert text.count("no tools") == 1, "a reason that many share is said once"


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width):
    long = check("X" * 80, FAIL, "word " * 200 + "y" * 300, evidence=["/elsewhere/" + "z" * 200], rule="r" * 300)
    assert all(len(line) <= width for line in report_of(*MIXED, long, verdict=FAIL).text(width).splitlines())


def test_nothing_that_a_terminal_would_act_on():
    bad = "\x1b[2J\x1b]0;owned\x07 \u202egnp\u202c [bold]markup[/bold] :smile:"
    text = report_of(check("J01", FAIL, bad, rule=bad, waived=None), check(bad, waived=bad)).text(100)
    assert not any(sign in text for sign in ("\x1b", "\x07", "\u202e"))
    assert "[bold]markup[/bold] :smile:" in " ".join(text.split())


def test_a_saved_report_is_the_same_report(tmp_path):
    report = report_of(*MIXED, verdict=FAIL)
    path = tmp_path / "report.json"
    path.write_text(report.to_json())
    again = read_report(path)
    assert again == report
    assert again.steps[0].counts[Outcome.WAIVED] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'has no "schema": 1'),
        ('{"schema": 2}', 'has no "schema": 1'),
        ('{"schema": 1}', "missing or misshapen"),
        (json.dumps(report_of().to_dict() | {"verdict": "perhaps"}), "misshapen"),
        (json.dumps(report_of().to_dict() | {"steps": [{"gate": "g", "observe": False, "verdict": {}}]}), "gate:"),
        (json.dumps(report_of().to_dict() | {"steps": 3}), "misshapen"),
    ],
)
def test_what_is_no_report_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GateUsageError) as caught:
        read_report(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "figures",
    [{}, {"n": 0, "right": 0}, {"n": "12", "right": 3}, {"n": 3}, {"right": 3}, {"n": None, "right": None}],
)
def test_other_figures_are_no_tally(figures):
    assert tally_of(figures) is None


def test_a_position_guesses_what_is_left_only_when_it_can():
    start = Position().after({"gate": "acceptance", "started": True, "left": ["throughput"]}, 100.0)
    assert start.words(101.0) == "acceptance · 1 s · then throughput"
    later = start.after({"done": 30, "of": 90, "requests": 412}, 130.0).after(
        {"check": "J07", "verdict": "pass"}, 130.0
    )
    assert later.left_s(130.0) == pytest.approx(60.0)
    said = later.words(130.0)
    assert said == "acceptance · 30 of 90 checks, 412 requests · 30 s, about 1 min 0 s left · J07 · then throughput"
    assert start.after({"done": 1, "of": 90}, 130.0).left_s(130.0) is None, "too little was seen"
    odd = start.after({"done": "3", "of": -1, "requests": None, "check": 7, "left": 3}, 101.0)
    assert odd == start


def lines(*heard, console=None) -> str:
    stream = io.StringIO()
    with shown(stream, console=console and console(stream)) as hear:
        for fields in heard:
            hear(fields)
    return stream.getvalue()


STARTED = {"gate": "g", "started": True, "left": ["h"]}
PASSED = {"gate": "g", "check": "J01", "verdict": "pass", "sentence": "fine"}
FAILED = {"gate": "g", "check": "J02", "verdict": "fail", "sentence": "lost\x1b[2J\ncall"}
COUNTED = {"gate": "g", "done": 3, "of": 9, "requests": 12}
ENDED = {"gate": "g", "verdict": "fail", "sentence": "J02: lost", "ended": True}


def test_without_a_terminal_every_word_is_a_plain_line():
    said = lines(STARTED, PASSED, COUNTED, FAILED, ENDED).splitlines()
    assert said == [
        "g: started (then h)", "g J01: pass: fine", "g J02: fail: lost\\x1b[2J call", "g: fail: J02: lost",
    ]  # fmt: skip


def test_a_pass_that_is_none_is_called_what_it_is():
    def said(**more) -> str:
        return lines({**PASSED, "sentence": "<think> leaks", **more}).strip()

    assert said(warn=True, waived=True) == "g J01: waived: <think> leaks"
    assert said(warn=True, waived=False) == "g J01: warning: <think> leaks"
    assert said(warn=True, verdict="fail") == "g J01: fail: <think> leaks"
    skipped = said(verdict="inconclusive", skipped=True, sentence="skipped: no tools")
    assert skipped == "g J01: skipped: no tools"


def test_on_a_terminal_one_line_lives_and_what_did_not_pass_stays():
    def terminal(stream):
        return Console(file=stream, force_terminal=True, width=80, color_system=None, legacy_windows=False)

    said = lines(STARTED, PASSED, COUNTED, FAILED, ENDED, console=terminal)
    assert "g · 3 of 9 checks, 12 requests" in said
    assert "J01: pass" not in said
    assert "g J02: fail: lost\\x1b[2J call" in said
    assert "g: fail: J02: lost" in said


def gate(tmp_path: Path, body: str) -> Profile:
    program = tmp_path / "mine.sh"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\n{body}\n")
    program.chmod(0o755)
    return Profile("p", (GateStep("mine", (str(program),), 30.0),))


SAYS_PASS = """echo '{"contract": 1, "gate": "mine", "verdict": "pass", "sentence": "fine"}'"""


@pytest.fixture
def own_temp(tmp_path, monkeypatch):
    directory = tmp_path / "temp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    before, tempfile.tempdir = tempfile.tempdir, None
    yield directory
    tempfile.tempdir = before


def test_no_directory_is_left_when_there_is_no_evidence(tmp_path, own_temp):
    report = run_profile("http://127.0.0.1:1", "m", gate(tmp_path, SAYS_PASS))
    assert list(own_temp.iterdir()) == []
    assert report.evidence_dir == ""
    assert "evidence" not in report.text()


def test_evidence_that_nobody_asked_for_is_kept_and_named(tmp_path, own_temp):
    report = run_profile("http://127.0.0.1:1", "m", gate(tmp_path, f"echo x >seen; {SAYS_PASS}"))
    assert [path.name for path in own_temp.rglob("seen")] == ["seen"]
    assert Path(report.evidence_dir).parent == own_temp
    assert report.evidence_dir in report.text(300)


def test_every_waiver_is_shown_also_one_that_is_not_needed_any_more() -> None:
    notices = [{"check": "P13", "state": "not needed any more", "sentence": "P13: the waiver is not needed any more"}]
    report = report_of(check("J01"))
    verdict = report.steps[0].verdict
    assert verdict is not None
    shown = verdict.model_copy(update={"measurements": {"waivers": notices}})
    text = replace(report, steps=(replace(report.steps[0], verdict=shown),)).text(100)
    assert "waiver: P13: the waiver is not needed any more" in text
