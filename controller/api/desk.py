"""The desk: takes what people ask for, checks that it makes sense now, and files it. It never acts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gates.errors import GateUsageError
from launch import compat
from launch import topology as topologies
from launch.release import Release as Frozen
from launch.topology import Topology

from ..catalogue import Catalogue, health_only, parsed_profile, pinned_profile, record_of
from ..core import actions as act
from ..core.cards import Refusal, memory_note, oldest_capability
from ..core.dark import way_home
from ..core.desired import SWITCHED
from ..core.plan import ANY, Plan, live_already, make_plan
from ..core.policy import Policy
from ..core.records import Closed, Freeze, Kind, Now, Options, Phase, Release, Rollout, State
from ..core.seen import Gpu
from ..core.table import IllegalMove
from ..errors import NotAllowedError, NotFoundError, RefusedError, UsageError
from ..store.journal import Journal
from . import preflight
from .named_files import SECRETS, is_kept_for_secrets, read_for
from .waiting import opens, require_room, require_window


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks: told by the kernel for the Unix socket. Roles: view < propose < approve < admin."""

    name: str
    uid: int
    role: str


def by_token(name: str, token: str) -> str:
    """How a person is called who came with a token: records tell which of the doors it was."""
    return f"{name} (token {token})"


def same_person(one: str, other: str) -> bool:
    """Through whichever door: with a token of that name, with another one of it, or as that user of the box."""
    return _OF_A_TOKEN.sub("", one) == _OF_A_TOKEN.sub("", other)


_OF_A_TOKEN = re.compile(r" \(token \w+\)$")
ROLES = ("view", "propose", "approve", "admin")


def require(person: Person, role: str, what: str) -> None:
    """Raises `NotAllowedError` unless `person` has at least `role`."""
    if ROLES.index(person.role) < ROLES.index(role):
        raise NotAllowedError(f"{person.name} has the role {person.role}; to {what} needs {role}: ask an administrator")


