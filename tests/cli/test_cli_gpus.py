"""`cutover gpus`: against a daemon whose cards a C library makes up, one whose cards are declared, and none at all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pytest
from nvml_kit import NOBODY, Cards, build_double, card_lines, uuid_of
from rich.console import Console

from controller.cli.checks import Runs, gpus_without_daemon, look_at_runs
from controller.cli.draw_gpus import draw_gpus, short
from controller.config import Gpus
from controller.demo.stage import Stage, StageError
from controller.effects.gpus import Card, Process, Sheet
from controller.effects.gpus.judge import judge
from launch import attempts

pytestmark = pytest.mark.timeout(300)

TINY = Path(attempts.__file__).parent / "models" / "tiny"
VOLTA = {"power_mw": 62_000, "power_cap_mw": 300_000, "persistence": 0, "compute_capability": "7.0"}
TWO = (*card_lines(0, **VOLTA), *card_lines(1, compute_capability="8.6"))


@pytest.fixture(scope="module")
def cards(tmp_path_factory) -> Cards:
    folder = tmp_path_factory.mktemp("nvml")
    return Cards(build_double(folder), folder / "cards")


@pytest.fixture(scope="module")
def stage(cards: Cards, tmp_path_factory) -> Iterator[Stage]:
    """A daemon that was started while NVML hung."""
    cards.show(*TWO, "hang nvmlInitWithFlags * while")
    # Locks of its own: the double's cards have the same names in every run of these tests on this machine.
    locks = str(tmp_path_factory.mktemp("locks"))
    settings = {"gpus": {"kind": "nvml"}, "bake": {"seconds": 1, "interval_s": 0.5}, "lock_dir": locks}
    with Stage(tmp_path_factory.mktemp("box"), settings, cards.environment) as begun:
        yield begun


@pytest.fixture
def gpus(stage, cutover):
    return lambda *words: cutover("--config", stage.config_file, "gpus", *words)


@pytest.fixture
def stranger() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def test_a_daemon_starts_while_nvml_hangs_and_sees_the_cards_when_it_answers(stage, cards, gpus, wait_until, stranger):
    hangs = gpus()
    assert hangs.code == 0
    assert "no card counts as free: NVML has not answered yet: it hangs in nvmlInit" in hangs.out
    assert gpus("--json").json["cards"] == []

    cards.show(*TWO)
    document = wait_until(lambda: (d := gpus("--json").json)["cards"] and d)
    assert (document["schema"], document["source"], document["driver"]) == (1, "nvml", "570.124.06")
    assert [(c["id"], c["state"], c["held_by"]) for c in document["cards"]] == [
        (uuid_of(0), "free", None),
        (uuid_of(1), "free", None),
    ]
    assert [card["compute_capability"] for card in document["cards"]] == [[7, 0], [8, 6]]
    drawn = gpus().out
    for part in (
        "NVIDIA Double",
        "GPU-00000000",
        "0 of 80 GiB",
        "62 of 300 W",
        "free",
        "persistence mode is off",
        "host: ",
    ):
        assert part in drawn, drawn

    cards.show(*TWO, "lost 0", f"process 1 {stranger} 512")
    document = wait_until(lambda: (d := gpus("--json").json)["cards"][1]["foreign"] and d)
    assert [card["state"] for card in document["cards"]] == ["untrusted", "foreign"]
    drawn = gpus().out
    assert "untrusted: GPU is lost" in drawn
    assert f"foreign: pid {stranger} (python" in drawn

    doctor = next(c for c in stage_doctor(stage)["checks"] if c["name"] == "GPUs")
    assert doctor["ok"] is False

    # One that claims a card and does not use it is rejected before any gate.
    cards.show(*TWO)
    wait_until(lambda: [card["state"] for card in gpus("--json").json["cards"]] == ["free", "free"])
    idle = stage.finish(stage.propose(topology(stage, "idle"), "idle", bake_s=0), 120)
    assert idle["phase"] == "rejected", idle["why"]
    assert f"check cards: idle-a-1: {uuid_of(0)} shows 4 MiB in use, 4 MiB before its start" in idle["why"]
    assert [(g["gate"], g["verdict"]) for g in idle["gates"]] == [("cards", "fail"), ("kv-pool", "pass")]

    wait_until(lambda: [card["state"] for card in gpus("--json").json["cards"]] == ["free", "free"])

    # One that uses it is no stranger, neither to the loop nor to whoever asks for a plan.
    rollout = stage.propose(waiting(stage, "first"), "first", bake_s=0)
    pid = wait_until(lambda: (f := stage.directory / "waits").is_file() and f.read_text().partition("\n")[0])
    cards.show(*card_lines(0, 20_004), *card_lines(1), f"process 0 {pid} 20000")
    (stage.directory / "go").touch()
    promoted = stage.finish(rollout, 120)
    assert promoted["phase"] == "promoted", promoted["why"]
    assert promoted["gates"][0]["sentence"] == f"first-a-2: {uuid_of(0)} +20,000 MiB (pid {pid})"
    attempt = stage.get("/v1/status")["live"]["attempts"][0]["id"]
    pids = attempts.observe(stage.config.runs_dir / attempt).pids
    cards.show(*card_lines(0, 40_004), *card_lines(1), *(f"process 0 {pid} 20000" for pid in pids))
    document = wait_until(lambda: (d := gpus("--json").json)["cards"][0]["processes"] and d)
    held, free = document["cards"]
    assert (held["state"], held["held_by"], held["role"], held["foreign"]) == ("held", attempt, "live", [])
    assert free["state"] == "free"
    plan = stage.post("/v1/plan", {"topology": topology(stage, "second"), "source": "second"})["plan"]
    assert (plan["strategy"], plan["gpu_map"]) == ("blue-green", {"a": [uuid_of(1)]})

    # Preflight knows which cards these are: an FP8 cache is refused where it could come onto the older one.
    cards.show(*TWO)
    wait_until(lambda: gpus("--json").json["cards"][0]["compute_capability"])
    with pytest.raises(StageError, match=r"--kv-cache-dtype fp8_e5m2 on a card of compute capability 7.0: "):
        stage.post("/v1/rollouts", {"topology": fp8(1), "source": "fp8"})
    plan = stage.post("/v1/plan", {"topology": fp8("[1]"), "source": "fp8"})["plan"]
    assert not any("compute capability" in note for note in plan["notes"])


def fp8(gpus: object) -> str:
    return (
        f"name: fp8\nserves: [emu]\nengine: vllm\ncommand: [/bin/true]\nmodel: {TINY}\n"
        f"flags: [--kv-cache-dtype, fp8_e5m2]\ninstances: {{a: {{gpus: {gpus}}}}}\ncapability: {{tools: false}}\n"
    )


def topology(stage: Stage, name: str) -> str:
    profile = stage.directory / "health.yaml"
    profile.write_text("gates:\n  - {name: health, deadline_s: 90, settings: {probes: 1}}\n")
    return (
        f"name: {name}\nserves: [emu]\nengine: emulator\nflags: [--start-s, '0.1']\n"
        f"instances: {{a: {{gpus: 1}}}}\nstop_grace_s: 5\ngates: {profile}\n"
    )


def waiting(stage: Stage, name: str) -> str:
    """Its engine tells its pid and begins when it may, so that its card can show what it will have."""
    script = stage.directory / "start.sh"
    script.write_text(
        f"""#!/bin/bash
