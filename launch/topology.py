"""A topology: which instances of which engine on how many GPUs, their native flags, and the router in front.

The file is a person's; so every refusal names the file, the line, the key, what was expected and what to do.
docs/topology.md lists the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from launch import strict_yaml
from launch.errors import TopologyError
from launch.strict_yaml import Document, KeyPath, dotted
from launch.topology_rules import objections

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_INSTANCE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_SERVED_NAME = re.compile(r"(?!-)[^\s,\"'\\\x00-\x1f]{1,200}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPUS_MAX = 64
_INSTANCES_MAX = 32


def _matching(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r:.80} is not {expected}")
        return value

    return AfterValidator(check)


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("a NUL byte cannot be passed to a program")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r:.80} is not an absolute path; ~ and relative paths are not resolved")
    if not value.isprintable():
        raise ValueError(f"{value!r:.80} has control characters in it")
    return value


Text = Annotated[str, AfterValidator(_no_nul)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
EnvName = Annotated[str, _matching(_ENV_NAME, "an environment name (letters, digits, _)")]
Env = dict[EnvName, Text]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Instance(_Strict):
    """One engine server: its GPUs as a count or as explicit indices and UUIDs, and environment of its own."""

    gpus: Annotated[int, Field(ge=0, le=_GPUS_MAX)] | tuple[int | str, ...]
    env: Env = {}

    @property
    def gpu_count(self) -> int:
        """How many GPUs this instance holds; 0 for one on the CPU."""
        return self.gpus if isinstance(self.gpus, int) else len(self.gpus)

    @property
    def gpu_names(self) -> tuple[str, ...] | None:
        """The explicit indices or UUIDs as text, ``gpu-0`` as index 0; None when only the count is given."""
        return None if isinstance(self.gpus, int) else tuple(str(gpu).removeprefix("gpu-") for gpu in self.gpus)


class Router(_Strict):
    """The router in front of the instances, with its own flags verbatim."""

    kind: str
    flags: tuple[Text, ...] = ()


class Need(_Strict):
    """Memory the topology says it needs, for the plan: per GPU, and of the host per instance."""

    gpu_memory_gib: Annotated[float, Field(gt=0)] | None = None
    host_memory_gib: Annotated[float, Field(gt=0)] | None = None


class Topology(_Strict):
    """A checked topology. Made by :func:`load` and :func:`parse`; equal topologies freeze to equal releases."""

    name: Annotated[str, _matching(_NAME, "a name of lower-case letters, digits and dashes (at most 63)")]
    serves: Annotated[
        tuple[
            Annotated[str, _matching(_SERVED_NAME, "a model name: no spaces, commas or quotes, no dash in front")], ...
        ],
        Field(min_length=1),
    ]
    engine: str
    command: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    script: AbsolutePath | None = None
    model: Text | None = None
    flags: tuple[Text, ...] = ()
    env: Env = {}
    env_file: AbsolutePath | None = None
    instances: Annotated[
        dict[Annotated[str, _matching(_INSTANCE_NAME, "a name of lower-case letters, digits and dashes")], Instance],
        Field(min_length=1, max_length=_INSTANCES_MAX),
    ]
    router: Router | None = None
    capability: dict[str, str | bool | int] = {}
    gates: Text = "standard"
    need: Need | None = None
    start_timeout_s: Annotated[float, Field(gt=0, le=24 * 3600)] = 1200.0
    stop_grace_s: Annotated[float, Field(ge=0, le=3600)] = 30.0
    notes: str | None = None

    def canonical(self) -> dict[str, Any]:
        """Plain data that decides what runs and how it is judged; JSON of it with sorted keys is hashed.

        Notes are left out: a better comment is not another release.
        """
        data = self.model_dump(mode="json", exclude={"notes"})
        assert isinstance(data, dict)  # noqa: S101  # a model dumps to a dict
        return data

    def to_yaml(self) -> str:
        """The topology as a file that parses back to the same topology."""
        return strict_yaml.write(self.model_dump(mode="json", exclude_defaults=True))


SWEEP = "sweep"
"""The key that makes a file a matrix of topologies: see :mod:`launch.sweep`."""


def load(path: Path) -> Topology:
    """Read and check a topology file; TopologyError says what is wrong and where."""
    return parse(text_of(path), source=str(path))


def text_of(path: Path) -> str:
    """The text of a topology file; TopologyError where it cannot be read, is too large, or is no text."""
    try:
        with path.open("rb") as file:
            raw = file.read(strict_yaml.MAX_BYTES + 1)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > strict_yaml.MAX_BYTES:
        raise TopologyError(f"{path}: too large for a topology; the limit is {strict_yaml.MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error


def parse(text: str, *, source: str, rules: bool = True) -> Topology:
    """Check a topology given as text; `source` names it in errors.

    Without `rules` only the schema is checked: a release that was accepted once must stay readable when a later
    version refuses a flag that it carries.
    """
    document = document_of(text, source=source)
    if SWEEP in document.value:
        raise TopologyError(
            f"{document.where((SWEEP,))}: {SWEEP}: this file is a matrix of topologies, and here one is wanted; "
            f"`cutover sweep {source}` tries them all, or remove the key"
        )
    return checked(document, rules=rules)


def document_of(text: str, *, source: str) -> Document:
    """The file as plain data with its lines, not checked."""
    return strict_yaml.read(text, source=source, typed=_typed, switched=_switched)


def checked(document: Document, *, rules: bool = True) -> Topology:
    """The topology that a document is; TopologyError for the first thing that is wrong with it."""
    try:
        topology = Topology.model_validate(document.value)
    except ValidationError as error:
        raise TopologyError(_sentence(error, document)) from error
    for path, sentence in objections(topology) if rules else ():
        raise TopologyError(f"{document.where(path)}: {dotted(path)}: {sentence}")
    return topology


def _typed(path: KeyPath) -> bool:
    """Where YAML's numbers and bools are meant; everywhere else the text counts as written."""
    match path:
        case ("start_timeout_s" | "stop_grace_s", *_) | ("need" | "capability", _, *_):
            return True
        case ("instances", _, "gpus", *_):
            return True
        case ("sweep", "max_arms", *_):
            return True
        case ("sweep", *rest):  # a value of the axis `instances`, or a constraint that names one
            return "instances" in rest and "gpus" in rest
    return False


