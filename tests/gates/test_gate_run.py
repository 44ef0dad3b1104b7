"""Gates as child processes: deadlines, leaks, crashes, secrets; and what a run makes of their verdicts."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from gate_kit import Engines, RawServer, Script, replying

from gates.contract import VerdictKind
from gates.errors import GateUsageError
from gates.profile import GateStep, Profile
from gates.run import run_profile

PASS = '{"contract": 1, "gate": "mine", "verdict": "pass", "sentence": "fine"}'


def program(tmp_path: Path, body: str, name: str = "mine") -> tuple[str, ...]:
    path = tmp_path / f"{name}.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path),)


def run(tmp_path: Path, body: str, *, deadline_s: float = 30.0, **more: Any) -> Any:
    profile = Profile("p", (GateStep("mine", program(tmp_path, body), deadline_s),))
    return run_profile("http://127.0.0.1:1", "m", profile, evidence_dir=tmp_path / "evidence", **more)


def verdict_of(report: Any) -> Any:
    return report.steps[0].verdict


def test_a_gate_in_a_few_lines_of_shell(tmp_path: Path) -> None:
    body = f"""
request=$(cat)
echo '{{"sentence": "half way"}}' >&2
case "$request" in *'"model":"m"'*) echo '{PASS}' ;; esac
"""
    heard: list[Any] = []
    report = run(tmp_path, body, on_progress=heard.append)
    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert {"gate": "mine", "sentence": "half way"} in heard
    assert [h for h in heard if h.get("started")] == [{"gate": "mine", "started": True, "number": 1, "left": []}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 3", "exit code 3 without a verdict"),
        ("echo no such option; exit 64", "it begins: 'no such option'. (it ended with exit code 64)"),
        ("echo oh no >&2; exit 1", "oh no"),
        ("kill -SEGV $$", "SIGSEGV"),
        ("echo hello", "does not end in a JSON object"),
        (f"echo '{PASS}'; echo bye", "does not end in a JSON object"),
        ("""echo '{"contract": 1, "gate": "mine"}'""", "is not a verdict"),
        (f"echo '{PASS}' | sed s/mine/yours/", "signed by gate 'yours'"),
        ("yes | head -c 20000000", "more than"),
        ("yes", "more than"),
    ],
)
def test_a_broken_gate_is_an_error_that_says_how(tmp_path: Path, body: str, said: str) -> None:
    report = run(tmp_path, body)
    assert (report.verdict, report.exit_code) == ("error", 12)
    assert said in verdict_of(report).sentence


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    profile = Profile("p", (GateStep("mine", ("/no/such/program",)),))
    report = run_profile("http://127.0.0.1:1", "m", profile, evidence_dir=tmp_path)
    assert report.verdict == "error"
    assert "/no/such/program: No such file or directory" in report.sentence


def gone(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_until(condition: Any, timeout_s: float = 20.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.02)
    return False


DETACHED = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def test_the_deadline_ends_the_whole_tree_also_what_left_the_session(tmp_path: Path) -> None:
    child, detached = tmp_path / "child", tmp_path / "detached"
    body = f"""
trap '' TERM
sleep 600 & echo $! > {child}
setsid setsid -f {sys.executable} -c "{DETACHED}" {detached}
sleep 600
"""
    report = run(tmp_path, body, deadline_s=3)
    assert "deadline of 3 s" in verdict_of(report).sentence
    assert report.verdict == "error"
    assert report.duration_s < 30
    assert wait_until(lambda: gone(child) and gone(detached))


def test_what_a_gate_leaves_running_is_ended_and_mentioned(tmp_path: Path) -> None:
    child = tmp_path / "child"
    body = f"setsid -f {sys.executable} -c \"{DETACHED}\" {child}\nwhile [ ! -s {child} ]; do :; done\necho '{PASS}'"
    report = run(tmp_path, body)
    assert report.verdict == "pass"
    assert "1 processes that it left running were ended" in verdict_of(report).sentence
    assert wait_until(lambda: gone(child))


@pytest.mark.parametrize("last", [f"echo '{PASS}'", "sleep 600"])
def test_nobody_gets_away_by_forgetting_who_started_it(tmp_path: Path, last: str) -> None:
    bare, orphan = tmp_path / "bare", tmp_path / "orphan"
    body = f"""
