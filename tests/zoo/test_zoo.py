"""Every shape of misbehaving engine: adopted, stopped, killed, daemon dead, shim dead; and nobody else harmed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from own_ports import free_port
from zoo_animals import HIDDEN, KILL, PROGRAMS, TERM, Animal, chosen
from zoo_cage import Cage, Kept, remove_if, wait_until

from controller.core.seen import Life
from controller.effects.processes import Processes
from launch import shim
from launch.attempts import AttemptSpec, Status, StraysAlive, kill_strays, observe, request_stop, start
from launch.ports import first_in_use


class Strangers:
    """Processes that resemble ours: the same program elsewhere, one next door, one with our log open, one that began
    before the attempt and visits its directory. Each writes down what signals it hears.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.visitor = 0
        self.started: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}

    def begin(self, name: str, cwd: Path, *words: str, **rest: int) -> None:
        cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = (sys.executable, "-S", "-I", str(PROGRAMS / f"{name}.py"), *words)
        process = subprocess.Popen(argv, cwd=cwd, start_new_session=True, **rest)
        stat = shim.stat_of(process.pid)
        assert stat is not None
        self.started[process.pid] = (stat.start_ticks, process)

    def witness(self, cwd: Path, *words: str, **rest: int) -> int:
        file = self.root / f"heard.{len(self.started)}"
        self.begin("witness", cwd, f"{file}.new", str(file), *words, **rest)
        wait_until(file.exists, "a stranger is there")
        return list(self.started)[-1]

    def settle(self, runs: Path, name: str) -> None:
        """Round the animal that is about to be started as `name`."""
        self.begin("ignores_term", self.root / "elsewhere")
        wait_until((self.root / "elsewhere" / "ready").exists, "a stranger is there")
        self.visitor = self.witness(self.root, str(runs / name))

    def join(self, run_dir: Path) -> None:
        """When it runs: next door, where the name of the directory begins alike, and at its log."""
        wait_until(lambda: Path(f"/proc/{self.visitor}/cwd").readlink() == run_dir, "a stranger visits")
        self.witness(run_dir.with_name(f"{run_dir.name}x"))
        with (run_dir / "engine.log").open("rb") as log:
            self.witness(self.root, stdin=log.fileno())

    def harmed(self) -> list[str]:
        found = [str(path) for path in self.root.glob("heard.*") if path.read_bytes()]
        found += [str(path) for path in (self.root / "elsewhere").glob("heard")]
        for pid, (ticks, process) in self.started.items():
            stat = shim.stat_of(pid)
            if stat is None or not stat.alive or stat.start_ticks != ticks:
                found.append(f"{process.args} has ended")
            elif Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                found.append(f"{process.args} was halted")
        return found

    def end(self) -> None:
        for _, process in self.started.values():
            with process:
                process.kill()


@pytest.fixture
def cage(tmp_path: Path) -> Iterator[Cage]:
    cage = Cage(tmp_path)
    yield cage
    cage.end_all()


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Strangers]:
    (tmp_path / "strangers").mkdir()
    strangers = Strangers(tmp_path / "strangers")
    yield strangers
    strangers.end()


