"""Facts of a report, of nights that the core itself has lived through."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from fake_world import make_release
from report_kit import DECODE, THROUGHPUT, measured, taipei

from controller.core import actions as act
from controller.core.night_records import Arm, OnSuccess, Sweep
from controller.core.records import Closed, Freeze, Options, Phase
from controller.core.route import Counted
from controller.core.seen import Users
from controller.report.build import build
from controller.report.figures import figures, ratios
from controller.report.headline import headline
from controller.report.records import Dark, Report, RolloutPart
from controller.report.words import dark_in_words
from controller.store.journal import Entry


def part(report: Report, release: str) -> RolloutPart:
    return next(one for one in report.rollouts if one.release == release)


def test_what_ran_in_its_order_with_verdict_and_why(lived):
    report = lived.report()
    told = [(one.kind, one.release, one.outcome, one.tone) for one in report.rollouts]
    assert told == [
        ("measure", "first@00000000", "live measured", "good"),
        ("propose", "leaky@00000000", "rejected", "bad"),
        ("propose", "slow@00000000", "rejected", "bad"),
        ("propose", "better@11111111", "promoted", "good"),
    ]
    assert part(report, "leaky@00000000").why == "gate toolcalls: thinking leaks into content: <think>"
    assert part(report, "leaky@00000000").note == "a new build"
    began = [one.began for one in report.rollouts]
    assert began == sorted(began)
    assert began[0] >= report.night.opens
    assert report.night.opens == taipei(2)
    assert report.night.closes == taipei(6)
    assert f"{report.night.opens:%H:%M}" == "02:00"


def test_every_gate_leads_to_its_evidence(lived):
    checks = [{"id": "J07", "verdict": "fail", "sentence": "3 of 40 leak", "evidence": ["J07.json", "/abs/x"]}]
    run = next(g.run for r in lived.state.rollouts.values() for g in r.gates if g.verdict == "fail")
    failed = next(
        gate
        for one in lived.report(reports={run: {"checks": [*checks, {"id": "ok", "verdict": "pass"}, "junk"]}}).rollouts
        for gate in one.gates
        if gate.run == run
    )
    assert (failed.name, failed.verdict, failed.kept) == ("toolcalls", "fail", True)
    assert failed.evidence == f"/state/gates/{run}/evidence"
    assert [(one.id, one.sentence) for one in failed.findings] == [("J07", "3 of 40 leak")]
    assert failed.findings[0].evidence == (f"/state/gates/{run}/evidence/J07.json", "/abs/x")
    assert not lived.report().rollouts[1].gates[-1].kept
    assert lived.report().rollouts[1].command == "cutover show r0002"


def test_figures_stand_beside_what_live_showed_in_the_same_night(lived):
    better = part(lived.report(), "better@11111111")
    ratio = better.compared[0]
    assert (ratio.metric, ratio.says) == (DECODE, "better")
    assert (round(ratio.low, 3), ratio.ratio, round(ratio.high, 3)) == (1.164, 1.2, 1.236)
    assert [(one.concurrency, one.decode_tok_per_s, one.live_decode_tok_per_s) for one in better.figures] == [
        (1, 48.0, 40.0),
        (8, 24.0, 20.0),
    ]
    measured_live = lived.report().rollouts[0]
    assert (measured_live.compared, measured_live.figures[0].live_decode_tok_per_s) == ((), None)
    assert part(lived.report(), "slow@00000000").compared[0].says == "worse"


def test_what_is_live_since_when_and_why(lived):
    report = lived.report()
    now, better = report.present, part(report, "better@11111111")
    assert (now.live, now.live_rollout, now.previous) == ("better@11111111", better.id, "first@00000000")
    assert now.live_since is not None
    assert taipei(2) < now.live_since < taipei(6)
    assert f"{better.id}, asked for by tester, is promoted: baked" in now.live_why
    assert (report.night.live_before, report.night.live_after) == ("first@00000000", "better@11111111")
    assert report.headline[0].startswith("better@11111111 is live since 02:")
    assert "3 rollouts: 2 rejected, 1 promoted; 1 still waits." in report.headline


def test_who_did_not_begin_and_why(lived):
    report = lived.report(waits={"r0006": "its cards are not to be had: 9 GPUs are wanted"})
    told = {one.id: (one.outcome, one.why) for one in report.not_begun}
    assert told["r0004"] == ("superseded", "r0005 (better@11111111) is a newer revision of better")
    assert told["r0006"] == ("waits", "its cards are not to be had: 9 GPUs are wanted")
    assert set(told) == {"r0004", "r0006"}


def test_the_queue_and_when_its_window_opens(lived):
    now = lived.report().present
    assert [(one.id, one.window, one.opens) for one in now.queue] == [("r0006", "nightly", now.windows[0].opens)]
    assert f"{now.windows[0].opens:%Y-%m-%d %H:%M %z}" == "2026-12-01 02:00 +0800"
    assert "window nightly opens Tue 2026-12-01 02:00" in now.queue[0].waits_for


def test_what_users_met(lived):
    counted = Counted(requests=1204, held=12, released=9, timed_out=1, left=2, refused=3, cut=1, longest_wait_s=14.2)
    report = lived.report(counted={"nightly@2026-11-30": counted}, log_since=taipei(1).timestamp())
    assert report.users is not None
    assert (report.users.lost, report.users.since) == (5, None)
    assert "5 of 1,204 requests got no whole answer." in report.headline
    late = lived.report(counted={"nightly@2026-11-30": counted}, log_since=taipei(3).timestamp())
    assert late.users is not None
    assert late.users.since == taipei(3)
    quiet = lived.report(counted={"nightly@2026-11-30": Counted(requests=7)})
    assert "No request was lost, of 7 requests." in quiet.headline
    assert lived.report().users is None


def test_an_open_night_says_so(box):
    box.finish(box.propose(make_release("first")))
    box.until_wall(2, 1)
    running = box.propose(make_release("next"), window="nightly")
    box.run(lambda: box.phase(running) is Phase.STARTING)
    report = box.report()
    assert report.night.state == "open"
    assert report.headline[0].startswith(
        "The window is open until 06:00 (Asia/Taipei): r0002 (next@00000000) is starting"
    )
    assert (report.rollouts[0].over, report.rollouts[0].tone, report.rollouts[0].ended) == (False, "open", None)
    assert "first@00000000 is live as before: users were not switched." in report.headline


def test_a_missed_night_says_who_had_waited(box):
    box.finish(box.propose(make_release("first")))
    box.propose(make_release("next"), window="nightly")
    box.world.set_wall(taipei(9).timestamp())  # nobody looked in between
    box.settle()
    report = box.report()
    assert (report.night.state, report.rollouts) == ("missed", ())
    assert report.headline[0].startswith("The window was missed: it opened at 02:00 (Asia/Taipei)")
    assert report.headline[1] == "1 proposal had waited for it: r0002 (next@00000000)."
    assert "nothing is run late" in report.not_begun[0].why


def test_gone_back_within_the_night(box):
    box.finish(box.propose(make_release("first")))
    bad = box.propose(make_release("bad"), window="nightly", bake_s=600.0)
    box.until_wall(2)
    box.run(lambda: box.phase(bad) is Phase.BAKING)
    for name, process in box.world.processes.items():
        if name.startswith("bad"):
            process.silent = True
    box.until_wall(6, 5)
    report = box.report()
    told = part(report, "bad@00000000")
    assert (told.outcome, told.tone) == ("rolled back", "unsure")
    assert told.switched is not None
    assert report.headline[0] == f"first@00000000 is live again, after {bad}, as before."
    assert told.left is not None
    seconds = (told.left - told.switched).total_seconds()
    assert seconds >= 10
    assert report.headline[1].startswith(f"{bad} (bad@00000000) was rolled back (2 bad samples in a row")
    assert f"users were on it for {seconds:.0f} s (02:0" in report.headline[1]
    assert report.headline[1].endswith("and on the way back it was never dark.")
    assert (told.dark, told.dark_back, report.dark_s) == (None, None, 0)
    assert report.present.live_rollout == bad
    assert "is rolled back" in report.present.live_why


def test_dark_seconds_and_where_they_went(box):
    box.finish(box.propose(make_release("first", gpus=4)))
    box.propose(make_release("next", gpus=4), window="nightly", strategy="swap")
    box.until_wall(6, 5)
    report = box.report()
    dark = part(report, "next@00000000").dark
    assert dark is not None
    assert dark.seconds > 5
    assert sum(dark.parts.values()) == pytest.approx(dark.seconds, abs=0.01)
    assert dark.parts["start"] >= 5
    assert dark.since is not None
    assert (dark.until - dark.since).total_seconds() == pytest.approx(dark.seconds, abs=0.01)
    assert taipei(2) <= dark.since
    assert report.dark_s == dark.seconds
    assert any(sentence.startswith("Nothing served for") for sentence in report.headline)


@pytest.mark.parametrize("fault", [{"ttft_s": 9.0}, {"silent": True}], ids=["slow", "silent"])
def test_a_swap_that_is_undone_was_dark_twice(box, fault):
    """There, and on the way back: also where what was worse had served nobody any more."""
    box.finish(box.propose(make_release("first", gpus=4)))
    box.world.set_wall(taipei(2).timestamp())
    bad = box.propose(make_release("bad", gpus=4), window="nightly", strategy="swap", bake_s=600.0)
    box.run(lambda: box.phase(bad) is Phase.BAKING)
    box.settle_for(15)
    there = part(box.report(), "bad@00000000").dark
    for name, process in box.world.processes.items():
        for what, value in fault.items() if name.startswith("bad") else ():
            setattr(process, what, value)
    box.run(lambda: box.state.rollouts[bad].dark_since_s is not None)
    box.world.clock_s += 0.5
    meanwhile = part(box.report(), "bad@00000000")
    assert (meanwhile.dark, meanwhile.dark_back.until) == (there, None)
    assert meanwhile.dark_back.seconds >= 0.5
    box.finish(bad)
    box.settle()
    report = box.report()
    told = part(report, "bad@00000000")
    assert told.dark.since < told.dark.until == told.switched < told.left == told.dark_back.since < told.dark_back.until
    assert (told.left - told.switched).total_seconds() >= 15
    assert told.dark.seconds > 5 < told.dark_back.seconds
    for dark in (told.dark, told.dark_back):
        assert dark.seconds == (dark.until - dark.since).total_seconds()
        assert sum(dark.parts.values()) == pytest.approx(dark.seconds, abs=0.01)
    assert told.dark.parts or told.dark_back.parts
    whole = told.dark.seconds + told.dark_back.seconds
    assert report.dark_s == pytest.approx(whole, abs=0.01)
    assert f"Nothing served for {whole:.0f} s ({bad} {whole:.0f} s)." in report.headline
    sentence = next(said for said in report.headline if "was rolled back" in said)
    assert sentence.endswith(f"and on the way back nothing served for {told.dark_back.seconds:.1f} s.")
    assert dark_in_words(told)[1].startswith(f"on the way back dark {told.dark_back.seconds:.1f} s")


def test_who_yields_waits_again_and_is_told_as_such(box):
    box.finish(box.propose(make_release("first")))
    first = box.propose(make_release("next"), window="nightly", strategy="blue-green")
    box.until_wall(2)
    box.run(lambda: box.phase(first) is Phase.STARTING)
    box.world.foreign[2] = "python (pid 77) uses 4000 MiB"
    box.until_wall(3)
    told = box.report().rollouts[0]
    assert (told.id, told.outcome, told.tone) == (first, "yielded", "quiet")
    assert "it yields GPU 2 to somebody else" in told.why
    assert [(one.id, one.outcome) for one in box.report().not_begun] == [("r0003", "waits")]
    box.world.foreign.clear()
    box.until_wall(6, 5)
    report = box.report()
    assert [(one.id, one.outcome, one.again_for) for one in report.rollouts] == [
        (first, "yielded", ""),
        ("r0003", "promoted", first),
    ]
    assert report.not_begun == ()


def test_expired_withdrawn_frozen_and_cards(box):
    box.finish(box.propose(make_release("first")))
    expires = box.propose(make_release("old"), window="nightly", expires_wall_s=taipei(1).timestamp())
    gone = box.propose(make_release("gone"), window="nightly")
    box.ask(act.AskAbort(gone, "bob"))
    box.ask(act.SetFreeze(Freeze("eve", "exam week", box.world.now().wall_s)))
    box.propose(make_release("next"), window="nightly")
    box.until_wall(3)
    box.ask(act.CloseCard("gpu-3", Closed("", "412 MiB did not come back", box.world.now().wall_s)))
    box.until_wall(6, 5)
    report = box.report(alarms=("look at this",))
    assert {one.id: one.outcome for one in report.not_begun} == {
        expires: "expired",
        gone: "withdrawn",
        "r0004": "waits",
    }
    assert next(one.why for one in report.not_begun if one.id == gone) == "withdrawn by bob"
    assert "frozen by eve since Sun 2026-11-29" in report.present.frozen
    assert report.present.alarms == ("look at this",)
    assert [(card.gpu, card.closed) for card in report.cards] == [("gpu-3", True)]
    assert report.present.closed_cards[0].sentence == "quarantined: 412 MiB did not come back"
    assert "Nothing was tried; 1 still waits." in report.headline


def test_somebodys_rollback_meanwhile_is_told_and_is_none_of_the_window(box):
    box.finish(box.propose(make_release("first")))
    box.finish(box.propose(make_release("second")))
    box.until_wall(3)
    back = box.rollback()
    box.until_wall(6, 5)
    report = box.report()
    told = next(one for one in report.rollouts if one.id == back)
    assert (told.kind, told.outcome, told.tone, told.of_this_night) == ("rollback", "rolled back", "good", False)
    assert (report.night.live_before, report.night.live_after) == ("second@00000000", "first@00000000")
    assert report.present.live_rollout == back


def test_a_sweep_so_far(box):
    box.observers = (THROUGHPUT,)
    box.world.measures = {"first": measured(40.0), "arm0": measured(41.0, 1.02), "arm1": measured(50.0, 1.25)}
    box.finish(box.propose(make_release("first")))
    releases = tuple(make_release(f"arm{number}") for number in range(3))
    arms = tuple(Arm(f"n={number}", release.id) for number, release in enumerate(releases))
    profile = ({"name": "health", "deadline_s": 10.0}, THROUGHPUT)
    sweep = Sweep("", "numbers", "alice", 0.0, OnSuccess.REPORT, arms)
    box.file(act.FileSweep(sweep, releases, Options(window="nightly"), profile))
    box.until_wall(2)
    box.run(lambda: box.phase("r0003") is Phase.MEASURED)
    report = box.report()
    told = report.sweeps[0]
    assert (told.id, told.name, told.left, told.decided) == ("s0001", "numbers", 1, None)
    assert [(arm.name, arm.rank, arm.outcome) for arm in told.arms] == [
        ("n=1", 1, "measured"),
        ("n=0", 2, "measured"),
        ("n=2", None, told.arms[2].outcome),
    ]
    alone = next(one for one in report.rollouts if one.id == "r0003").compared[0]
    assert told.arms[0].compared[0].ratio == alone.ratio == 1.25
    assert told.arms[0].compared[0].low < alone.low  # for all arms together
    assert told.why.startswith("so far, with 1 of 3 arms to come: ")


def test_the_first_lines_of_a_night_of_hundreds_stay_a_few(lived):
    told = lived.report()
    one, waiting = told.rollouts[0], replace(told.not_begun[0], outcome="waits")
    parts = [replace(one, id=f"r{seconds}", dark=Dark(seconds, {}, None, None)) for seconds in range(300)]
    (said,) = [line for line in headline(told.night, parts, (), None, told.present) if line.startswith("Nothing serv")]
    assert "(r299 5 min, r298 5 min, " in said
    assert said.endswith("r292 5 min, 292 more).")
    waits = [replace(waiting, id=f"q{number}") for number in range(300)]
    missed = headline(replace(told.night, state="missed"), (), waits, None, told.present)
    assert missed[1].startswith("300 proposals had waited for it: q0 (")
    assert missed[1].endswith(", 292 more.")


@pytest.mark.parametrize(
    ("opens", "minutes", "labels"),
    [
        (taipei(2), 240, ["02:00", "03:00", "04:00", "05:00", "06:00"]),
        (taipei(2, 10), 40, ["02:15", "02:30", "02:45"]),
        (taipei(2, 6), 17, ["02:10", "02:15", "02:20"]),
        (taipei(2, 6), 2, ["02:06", "02:07", "02:08"]),
    ],
)
def test_round_times_for_an_axis(lived, opens, minutes, labels):
    material = lived.material()
    closes_s = opens.timestamp() + minutes * 60
    night = replace(material.night, opens_wall_s=opens.timestamp(), closes_wall_s=closes_s, ended_wall_s=None)
    found = [f"{at:%H:%M}" for at in build(replace(material, night=night)).night.hours]
    assert found == labels


def test_a_window_that_is_not_configured_any_more_is_told_in_utc(lived):
    material = lived.material()
    assert material.zone_name == "Asia/Taipei"
    gone = replace(material, policy=replace(material.policy, schedules={}))
    assert (gone.zone_name, f"{gone.local(taipei(2).timestamp()):%H:%M}") == ("UTC", "18:00")


@pytest.mark.parametrize(
    "junk",
    [
        {"compared": "x"},
        {"compared": [{"metric": DECODE}]},
        {"compared": [{"metric": DECODE, "ratio": float("nan"), "low": 1, "high": 1, "margin": 0.05}]},
        {"compared": [{"metric": "tea", "ratio": 1, "low": 1, "high": 1, "margin": 0.05}]},
        {"run": {"cells": [{"workload": "w", "concurrency": 1, "rounds": {DECODE: []}, "problem": None}]}},
        {"run": 7},
    ],
)
def test_what_a_foreign_gate_wrote_breaks_nothing(lived, junk):
    result = replace(lived.state.rollouts["r0005"].gates[-1], measurements=junk)
    assert ratios((result,)) == ()
    assert all(one.decode_tok_per_s is None for one in figures((result,)))


def test_a_quiet_moment_that_never_came_is_said(box):
    box.observers = (THROUGHPUT,)
    box.finish(box.propose(make_release("first")))
    box.world.users = Users(3, 60.0)
    box.propose(make_release("next"), window="nightly")
    box.until_wall(6, 5)
    report = box.report()
    assert "no quiet moment in 30 min" in report.night.baseline_why
    assert report.headline[-1].startswith("Live was not measured in this night (no quiet moment in 30 min")
    assert [one.release for one in report.rollouts] == ["next@00000000"]


def test_a_measurement_that_still_waits_is_not_yet_and_no_failure(box):
    box.observers = (THROUGHPUT,)
    box.finish(box.propose(make_release("first")))
    box.world.users = Users(3, 60.0)
    box.propose(make_release("next"), window="nightly")
    box.until_wall(2, 2)
    report = box.report()
    assert (report.night.state, report.night.baseline_pending) == ("open", True)
    assert report.headline[-1] == f"Live is not measured yet in this night ({report.night.baseline} is queued)."
    noise = "3 requests of users in flight, quiet is 0 or less"
    told = box.report(waits={report.night.baseline: noise})
    assert told.headline[-1].endswith(f"({report.night.baseline} waits: {noise}).")
    assert not any("was not measured" in sentence for sentence in told.headline)


class Looked(tuple[Entry, ...]):
    """Lines that count how often somebody goes through them."""

    __slots__ = ()
    times: ClassVar[list[int]] = []

    def __iter__(self):
        self.times.append(len(self))
        return super().__iter__()


def test_a_long_night_is_told_without_reading_its_lines_for_every_rollout(lived):
    """300 arms leave tens of thousands of lines, and 60 nights thousands of rollouts beside them."""
    known = lived.material()
    one = known.state.rollouts["r0005"]
    many = {f"r{number}": replace(one, id=f"r{number}") for number in range(7000, 7050)}
    state = replace(known.state, rollouts={**known.state.rollouts, **many})
    Looked.times.clear()
    told = build(replace(known, state=state, entries=Looked(known.entries)))
    assert len(told.rollouts) == len(lived.report().rollouts) + 50
    assert len(Looked.times) <= 5