env -i {sys.executable} -c "{DETACHED}" {orphan} >/dev/null 2>&1 &
(env -i setsid {sys.executable} -c "{DETACHED}" {bare} >/dev/null 2>&1 &) &
while [ ! -s {bare} ] || [ ! -s {orphan} ]; do sleep 0.02; done
{last}
"""
    report = run(tmp_path, body, deadline_s=4)
    assert report.duration_s < 60
    assert gone(bare)
    assert gone(orphan)
    if last == "sleep 600":
        assert "deadline of 4 s" in verdict_of(report).sentence
    else:
        assert verdict_of(report).sentence == "fine (2 processes that it left running were ended.)"


TELLS = """
echo '{"check": "J01", "verdict": "pass", "sentence": "good"}' >&2
echo '{"check": "J02", "verdict": "fail", "sentence": "no call", "evidence": ["/e/1.json"], "rule": "calls"}' >&2
echo '{"check": "J03", "verdict": "inconclusive", "sentence": "skipped: no tools", "skipped": true}' >&2
echo '{"check": 4, "verdict": "never"}' >&2
echo '{"sentence": "all told"}' >&2
sleep 600
"""


def test_what_a_gate_had_found_is_not_lost_with_it(tmp_path: Path) -> None:
    cancel = threading.Event()

    def heard(fields: Any) -> None:
        if fields.get("sentence") == "all told":
            cancel.set()

    cancelled = verdict_of(run(tmp_path, TELLS, cancel=cancel, on_progress=heard))
    late = verdict_of(run(tmp_path, TELLS, deadline_s=3))
    killed = verdict_of(run(tmp_path, TELLS.replace("sleep 600", "kill -KILL $$")))
    said = "J02: no call (the gate {})"
    for verdict, kind, sentence in (
        (
            cancelled,
            "error",
            "The gate was cancelled before it gave a verdict; 2 checks were decided by then: J02: no call",
        ),
        (late, "fail", said.format("did not end within its deadline")),
        (killed, "fail", said.format("ended by signal SIGKILL without a verdict")),
    ):
        assert (verdict.verdict, verdict.sentence) == (kind, sentence)
        assert [(check.id, check.verdict, check.skipped) for check in verdict.checks] == [
            ("J01", "pass", False),
            ("J02", "fail", False),
            ("J03", "inconclusive", True),
        ]
        assert (verdict.checks[1].evidence, verdict.checks[1].rule) == (["/e/1.json"], "calls")
    # What a gate cannot say itself is seen from here.
    assert 3 <= late.duration_s < 30
    assert late.started_at


@pytest.mark.parametrize("told", ['"pass", "waived": "known"', '"inconclusive", "skipped": true', '"inconclusive"'])
def test_a_lost_gate_in_which_nothing_failed_is_an_error(tmp_path: Path, told: str) -> None:
    body = f"""echo '{{"check": "J02", "verdict": {told}, "sentence": "no call"}}' >&2; kill -KILL $$"""
    verdict = verdict_of(run(tmp_path, body))
    assert verdict.verdict == "error"
    assert verdict.sentence.startswith("The gate ended by signal SIGKILL without a verdict.")
    assert [check.id for check in verdict.checks] == ["J02"]
    assert verdict.duration_s > 0


def test_the_time_that_a_gate_says_itself_is_kept(tmp_path: Path) -> None:
    timed = PASS.replace("}", ', "duration_s": 7.5, "started_at": "2026-11-30T12:00:00Z"}')
    verdict = verdict_of(run(tmp_path, f"echo '{timed}'"))
    assert (verdict.duration_s, verdict.started_at) == (7.5, "2026-11-30T12:00:00Z")
    assert verdict_of(run(tmp_path, f"echo '{PASS}'")).duration_s > 0


def test_the_key_that_a_gate_tells_is_blacked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-very/secret-4711"
    monkeypatch.setenv("GATE_KEY", key)
    body = f"""
