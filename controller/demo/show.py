"""Plays the acts, tells each step as it happens, and draws the closing table."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..errors import ExitCode
from .acts import Act
from .stage import Clients, Stage, StageError

LOUD = frozenset({"RecordSample", "MarkReady", "SetRoute", "Retire", "StopAttempt", "MarkStopped", "RecordSwitch"})


@dataclass(frozen=True, slots=True)
class Scene:
    """What came of one act."""

    title: str
    release: str
    expected: str
    outcome: str
    why: str
    took_s: float
    start_s: float | None
    switch_s: float | None
    rollback_s: float | None
    dark_s: float | None

    @property
    def as_expected(self) -> bool:
        return self.outcome == self.expected


@dataclass(frozen=True, slots=True)
class Play:
    """Everything needed to put acts on a stage."""

    acts: Sequence[Act]
    model: str
    streams: int
    max_tokens: int
    settings: Mapping[str, Any]
    act_timeout_s: float
    pause_s: float = 0.0  # between two questions of a stream
    instances: int = 1  # of every release: an act is over when at least that many serve
    by_night: bool = False  # all but the first are filed at once, for a window, and run by themselves


def play(show: Play, console: Console, *, as_json: bool, keep: Path | None) -> int:
    """Run the whole demo in a directory of its own; returns the exit code."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cutover-demo-") as temporary:
        stage = Stage(keep or Path(temporary), show.settings)
        try:
            stage.start_daemon()
            console.print(f"[dim]daemon and front door are up, public address http://{stage.config.public}[/]")
            scenes, tally = _act_all(show, stage, console)
            if show.by_night and not as_json:
                _tell_the_morning(stage, console)
        finally:
            stage.close()
    answer = {
        "schema": 1,
        "seconds": round(time.monotonic() - began_s, 1),
        "acts": [{**asdict(scene), "as_expected": scene.as_expected} for scene in scenes],
        "clients": tally,
    }
    if as_json:
        print(json.dumps(answer, indent=2))  # noqa: T201 - the answer of the command
    else:
        _close(scenes, tally, float(answer["seconds"]), console)  # type: ignore[arg-type]
    clean = tally.get("failed") == 0 and tally.get("truncated") == 0 and tally.get("leaked") == 0
    return ExitCode.DONE if clean and all(scene.as_expected for scene in scenes) else ExitCode.FAILED


def _act_all(show: Play, stage: Stage, console: Console) -> tuple[list[Scene], dict[str, Any]]:
    clients: Clients | None = None
    scenes: list[Scene] = []
    filed: dict[str, str] = {}
    try:
        for number, act in enumerate(show.acts, 1):
            console.print(f"\n[bold]{number}. {act.title}[/]")
            scenes.append(_perform(act, stage, console, show, filed.get(act.title)))
            if clients is None:
                log = stage.directory / "clients.log"
                clients = Clients(
                    f"http://{stage.config.public}",
                    show.model,
                    show.streams,
                    show.max_tokens,
                    log,
                    pause_s=show.pause_s,
                )
                console.print(f"[dim]{show.streams} streams talk to it from now on, all the time[/]")
                if show.by_night:
                    filed = _file_by_day(show.acts[1:], stage, console)
            else:
                _say_clients(clients.tally(), console)
    finally:
        tally = clients.stop() if clients else {}
    return scenes, tally


def _file_by_day(acts: Sequence[Act], stage: Stage, console: Console) -> dict[str, str]:
    """Title → rollout. The window is open already, as nobody wants to watch a clock: a freeze stands for the day."""
    stage.post("/v1/freeze", {"why": "it is day"})
    filed = {}
    for act in acts:
        filed[act.title] = stage.propose(act.topology, act.source, gates=act.gates, **act.options)
        console.print(f"   proposed for the night: {filed[act.title]} {act.source}", highlight=False)
    console.print(f"   [dim]{stage.get('/v1/status')['now']}[/]", highlight=False)
    console.print("   [dim]and now it is night[/]")
    stage.post("/v1/unfreeze")
    return filed


def _tell_the_morning(stage: Stage, console: Console) -> None:
    """What somebody would type who comes to work."""
    console.print("\n[bold]In the morning: cutover report[/]\n")
    config = ["--config", str(stage.config_file)]
    subprocess.run([sys.executable, "-m", "controller", *config, "report", "--open-night"], check=False)