class Zoo:
    """One evening with all the animals; what is wrong is collected, so that one shape does not hide another."""

    def __init__(self, cage: Cage, strangers: Strangers) -> None:
        self.cage, self.strangers = cage, strangers
        self.keeper = cage.keeper()
        self.wrong: list[str] = []
        self.animals = [(animal, free_port()) for animal in chosen()]
        self.strangers.settle(cage.runs, cage.place(*self.animals[0]).attempt.id)

    def blame(self, kept: Kept, what: str) -> None:
        self.wrong.append(f"{kept.animal.name}: {what}")

    def begin(self, *, by_another: bool = False, grace_s: float | None = None) -> list[Kept]:
        if by_another:
            self.cage.start_by_another(self.animals)
        else:
            self.cage.start(self.animals, grace_s)
        self.cage.hold_all()
        self.strangers.join(self.cage.kept[0].run_dir)
        return self.cage.kept

    def adopt(self, keeper: Processes) -> None:
        """Found as it is: nothing starts, nothing ends."""
        for kept in self.cage.kept:
            outcome = keeper.start(kept.attempt, self.cage.release, {})
            if (outcome.pid, outcome.start_ticks) != (kept.attempt.pid, kept.attempt.start_ticks):
                self.blame(kept, f"not adopted: {outcome}")
            seen, _ = keeper.look(kept.attempt)
            if (seen.life, seen.pid, seen.start_ticks) != (Life.RUNNING, kept.attempt.pid, kept.attempt.start_ticks):
                self.blame(kept, f"seen as {seen}")
        waiting = list(self.cage.kept)
        wait_until(
            lambda: not remove_if(waiting, lambda kept: kept.alive() <= set(keeper.look(kept.attempt)[1])), "seen: "
        )
        for kept in self.cage.kept:
            if len(kept.alive()) != len(kept.handles) or (kept.run_dir / "heard").exists():
                self.blame(kept, "was signalled by its adoption")

    def end(self, cause: str) -> None:
        """Until each is gone: its tree proved empty, its exit told as it was, nothing left, its port free."""
        waiting = list(self.cage.kept)
        wait_until(lambda: not remove_if(waiting, self.is_gone), "gone: ", waiting)
        waiting = list(self.cage.kept)
        wait_until(lambda: not remove_if(waiting, self.is_clean), "nothing left of: ", waiting)
        for kept in self.cage.kept:
            self.check_record(kept, cause)
            another = self.cage.keeper()
            once_more = another.start(kept.attempt, self.cage.release, {})
            if not once_more.ok or another.look(kept.attempt)[0].life is not Life.EXITED:
                self.blame(kept, f"ran a second time: {once_more}")

    def is_gone(self, kept: Kept) -> bool:
        seen, _ = self.keeper.look(kept.attempt)
        if seen.life is not Life.EXITED:
            return False
        if alive := kept.alive():
            self.blame(kept, f"said to be gone ({seen.sentence}) while {sorted(alive)} live")
        return True

    def is_clean(self, kept: Kept) -> bool:
        port = kept.attempt.port
        return not self.cage.leftovers(kept, self.strangers.started) and first_in_use(range(port, port + 1)) is None

    def check_record(self, kept: Kept, cause: str) -> None:
        if cause == "lost":
            seen, _ = self.keeper.look(kept.attempt)
            if not seen.sentence.startswith("lost") or (kept.run_dir / "exit.json").exists():
                self.blame(kept, f"nobody saw it end, and it is told: {seen.sentence}")
            return
        record = json.loads((kept.run_dir / "exit.json").read_text())
        of_this_run = (record["pid"], record["start_ticks"]) == (kept.attempt.pid, kept.attempt.start_ticks)
        code = record["exit_code"] if record["signal"] is None else -record["signal"]
        reason, ends = {
            "stopped": ("stopped", kept.animal.ends),
            "killed": ("stopped", kept.animal.ends | {TERM, KILL}),
            "died": (kept.animal.dies[0], {kept.animal.dies[1]}),
        }[cause]
        if not of_this_run or not record["tree_empty"] or record["reason"] != reason or code not in ends:
            self.blame(kept, f"on record: {record}, expected {reason} with one of {sorted(ends)}")

    def verdict(self) -> list[str]:
        return self.wrong + [f"a stranger: {harm}" for harm in self.strangers.harmed()]


@pytest.fixture
def zoo(cage: Cage, strangers: Strangers) -> Zoo:
    return Zoo(cage, strangers)


def stop(zoo: Zoo) -> None:
    for kept in zoo.cage.kept:
        assert zoo.keeper.stop(kept.attempt).ok
    zoo.end("stopped")


def test_adopted_and_stopped(zoo):
    zoo.begin()
    zoo.adopt(zoo.cage.keeper())
    stop(zoo)
    assert zoo.verdict() == []


def test_adopted_and_stopped_when_its_daemon_is_dead(zoo):
    zoo.begin(by_another=True)
    zoo.adopt(zoo.keeper)
    stop(zoo)
    assert zoo.verdict() == []


def test_killed_at_once(zoo):
    """Without grace: TERM and KILL in one breath."""
    zoo.begin(grace_s=0.0)
    for kept in zoo.cage.kept:
        assert zoo.keeper.stop(kept.attempt).ok
    zoo.end("killed")
    assert zoo.verdict() == []


def test_what_is_left_of_one_that_dies_is_ended(zoo):
    for kept in zoo.begin():
        kept.strike(kept.pid_of_victim(), signal.SIGKILL)
    zoo.end("died")
    assert zoo.verdict() == []


