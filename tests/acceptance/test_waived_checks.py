"""A waiver lets one known failure of the gate through, and is shown every time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gates.errors import GateUsageError
from gates.profile import parse

BROKEN = "bad-tool-arguments+no-stream"


def in_days(days: int) -> str:
    return (datetime.now(UTC).date() + timedelta(days=days)).isoformat()


def profile(waivers: str) -> str:
    return f"gates:\n  - name: acceptance\n    settings:\n      waivers:\n        - {waivers}\n"


@pytest.mark.parametrize(
    ("narrow", "verdict"),
    [({}, "pass"), ({"mode": "whole"}, "pass"), ({"mode": "stream"}, "fail"), ({"fault": "no such words"}, "fail")],
)
def test_a_waiver_covers_what_it_says_and_no_more(judge, engines, narrow, verdict):
    url = engines("--ttft-ms", "2", "--itl-ms", "0.2", "--fault", BROKEN)
    waivers = [
        {"check": "J01", "reason": "known", "expires": in_days(3), **narrow},
        {"check": "J20", "reason": "the same", "expires": in_days(3)},
        {"check": "P16", "reason": "no reason any more", "expires": in_days(3)},
    ]
    said = judge("acceptance", url, profile={"checks": ["J01"], "waivers": waivers})
    assert said.verdict == verdict, said.sentence
    check = next(check for check in said.checks if check.id == "J01")
    assert (check.waived is not None, check.warn) == (verdict == "pass", verdict == "pass")
    states = {notice["check"]: notice["state"] for notice in said.measurements["waivers"]}
    assert states["J20"] == "used"
    assert states["P16"] == "check not run"
    assert states["J01"] == ("used" if verdict == "pass" else "covers another failure")


@pytest.mark.parametrize("gate", ["smoke", "acceptance"])
def test_what_is_waived_does_not_hide_what_is_not(judge, engines, gate):
    """A run that ends at the first block would end at the waived one, and everything after it would pass unasked."""
    url = engines("--ttft-ms", "2", "--itl-ms", "0.2", "--thinking", "on", "--fault", "think-in-content")
    waived = {"check": "T02", "reason": "known", "expires": in_days(3)}
    settings = {"checks": ["T"], "waivers": [waived], "stop_early": True, "timeout_s": 20}
    settings = {"waivers": [waived], "timeout_s": 20} if gate == "smoke" else settings
    said = judge(gate, url, profile=settings, capability={"thinking": "switch"})
    assert said.verdict == "fail", said.sentence
    check = next(check for check in said.checks if check.id.startswith("P11"))
    assert check.verdict == "fail", check.sentence


def test_an_expired_waiver_waives_nothing(judge, engines):
    url = engines("--ttft-ms", "2", "--itl-ms", "0.2", "--fault", BROKEN)
    old = {"check": "J01", "reason": "known", "expires": in_days(-1)}
    said = judge("acceptance", url, profile={"checks": ["J01"], "waivers": [old]})
    assert said.verdict == "fail"
    assert said.measurements["waivers"][0]["state"] == "expired"


@pytest.mark.parametrize(
    ("waiver", "complaint"),
    [
        ("{check: J01, reason: x}", "expires"),
        ("{check: J99, reason: x, expires: 2026-12-31}", "there is no check 'J99'"),
        ("{check: J01, reason: '', expires: 2026-12-31}", "reason"),
        ("{check: J01, reason: x, expires: 2099-12-31}", "days ahead"),
    ],
)
def test_a_wrong_waiver_is_refused_with_the_profile(waiver, complaint):
    with pytest.raises(GateUsageError, match=complaint):
        parse("mine", profile(waiver), "mine.yaml")


def test_waivers_are_plain_data_in_a_profile():
    read = parse("mine", profile(f"{{check: J01, reason: x, expires: {in_days(9)}}}"), "mine.yaml")
    assert read.gates[0].settings["waivers"] == [{"check": "J01", "reason": "x", "expires": in_days(9)}]


def test_what_a_report_shows_is_waived_as_it_is_written_there(tmp_path):
    read = parse("mine", profile(f"{{check: J20.model, reason: x, expires: {in_days(9)}}}"), "mine.yaml")
    assert read.gates[0].settings["waivers"][0]["check"] == "J20.model"
    with pytest.raises(GateUsageError, match=r"P17\.listed is of the gate health, of which nothing can be waived"):
        parse("mine", profile(f"{{check: P17.listed, reason: x, expires: {in_days(9)}}}"), "mine.yaml")


def test_a_request_of_ones_own_is_waived_by_its_id(tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "a-1", "messages": [{"role": "user", "content": "hi"}], "expect": {"contains": "hi"}}')

    def own(check):
        waiver = f"{{check: {check}, reason: x, expires: {in_days(9)}}}"
        return parse("p", f"gates: [{{name: own-set, settings: {{file: {questions}, waivers: [{waiver}]}}}}]", "p.yaml")

    for check in ("a-1", "P03", "O04.model"):
        assert own(check).gates[0].settings["waivers"][0]["check"] == check
    with pytest.raises(GateUsageError, match="there is no check 'a-2'; did you mean 'a-1'"):
        own("a-2")


def test_a_waiver_of_the_models_part_alone_leaves_the_servers(judge, engines):
    """Broken arguments where nothing was forced are the model's; with `J20.model` these pass, and J01 still fails."""
    url = engines("--ttft-ms", "2", "--itl-ms", "0.2", "--fault", BROKEN)
    waivers = [
        {"check": "J01", "reason": "known", "expires": in_days(3)},
        {"check": "J20.model", "reason": "the same", "expires": in_days(3)},
    ]
    said = judge("acceptance", url, profile={"checks": ["J01"], "waivers": waivers})
    assert said.verdict == "pass", said.sentence
    states = {notice["check"]: notice["state"] for notice in said.measurements["waivers"]}
    assert states["J20.model"] == "used"
    shown = next(check for check in said.checks if check.id == "J20.model")
    assert "asked again: the " in shown.sentence or "times again: none broke it" in shown.sentence
