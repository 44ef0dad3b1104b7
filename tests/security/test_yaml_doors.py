"""Every file in YAML that is read for somebody: aliases, doubled keys, depth and size are refused, and fast."""

from __future__ import annotations

import time

import pytest

from controller.config import parse_config
from controller.errors import CutoverError
from gates import profile
from gates.errors import GateUsageError
from gates.ledger import reference
from launch import sweep, topology
from launch.errors import LaunchError

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)
CYCLE = "name: &a [*a]\n"
MERGE = "base: &b {name: x}\n<<: *b\n"
DOUBLE = "name: x\nname: y\n"
DEEP = "name: " + "[" * 400 + "\n"
DEEP_BLOCK = "".join(" " * n + "a:\n" for n in range(600))
LARGE = "name: " + "x" * 300_000 + "\n"
TAGS = "name: !!python/object/apply:os.system ['echo hello']\n"
BYTES = "name: !!binary aGVsbG8=\n"
DOCUMENTS = "name: x\n---\nname: y\n"
NULLS = "name: \0\n"
MANY_ANCHORS = (
    "".join(f"k{n}: &a{n} x\n" for n in range(500)) + "l: [" + ", ".join(f"*a{n}" for n in range(500)) + "]\n"
)
ALL = {name: value for name, value in globals().items() if name.isupper() and isinstance(value, str)}


def _reference(text, tmp_path):
    path = tmp_path / "rows.yaml"
    path.write_text(text)
    reference.read_references([str(path)])


def _profile(text, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    profile.load(path)


DOORS = {
    "topology": lambda text, _: topology.parse(text, source="t.yaml"),
    "sweep": lambda text, _: sweep.parse(text, source="s.yaml"),
    "configuration": lambda text, tmp: parse_config(text, "c.yaml", {"state_dir": tmp, "socket": tmp / "s"}),
    "profile": _profile,
    "reference rows": _reference,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", ALL)
def test_what_is_refused_at_every_door(door, what, tmp_path):
    begun_s = time.process_time()
    with pytest.raises((LaunchError, CutoverError, GateUsageError)) as refused:
        DOORS[door](ALL[what], tmp_path)
    assert time.process_time() - begun_s < 20, "the bomb would take for ever"
    sentence = str(refused.value)
    assert len(sentence) < 2_000
    assert "Traceback" not in sentence


NUMBERS = [
    "0x" + "f" * 5000,
    "9" * 5000,
    "0b" + "1" * 50_000,
    "1:2" + ":3" * 3000,
    "1_" * 4000 + "0",
    "1" * 5000 + ".5",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("door", "text"),
    [
        ("topology", "name: n\nserves: [m]\nengine: emulator\ninstances: {a: {gpus: 1}}\nstop_grace_s: N\n"),
        ("topology", "name: n\nserves: [m]\nengine: emulator\ninstances: {a: {gpus: N}}\n"),
        ("topology", "name: N\nserves: [m]\nengine: emulator\ninstances: {a: {gpus: 1}}\n"),
        ("sweep", "name: s\nbase: {}\nmatrix: {gpus: [N]}\n"),
        ("configuration", "drain_s: N\n"),
        ("configuration", "state_dir: N\n"),
        ("reference rows", "rows:\n  - {tokens_per_s: N}\n"),
    ],
)
def test_a_number_that_no_machine_can_write_out_is_refused(door, text, number, tmp_path):
    """Python turns no integer of more than 4300 digits into a text, also not into one that says so."""
    with pytest.raises((LaunchError, CutoverError, GateUsageError)) as refused:
        DOORS[door](text.replace("N", number), tmp_path)
    assert len(str(refused.value)) < 2_000


def test_a_bomb_at_the_daemon(guarded):
    for text in ALL.values():
        for path, body in (("/v1/plan", {}), ("/v1/rollouts", {"bake_s": 0})):
            answer = guarded.stage.api.post(path, json={"topology": text, "source": "x.yaml", **body})
            assert answer.status_code in {413, 422}, (text[:40], answer.text[:200])
            assert answer.json()["exit_code"] == 2
