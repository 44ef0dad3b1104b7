"""How the journal's state changes: for every action, what its intent and its outcome do to the records.

Pure. An action that does not fit the state raises `IllegalMove` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import actions as act
from . import forgetting
from . import moves_attempts as attempts
from . import moves_nights as nights
from . import moves_rollouts as rollouts
from .records import Now, State


def _unchanged(state: State, action: act.Action, now: Now, why: str) -> State:  # noqa: ARG001
    return state


INTENTS: Mapping[type[act.Action], Callable[[State, Any, Now, str], State]] = {
    act.Propose: rollouts.propose,
    act.AskAbort: rollouts.ask_abort,
    act.Approve: rollouts.approve,
    act.SetFreeze: rollouts.set_freeze,
    act.StandDown: rollouts.stand_down,
    act.Move: rollouts.move,
    act.Accept: nights.accept,
    act.TryAgain: nights.try_again,
    act.Reorder: nights.reorder,
    act.NoteNight: nights.note_night,
    act.MeasureLive: nights.measure_live,
    act.FileSweep: nights.file_sweep,
    act.ConcludeSweep: nights.conclude_sweep,
    act.WithdrawSweep: nights.withdraw_sweep,
    act.AdoptPlan: rollouts.adopt_plan,
    act.TakeLease: rollouts.take_lease,
    act.AddAttempts: attempts.add_attempts,
    act.MarkReady: attempts.mark_ready,
    act.RecordChecks: attempts.record_checks,
    act.Retire: attempts.retire,
    act.GiveUp: attempts.give_up,
    act.Recall: attempts.recall,
    act.MarkAsleep: attempts.mark_asleep,
    act.MarkAwake: attempts.mark_awake,
    act.MarkGone: attempts.mark_gone,
    act.MarkStopped: attempts.mark_stopped,
    act.CloseCard: attempts.close_card,
    act.OpenCard: attempts.open_card,
    act.RecordGate: rollouts.record_gate,
    act.RecordRecheck: rollouts.record_recheck,
    act.CommitCutover: rollouts.commit_cutover,
    act.CommitRollback: rollouts.commit_rollback,
    act.RecordSwitch: rollouts.record_switch,
    act.RecordSample: rollouts.record_sample,
    act.Forget: forgetting.forget,
    act.StartAttempt: attempts.begin_start,
    act.StopAttempt: attempts.begin_stop,
    act.SleepAttempt: attempts.begin_sleep,
    act.WakeAttempt: attempts.begin_wake,
    act.RunGate: rollouts.begin_gate,
    act.ClearStrays: _unchanged,
    act.StopGate: _unchanged,
    act.SetRoute: _unchanged,
    act.OpenDoor: _unchanged,
    act.CutSlot: _unchanged,
}

OUTCOMES: Mapping[type[act.Action], Callable[[State, Any, act.Outcome, Now], State]] = {
    act.StartAttempt: attempts.started,
    act.StopAttempt: attempts.stop_asked,
    act.SleepAttempt: attempts.not_begun,
    act.WakeAttempt: attempts.not_begun,
    act.RunGate: rollouts.gate_begun,
    act.StopGate: rollouts.gate_stopped,
}


def intend(state: State, action: act.Action, now: Now, why: str) -> State:
    """The state once `action` is decided; for a `Record` that is all there is to it."""
    return INTENTS[type(action)](state, action, now, why)


def conclude(state: State, action: act.Effect, outcome: act.Outcome, now: Now) -> State:
    """The state once the effect has been tried."""
    settle = OUTCOMES.get(type(action))
    return settle(state, action, outcome, now) if settle else state