exec {sys.executable} -c '
import os, pathlib, sys, time
here = pathlib.Path("{stage.directory}")
(here / "waits").write_text(str(os.getpid()) + chr(10))
while not (here / "go").exists():
    time.sleep(0.05)
where = ["--host", os.environ["HOST"], "--port", os.environ["PORT"]]
os.execv(sys.executable, [sys.executable, "-m", "launch.engines.emulator", "--model", "emu", *where])
'
"""
    )
    return topology(stage, name).replace("emulator\nflags: [--start-s, '0.1']", f"script\nscript: {script}")


def stage_doctor(stage: Stage) -> dict:
    words = [sys.executable, "-m", "controller", "--config", str(stage.config_file), "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    return json.loads(done.stdout)


def test_watch_goes_on_until_it_is_interrupted(stage, gpus):
    words = [sys.executable, "-m", "controller", "--config", str(stage.config_file), "gpus", "--watch", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert [document["schema"] for document in documents] == [1, 1]


def test_declared_cards_are_said_to_be_declared_and_show_who_holds_them(box, cutover):
    release = box.live()
    done = cutover("--config", box.config, "gpus")
    assert done.code == 0
    assert "declared in the configuration" in done.out
    document = cutover("--config", box.config, "gpus", "--json").json
    assert document["source"] == "declared"
    held = sorted((card for card in document["cards"] if card["state"] == "held"), key=lambda card: card["role"])
    status = box.stage.get("/v1/status")
    carried = {
        (status[role]["release"], role) for role in ("live", "previous") if status[role] and status[role]["running"]
    }
    assert {(card["release"], card["role"]) for card in held} == carried
    assert (release, "live") in carried
    assert f"{held[0]['held_by']}, live ({release})" in done.out
    assert {card["state"] for card in document["cards"]} <= {"held", "free"}
    assert document["host"]["ram_total_bytes"] > 0
    # Doctor finds them without a daemon, by what our attempts were given: to CUDA `gpu-2` is card 2.
    found = look_at_runs(box.stage.config).cards
    assert found == {card["id"].removeprefix("gpu-") for card in held}


def in_a_container(*foreign_mib: int, held: set[str], hidden: bool = False):
    """What doctor says without a daemon of cards whose pids are the host's; `held`: by attempts of ours."""
    process = Process(NOBODY, None, visible=False)
    cards = tuple(Card(f"GPU-{n}", n, memory_used_mib=used, processes=(process,)) for n, used in enumerate(foreign_mib))
    runs = Runs({"one-a-1": (1,)}, {}, frozenset(), frozenset(held), hidden)
    sheet = Sheet("nvml", judge(cards, (), held, contained=True), "570")
    return gpus_without_daemon(Gpus(), sheet, runs)


