"""Every topology that is shipped parses, renders to bash that bash accepts, and is named like its file."""

import re
import subprocess
from pathlib import Path

import pytest

import launch
from launch.release import freeze
from launch.topology import Instance, Need, Router, Topology, load, parse

SHIPPED = sorted((Path(launch.__file__).parent / "topologies").glob("*.yaml"))


def test_the_boxes_of_the_field_notes_are_there():
    names = {path.stem for path in SHIPPED}
    assert names >= {
        "v100-9b-tp4",
        "v100-27b-tp4-64k",
        "v100-27b-tp4-128k",
        "rtx3090-27b-tp2x2",
        "rtx3090-27b-pp2tp2",
        "llamacpp-single",
        "llamacpp-4gpu",
        "vllm-tiny-tp2",
        "vllm-tiny-tp1x2",
        "demo-a",
    }


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_topology_renders(path):
    topology = load(path)
    assert topology.name == path.stem
    release = freeze(topology, check_paths=False)
    assert release.manifest["needs_admin"] == []
    assert release.manifest["notes"] == []
    for text in release.scripts.values():
        subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=60)


def test_what_the_demo_proposes_is_checked_on_this_box():
    for path in SHIPPED:
        if path.stem.startswith("demo-"):
            assert freeze(load(path)).manifest["unknown"] == []


def test_the_documentation_has_every_key_and_its_examples_parse():
    text = (Path(__file__).parents[3] / "docs" / "topology.md").read_text()
    for prefix, model in (("", Topology), ("instances.*.", Instance), ("router.", Router), ("need.", Need)):
        for key in model.model_fields:
            if prefix + key != "need":
                assert f"| `{prefix}{key}` |" in text
    blocks = [
        re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    ]
    examples = [parse(block, source="docs/topology.md") for block in blocks if block.startswith("name:")]
    assert {one.engine for one in examples} == {"vllm", "sglang", "llamacpp", "script", "emulator"}