def _perform(act: Act, stage: Stage, console: Console, show: Play, filed: str | None = None) -> Scene:
    """`filed`: the rollout, where it was proposed before."""
    began_s = time.monotonic()
    after = int(stage.get("/v1/events?limit=1&after=999999999")["last"])
    if filed is not None:
        rollout_id = filed
    elif act.topology:
        rollout_id = stage.propose(act.topology, act.source, gates=act.gates, **act.options)
    else:
        rollout_id = str(stage.post("/v1/rollback")["rollout"]["id"])
    end_s = began_s + show.act_timeout_s
    while True:
        answer = stage.get(f"/v1/events?after={after}&wait_s=1")
        after = int(answer["last"])
        for event in answer["events"]:
            _say(event, console, time.monotonic() - began_s)
        rollout = stage.rollout(rollout_id)
        settled = rollout["over"] and (rollout["phase"] != "rolled_back" or "rollback_s" in rollout["times"])
        if settled and _serves(stage, show.instances):
            break
        if time.monotonic() > end_s:
            raise StageError(
                f"{rollout_id} is still {rollout['phase']} after {show.act_timeout_s:.0f} s: {rollout['why']}"
            )
    times = rollout["times"]
    scene = Scene(
        title=act.title,
        release=rollout["release"],
        expected=act.expected,
        outcome=rollout["phase"],
        why=_reason(rollout),
        took_s=round(time.monotonic() - began_s, 1),
        start_s=times.get("starting"),
        switch_s=times.get("switch_s"),
        rollback_s=times.get("rollback_s"),
        dark_s=times.get("dark_s"),
    )
    colour = "green" if scene.as_expected else "red"
    moral = f"  [dim]({act.moral})[/]" if act.moral and scene.as_expected else ""
    console.print(f"   [{colour}]→ {scene.outcome}[/]  {scene.why}{moral}")
    return scene


def _serves(stage: Stage, instances: int) -> bool:
    """Whether live is whole: what made room for a candidate that failed comes back after the rollout has ended."""
    live = stage.get("/v1/status")["live"]
    return live is not None and sum(a["state"] == "ready" for a in live["attempts"]) >= instances


def _reason(rollout: Mapping[str, Any]) -> str:
    """What decided: for a promotion what it passed, for a rollback why, not that, it was rolled back."""
    moves = [str(e["why"]) for e in rollout["events"] if e["action"] == "Move"]
    if rollout["phase"] == "promoted":
        passed = next((why for why in moves if why.startswith("passed ")), "")
        return f"{passed}; {rollout['why']}" if passed else str(rollout["why"])
    if rollout["phase"] == "rolled_back" and rollout["kind"] == "rollback":
        return str(rollout["events"][-1]["why"] if not moves else f"{moves[-1]}: {_commit(rollout)}")
    return moves[-1] if rollout["phase"] == "rolled_back" and moves else str(rollout["why"])


def _commit(rollout: Mapping[str, Any]) -> str:
    return next((str(e["why"]) for e in rollout["events"] if e["action"] == "CommitRollback"), "")


def _say(event: Mapping[str, Any], console: Console, at_s: float) -> None:
    style = "dim" if event["action"] in LOUD else "default"
    console.print(f"   [{style}]{at_s:5.1f} s  {event['why']}[/]", highlight=False)


def _say_clients(tally: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"   [dim]clients so far: {tally['sent']} requests sent, {tally['failed']} failed, "
        f"{tally['truncated']} truncated, largest gap {tally['largest_gap_s'] * 1000:.0f} ms[/]"
    )


def _close(scenes: Sequence[Scene], tally: Mapping[str, Any], took_s: float, console: Console) -> None:
    clocks = ("start", "switch", "rollback", *(["dark"] if any(scene.dark_s for scene in scenes) else []))
    table = Table(title=f"What was decided, and why ({took_s:.0f} s)", title_justify="left", expand=False)
    for column in ("act", "release", "decided", "why", *clocks):
        table.add_column(column, overflow="fold", justify="right" if column in clocks else "left")
    for number, scene in enumerate(scenes, 1):
        colour = "green" if scene.as_expected else "red"
        decided = f"[{colour}]{scene.outcome}[/]"
        times = (_seconds(scene.start_s), _seconds(scene.switch_s), _seconds(scene.rollback_s), _seconds(scene.dark_s))
        table.add_row(str(number), scene.release, decided, scene.why, *times[: len(clocks)])
    console.print()
    console.print(table)
    console.print(
        f"clients: [bold]{tally.get('sent', 0)}[/] requests sent, "
        f"[bold]{tally.get('failed', 0)}[/] failed, [bold]{tally.get('truncated', 0)}[/] truncated, "
        f"{tally.get('leaked', 0)} with leaked thinking; {tally.get('tokens', 0)} pieces of text, "
        f"largest gap in any stream {tally.get('largest_gap_s', 0) * 1000:.0f} ms, "
        f"longest wait for a first token {tally.get('longest_first_token_s', 0) * 1000:.0f} ms"
    )
    if tally.get("first_problem"):
        console.print(f"[red]first problem: {tally['first_problem']}[/]")


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
