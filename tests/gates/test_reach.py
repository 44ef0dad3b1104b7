"""A run that asked nothing never passes: what no gate reaches is refused, and what was only skipped is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_kit import Engines, Judge

from gates import parts
from gates.acceptance.check import Tier
from gates.acceptance.reach import Reach, out_of_reach
from gates.acceptance.register import checks, find
from gates.contract import Check, VerdictKind
from gates.errors import GateUsageError
from gates.invariants import RULES
from gates.profile import GateStep, Profile, load, parse
from gates.run import run_profile
from gates.trial import skipped_words

NOBODY = "http://127.0.0.1:9"
FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--thinking", "never")
SMOKE, STANDARD = Reach("smoke", Tier.SMOKE), Reach("acceptance", Tier.STANDARD)


def test_what_a_gate_reaches() -> None:
    assert STANDARD.of(["J07"]) == {"J07"}
    assert SMOKE.of(["J07"]) == frozenset()
    assert SMOKE.of(["J07", "J01"]) == {"J01"}
    assert SMOKE.of(["F"]) == {check.id for check in checks() if check.group == "F" and check.tier is Tier.SMOKE}
    assert SMOKE.of([]) == {check.id for check in checks() if check.tier is Tier.SMOKE}
    assert Reach("acceptance", Tier.STANDARD, frozenset({"J07"})).of(["J07", "J01"]) == {"J01"}


def test_the_first_that_nobody_reaches() -> None:
    assert out_of_reach(["J07", "F"], [SMOKE, STANDARD]) is None
    missed = out_of_reach(["F", "J07"], [SMOKE])
    assert missed is not None
    assert (missed.word, missed.needs, missed.why) == ("J07", Tier.STANDARD, "J07 is a check of the tier standard")
    group = out_of_reach(["A"], [SMOKE])
    assert group is not None
    assert group.why == "group A begins in the tier extended"
    without = out_of_reach(["J07"], [SMOKE, Reach("acceptance", Tier.STANDARD, frozenset({"J07"}))])
    assert without is not None
    assert (without.needs, without.why) == (None, "J07 is left out by `without` of acceptance")


@pytest.mark.parametrize(
    ("profile", "more", "said"),
    [
        (
            "smoke",
            {},
            "J07 is a check of the tier standard, and gate smoke of profile 'smoke' goes up to smoke: it would not",
        ),
        ("smoke", {}, "Use --profile standard, or set `tier: standard`"),
        ("standard", {"only": ["smoke"]}, "Use --profile standard --gate acceptance, or"),
        ("demo", {}, "Use --profile standard,"),
    ],
)
def test_a_check_that_no_gate_of_the_profile_asks_is_refused(
    tmp_path: Path, profile: str, more: dict[str, list[str]], said: str
) -> None:
    with pytest.raises(GateUsageError) as refused:
        run_profile(NOBODY, "m", profile, checks=["J01", "J07"], evidence_dir=tmp_path / "e", **more)  # type: ignore[arg-type]
    assert said in str(refused.value)
    assert refused.value.exit_code == 2
    assert not (tmp_path / "e").exists(), "nothing was begun"


def test_only_the_gates_that_ask_one_of_them_are_run() -> None:
    from gates.run import _with_checks

    def asked(*words: str) -> list[str]:
        return [step.name for step in _with_checks(load("standard"), words, ()).gates]

    assert asked("J07") == ["acceptance"]
    assert asked("J01") == ["smoke", "acceptance"]
    assert asked("F") == ["smoke", "acceptance"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "checks: [J07], tier: smoke",
            "J07 is a check of the tier standard, and the gate's tier is smoke: set tier: st",
        ),
        ("checks: [J07], without: [J]", "J07 is left out by `without` of acceptance: take one out"),
        ("without: [P, J, F, T, O, A]", "`without` leaves no check of the tier standard to ask"),
        (
            "checks: [J20.model]",
            "J20.model cannot be chosen: so a report shows breaches of J20 that a model can commit",
        ),
    ],
)
def test_a_profile_whose_gate_would_ask_nothing_is_refused(settings: str, said: str) -> None:
    with pytest.raises(GateUsageError) as refused:
        parse("p", f"gates: [{{name: acceptance, settings: {{{settings}}}}}]", "p.yaml")
    assert str(refused.value).startswith("p.yaml: gate acceptance: ")
    assert said in str(refused.value)


def test_a_check_that_was_skipped_leaves_nothing_decided(judge: Judge) -> None:
    """Nobody listens there: nothing was asked of it."""
    said = judge("acceptance", NOBODY, profile={"checks": ["J14"]}, capability={"parallel_calls": False})
    assert said.verdict == "inconclusive"
    assert said.sentence.startswith(
        "nothing was decided: J14 was skipped: the capability of this topology does not say "
    )
    assert said.measurements["again"] is False
    two = judge("acceptance", NOBODY, profile={"checks": ["J14", "T01"]}, capability={"thinking": "none"})
    assert "all 2 checks were skipped; J14: the capability" in two.sentence


@pytest.mark.parametrize(
    "settings", [{"checks": ["J07"], "tier": "smoke"}, {"without": ["P", "J", "F", "T", "O", "A"]}]
)
def test_a_gate_to_which_nothing_is_left_is_unknown(judge: Judge, settings: dict[str, object]) -> None:
    said = judge("acceptance", NOBODY, profile=settings)
    assert said.verdict == "inconclusive"
    assert "`checks` and `without` leave nothing to ask in the tier" in said.sentence


def test_a_check_that_finds_that_it_does_not_apply_leaves_nothing_decided_either(
    engines: Engines, judge: Judge
) -> None:
    """The first plain question is answered, and every rule holds for it: alone that is no judgement."""
    said = judge("acceptance", engines(*FAST), profile={"checks": ["A01"], "tier": "extended"})
    assert said.verdict == "inconclusive"
    assert said.sentence == "nothing was decided: A01 was skipped: no data: the setting accuracy_set names no file"
    assert any(check.verdict == "pass" for check in said.checks)
    assert "again" not in said.measurements, "what was found while asking may be another time"


def test_the_words_for_nothing() -> None:
    skipped = Check(id="J07", verdict=VerdictKind.INCONCLUSIVE, sentence="skipped: no tools", skipped=True)
    assert skipped_words([]) == "no check was asked"
    assert skipped_words([skipped]) == "J07 was skipped: no tools"


def test_the_word_of_a_foreign_gate_counts(tmp_path: Path) -> None:
    program = tmp_path / "mine.sh"
    program.write_text('#!/bin/sh\necho \'{"contract": 1, "gate": "mine", "verdict": "pass", "sentence": "fine"}\'\n')
    program.chmod(0o755)
    profile = Profile("p", (GateStep("mine", (str(program),), 30.0),))
    assert run_profile(NOBODY, "m", profile, evidence_dir=tmp_path / "e").verdict == "pass"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("J20.model", "J20 is a rule for every answer, judged whatever is asked; choose a check"),
        ("P01.model", "P01"),
        ("P17.listed", "so a report shows whether /v1/models lists the name"),
        ("T14", "T14 cannot be chosen: T14 is a rule for every answer"),
        ("J20.moddel", "There is no check 'J20.moddel'"),
    ],
)
def test_what_cannot_be_chosen_is_one_sentence(word: str, said: str) -> None:
    with pytest.raises(GateUsageError) as refused:
        find(word)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_rule_has_a_part_for_what_a_model_does() -> None:
    assert {parts.base_of(shown) for shown in parts.shown_parts()} == set(RULES)
    assert parts.means("J20.modell") is None
    assert parts.means("J07.model") is None
