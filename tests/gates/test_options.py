"""`--capability`: a key at a time, or a file with a whole block; the later wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gates.acceptance.probing import Probed, probed_document, probed_text
from gates.capability import Capability
from gates.errors import GateUsageError
from gates.options import capability_of

KNOWN = {"thinking": "switch", "required": True, "max_context_tokens": 8192, "finish_named": "stop"}


@pytest.fixture
def probed() -> Probed:
    findings = {
        "thinking": "the switch enable_thinking turns it on: and\noff \x1b[2J",
        "required": "yes: it calls " * 30,
    }
    return Probed(Capability.model_validate(KNOWN), findings)


def test_a_key_at_a_time() -> None:
    assert capability_of(["thinking=switch", "max_running=8", "required=true", "thinking=none"]) == {
        "thinking": "none",
        "max_running": 8,
        "required": True,
    }
    assert capability_of(["thinking=[", "x=a=b"]) == {"thinking": "[", "x": "a=b"}


@pytest.mark.parametrize("name", ["capability.yaml", "a=b.yaml"])
def test_a_file_and_what_corrects_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    topology = "name: x\nscript: {engine: vllm}\ncapability: {thinking: switch, required: true}\n"
    for text in (topology, "{thinking: switch, required: true}", "thinking: switch\nrequired: true\n"):
        file.write_text(text)
        assert capability_of([str(file)]) == {"thinking": "switch", "required": True}
    assert capability_of([str(file), "thinking=none"]) == {"thinking": "none", "required": True}
    assert capability_of(["thinking=none", str(file)]) == {"thinking": "switch", "required": True}


def test_what_probe_prints_can_be_saved_and_given(tmp_path: Path, probed: Probed) -> None:
    file = tmp_path / "capability"
    for text in (probed_text(probed), json.dumps(probed_document(probed), indent=1)):
        file.write_text(text)
        assert capability_of([str(file)]) == KNOWN
    said = probed_text(probed)
    assert "\x1b" not in said
    assert all(line.startswith("# ") or line == "#" for line in said.splitlines()[:-1])
    assert said.splitlines()[-1].startswith("capability: {thinking: switch, ")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "there is no such file"),
        ("capability: [tools]", "capability: expected what a topology has under `capability`"),
        ("- tools", "expected what a topology has under `capability`"),
        ("", "expected what a topology has under `capability`"),
        ("tools: perhaps", "tools: should be a valid boolean (got 'perhaps')"),
        ("flying: true", "unknown key 'flying'"),
        ("tools: true\ntools: false", ":2: the key 'tools' is given twice"),
        ("{", "expected"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_mistakes_are_one_sentence_with_the_file(tmp_path: Path, written: Any, said: str) -> None:
    file = tmp_path / "c.yaml"
    if written is not None:
        file.write_bytes(written if isinstance(written, bytes) else written.encode())
    with pytest.raises(GateUsageError) as refused:
        capability_of([str(file)])
    assert said in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("word", ["thinking", "=switch", "x" * 5000, "x" * 5000 + "="])
def test_what_is_neither(word: str) -> None:
    if word.endswith("=") and len(word) > 10:
        assert capability_of([word]) == {word[:-1]: None}
        return
    with pytest.raises(GateUsageError, match=r"expected KEY=VALUE, as thinking=switch"):
        capability_of([word])
