"""Group J on emulated engines: a healthy one passes every check, a wrong one fails the check that should see it."""

from __future__ import annotations

from typing import Any

import pytest
from gate_kit import Engines, Judge, failed_checks

from gates.acceptance import register
from gates.contract import Verdict
from launch.engines.emulator.testing import emulator

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4")
ABLE = {
    "thinking": "none",
    "required": True,
    "named": True,
    "parallel_calls": True,
    "json_schema": True,
    "max_context_tokens": 32768,
}
GROUP = {check.id: check for check in register.checks() if check.group == "J"}


def profile(*checks: str, **more: Any) -> dict[str, Any]:
    return {"checks": checks, "seed": "calls", "timeout_s": 20.0, **more}


def verdicts(verdict: Verdict) -> dict[str, str]:
    """The checks of the group by id; `warn` for those that passed and show something."""
    return {
        check.id: "skip" if check.skipped else "warn" if check.warn else str(check.verdict)
        for check in verdict.checks
        if check.id in GROUP
    }


def test_a_healthy_engine_passes_every_check(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--max-model-len", "32768")
    verdict = judge("acceptance", url, capability=ABLE, profile=profile("J"))
    assert verdict.verdict == "pass", verdict.sentence
    expected = {check_id for check_id, check in GROUP.items() if check.tier != "extended"}
    assert verdicts(verdict) == dict.fromkeys(expected, "pass")


@pytest.mark.parametrize(
    ("dialect", "more"),
    [("vllm-old", {"finish_required": "any"}), ("sglang", {"thinking": "switch"}), ("llamacpp", {}), ("smg", {})],
)
def test_the_dialects_of_engines_are_all_right(
    judge: Judge, engines: Engines, dialect: str, more: dict[str, Any]
) -> None:
    """What differs on the wire: beginnings and ends of calls, ids, named and demanded calls, text beside a call."""
    checks = ("J01", "J08", "J10", "J11", "J12", "J13n", "J14", "J16", "J18", "J22")
    verdict = judge(
        "acceptance", engines(*FAST, "--dialect", dialect), capability=ABLE | more, profile=profile(*checks)
    )
    assert verdict.verdict == "pass", verdict.sentence
    assert verdicts(verdict) == dict.fromkeys(checks, "pass")


def test_long_contexts_and_agreement_with_production(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--max-model-len", "32768")
    asked = profile("J19", "J23", "J23b", "J23c", tier="extended")
    capability = ABLE | {"max_context_tokens": 12_000}
    verdict = judge("acceptance", url, capability=capability, profile=asked)
    seen = verdicts(verdict)
    assert seen == {"J23": "pass", "J23b": "skip", "J23c": "pass", "J19": "skip"}, verdict.sentence
    with emulator(*FAST, "--fault", "call-lost@0.3", model="emu") as lossy:
        compared = judge(
            "acceptance", lossy.url, capability=capability, live_endpoint=url, profile=asked | {"checks": ["J19"]}
        )
    assert failed_checks(compared) >= {"J19"}
    assert "production with itself 1.000" in next(c.sentence for c in compared.checks if c.id == "J19")


def test_a_context_that_is_not_what_it_seems_fails_the_long_one(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "args-value-cut", model="emu") as engine:
        verdict = judge("acceptance", engine.url, capability=ABLE, profile=profile("J23", tier="extended"))
    assert "J23" in failed_checks(verdict)


@pytest.mark.parametrize(
    ("fault", "checks", "said"),
    [
        ("leak-markup", {"J01", "J02"}, "is a tool-call parser set?"),
        ("call-lost", {"J01", "J02"}, "no call"),
        ("all-empty", {"J01", "J16"}, "empty"),
        ("args-empty-str", {"J02"}, "expected {}"),
        ("type-coerce", {"J03"}, "break their schema"),
        ("args-value-cut", {"J03", "J06", "J07"}, ""),
        ("escape-u", {"J04", "J04e"}, "letters arrive as escapes"),
        ("html-escaped", {"J04", "J27"}, "escaped as HTML"),
        ("html-unescaped", {"J04", "J27"}, "read as HTML"),
        ("int-rounded", {"J03", "J28"}, "went through a float"),
        ("mojibake", {"J04"}, ""),
        ("leak-in-args", {"J05"}, "asked was"),
        ("second-call-lost", {"J08", "J09"}, "expected 3 in one turn"),
        ("second-args-lost", {"J08", "J09"}, ""),
        ("required-prose", {"J11", "J12"}, "answered in prose"),
        ("none-calls", {"J13", "J16"}, "no tool may be"),
        ("none-swallow", {"J13n", "J16"}, "empty"),
        ("parallel-ignored", {"J14"}, "parallel_tool_calls was false"),
        ("phantom-call", {"J15", "J26p"}, ""),
        ("name-truncated", {"J17"}, "was called"),
        ("content-lost", {"J18", "J26"}, "the text beside the call is cut"),
        ("wrong-schema-arguments", {"J21", "J20s"}, "break their schema"),
        ("schema-not-enforced", {"J22"}, "the content"),
        ("ws-loop", {"J22"}, ""),
    ],
)
def test_a_wrong_engine_fails_the_check_that_should_see_it(
    judge: Judge, fault: str, checks: set[str], said: str
) -> None:
    with emulator(*FAST, "--fault", fault, model="emu") as engine:
        verdict = judge("acceptance", engine.url, capability=ABLE, profile=profile(*checks))
    assert failed_checks(verdict) >= checks, verdict.sentence
    assert said in " ".join(check.sentence for check in verdict.checks if check.id in checks)


def test_calls_that_get_lost_only_under_load(judge: Judge) -> None:
    # Slow enough that requests are under way together.
    with emulator("--ttft-ms", "10", "--itl-ms", "1", "--fault", "args-empty-obj+running=4", model="emu") as engine:
        verdict = judge("acceptance", engine.url, capability=ABLE, profile=profile("J24"))
    assert "J24" in failed_checks(verdict), verdict.sentence
    assert "alone 2" in next(check.sentence for check in verdict.checks if check.id == "J24")


def test_values_that_run_together_are_seen_in_what_others_asked_for(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "args-merged", model="emu") as engine:
        verdict = judge("acceptance", engine.url, capability=ABLE, profile=profile("J08", "J09", "J10"))
    assert failed_checks(verdict) >= {"J08", "J09", "J10"}


def test_blanks_that_are_trimmed_are_shown_and_do_not_block(judge: Judge) -> None:
    with emulator(*FAST, "--fault", "value-trim", model="emu") as engine:
        verdict = judge("acceptance", engine.url, capability=ABLE, profile=profile("J05t", "J05"))
    assert verdict.verdict == "pass", verdict.sentence
    assert verdicts(verdict) == {"J05t": "warn", "J05": "pass"}


def test_what_the_capability_does_not_say_is_skipped(judge: Judge, engines: Engines) -> None:
    verdict = judge("acceptance", engines(*FAST), capability={"thinking": "none"}, profile=profile("J11", "J08", "J22"))
    assert verdicts(verdict) == {"J11": "skip", "J08": "skip", "J22": "skip"}


def test_every_check_says_in_words_what_it_is() -> None:
    for check in GROUP.values():
        assert all(len(text) > 5 and not text.endswith(";") for text in (check.asks, check.holds, check.catches))
        assert (check.attempt is None) is not (check.survey is None)