def test_found_and_ended_when_its_shim_is_dead(zoo):
    kept_ones = zoo.begin()
    kill_shims(kept_ones)
    findable = [kept for kept in kept_ones if kept.animal.name not in HIDDEN]
    waiting = list(findable)
    wait_until(lambda: not remove_if(waiting, lambda kept: is_seen_astray(zoo, kept)), "seen astray: ", waiting)
    for kept in findable:
        refused = zoo.keeper.start(kept.attempt, zoo.cage.release, {})
        if refused.ok or not names_one_of(refused.sentence, kept.alive()):
            zoo.blame(kept, f"a start on top of what is left is told: {refused}")
    for kept in set_of_hidden(kept_ones):
        check_hidden(zoo, kept)
    for kept in findable:
        zoo.keeper.clear(kept.attempt, force=False)
    waiting = list(findable)
    wait_until(lambda: not remove_if(waiting, lambda kept: is_cleared(zoo, kept)), "cleared: ", waiting)
    zoo.end("lost")
    assert zoo.verdict() == []


def kill_shims(kept_ones: Sequence[Kept]) -> None:
    for kept in kept_ones:
        shim.signal_all({kept.shim_pid: kept.attempt.start_ticks or 0}, signal.SIGKILL)
    wait_until(
        lambda: not any((stat := shim.stat_of(kept.shim_pid)) and stat.alive for kept in kept_ones), "shims dead"
    )


def is_seen_astray(zoo: Zoo, kept: Kept) -> bool:
    seen, pids = zoo.keeper.look(kept.attempt)
    return seen.life is Life.STRAYS and kept.alive() <= set(pids)


def is_cleared(zoo: Zoo, kept: Kept) -> bool:
    """As the loop does it: killed in the end, again and again, until nobody is seen."""
    return zoo.keeper.clear(kept.attempt, force=True).ok


def names_one_of(sentence: str, pids: set[int]) -> bool:
    return any(f"{pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})" in sentence for pid in pids)


def set_of_hidden(kept_ones: Sequence[Kept]) -> list[Kept]:
    return [kept for kept in kept_ones if kept.animal.name in HIDDEN]


def check_hidden(zoo: Zoo, kept: Kept) -> None:
    """No mark of it is left: it is told as lost, and nothing starts on its port before somebody has ended it."""
    seen, _ = zoo.cage.keeper().look(kept.attempt)
    if seen.life is not Life.EXITED or "lost" not in seen.sentence or not kept.alive():
        zoo.blame(kept, f"it hides, and is seen as {seen}")
    another = zoo.cage.place(kept.animal, kept.attempt.port, number=2)
    refused = zoo.keeper.start(another.attempt, zoo.cage.release, {})
    if refused.ok or not refused.port_conflict or not names_one_of(refused.sentence, kept.alive()):
        zoo.blame(kept, f"its port is told to be free: {refused}")
    kept.strike(next(iter(kept.alive())), signal.SIGKILL)
    wait_until(lambda: not kept.alive(), "what hid is dead")


def test_the_zoo_is_as_large_as_is_said():
    """Twelve shapes and more, each with a program of its own, and every cell that cannot be has its reason."""
    names = [animal.name for animal in chosen()]
    assert len(names) == len(set(names)) >= 12
    assert all((PROGRAMS / f"{name}.py").is_file() for name in names)
    assert all(HIDDEN[name] and name in names for name in HIDDEN)


def test_a_port_that_is_held_by_what_is_left_names_it_before_the_next_start(zoo, cage):
    """The residue of one attempt in the way of another: told by pid and program, and gone when it is ended."""
    holder = Animal("listens", words=('"$PORT"', "fork"), ready="port", family=2, listens=True)
    cage.start([(holder, free_port())])
    cage.hold_all()
    (kept,) = cage.kept
    kill_shims(cage.kept)
    again = cage.place(holder, kept.attempt.port, number=2)
    refused = cage.keeper().start(again.attempt, cage.release, {})
    assert (refused.ok, refused.port_conflict, again.run_dir.exists()) == (False, True, False)
    assert f"port {kept.attempt.port} of " in refused.sentence
    assert names_one_of(refused.sentence, kept.alive())
    wait_until(lambda: is_cleared(zoo, kept), "cleared")
    wait_until(lambda: first_in_use(range(kept.attempt.port, kept.attempt.port + 1)) is None, "the port is free")
    assert cage.keeper().start(again.attempt, cage.release, {}).ok
    cage.kept.append(again)


