from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

from gates.errors import GateUsageError
from gates.waivers import Seen, State, Waiver, account, read_waivers, waiving

TODAY = date(2026, 11, 29)
KNOWN = ("J01", "J01.choice", "P13", "J26")


def read(*entries: Any, today: date = TODAY) -> tuple[Waiver, ...]:
    return read_waivers(entries, today, "mine.yaml", KNOWN)


def entry(**keys: Any) -> dict[str, Any]:
    return {"check": "P13", "reason": "vLLM#58228", "expires": "2027-01-31"} | keys


def test_a_waiver_as_yaml_and_as_json_give_it() -> None:
    text = '[{check: P13, reason: " vLLM#58228, fixed in 0.28 ", expires: 2027-01-31, mode: stream}]'
    (waiver,) = read_waivers(yaml.safe_load(text), TODAY, "mine.yaml", KNOWN)
    assert waiver.expires == date(2027, 1, 31)
    assert waiver.words == "vLLM#58228, fixed in 0.28 (until 2027-01-31)"
    assert read_waivers([waiver.model_dump(mode="json")], TODAY, "request") == (waiver,)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("P13", "waivers.0: expected a mapping with check, reason and expires; got 'P13'"),
        ({3: "x"}, "expected a mapping"),
        (entry(reason="  "), "waivers.0: reason: is blank; say in words"),
        (entry(reason=None), "waivers.0: reason: should be a valid string"),
        (entry(check=""), "waivers.0: check: is blank"),
        (entry(expires=None), "expires: is no calendar date; expected one as 2027-01-31"),
        (entry(expires="tomorrow"), "expires: is no calendar date"),
        (entry(expires="2027-02-30"), "expires: "),
        (entry(expires=20270131), "expires: is no calendar date"),
        (entry(expires=yaml.safe_load("2027-01-31T10:00:00Z")), "expires: is no calendar date"),
        (entry(expires="2027-12-01"), "more than 366 days ahead; the last day allowed is 2027-11-30"),
        (entry(expires="9999-12-31"), "more than 366 days ahead"),
        (entry(mode="streamed"), "waivers.0: mode: should be 'stream' or 'whole'"),
        (entry(fault=" "), "waivers.0: fault: is blank"),
        (entry(until="2027-01-31"), "waivers.0: unknown key 'until'; known: check, expires, fault, mode, reason"),
        (entry(expire="2027-01-31"), "unknown key 'expire'; did you mean 'expires'?"),
        (entry(check="P31"), "waivers.0: there is no check 'P31'; did you mean 'P13'?"),
        (entry(check="J"), "there is no check 'J'"),
        (entry(reason="x" * 501), "waivers.0: reason: "),
    ],
)
def test_mistakes_are_named_with_their_place(wrong: Any, said: str) -> None:
    with pytest.raises(GateUsageError) as caught:
        read(wrong)
    assert str(caught.value).startswith("mine.yaml: waivers.0")
    assert said in str(caught.value)


@pytest.mark.parametrize("key", ["check", "reason", "expires"])
def test_what_a_waiver_must_say(key: str) -> None:
    incomplete = {name: value for name, value in entry().items() if name != key}
    with pytest.raises(GateUsageError, match=f"mine.yaml: waivers.1: the key '{key}' is missing"):
        read(entry(check="J01"), incomplete)


def test_the_same_waiver_twice_and_too_many_are_refused() -> None:
    assert len(read(entry(), entry(mode="stream"), entry(fault="cut"))) == 3
    with pytest.raises(GateUsageError, match=r"waivers\.1: P13 is waived twice"):
        read(entry(), entry(reason="another"))
    with pytest.raises(GateUsageError, match="201 waivers; at most 200"):
        read(*[entry()] * 201)


def test_external_checks_are_not_known_beforehand() -> None:
    assert read_waivers([entry(check="my-own")], TODAY, "mine.yaml")[0].check == "my-own"


def test_a_year_ahead_is_allowed_and_an_expired_one_can_still_be_read() -> None:
    assert read(entry(expires="2027-11-30"), entry(check="J01", expires="2020-01-01"))


def test_what_a_waiver_lets_through() -> None:
    (waiver,) = waivers = read(entry(check="J01"))
    assert waiving(Seen("J01", failed=True), waivers, TODAY) is waiver
    assert waiving(Seen("J01.choice", failed=True, mode="whole"), waivers, TODAY) is waiver
    assert waiving(Seen("J011", failed=True), waivers, TODAY) is None
    assert waiving(Seen("P13", failed=True), waivers, TODAY) is None
    assert waiving(Seen("J01", failed=False), waivers, TODAY) is None


def test_a_waiver_ends_after_its_last_day() -> None:
    (waiver,) = waivers = read(entry())
    failure = Seen("P13", failed=True)
    assert waiving(failure, waivers, date(2027, 1, 31)) is waiver
    assert waiving(failure, waivers, date(2027, 2, 1)) is None
    renewed = read(entry(expires="2027-02-10", mode="stream"), entry(), today=TODAY)
    assert waiving(Seen("P13", failed=True, mode="stream"), renewed, date(2027, 2, 1)) is renewed[0]


def test_a_narrow_waiver_lets_only_its_failure_through() -> None:
    streams, cut = read(entry(mode="stream"), entry(check="J26", fault="Phantom call"))
    assert waiving(Seen("P13", failed=True, mode="stream"), [streams], TODAY) is streams
    assert waiving(Seen("P13", failed=True, mode="whole"), [streams], TODAY) is None
    assert waiving(Seen("P13", failed=True), [streams], TODAY) is None, "it fails in both modes: that is news"
    assert waiving(Seen("J26", failed=True, sentence="a phantom call of x came"), [cut], TODAY) is cut
    assert waiving(Seen("J26", failed=True, sentence="the answer is empty"), [cut], TODAY) is None


def test_every_waiver_is_accounted_for_every_time() -> None:
    waivers = read(
        entry(),
        entry(check="J01", expires="2026-11-29"),
        entry(check="J01.choice", expires="2026-11-28"),
        entry(check="J26", expires="2026-11-30", mode="stream"),
    )
    seen = [Seen("P13", failed=False), Seen("J01.choice", failed=True), Seen("J26", failed=True, mode="whole")]
    notices = account(waivers, seen, TODAY)
    assert [notice.waiver for notice in notices] == list(waivers)
    assert [notice.state for notice in notices] == [
        State.NOT_NEEDED,
        State.USED,
        State.EXPIRED,
        State.OTHER_FAILURE,
    ]
    assert [notice.sentence for notice in notices] == [
        "P13: the waiver is not needed any more, the check passed; take it out (vLLM#58228)",
        "J01 is waived until 2026-11-29 (today is its last day): vLLM#58228",
        "J01.choice: the waiver expired on 2026-11-28; the check still fails (it was: vLLM#58228)",
        "J26 failed otherwise than this waiver allows (mode 'stream'): vLLM#58228",
    ]


def test_a_waiver_of_a_check_that_was_not_run_is_not_called_superfluous() -> None:
    (notice,) = account(read(entry()), [Seen("J01", failed=False)], TODAY)
    assert (notice.state, "not run this time" in notice.sentence) == (State.NOT_RUN, True)
    (used,) = account(read(entry()), [Seen("P13", failed=True)], date(2027, 1, 30))
    assert "(1 day left)" in used.sentence
    (expired,) = account(read(entry()), [Seen("P13", failed=False)], date(2027, 2, 1))
    assert "take it out of the profile" in expired.sentence
