"""The desk for sweeps: every arm is examined before anything is filed, and all of them are filed in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch import sweep as sweeps
from launch.errors import LaunchError

from ..core import actions as act
from ..core.night_records import Arm, OnSuccess, Sweep
from ..core.nights import MEASURE
from ..core.plan import Plan, make_plan
from ..core.records import Options, Release, State
from ..core.room import Strategy
from ..errors import NotFoundError, RefusedError, UsageError
from .desk import Desk, Person, profile_for, require
from .waiting import require_window

_NAMED_MAX = 4
_NO_ASKING = (
    "on_success: ask does not go with a swap, and nothing else fits now: an approval would be waited for in the dark, "
    "so that the pick would be refused when all arms are over; --on-success switch asks nobody, report leaves it to you"
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants besides what the file says. `on_success` None: what the file says."""

    options: Options
    on_success: OnSuccess | None = None
    skip_refused: bool = False


@dataclass(frozen=True, slots=True)
class ArmSheet:
    """One arm as it was found. `refused`: why it would not be tried; empty: it would."""

    name: str
    settings: Mapping[str, Any]
    topology: str
    release: Release | None
    refused: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepSheet:
    """A sweep that was looked at. `combinations`: of its matrix, with what its constraints leave out."""

    name: str
    combinations: int
    on_success: OnSuccess
    arms: tuple[ArmSheet, ...]
    profile: tuple[Any, ...]
    notes: tuple[str, ...]

    @property
    def refused(self) -> tuple[ArmSheet, ...]:
        return tuple(arm for arm in self.arms if arm.refused)

    @property
    def tried(self) -> tuple[tuple[ArmSheet, Release], ...]:
        return tuple((arm, arm.release) for arm in self.arms if arm.release is not None and not arm.refused)


@dataclass(frozen=True, slots=True)
class SweepDesk:
    desk: Desk

    def look(self, person: Person, text: str, source: str, wish: Wish) -> SweepSheet:
        """Every arm frozen and examined; nothing is filed, and what is refused is in the sheet."""
        require(person, "propose", "sweep a topology")
        require_window(wish.options, self.desk.policy, self.desk.now())
        file = sweeps.parse(text, source=source)
        gates = wish.options.gates or file.base.gates
        profile = profile_for(person, gates, source)
        if not any(step["name"] == MEASURE for step in profile):
            raise UsageError(
                f"{source}: gates: the profile {gates} has no gate {MEASURE}, so that arms would be compared with "
                "nothing: name another one in the file or with --gates"
            )
        on_success = wish.on_success or OnSuccess(file.on_success)
        if on_success is OnSuccess.ASK and wish.options.strategy == Strategy.SWAP:
            raise UsageError(
                "on_success: ask does not go with --strategy swap: an approval would be waited for in the dark"
            )
        arms = tuple(self._examined(person, arm, wish.options, profile, on_success) for arm in file.arms)
        _require_live(self.desk.journal.state)
        return SweepSheet(file.base.name, file.combinations, on_success, arms, profile, _notes(wish.options, arms))

    def file(self, person: Person, text: str, source: str, wish: Wish, key: str | None) -> tuple[Sweep, SweepSheet]:
        """File the sweep with a trial for every arm. One refused arm refuses all of it, unless it is to be left out."""
        sheet = self.look(person, text, source, wish)
        refused = sheet.refused
        if refused and (not wish.skip_refused or len(refused) == len(sheet.arms)):
            raise RefusedError(_refusal(sheet, wish))
        arms = tuple(Arm(arm.name, release.id, arm.settings) for arm, release in sheet.tried)
        sweep = Sweep("", sheet.name, person.name, 0.0, sheet.on_success, arms)
        releases = tuple(release for _, release in sheet.tried)
        action = act.FileSweep(sweep, releases, wish.options, sheet.profile)
        said = f"{person.name} sweeps {sheet.name}"
        return self.sweep(self.desk.ask(person, "sweep", key, lambda _: (action, said))), sheet

    def withdraw(self, person: Person, sweep_id: str, key: str | None) -> Sweep:
        """Abort what is left of it, and let it be decided by that."""
        require(person, "propose", "withdraw a sweep")
        self.sweep(sweep_id)

        def make(state: State) -> tuple[act.Record, str]:
            sweep = state.sweeps[sweep_id]
            if sweep.decided_wall_s is not None:
                raise RefusedError(f"{sweep_id} is decided already: {sweep.why}")
            return act.WithdrawSweep(sweep_id, person.name), f"withdrawn by {person.name}"

        self.desk.ask(person, f"withdraw {sweep_id}", key, make)
        return self.sweep(sweep_id)

    def sweep(self, sweep_id: str) -> Sweep:
        try:
            return self.desk.journal.state.sweeps[sweep_id]
        except KeyError:
            raise NotFoundError(f"there is no sweep {sweep_id}: `cutover sweep list` lists them") from None

    def _examined(
        self, person: Person, arm: sweeps.SweepArm, options: Options, profile: tuple[Any, ...], on_success: OnSuccess
    ) -> ArmSheet:
        release: Release | None = None
        notes: tuple[str, ...] = ()
        refused = ""
        try:
            release, notes = self.desk.examine(person, arm.topology, options, profile)
            if on_success is OnSuccess.ASK and self._fits_only_as_swap(release, options, profile):
                notes = (*notes, _NO_ASKING)
        except (RefusedError, LaunchError) as error:
            refused = str(error)
        return ArmSheet(arm.name, arm.settings, arm.topology.name, release, refused, notes)

    def _fits_only_as_swap(self, release: Release, options: Options, profile: tuple[Any, ...]) -> bool:
        """As things stand now: when the pick is proposed other cards may be free."""
        plan = make_plan(
            self.desk.journal.state, release, self.desk.gpus(), self.desk.policy, options=options, profile=profile
        )
        return isinstance(plan, Plan) and plan.strategy == Strategy.SWAP


def _require_live(state: State) -> None:
    if state.live is None:
        raise RefusedError(
            "nothing is live, and arms are compared with live: `cutover propose` the topology that is to serve first"
        )


def _refusal(sheet: SweepSheet, wish: Wish) -> str:
    first, *others = sheet.refused
    more = f"; {len(others)} more {'is' if len(others) == 1 else 'are'} refused: {_listed(others)}" if others else ""
    if wish.skip_refused:
        return f"every arm is refused, {first.name}: {first.refused}"
    return (
        f"arm {first.name} is refused: {first.refused}{more}; exclude it in the file, or leave out what is refused "
        "with --skip-refused; nothing was filed"
    )


def _listed(arms: Sequence[ArmSheet]) -> str:
    more = f" and {len(arms) - _NAMED_MAX} more" if len(arms) > _NAMED_MAX else ""
    return ", ".join(arm.name for arm in arms[:_NAMED_MAX]) + more


def _notes(options: Options, arms: Sequence[ArmSheet]) -> tuple[str, ...]:
    """What is said of all arms once, and of some with their names."""
    by_note: dict[str, list[ArmSheet]] = {}
    for arm in arms:
        for note in arm.notes:
            by_note.setdefault(note, []).append(arm)
    said = [note if len(of) == len(arms) else f"{_listed(of)}: {note}" for note, of in by_note.items()]
    if not options.window:
        said.insert(
            0,
            "without a window live is not measured anew: arms are compared with what the ledger has of it "
            "(`cutover bench --live` adds to that in a quiet moment)",
        )
    return tuple(said)