def test_doctor_does_not_call_our_own_engine_foreign_in_a_container():
    ours = in_a_container(20_000, 4, held={"GPU-0"})
    assert ours.ok is None
    assert "GPU 0: an attempt of ours has it; whether somebody else is on it too cannot be told" in ours.sentence
    stranger = in_a_container(20_000, 9_000, held={"GPU-0"})
    assert stranger.ok is False
    assert "9000 MiB are in use by somebody" in stranger.sentence
    assert "20000" not in stranger.sentence
    # Another user's runs: nobody knows whether they are on that card.
    hidden = in_a_container(20_000, 4, held=set(), hidden=True)
    assert hidden.ok is None
    assert "belong to another user" in hidden.sentence


def test_without_a_daemon_one_sentence(config_file, cutover):
    done = cutover("--config", config_file, "gpus")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("cutover: no daemon answers on ")
    assert done.err.count("\n") == 1
    assert cutover("--config", config_file, "gpus", "--json").json["exit_code"] == 1


def drawn(host: dict[str, int], **card: object) -> str:
    """The table of one free card, as text."""
    told = {"state": "free", "held_by": None, "release": None, "role": None, "closed": None}
    sheet = asdict(Sheet("nvml", (Card("GPU-0", 0, trusted=True, **card),), "570"))
    sheet["cards"] = [{**one, **told} for one in sheet["cards"]]
    memory = {"ram_total_bytes": 256 << 30, "ram_limit_bytes": None, "ram_available_bytes": 100 << 30}
    rest = {"swap_total_bytes": 0, "swap_used_bytes": 0, "disk_path": "/x", "disk_free_bytes": None}
    console = Console(width=160, file=StringIO())
    for part in draw_gpus({**sheet, "host": {**memory, **rest, **host}}):
        console.print(part)
    return console.file.getvalue()


def test_bad_memory_that_waits_for_a_reset_is_a_warning_and_what_is_retired_a_note():
    text = drawn({}, pages_pending=True, pages_retired=3, rows_pending=True, rows_failed=True)
    assert "GPU 0: bad pages of memory wait for a reset (`nvidia-smi -i 0 -r`" in text
    assert "GPU 0: bad rows of memory wait for a reset" in text
    assert "GPU 0: bad rows of memory could not be replaced" in text
    assert "GPU 0: 3 bad pages of memory are retired" in text
    assert "bad" not in drawn({}, pages_pending=False, pages_retired=0, rows_pending=False, rows_failed=False)


def test_mps_and_the_limit_of_a_container_are_shown():
    server, client = Process(9, 60, mps="server"), Process(10, 4_000, mps="client")
    text = drawn({"ram_limit_bytes": 64 << 30, "ram_available_bytes": 12 << 30}, processes=(server, client))
    assert "GPU 0: MPS serves it (pid 9), clients: 1" in text
    assert "host: 12 of 64 GiB of memory available, this container's limit (the host has 256)" in text


def test_a_long_id_is_cut_and_another_kind_is_not():
    assert short(uuid_of(3)) == "GPU-00000003"
    assert (short("gpu-0"), short("unreadable-1")) == ("gpu-0", "unreadable-1")