@dataclass(frozen=True, slots=True)
class Filed:
    """A proposal that was taken: `sentence` says what it has to wait for, `notes` what preflight found."""

    rollout: Rollout
    sentence: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Desk:
    journal: Journal
    catalogue: Catalogue
    policy: Policy
    now: Callable[[], Now]
    gpus: Callable[[], tuple[Gpu, ...]]
    nudge: Callable[[], None]
    box: Callable[[], compat.Box] = compat.Box  # what preflight must know besides the cards
    approval_by_another: bool = False

    def propose(self, person: Person, text: str, source: str, options: Options, key: str | None) -> Filed:
        """File a proposal that preflight does not refuse."""
        require(person, "propose", "propose a topology")
        require_window(options, self.policy, self.now())
        topology = _topology(text, source)
        profile = profile_for(person, options.gates or topology.gates, source)
        release, notes = self.examine(person, topology, options, profile)
        before = self.journal.state
        action = act.Propose(Kind.PROPOSE, release, person.name, options, profile)
        rollout = self._file(person, "propose", key, lambda _: (action, f"{person.name} proposes {release.id}"))
        replaced = [
            f"it takes the place of {r.id}"
            for r in before.queue
            if self.journal.state.rollouts[r.id].phase is Phase.SUPERSEDED
        ]
        return Filed(rollout, self.waits_for(before, options), (*replaced, *notes))

    def examine(
        self, person: Person, topology: Topology, options: Options, profile: tuple[Any, ...]
    ) -> tuple[Release, tuple[str, ...]]:
        """Freeze what somebody wants to have tried, and what there is to be said of it.

        Raises what refuses it: this person may not, it is live already, preflight, or no window is long enough.
        """
        _require_files_of_ours(person, topology)
        release = self.catalogue.keep(topology)
        if refusal := live_already(self.journal.state, release, force=options.force):
            raise RefusedError(refusal.sentence)
        if release.needs_admin:
            require(person, "admin", f"propose {release.id} ({'; '.join(release.needs_admin)})")
        notes = self._preflight(self.catalogue.find(release.id), release, options)
        state = self.journal.state
        plan = make_plan(state, release, self.gpus(), self.policy, options=options, profile=profile)
        if isinstance(plan, Plan):  # what is refused now may fit when its turn comes: then it is said
            require_room(options, plan, release, profile, state, self.policy, self.now().wall_s)
            notes = (*plan.notes, *self._memory(topology, plan), *notes)
        return release, notes

    def plan(self, person: Person, text: str, source: str, options: Options) -> dict[str, Any]:
        """What a proposal would do, without doing it: nothing is kept, as who only looks must not fill a disk."""
        require(person, "view", "see a plan")
        topology = _topology(text, source)
        profile = profile_for(person, options.gates or topology.gates, source)
        _require_files_of_ours(person, topology)
        frozen = self.catalogue.look(topology)
        release = record_of(frozen)
        if refusal := live_already(self.journal.state, release, force=options.force):
            raise RefusedError(refusal.sentence)
        plan = make_plan(self.journal.state, release, self.gpus(), self.policy, options=options, profile=profile)
        if isinstance(plan, Refusal):
            raise RefusedError(plan.sentence)
        notes = self._preflight(frozen, release, options)
        return replace(plan, notes=(*plan.notes, *self._memory(topology, plan), *notes)).as_json()

    def _memory(self, topology: Topology, plan: Plan) -> tuple[str, ...]:
        """What the cards of the plan have beside what the topology says it needs; nothing where it says nothing."""
        need = topology.need
        notes = []
        if need is not None and need.gpu_memory_gib is not None:
            notes.append(memory_note(need.gpu_memory_gib, plan.gpu_map, self.gpus()))
        if need is not None and need.host_memory_gib is not None:
            notes.append(f"memory: need.host_memory_gib ({need.host_memory_gib:g}) was not judged: nobody looks at it")
        return tuple(notes)

    def rollback(self, person: Person, key: str | None) -> Filed:
        """File the way back. Its notes say what is aborted for it, and what it takes."""
        require(person, "propose", "roll back")
        before = self.journal.state

        def make(state: State) -> tuple[act.Record, str]:
            active = state.active
            if active is not None and active.phase in SWITCHED:
                return act.AskAbort(active.id, person.name), f"{person.name} wants the release before it back"
            if active is not None and active.phase is Phase.ROLLING_BACK:
                raise RefusedError(f"{active.id} is rolling back already: `cutover show {active.id}`")
            if state.previous is None:
                raise RefusedError("there is no previous release to return to: `cutover history` shows what was live")
            release = state.releases[state.previous.release]
            action = act.Propose(Kind.ROLLBACK, release, person.name, Options(), (), state.previous)
            return action, f"{person.name} wants {release.id} back"

        return Filed(self._file(person, "rollback", key, make), "", self._price(before))

    def _price(self, state: State) -> tuple[str, ...]:
        """What was only being tried goes first, and then live itself goes back: that is more than an abort."""
        active = state.active
        if state.previous is None or (active is not None and active.phase in SWITCHED):
            return ()
        tried = "" if active is None else f"{active.id} ({active.release}) had not switched and is aborted for it; "
        serves = state.live.release if state.live else "nothing"
        return (
            f"{tried}{serves} is live and {state.previous.release} comes back: {way_home(state, self.gpus()).sentence}",
        )

    def restart(self, person: Person, key: str | None) -> Rollout:
        require(person, "approve", "restart live")

        def make(state: State) -> tuple[act.Record, str]:
            if state.live is None:
                raise RefusedError("nothing is live: there is nothing to restart")
            release = state.releases[state.live.release]
            action = act.Propose(Kind.RESTART, release, person.name, Options(force=True, strategy=ANY), health_only())
            return action, f"{person.name} wants fresh processes of {release.id}"

        return self._file(person, "restart", key, make)

    def abort(self, person: Person, rollout_id: str, key: str | None) -> Rollout:
        require(person, "propose", "abort")
        asked = act.AskAbort(rollout_id, person.name), f"{person.name} aborts {rollout_id}"
        return self._about(person, rollout_id, "abort", key, lambda _: asked)

    def approve(self, person: Person, rollout_id: str, key: str | None) -> Rollout:
        require(person, "approve", "approve")

        def make(rollout: Rollout) -> tuple[act.Record, str]:
            if rollout.phase is not Phase.AWAITING_APPROVAL:
                raise RefusedError(f"{rollout_id} is {rollout.phase.words}: it does not wait for an approval")
            if self.approval_by_another and same_person(rollout.asked_by, person.name):
                raise NotAllowedError(f"{rollout.asked_by} proposed {rollout_id}; somebody else has to approve it")
            return act.Approve(rollout_id, person.name), f"{person.name} approves {rollout_id}"

        return self._about(person, rollout_id, "approve", key, make)

    def withdraw(self, person: Person, rollout_id: str, key: str | None) -> Rollout:
        """Take back what has not begun; what has begun is aborted."""
        require(person, "propose", "withdraw a proposal")

        def make(rollout: Rollout) -> tuple[act.Record, str]:
            if rollout.ended_wall_s is not None:
                raise RefusedError(f"{rollout_id} is over ({rollout.phase.words}): there is nothing to withdraw")
            if rollout.phase is not Phase.QUEUED:
                raise RefusedError(f"{rollout_id} is {rollout.phase.words}, it does not wait: `cutover abort` ends it")
            return act.AskAbort(rollout_id, person.name), f"{person.name} withdraws {rollout_id}"

        return self._about(person, rollout_id, "withdraw", key, make)

    def _about(
        self,
        person: Person,
        rollout_id: str,
        verb: str,
        key: str | None,
        make: Callable[[Rollout], tuple[act.Record, str]],
    ) -> Rollout:
        """File what is about a rollout. Asked once more with the same key it is answered as before, not judged anew."""
        self.rollout(rollout_id)
        about = self.ask(person, verb, key, lambda state: make(state.rollouts[rollout_id]))
        if about != rollout_id:
            raise RefusedError(f"this key was used before, for {about}: every request has one of its own")
        return self.rollout(rollout_id)

    def reorder(self, person: Person, rollout_id: str, priority: int) -> Rollout:
        require(person, "propose", "reorder the queue")
        self.rollout(rollout_id)
        sentence = f"{person.name} gives {rollout_id} priority {priority}"
        self.ask(person, "reorder", None, lambda _: (act.Reorder(rollout_id, priority), sentence))
        return self.rollout(rollout_id)

    def freeze(self, person: Person, why: str, until_wall_s: float | None = None) -> Freeze | None:
        """Returns the freeze that this one takes the place of: there is one at a time, whoever wants it."""
        require(person, "propose", "freeze")
        if until_wall_s is not None and until_wall_s <= self.now().wall_s:
            raise UsageError("--until: that time is over; give one that is to come, or a duration such as 8h")
        freeze = Freeze(person.name, why, self.now().wall_s, until_wall_s)
        before: list[Freeze | None] = []

        def make(state: State) -> tuple[act.Record, str]:
            before.append(state.freeze)
            instead = f", instead of {state.freeze.by} ({state.freeze.why})" if state.freeze else ""
            return act.SetFreeze(freeze), f"{person.name} freezes: {why}{instead}"

        self.ask(person, "freeze", None, make)
        return before[-1]

    def unfreeze(self, person: Person) -> Freeze:
        """Returns the freeze that it ended."""
        require(person, "propose", "unfreeze")
        ended: list[Freeze] = []

        def make(state: State) -> tuple[act.Record, str]:
            if state.freeze is None:
                raise RefusedError("nothing is frozen")
            ended.append(state.freeze)
            return act.SetFreeze(None), f"{person.name} ends the freeze of {state.freeze.by} ({state.freeze.why})"

        self.ask(person, "unfreeze", None, make)
        return ended[-1]

    def cordon(self, person: Person, card: str, why: str) -> str:
        """Nobody gets this card any more; who holds it keeps it. Returns its id."""
        require(person, "approve", "cordon a GPU")
        gpu = self._card(card)
        closed = Closed(person.name, why, self.now().wall_s)
        self.ask(person, "cordon", None, lambda _: (act.CloseCard(gpu, closed), f"{person.name} cordons {gpu}: {why}"))
        return gpu

    def uncordon(self, person: Person, card: str) -> str:
        """Give a card back that somebody cordoned, or that is quarantined. Returns its id."""
        require(person, "approve", "give a GPU back")
        gpu = self._card(card)
        self.ask(person, "uncordon", None, lambda _: (act.OpenCard(gpu), f"{person.name} gives {gpu} back"))
        return gpu

    def _card(self, name: str) -> str:
        gpus = self.gpus()
        found = [gpu.id for gpu in gpus if name in {gpu.id, str(gpu.index)}]
        if not found:
            known = ", ".join(str(gpu.index) for gpu in gpus) or "none"
            raise NotFoundError(f"there is no GPU {name}; this box has {known}")
        return found[0]

    def stop(self, person: Person) -> None:
        require(person, "approve", "stop production")
        sentence = f"{person.name} takes production out of service"
        self.ask(person, "stop", None, lambda _: (act.StandDown(person.name), sentence))

    def rollout(self, rollout_id: str) -> Rollout:
        try:
            return self.journal.state.rollouts[rollout_id]
        except KeyError:
            hint = "`cutover history` lists them, and what ended long ago and nobody needs is not kept"
            raise NotFoundError(f"there is no rollout {rollout_id}: {hint}") from None

    def _preflight(self, frozen: Frozen, release: Release, options: Options) -> tuple[str, ...]:
        """What preflight has to say of it; raises `RefusedError` where it refuses and nobody overruled."""
        preflight.require_known(options.overruled)
        oldest = oldest_capability(self.journal.state, release, self.gpus())
        report = compat.check(frozen, replace(self.box(), compute_capability=oldest))
        preflight.require_passed(report, release.id, options.overruled)
        return preflight.notes(report, options.overruled)

    def waits_for(self, before: State, options: Options) -> str:
        """What a proposal of now waits for; empty where its turn has come."""
        schedule = self.policy.schedules.get(options.window)
        said = [opens(schedule, self.now().wall_s)] if schedule is not None else []
        if before.freeze is not None:
            said.append(f"{before.freeze.by} has frozen the box ({before.freeze.why})")
        active = before.active
        if schedule is None and active is not None:
            return "; ".join([f"queued behind {active.id} ({active.release}, {active.phase.words})", *said])
        waiting = [r for r in before.queue if self.journal.state.rollouts[r.id].phase is Phase.QUEUED]
        ahead = sum(r.options.window == options.window and r.options.priority >= options.priority for r in waiting)
        if ahead:
            return "; ".join([f"queued behind {ahead} other{'s' if ahead > 1 else ''}", *said])
        return f"queued: {'; '.join(said)}" if said else ""

    def _file(
        self, person: Person, verb: str, key: str | None, make: Callable[[State], tuple[act.Record, str]]
    ) -> Rollout:
        return self.rollout(self.ask(person, verb, key, make))

    def ask(self, person: Person, verb: str, key: str | None, make: Callable[[State], tuple[act.Record, str]]) -> str:
        """File a record; returns the id of what it is about. `RefusedError`: the state does not allow it."""
        try:
            about = self.journal.request(key, person.name, verb, self.now(), make)
        except IllegalMove as error:
            raise RefusedError(str(error)) from error
        self.nudge()
        return about