echo "+ curl -H 'Authorization: Bearer $GATE_KEY'" >&2
echo "{{\\"sentence\\": \\"asking with $GATE_KEY\\"}}" >&2
echo '{PASS}' | sed "s%fine%$GATE_KEY is fine%"
"""
    heard: list[Any] = []
    report = run(tmp_path, body, api_key_env="GATE_KEY", on_progress=heard.append)
    assert verdict_of(report).sentence == "[api key] is fine"
    assert any("Bearer [api key]" in str(fields.get("log")) for fields in heard)
    assert key not in str(heard)
    silent = verdict_of(run(tmp_path, 'echo "$GATE_KEY" | cut -c 1-14', api_key_env="GATE_KEY"))
    assert "it begins: '[api key]'" in silent.sentence


def test_a_gate_is_cancelled(tmp_path: Path) -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    report = run(tmp_path, "sleep 600", cancel=cancel)
    assert report.verdict == "error"
    assert "cancelled" in verdict_of(report).sentence
    assert run(tmp_path, f"echo '{PASS}'", cancel=cancel).verdict == "error"


def test_nobodys_secrets_are_inherited_but_the_named_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-1")
    monkeypatch.setenv("MY_KEY", "shown-2")
    monkeypatch.setenv("http_proxy", "http://proxy")
    dump = tmp_path / "environment"
    run(tmp_path, f"env > {dump}; echo '{PASS}'", api_key_env="MY_KEY")
    text = dump.read_text()
    assert "shown-2" in text
    assert "hidden-1" not in text
    assert "proxy" not in text


def test_the_request_is_the_contract(tmp_path: Path) -> None:
    seen = tmp_path / "request"
    baseline = {"endpoint": "http://live"}
    run(tmp_path, f"cat > {seen}; echo '{PASS}'", deadline_s=7, capability={"thinking": "none"}, baseline=baseline)
    request = json.loads(seen.read_text())
    assert request == {
        "contract": 1,
        "gate": "mine",
        "endpoint": "http://127.0.0.1:1",
        "model": "m",
        "api_key_env": None,
        "profile": {},
        "capability": {"thinking": "none"},
        "baseline": baseline,
        "deadline_s": 7.0,
        "evidence_dir": str(tmp_path / "evidence" / "mine"),
        "engine": None,
        "metrics_url": None,
        "live_endpoint": None,
        "live_model": None,
        "candidate": None,
        "live": None,
        "ledger": None,
    }
    assert os.path.isdir(request["evidence_dir"])  # noqa: PTH112 - a string of the contract


def saying(tmp_path: Path, name: str, kind: str) -> tuple[str, ...]:
    text = json.dumps({"contract": 1, "gate": name, "verdict": kind, "sentence": f"{name} says {kind}"})
    return program(tmp_path, f"echo '{text}'", name)


@pytest.mark.parametrize(
    ("kinds", "overall", "ran"),
    [
        ("pass pass", "pass", 2),
        ("pass inconclusive", "inconclusive", 2),
        ("inconclusive fail", "fail", 2),
        ("fail pass", "fail", 1),
        ("error pass", "error", 1),
        ("fail! pass", "pass", 2),
        ("fail~ error", "fail", 2),
    ],
)
def test_what_the_gates_say_together(tmp_path: Path, kinds: str, overall: str, ran: int) -> None:
    """`!` marks a gate that only observes, `~` one after which the run goes on."""
    steps = []
    for number, kind in enumerate(kinds.split()):
        name = f"g{number}"
        command = saying(tmp_path, name, kind.rstrip("!~"))
        steps.append(GateStep(name, command, 30.0, observe="!" in kind, stop_early="~" not in kind))
    report = run_profile("http://127.0.0.1:1", "m", Profile("p", tuple(steps)), evidence_dir=tmp_path / "e")
    assert report.verdict == overall
    assert report.exit_code == VerdictKind(overall).exit_code
    assert sum(step.verdict is not None for step in report.steps) == ran
    document = json.loads(report.to_json())
    assert set(document) == {
        "schema", "endpoint", "model", "profile", "verdict", "exit_code", "sentence", "started_at", "duration_s",
        "evidence_dir", "steps",
    }  # fmt: skip
    assert [set(step) for step in document["steps"]] == [{"gate", "observe", "why_not", "verdict"}] * 2
    table = report.text()
    assert "g0" in table
    assert ("not run" in table) == (ran == 1)


def test_runs_into_one_directory_never_mix(tmp_path: Path) -> None:
    leaves = f"cat > finding.json; echo '{PASS}'"
    profile = Profile("p", (GateStep("mine", program(tmp_path, leaves), 30.0),))
    wanted = tmp_path / "evidence"
    wanted.mkdir()
    (wanted / "notes.txt").write_text("of somebody else")  # no gate's: no reason to go elsewhere

    def asked(model: str) -> Path:
        return Path(run_profile("http://127.0.0.1:1", model, profile, evidence_dir=wanted).evidence_dir)

    models = ("first", "second", "third")
    places = [asked(model) for model in models]
    assert places == [wanted, wanted / "run-2", wanted / "run-3"]
    assert [json.loads((place / "mine" / "finding.json").read_text())["model"] for place in places] == list(models)


def test_a_page_of_an_earlier_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "report.html").write_text("of an earlier run, of other gates")
    assert run(tmp_path, f"echo '{PASS}'").evidence_dir == str(tmp_path / "evidence" / "run-2")


def test_two_runs_at_once_get_a_directory_each(tmp_path: Path) -> None:
    places: list[str] = []
    profile = Profile("p", (GateStep("mine", program(tmp_path, f"sleep 0.2; echo '{PASS}'"), 30.0),))

    def ask() -> None:
        places.append(run_profile("http://127.0.0.1:1", "m", profile, evidence_dir=tmp_path / "e").evidence_dir)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(places) == [str(tmp_path / "e" / part) for part in ("", "run-2", "run-3", "run-4")]


def test_evidence_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("a file")
    with pytest.raises(GateUsageError, match=r"Evidence cannot be written to .*evidence: "):
        run(tmp_path, f"echo '{PASS}'")


def test_an_earlier_report_is_a_baseline_for_each_gate(tmp_path: Path) -> None:
    earlier = {"steps": [{"gate": "mine", "verdict": {"measurements": {"c1": 5}}}, {"gate": "other", "verdict": None}]}
    seen = tmp_path / "request"
    run(tmp_path, f"cat > {seen}; echo '{PASS}'", baseline=earlier)
    assert json.loads(seen.read_text())["baseline"] == {"measurements": {"c1": 5}}


@pytest.mark.parametrize(
    ("endpoint", "model", "more", "said"),
    [
        ("127.0.0.1:8000", "m", {}, "not an http or https URL"),
        ("http://h", "", {}, "model name"),
        ("http://h", "m", {"capability": {"thinkin": "none"}}, "did you mean 'thinking'?"),
        ("http://h", "m", {"only": ["nothing"]}, "has no gate 'nothing'"),
    ],
)
def test_a_wrong_question_is_refused(endpoint: str, model: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(GateUsageError) as caught:
        run_profile(endpoint, model, "smoke", **more)
    assert said in str(caught.value)


def test_the_shell_gate_of_the_documentation_works(tmp_path: Path, raw_server: Callable[[Script], RawServer]) -> None:
    document = (Path(__file__).parents[2] / "docs" / "gates.md").read_text()
    body = document.split("```sh\n#!/bin/sh\n")[1].split("```")[0]
    command = program(tmp_path, body, "has-version")
    profile = Profile("p", (GateStep("has-version", command, 30.0),))
    server = raw_server(replying("200 OK", "application/json", b'{"version": "1"}'))
    good = run_profile(server.url + "/v1", "m", profile, evidence_dir=tmp_path / "good")
    bad = run_profile("http://127.0.0.1:1", "m", profile, evidence_dir=tmp_path / "bad")
    assert (good.verdict, bad.verdict) == ("pass", "fail")
    assert (tmp_path / "good" / "has-version" / "version.json").is_file()


def test_the_demo_profile_on_a_healthy_engine(tmp_path: Path, engines: Engines) -> None:
    url = engines("--ttft-ms", "2", "--itl-ms", "0.5")
    report = run_profile(url, "emu", "demo", only=["health", "smoke"], evidence_dir=tmp_path)
    assert report.verdict == "pass", report.text()
    assert [step.gate for step in report.steps] == ["health", "smoke"]
    assert report.sentence == "2 gates passed"
