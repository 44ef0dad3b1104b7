"""Help, usage errors, and how little is loaded before it is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

COMMANDS = (
    "demo", "serve", "install", "uninstall", "nudge", "import", "plan", "propose", "status", "watch", "history", "show",
    "approve", "abort", "rollback", "restart", "stop", "logs", "queue", "withdraw", "reorder",
    "report", "freeze", "unfreeze",
    "doctor", "release render", "release show", "release diff", "release list", "release",
    "gate", "gate run", "gate probe", "gate report", "gate list", "gate explain",
    "ledger", "ledger show", "ledger retract", "ledger add", "compare", "backup", "restore", "prune",
    "sweep", "sweep run", "sweep list", "sweep show", "sweep withdraw",
    "notify test", "notify list", "token create", "token list", "token revoke",
)  # fmt: skip
HEAVY = ("httpx", "rich", "fastapi", "uvicorn", "jinja2", "yaml", "launch", "gates", "controller.daemon")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(cutover, command):
    done = cutover(*command.split(), "--help")
    assert done.code == 0
    assert f"\n    cutover {command}" in done.out, "an example that begins with the command"
    assert command in {"serve", "release", "gate"} or "--json" in done.out


def test_every_command_of_the_design_is_listed(cutover):
    listed = cutover("--help").out
    for command in (*COMMANDS, "emulate"):
        assert f"\n  {command.split()[0]} " in listed
    assert "15 rollback failed" in " ".join(listed.split())


def test_emulate_has_the_help_of_the_emulator(cutover):
    done = cutover("emulate", "--help")
    assert done.code == 0
    assert "--ttft-ms" in done.out


def test_a_sweeps_help_has_the_options_of_its_file(cutover):
    """`run` may be left out, so that its options are looked for one level above."""
    shown = cutover("sweep", "--help").out
    of_run = set(re.findall(r"^  (--[a-z-]+)", cutover("sweep", "run", "--help").out, re.MULTILINE))
    assert {"--window", "--on-success", "--dry-run", "--skip-refused"} <= of_run
    assert of_run <= set(re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE))
    assert shown.index("Commands:") < shown.index("With FILE") < shown.index("cutover sweep show s0001")
    assert shown.count("--help") == 1


def test_help_loads_nothing_heavy():
    look = (
        "import sys; from controller.cli import main; code = main(['propose', '--help']); "
        f"import json; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules])); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_it_is_a_program(cutover_program):
    done = cutover_program("--version")
    assert done.code == 0
    assert done.out.startswith("cutover 0.")


@pytest.mark.parametrize(
    "words",
    [
        ("no-such-command",),
        ("show",),
        ("propose", "x.yaml", "--timeout", "soon"),
        ("propose", "x.yaml", "--bake", "-1"),
        ("history", "--limit", "0"),
        ("status", "--no-such-option"),
        ("demo", "--engine", "tgi"),
    ],
)
def test_usage_errors_end_with_2(cutover, words):
    done = cutover(*words)
    assert done.code == 2
    assert done.out == ""
    assert "Usage: cutover" in done.err


@pytest.mark.parametrize("command", [("gate", "list"), ("gate", "explain", "J01")])
def test_a_pipe_gets_no_padding(cutover_program, command):
    lines = cutover_program(*command).out.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line != line.rstrip()] == []