def _topology(text: str, source: str) -> Topology:
    return topologies.parse(text, source=source)


def _require_files_of_ours(person: Person, topology: Topology) -> None:
    """Before anything is frozen: a release is kept also of what is refused, and shows everybody the script in it."""
    if topology.script is not None:
        require(person, "admin", f"name a script, which is read with the daemon's rights ({topology.script})")
    if topology.env_file is not None and not is_kept_for_secrets(topology.env_file):
        require(person, "admin", f"name an env_file outside of {SECRETS} ({topology.env_file})")


def profile_for(person: Person, name: str, source: str) -> tuple[Any, ...]:
    """A shipped name, or a file: relative ones are meant from the topology's own directory, never from the daemon's."""
    path = Path(name)
    if ("/" in name or path.suffix in {".yaml", ".yml"}) and not path.is_absolute():
        path = Path(source).parent / path
        if not path.is_absolute():
            raise UsageError(
                f"{source}: gates: {name} is a relative path; write an absolute one, or the name of a profile"
            )
    try:
        if person.role == "admin" or not path.is_absolute():
            return pinned_profile(str(path) if path.is_absolute() else name)
        return _profile_of_a_stranger(person, path)
    except GateUsageError as error:
        raise UsageError(f"{source}: gates: {error}") from error
    except OSError as error:  # a name too long, too many links
        raise UsageError(f"{source}: gates: {name[:80]} cannot be read: {error.strerror}") from error


def _profile_of_a_stranger(person: Person, path: Path) -> tuple[Any, ...]:
    """Programs in a profile run as the daemon's user: who may not do that may not write which."""
    file = read_for(person.uid, path)
    steps = parsed_profile(file.text, str(path))
    for named in (step["settings"].get("file") for step in steps):
        if isinstance(named, str):
            read_for(person.uid, path.parent / named)
    if not file.ours and any(step["command"] is not None for step in steps):
        require(person, "admin", f"have programs run that {path} names, which others than the daemon's user can write")
    return steps