def test_who_forks_on_without_a_shim_is_seen_at_every_look_and_ended(tmp_path):
    """Each generation lives for a millisecond, and a full look at /proc takes longer."""
    run_dir = tmp_path / "a"
    argv = (sys.executable, "-S", "-I", str(PROGRAMS / "forks_on.py"), "0")
    identity = start(AttemptSpec(attempt_id="a", run_dir=run_dir, argv=argv))
    try:
        wait_until((run_dir / "ready").exists, "it forks")
        program = observe(run_dir).child_pid
        for pid in (identity.pid, program):
            shim.signal_all({pid: shim.stat_of(pid).start_ticks}, signal.SIGKILL)
            wait_until(lambda pid=pid: not ((stat := shim.stat_of(pid)) and stat.alive), "dead")
        looks = [observe(run_dir).status for _ in range(10)]
        assert looks.count(Status.STRAYS) >= 8, "most looks saw nobody, once"
        wait_until(lambda: not kill_strays(run_dir, force=True), "cleared")
        assert {observe(run_dir).status for _ in range(5)} == {Status.EXITED}
    finally:
        kill_strays(run_dir, force=True)


def test_nothing_starts_where_somebody_lives_already(cage, strangers):
    """No record tells of him; he is named, and not signalled."""
    kept = cage.place(Animal("zombie"), free_port())
    squatter = strangers.witness(kept.run_dir)
    refused = cage.keeper().start(kept.attempt, cage.release, {})
    assert not refused.ok
    assert names_one_of(refused.sentence, {squatter})
    assert not (kept.run_dir / "shim.json").exists()
    assert strangers.harmed() == []


def test_a_directory_that_is_removed_under_an_engine_starts_no_second_one(cage):
    """Its log is closed, too: the name of a directory that is not there any more is all that tells whose it is."""
    cage.start([(Animal("closes_all", files=2, family=2), free_port())])
    cage.hold_all()
    (kept,) = cage.kept
    shutil.rmtree(kept.run_dir)
    refused = cage.keeper().start(kept.attempt, cage.release, {})
    assert not refused.ok
    assert names_one_of(refused.sentence, kept.alive())
    shim.signal_all({kept.shim_pid: kept.attempt.start_ticks or 0}, signal.SIGTERM)
    wait_until(lambda: not kept.alive(), "its shim ends it all the same")


def test_the_name_of_what_is_left_is_fit_for_a_terminal(tmp_path):
    """A program names itself as it likes."""
    run_dir = tmp_path / "a"
    run_dir.mkdir()
    program = "from pathlib import Path; import time; Path('/proc/self/comm').write_text('x\\x1b[2Jy'); "
    program += "Path('ready').touch(); time.sleep(1000)"
    squatter = subprocess.Popen([sys.executable, "-c", program], cwd=run_dir, start_new_session=True)
    try:
        wait_until((run_dir / "ready").exists, "it has its name")
        with pytest.raises(StraysAlive, match=rf"live on in .*/a, {squatter.pid} \(x\?\[2Jy\): end them first"):
            start(AttemptSpec(attempt_id="a", run_dir=run_dir, argv=("true",)))
    finally:
        squatter.kill()
        squatter.wait()


def test_a_lock_that_is_removed_under_a_shim_changes_nothing(tmp_path):
    """Found by its record, and left alone, although the lock is free; also what is to be kept alive."""
    spec = AttemptSpec(attempt_id="a", run_dir=tmp_path / "a", argv=("sleep", "1000"), keep=True)
    first = start(spec)
    try:
        (tmp_path / "a" / "shim.lock").unlink()
        assert start(spec) == first
        (tmp_path / "a" / "shim.lock").unlink()
        assert kill_strays(tmp_path / "a", force=True) == ()
        seen = observe(tmp_path / "a")
        assert (seen.identity, seen.restarts, len(seen.pids)) == (first, 0, 1)
    finally:
        request_stop(tmp_path / "a")
        wait_until(lambda: not first.is_alive(), "it is stopped")


def test_a_directory_of_another_start_is_not_ours(cage):
    """The number of the shim may be the same, its start is not: nothing is adopted by a recorded pid alone."""
    cage.start([(Animal("zombie"), free_port())])
    attempt = cage.kept[0].attempt
    seen, pids = cage.keeper().look(replace(attempt, start_ticks=(attempt.start_ticks or 0) + 1))
    assert (seen.life, pids) == (Life.ABSENT, ())
