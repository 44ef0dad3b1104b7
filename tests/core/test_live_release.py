"""What is live: watched, revived, restarted, stopped, and when somebody has to be told."""

from __future__ import annotations

from dataclasses import replace

from controller.core import actions as act
from controller.core.invariants import unsettled
from controller.core.records import AttemptState, Closed, Kind, Phase
from controller.core.route import Mode, SlotState
from controller.core.rules import decide
from controller.core.seen import Life, ProbeSeen
from controller.loop import Loop
from controller.store.journal import Journal


def test_live_that_is_started_again_and_hangs_is_given_up_and_does_not_block_its_successor(box, release):
    box.finish(box.propose(release("one")))
    box.world.start_s = 1e9
    box.world.processes["one-a-1"].life = Life.EXITED
    box.run(lambda: "one-a-2" in box.world.processes)
    box.world.start_s = 5.0
    box.run(lambda: "one-a-3" in box.world.processes)
    assert "its start took longer than 1200 s" in box.state.attempts["one-a-2"].why
    assert box.finish(box.propose(release("two"))) is Phase.PROMOTED


def test_live_waits_for_cards_that_are_not_to_be_had(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.ask(act.CloseCard("gpu-0", Closed("boss", "its fan", 0.0)))
    box.world.processes["one-a-1"].life = Life.EXITED
    box.settle()
    assert box.loop.step() is False, "it waits, and does not spin"
    assert "is down and is not started again, its cards are taken" in box.loop.alarms[0]
    box.ask(act.OpenCard("gpu-0"))
    box.run(lambda: box.state.is_served() and "one-a-2" in box.state.attempts)


def test_live_comes_back_on_free_cards_when_its_own_are_not_to_be_had(box, release):
    box.finish(box.propose(release("one")))
    box.ask(act.CloseCard("gpu-0", Closed("boss", "its fan", 0.0)))
    box.world.processes["one-a-1"].life = Life.EXITED
    box.run(lambda: "one-a-2" in box.state.attempts and box.state.is_served())
    assert box.state.seat_attempts(box.state.live)[0].gpus == ("gpu-1", "gpu-2")


def test_reboot_brings_live_back(box, release):
    box.finish(box.propose(release("one")))
    box.world.reboot()
    box.settle()
    assert box.running() == {"one@00000000"}
    assert [slot.state for slot in box.world.route.public] == [SlotState.READY]


def test_restart_of_the_daemon_adopts(box, release, tmp_path):
    box.finish(box.propose(release("one")))
    box.journal.close()
    box.journal = Journal(tmp_path / "journal.sqlite")
    box.loop = Loop(box.journal, box.world, box.loop.policy)
    before = len(box.world.done)
    box.settle()
    assert box.world.done[before:] == []
    assert box.state.attempts["one-a-1"].pid == 101


def test_restart_kind_brings_fresh_processes_and_keeps_previous(box, release):
    box.finish(box.propose(release("one", gpus=1)))
    box.finish(box.propose(release("two", gpus=1)))
    again = box.propose(release("two", gpus=1), Kind.RESTART)
    assert box.finish(again) is Phase.PROMOTED
    box.settle()
    assert box.state.live.rollout == again
    assert box.state.previous.release == "one@00000000"
    assert box.state.attempts["two-a-2"].state is AttemptState.STOPPED


def test_a_restart_that_waited_is_refused_when_something_else_is_live_by_then(box, release):
    """It was judged by `health` only, and would put back a release that nobody asked for."""
    box.finish(box.propose(release("one")))
    second = box.propose(release("two"))
    restart = box.propose(release("one"), Kind.RESTART)
    assert box.finish(second) is Phase.PROMOTED
    assert box.finish(restart) is Phase.REFUSED
    assert box.state.live.release == "two@00000000"


def test_router_starts_after_its_engines_and_learns_a_revived_one(box, release):
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    starts = [e.attempt for e in box.world.done if isinstance(e, act.StartAttempt)]
    assert starts == ["pair-a-1", "pair-b-2", "pair-router-3"]
    router = box.state.attempts["pair-router-3"]
    assert router.workers == (box.state.attempts["pair-a-1"].port, box.state.attempts["pair-b-2"].port)
    assert [slot.attempt for slot in box.world.route.public] == ["pair-router-3"]
    box.world.processes["pair-b-2"].life = Life.EXITED
    box.settle()
    ready = {a.instance: a for a in box.state.attempts.values() if a.state is AttemptState.READY}
    assert set(ready) == {"a", "b", "router"}
    assert set(ready["router"].workers) == {ready["a"].port, ready["b"].port}


def test_a_router_that_learns_a_revived_engine_leaves_no_gap(box, release):
    """Its streams may run for an hour: until they are through, somebody has to take new requests."""
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.world.in_flight[box.state.attempts["pair-router-3"].slot] = 1
    box.world.processes["pair-b-2"].life = Life.EXITED

    def successor_serves():
        assert SlotState.READY in {slot.state for slot in box.world.route.public}
        return box.state.attempts["pair-router-3"].state is AttemptState.RETIRING

    box.run(successor_serves)
    box.settle()
    states = {slot.attempt: slot.state for slot in box.world.route.public}
    assert states == {"pair-router-3": SlotState.DRAIN, "pair-router-5": SlotState.READY}


def test_users_wait_while_a_router_has_no_engine_that_it_knows(box, release):
    """It would answer 503 to everybody, and at once; at the front door they wait for its successor."""
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    box.world.processes["pair-a-1"].life = Life.EXITED
    box.run(lambda: box.state.attempts["pair-a-1"].state is AttemptState.STOPPED)
    assert box.world.route.mode is Mode.OPEN
    box.world.processes["pair-b-2"].life = Life.EXITED
    box.run(lambda: box.world.route.mode is Mode.HOLD)
    assert box.state.attempts["pair-router-3"].state is AttemptState.READY
    box.run(lambda: box.world.route.mode is Mode.OPEN)
    router = next(slot.attempt for slot in box.world.route.public if slot.state is SlotState.READY)
    engines = {a.port for a in box.state.seat_attempts(box.state.live) if a.state is AttemptState.READY}
    assert engines & set(box.state.attempts[router].workers)
    box.settle()
    assert not unsettled(box.state, box.world.observe(box.state), box.loop.policy)


def test_an_engine_that_leaves_and_a_router_that_waits_for_its_successor_do_not_wait_for_each_other(box, release):
    box.finish(box.propose(release("pair", gpus=1, instances=2, router=True)))
    for name in ("pair-a-1", "pair-router-3"):
        box.world.processes[name].life = Life.EXITED
    box.run(lambda: [a.state for a in box.state.attempts.values() if a.instance == "a"][1:] == [AttemptState.STARTING])
    box.world.processes["pair-a-4"].computing = True  # it loads, and is no case for a hurry
    swap = box.propose(release("wide", gpus=4), strategy="swap")
    box.run(lambda: box.state.attempts["pair-router-5"].state is AttemptState.STOPPED)
    box.ask(act.AskAbort(swap, "tester"))
    box.settle()
    assert box.phase(swap) is Phase.ABORTED
    live = box.state.seat_attempts(box.state.live)
    assert {a.instance: a.state for a in live} == dict.fromkeys(("a", "b", "router"), AttemptState.READY)


def test_stop_takes_production_down_and_keeps_the_way_back(box, release):
    box.finish(box.propose(release("one")))
    box.ask(act.StandDown("tester"))
    box.settle()
    assert box.state.live is None
    assert box.world.route.mode is Mode.REFUSE
    assert box.finish(box.rollback()) is Phase.ROLLED_BACK
    assert box.state.live.release == "one@00000000"


def test_live_that_is_healthy_and_silent_is_replaced(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].silent = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert "no token for" in box.state.attempts["one-a-1"].why
    assert box.running() == {"one@00000000"}


def test_live_that_computes_and_does_not_answer_is_busy_not_down(box, release):
    """A prefill of 100,000 tokens holds the first token of everybody for minutes (field notes §1)."""
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].silent = True
    box.world.processes["one-a-1"].computing = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    box.world.processes["one-a-1"].computing = False
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED


