"""Gate profiles: which judges, in which order, with which settings and deadlines. YAML, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import Field

from gates import catalog
from gates.errors import GateUsageError, UnknownGateError, nearest
from gates.strict import StrictModel, read_model
from gates.waivers import read_waivers

if TYPE_CHECKING:
    from collections.abc import Iterable

DIRECTORY: Final = Path(__file__).parent / "profiles"
_MAX_BYTES: Final = 256 * 1024
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
        return parse(text, _read(shipped[text]), str(shipped[text]))
    if not path.is_file():
        raise UnknownGateError(f"There is no profile {text!r}, neither by name nor as a file; {nearest(text, shipped)}")
    return parse(path.stem, _read(path), text)


def parse(name: str, text: str, where: str) -> Profile:
    """`text` as a profile. `where` names it in sentences. Raises `GateUsageError`."""
    document = _document(text, where)
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
    if step.run is None:
        _check_names(step, where)
    if step.name == "own-set" and step.run is None:
        _check_own_set(str(step.settings["file"]), where)
    settings = _with_waivers(step, where) if step.run is None and "waivers" in step.settings else step.settings
    return GateStep(step.name, command, step.deadline_s, settings, step.observe, stop_early)


def _check_names(step: _Step, where: str) -> None:
    """Checks that a profile names have to exist: a misspelt one would otherwise end a rollout at night."""
    named = [name for key in ("checks", "without") for name in step.settings.get(key, ())]
    if named:
        from gates.acceptance import register

        try:
            register.select(named)
        except UnknownGateError as error:
            raise GateUsageError(f"{where}: gate {step.name}: {error}") from None


def _check_own_set(file: str, where: str) -> None:
    """A set with a bad line would otherwise be found when its turn comes, after everything that ran before it."""
    from gates import own_set

    path = Path(file)
    if not path.is_absolute():
        raise GateUsageError(f"{where}: gate own-set: file: {file} is a relative path; write an absolute one.")
    try:
        own_set.read(path)
    except GateUsageError as error:
        raise GateUsageError(f"{where}: gate own-set: {error}") from None


def _with_waivers(step: _Step, where: str) -> Mapping[str, Any]:
    """The settings with their waivers read (a wrong one must be told before the night) and as plain data."""
    from gates.acceptance import register
    from gates.invariants import RULES

    known = {*(check.id for check in register.checks()), *RULES}
    today = datetime.now(UTC).date()
    waivers = read_waivers(step.settings["waivers"], today, f"{where}: gate {step.name}", known)
    return {**step.settings, "waivers": [waiver.model_dump(mode="json", exclude_none=True) for waiver in waivers]}


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise GateUsageError(f"{path}: a profile of {size} bytes; at most {_MAX_BYTES} are read.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise GateUsageError(f"{path}: is not UTF-8 text.") from None


class _Loader(yaml.SafeLoader):
    """Refuses aliases (a small file must stay small) and keys given twice (the first would be lost unseen)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no plain text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _document(text: str, where: str) -> Mapping[str, Any]:
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader that refuses even more
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise GateUsageError(f"{where}{line}: {error.problem or 'not valid YAML'}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GateUsageError(f"{where}: not valid YAML ({str(error).splitlines()[0]}).") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise GateUsageError(f"{where}: a profile is a mapping with the key 'gates'.")
    return document
