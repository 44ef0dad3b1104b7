"""Gate profiles: which judges, in which order, with which settings and deadlines. YAML, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gates import catalog
from gates.errors import GateUsageError, UnknownGateError, nearest
from gates.strict import StrictModel, read_model
from gates.waivers import read_waivers
from gates.yaml_text import mapping_in, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gates.own_set import Item

DIRECTORY: Final = Path(__file__).parent / "profiles"
DEFAULT_DEADLINE_S: Final = 300.0


@dataclass(frozen=True)
class GateStep:
    """One gate of a profile. `command` is the program of an external gate, None for a built-in one."""

    name: str
    command: tuple[str, ...] | None = None
    deadline_s: float = DEFAULT_DEADLINE_S
    settings: Mapping[str, Any] = field(default_factory=dict)
    observe: bool = False
    """Reports without deciding."""
    stop_early: bool = True
    """When it blocks, the gates after it are not run."""


@dataclass(frozen=True)
class Profile:
    """Gates in order, cheapest and deadliest first."""

    name: str
    gates: tuple[GateStep, ...]
    description: str = ""

    def only(self, names: Iterable[str]) -> Profile:
        """The same with only the gates of these names; a built-in gate that it lacks comes with its defaults."""
        mine = {step.name: step for step in self.gates}
        steps = []
        for name in names:
            if name not in mine and name not in catalog.BUILT_IN:
                known = {*mine, *catalog.BUILT_IN}
                raise UnknownGateError(f"Profile {self.name!r} has no gate {name!r}; {nearest(name, known)}")
            steps.append(mine.get(name) or GateStep(name))
        return Profile(self.name, tuple(steps), self.description)


class _Step(StrictModel):
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    run: list[str] | None = Field(default=None, min_length=1)
    deadline_s: float = Field(default=DEFAULT_DEADLINE_S, gt=0, le=24 * 3600)
    settings: Mapping[str, Any] = Field(default_factory=dict)
    observe: bool = False
    stop_early: bool | None = None


class _File(StrictModel):
    description: str = ""
    stop_early: bool = True
    gates: list[_Step] = Field(min_length=1)


def load(name_or_path: str | Path) -> Profile:
    """A profile by the name of one that ships, or by the path of a file. Raises `GateUsageError`."""
    text = str(name_or_path)
    path = Path(text)
    shipped = {file.stem: file for file in DIRECTORY.glob("*.yaml")}
    if isinstance(name_or_path, str) and text in shipped:
        return parse(text, read_text(shipped[text], "a profile"), str(shipped[text]))
    if not path.is_file():
        raise UnknownGateError(f"There is no profile {text!r}, neither by name nor as a file; {nearest(text, shipped)}")
    return parse(path.stem, read_text(path, "a profile"), text)


def parse(name: str, text: str, where: str) -> Profile:
    """`text` as a profile. `where` names it in sentences. Raises `GateUsageError`."""
    document = mapping_in(text, where, "a profile is a mapping with the key 'gates'")
    file = read_model(_File, document, where)
    names = [step.name for step in file.gates]
    double = next((n for n in names if names.count(n) > 1), None)
    if double:
        raise GateUsageError(f"{where}: the gate {double!r} is listed twice.")
    steps = tuple(_step(step, file, where) for step in file.gates)
    return Profile(name, steps, file.description)


def _step(step: _Step, file: _File, where: str) -> GateStep:
    if step.run is None:
        if step.name not in catalog.BUILT_IN:
            raise GateUsageError(
                f"{where}: there is no gate {step.name!r} ({nearest(step.name, catalog.BUILT_IN)}); "
                "a program of your own needs `run: [/path/to/program]`."
            )
        read_model(catalog.find(step.name).settings(), step.settings, f"{where}: settings of gate {step.name}")
    elif step.name in catalog.BUILT_IN:
        raise GateUsageError(f"{where}: {step.name!r} is the name of a built-in gate; call your program otherwise.")
    stop_early = file.stop_early if step.stop_early is None else step.stop_early
    command = tuple(step.run) if step.run else None
    settings: Mapping[str, Any] = step.settings
    if step.run is None:
        _check_names(step, where)
        items = _own_set(str(step.settings["file"]), where) if step.name == "own-set" else ()
        if "waivers" in step.settings:
            settings = _with_waivers(step, items, where)
    return GateStep(step.name, command, step.deadline_s, settings, step.observe, stop_early)


def _check_names(step: _Step, where: str) -> None:
    """Checks that a profile names have to exist, and the gate has to ask them: a misspelt one, or one above the tier,
    would otherwise end a rollout at night.
    """
    named = [name for key in ("checks", "without") for name in step.settings.get(key, ())]
    if not named:
        return
    from gates.acceptance.reach import out_of_reach, reach_as_written

    try:
        reach = reach_as_written(step.name, step.settings)
        missed = out_of_reach(step.settings.get("checks", ()), [reach])
    except GateUsageError as error:
        raise GateUsageError(f"{where}: gate {step.name}: {error}") from None
    if missed is not None:
        goes = f", and the gate's tier is {reach.tier}: set tier: {missed.needs}" if missed.needs else ": take one out"
        raise GateUsageError(f"{where}: gate {step.name}: {missed.why}{goes}, or it is never asked.")
    if not reach.of(()):
        raise GateUsageError(f"{where}: gate {step.name}: `without` leaves no check of the tier {reach.tier} to ask.")


def _check_of(entry: Any) -> Any:
    return entry.get("check") if isinstance(entry, Mapping) else None


def _own_set(file: str, where: str) -> tuple[Item, ...]:
    """A set with a bad line would otherwise be found when its turn comes, after everything that ran before it."""
    from gates import own_set

    path = Path(file)
    if not path.is_absolute():
        raise GateUsageError(f"{where}: gate own-set: file: {file} is a relative path; write an absolute one.")
    try:
        return own_set.read(path)
    except GateUsageError as error:
        raise GateUsageError(f"{where}: gate own-set: {error}") from None


def _with_waivers(step: _Step, items: Iterable[Item], where: str) -> Mapping[str, Any]:
    """The settings with their waivers read (a wrong one must be told before the night) and as plain data.

    What a report may show can be waived as it is written there. `items` of an own set stand in the place of checks.
    """
    from gates.acceptance import register
    from gates.invariants import RULES
    from gates.parts import OF_HEALTH, shown_parts

    lost = [entry["check"] for entry in step.settings["waivers"] if _check_of(entry) in OF_HEALTH]
    if lost:
        raise GateUsageError(
            f"{where}: gate {step.name}: waivers: {lost[0]} is of the gate health, of which nothing can be waived."
        )
    own = [item.id if item.must == "always" else item.must for item in items]
    known = {*(own or (check.id for check in register.checks())), *RULES, *shown_parts()}
    today = datetime.now(UTC).date()
    waivers = read_waivers(step.settings["waivers"], today, f"{where}: gate {step.name}", known)
    return {**step.settings, "waivers": [waiver.model_dump(mode="json", exclude_none=True) for waiver in waivers]}
