from __future__ import annotations

from pathlib import Path

import pytest

from gates import catalog
from gates.capability import read_capability
from gates.errors import GateUsageError
from gates.profile import DIRECTORY, GateStep, load, parse


def test_the_shipped_profiles_load_and_start_with_the_cheapest() -> None:
    shipped = {path.stem for path in DIRECTORY.glob("*.yaml")}
    assert shipped == {"smoke", "standard", "extended", "demo", "tiny", "uni_bench", "matrix"}
    for name in ("smoke", "standard", "extended", "demo", "tiny"):
        profile = load(name)
        assert profile.name == name
        assert profile.description
        assert profile.gates[0].name == "health"
    assert {step.name for step in load("standard").gates} == set(catalog.BUILT_IN) - {"own-set"}


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "stop_early: false\n"
        "gates:\n"
        "  - {name: health, deadline_s: 9, settings: {probes: 1}}\n"
        "  - {name: colour, run: [/opt/colour, --blue], observe: true, stop_early: true}\n"
    )
    health, colour = load(file).gates
    assert health == GateStep("health", None, 9.0, {"probes": 1}, observe=False, stop_early=False)
    assert colour == GateStep("colour", ("/opt/colour", "--blue"), 300.0, {}, observe=True, stop_early=True)


def test_a_set_of_ones_own_is_read_with_its_profile(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    text = f"gates: [{{name: own-set, settings: {{file: {questions}}}}}]"
    with pytest.raises(GateUsageError, match=r"p\.yaml: gate own-set: .*q\.jsonl: there is no such file"):
        parse("p", text, "p.yaml")
    questions.write_text('{"id": "a"}\n')
    with pytest.raises(GateUsageError, match=r"q\.jsonl:1: "):
        parse("p", text, "p.yaml")
    with pytest.raises(GateUsageError, match="is a relative path"):
        parse("p", "gates: [{name: own-set, settings: {file: q.jsonl}}]", "p.yaml")
    questions.write_text('{"id": "a", "messages": [{"role": "user", "content": "hi"}], "expect": {"contains": "hi"}}\n')
    assert parse("p", text, "p.yaml").gates[0].settings == {"file": str(questions)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a mapping with the key 'gates'"),
        ("- health", "a mapping with the key 'gates'"),
        ("gates: []", "gates"),
        ("gate: []", "unknown key 'gate'; did you mean 'gates'?"),
        ("gates: [{name: health, deadlines: 3}]", "unknown key 'gates.0.deadlines'; did you mean 'deadline_s'?"),
        ("gates: [{name: helth}]", "no gate 'helth' (did you mean 'health'?)"),
        ("gates: [{deadline_s: 3}]", "'gates.0.name' is missing."),
        (
            "gates: [{name: health, deadline_s: soon}, {name: health, run: 5}]",
            "(got 'soon'); and 1 more problem: 'gates.1.run'.",
        ),
        (
            "gates: [{name: health, deadlines: 3}, {observe: 5}]",
            "did you mean 'deadline_s'? And 2 more problems: 'gates.1.name', 'gates.1.observe'.",
        ),
        (
            "gates: [{name: 1}, {name: 2}, {name: 3}, {name: 4}, {name: 5}, {name: 6}]",
            "; and 5 more problems: 'gates.1.name', 'gates.2.name', 'gates.3.name', 'gates.4.name', ….",
        ),
        (
            "gates: [{name: throughput, settings: {ladder: [{concurrency: x}, {concurrency: y}]}}]",
            "ladder.0.concurrency: should be a valid integer (got 'x'); and 1 more problem: 'ladder.1.concurrency'.",
        ),
        # The key that is missing is the misspelt one.
        ("gates: [{nome: health}]", "unknown key 'gates.0.nome'; did you mean 'name'?"),
        ("gates: [{name: health, deadline_s: soon}]", "gates.0.deadline_s"),
        ("gates: [{name: health, deadline_s: -1}]", "gates.0.deadline_s"),
        ("gates: [{name: health, run: [/bin/true]}]", "is the name of a built-in gate"),
        ("gates: [{name: mine, run: []}]", "gates.0.run"),
        ("gates: [{name: health}, {name: health}]", "listed twice"),
        ("gates: [{name: health, settings: {probs: 1}}]", "did you mean 'probes'?"),
        (
            "gates: [{name: throughput, settings: {ladder: [{concurrency: 1, min_decode: 5}]}}]",
            "did you mean 'min_decode_tok_per_s'?",
        ),
        ("gates: [{name: health}]\ngates: []", "p.yaml:2: the key 'gates' is given twice"),
        ("a: &x 1\nb: *x", "aliases are not allowed"),
        ("gates: [", "p.yaml"),
        ("gates: !!python/object:os.system {}", "p.yaml"),
    ],
)
def test_bad_profiles_get_a_sentence_with_the_place(text: str, said: str) -> None:
    with pytest.raises(GateUsageError) as caught:
        parse("p", text, "p.yaml")
    assert said in str(caught.value)
    assert "more" in said or "more" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_profiles_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(GateUsageError, match=r"did you mean 'standard'\?") as caught:
        load("standart")
    assert caught.value.exit_code == 3
    with pytest.raises(GateUsageError, match="no profile"):
        load(tmp_path / "none.yaml")
    huge = tmp_path / "huge.yaml"
    huge.write_text("# " + "x" * 300_000)
    with pytest.raises(GateUsageError, match="at most"):
        load(huge)
    huge.write_bytes(b"gates: \xff")
    with pytest.raises(GateUsageError, match="UTF-8"):
        load(huge)


def test_picking_gates_by_name() -> None:
    smoke = load("smoke")
    assert [step.name for step in smoke.only(["acceptance", "throughput"]).gates] == ["acceptance", "throughput"]
    assert smoke.only(["health"]).gates[0].settings == {"probes": 1}
    with pytest.raises(GateUsageError, match=r"did you mean 'smoke'\?"):
        smoke.only(["smok"])


def test_answers_leave_room_for_the_question() -> None:
    declared = read_capability({"max_context_tokens": 4096, "thinking": "switch"})
    assert (declared.room(4096), declared.room(256)) == (2048, 256)
    assert read_capability({}).room(4096) == 4096


def test_a_profile_that_names_a_check_that_does_not_exist_is_refused() -> None:
    text = "gates:\n  - {name: acceptance, settings: {checks: [J01, F0l]}}\n"
    with pytest.raises(GateUsageError, match=r"mine\.yaml: gate acceptance: There is no check 'F0l'"):
        parse("mine", text, "mine.yaml")
