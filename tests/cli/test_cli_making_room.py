"""Plans that make room, cards that are closed, proposals that wait: as people type them, against a real daemon."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def on_box(box, cutover):
    box.ensure_live()
    return lambda *words: cutover("--config", box.config, *words)


def test_a_plan_that_only_fits_as_a_swap_is_drawn_and_has_to_be_wanted(box, on_box):
    whole = box.topology("whole", gpus=4)
    drawn = on_box("plan", whole)
    assert drawn.code == 0, drawn.err
    for part in (
        "swap, plan ",
        "DARK for as long as",
        "hold, drain, free",
        "blue-green does not fit",
        "--strategy swap",
    ):
        assert part in drawn.out
    plan = on_box("plan", whole, "--json").json["plan"]
    assert (plan["strategy"], plan["blackout_s"], plan["rollback"]) == ("swap", None, "asleep")
    assert on_box("plan", whole, "--strategy", "blue-green").code == 5
    refused = on_box("propose", whole, "--wait")
    assert refused.code == 5
    assert "propose with --strategy swap" in refused.out + refused.err


def test_a_cordoned_card_is_named_in_every_refusal(box, on_box):
    said = on_box("cordon", "3", "the fan is broken")
    assert said.code == 0
    assert "nobody gets gpu-3" in said.out
    assert "cordoned by" in on_box("status").out
    refused = on_box("plan", box.topology("whole", gpus=4))
    assert refused.code == 5
    assert "GPU 3 is cordoned by" in refused.err
    assert "the fan is broken" in refused.err
    assert on_box("cordon", "3", "again").code == 5
    assert on_box("uncordon", "gpu-3").code == 0
    assert on_box("uncordon", "3").code == 5
    unknown = on_box("cordon", "9", "no such card")
    assert (unknown.code, "this box has 0, 1, 2, 3" in unknown.err) == (3, True)


def test_a_proposal_waits_for_its_cards_and_status_says_for_what(box, on_box, wait_until):
    on_box("cordon", "3", "a job of somebody else")
    try:
        filed = on_box(
            "propose", box.topology("patient", gpus=4), "--strategy", "swap", "--wait-for-free", "600", "--json"
        )
        rollout = filed.json["rollout"]["id"]
        wait_until(lambda: f"{rollout} waits for its cards" in on_box("status").out)
        assert on_box("show", rollout, "--json").json["phase"] == "queued"
        assert on_box("abort", rollout).code == 0
    finally:
        on_box("uncordon", "3")


def test_the_price_of_going_back_is_in_status(box, on_box):
    way = on_box("status", "--json").json["way_home"]
    assert set(way) == {"how", "seconds", "dark", "sentence"}


def test_strategies_are_played_with_the_emulator(cutover):
    done = cutover("demo", "--engine", "vllm", "--strategy", "swap")
    assert (done.code, done.out) == (2, "")
    assert "leave out --engine vllm" in done.err