def _switched(path: KeyPath) -> bool:
    """Where a flag may be set to a word, and also be there (``true``) or not (``false``, ``null``)."""
    return path[:1] == (SWEEP,)


# --- errors as sentences --------------------------------------------------------------------------------------------

_PLACES_MAX = 4
"""So many further problems are named by their place."""


def _sentence(error: ValidationError, document: Document) -> str:
    """The first problem that pydantic found, with file, line, key and remedy; and where there are more."""
    problems = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    unknown_in = {one["loc"][:-1] for one in problems if one["type"] == "extra_forbidden"}
    # Beside a misspelt key the one that is then missing is only its shadow.
    problems = [one for one in problems if not (one["type"] == "missing" and one["loc"][:-1] in unknown_in)]
    path, *others = dict.fromkeys(_written_path(one["loc"], document) for one in problems)
    text = _problem(problems[0], path, document)
    return f"{document.where(path)}: {text}{_and_more([dotted(other) for other in others], after=text)}"


def _and_more(places: list[str], *, after: str) -> str:
    if not places:
        return ""
    listed = ", ".join(places[:_PLACES_MAX]) + (", …" if len(places) > _PLACES_MAX else "")
    count = "1 more problem" if len(places) == 1 else f"{len(places)} more problems"
    return f"{' And' if after.endswith('?') else '; and'} {count}: {listed}"


def _written_path(loc: tuple[int | str, ...], document: Document) -> KeyPath:
    """Pydantic's location without the parts it invents for unions and keys; a missing key keeps its last part."""
    path: KeyPath = ()
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if (*path, part) in document.lines or (last and isinstance(part, str) and part in _known_keys(path)):
            path = (*path, part)
    return path


def _problem(problem: Any, path: KeyPath, document: Document) -> str:
    kind, place = problem["type"], dotted(path)
    if kind == "extra_forbidden":
        return f"unknown key {place}; {_nearest(path)}"
    if kind == "missing":
        return f"{place} is missing; {_MEANINGS.get(str(path[-1]), 'see docs/topology.md')}"
    if kind == "value_error":
        return f"{place}: {problem['ctx']['error']}"
    if problem.get("input") is None:
        return f"{place} is empty; give it a value, or remove the key"
    expected = _EXPECTED.get(kind)
    if path and path[0] == "instances" and path[-1] == "gpus":
        expected = f"a count (0 to {_GPUS_MAX}) or a list of indices and UUIDs, e.g. gpus: 2"
    given = _shown(_at(document.value, path))
    return f"{place}: {given} is not accepted; expected {expected or problem['msg']}"


def _at(value: Any, path: KeyPath) -> Any:
    for part in path:
        value = value[part]
    return value


def _shown(value: Any) -> str:
    text = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _known_keys(path: KeyPath) -> list[str]:
    model: type[BaseModel] | None = None
    match path:
        case ():
            model = Topology
        case ("instances", _):
            model = Instance
        case ("router",):
            model = Router
        case ("need",):
            model = Need
    return list(model.model_fields) if model is not None else []


def _nearest(path: KeyPath) -> str:
    known = _known_keys(path[:-1])
    key = str(path[-1])
    close = get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    if path[0] == "router":
        return f"the router's own options go into router.flags: [--{key.replace('_', '-')}, …]"
    return f"known here: {', '.join(known)}"


_EXPECTED: Mapping[str, str] = {
    "string_type": "a word; quote it if it is one",
    "tuple_type": "a list in brackets, one entry per word",
    "dict_type": "a mapping, e.g. {NAME: value}",
    "model_type": "a mapping",
    "too_short": "at least one entry",
    "too_long": f"at most {_INSTANCES_MAX} entries",
    "float_parsing": "a number of seconds or GiB",
    "float_type": "a number",
}

_MEANINGS: Mapping[str, str] = {
    "name": "give the topology a name, e.g. name: qwen27b-tp2x2",
    "serves": "list the model names that clients use, e.g. serves: [qwen3.8-27b]",
    "engine": "say which engine: vllm | sglang | llamacpp | script | emulator",
    "instances": "say how many GPUs each server gets, e.g. instances: {a: {gpus: 2}}",
    "gpus": "say how many GPUs (or which), e.g. gpus: 2",
    "kind": "say which router, e.g. kind: smg",
}