def test_live_that_writes_garbage_is_replaced_however_busy_it_looks(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].garbage = True
    box.world.processes["one-a-1"].computing = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED
    assert "writes '!' only" in box.state.attempts["one-a-1"].why
    assert box.running() == {"one@00000000"}


def test_an_engine_whose_shim_was_killed_serves_on_and_somebody_is_told(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].life = Life.STRAYS
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.READY
    assert "the shim of one-a-1 is dead" in box.loop.alarms[0]
    box.world.processes["one-a-1"].silent = True
    box.settle()
    assert box.state.attempts["one-a-1"].state is AttemptState.STOPPED


def test_what_heals_an_engine_without_a_shim_depends_on_whose_it_is(box, release):
    """`cutover restart` starts live anew: for the release before, or a candidate, it would do nothing."""
    box.finish(box.propose(release("one", gpus=2)))
    box.finish(box.propose(release("two", gpus=2)))
    for name in ("one-a-1", "two-a-2"):
        box.world.processes[name].life = Life.STRAYS
    box.settle()
    told = {alarm.split()[3]: alarm for alarm in box.loop.alarms if alarm.startswith("the shim of")}
    assert told["two-a-2"].endswith("not be known: `cutover restart` heals that")
    assert "a way back it is all the same" in told["one-a-1"]


def test_a_new_daemon_asks_an_engine_without_a_shim_before_it_judges_it(box, release):
    """Users are on it: to send it away because nobody has asked it yet would cut their streams."""
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].life = Life.STRAYS
    seen = replace(box.world.observe(box.state), probes={})
    assert isinstance(decide(box.state, seen, box.loop.policy).action, act.Wait)


def test_one_bad_probe_does_not_end_an_engine_without_a_shim_and_a_closed_port_does(box, release):
    box.finish(box.propose(release("one")))
    box.world.processes["one-a-1"].life = Life.STRAYS
    seen, now_s = box.world.observe(box.state), box.world.clock_s

    def after(layer):
        failed = ProbeSeen(False, now_s, now_s - 1, layer, "it did not answer", streak_since_s=now_s - 1)
        judged = replace(seen, probes={**seen.probes, "one-a-1": failed})
        return decide(box.state, judged, box.loop.policy).action

    assert isinstance(after("timeout"), act.Wait)
    assert after("port") == act.Retire("one-a-1", hurry=True)


def test_an_engine_whose_shim_was_killed_is_not_ended_before_its_streams_are_through(box, release):
    box.finish(box.propose(release("one", gpus=4)))
    box.world.processes["one-a-1"].life = Life.STRAYS
    slot = box.state.attempts["one-a-1"].slot
    box.world.in_flight[slot] = 2
    rollout = box.propose(release("two", gpus=4), strategy="swap")
    box.run(lambda: box.state.attempts["one-a-1"].state is AttemptState.RETIRING)
    box.settle()
    assert box.world.processes["one-a-1"].life is Life.STRAYS
    box.world.in_flight[slot] = 0
    assert box.finish(rollout) is Phase.PROMOTED
    assert box.world.processes["one-a-1"].life is Life.EXITED


def test_a_stop_that_does_not_end_is_an_alarm(box, release):
    box.world.stop_s = 1e9
    box.finish(box.propose(release("one")))
    box.ask(act.StandDown("tester"))
    box.settle()
    assert "one-a-1 does not end since" in box.loop.alarms[0]
