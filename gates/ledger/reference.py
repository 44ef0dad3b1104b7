"""Rows typed in from elsewhere: as YAML, as CSV, or key by key. One vocabulary, every mistake told with its place.

All three are read as text, so that an engine version 0.10 keeps its zero.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from gates.errors import GateUsageError, nearest
from gates.ledger.columns import FIELDS
from gates.ledger.rows import DRIVER, END_TO_END, GPUS, HOST, TOKENS_PER_CHUNK, TTFT_COLD, TTFT_WARM, Configuration
from gates.throughput.records import AGGREGATE, DECODE, GAP, Cell, CellKey, Figure

_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_GPUS: Final = 1024
_CLOCKS_DIFFER: Final = timedelta(days=1)
"""A date without a zone, or another box's clock, may lie so far ahead."""
_LIMIT: Final = "limit"
"""As long a prompt as the engine takes."""


@dataclass(frozen=True)
class Reference:
    """One row from elsewhere. `origin` says where it was taken from; `date`: ISO 8601, UTC."""

    configuration: Configuration
    definition: Mapping[str, Any]
    cell: Cell
    date: str
    origin: str
    note: str = ""


def _text(value: str) -> str:
    return " ".join(value.split())


def _whole(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < 1:
        raise ValueError("a whole number from 1")
    return int(value)


def _positive(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError("a positive number with a decimal point, as 68.2")
    return number


def _date(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("a date, as 2026-09-14") from None
    if moment > datetime.now(UTC) + _CLOCKS_DIFFER:
        raise ValueError("a date that has been, as 2026-09-14")
    return moment.isoformat(timespec="seconds")


def _tokens(value: str) -> int | str:
    return value if value == _LIMIT else _whole(value)


def _flags(value: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(value))
    except ValueError:
        raise ValueError("flags as in a shell, quotes closed") from None


def _gpus(value: str) -> tuple[str, ...]:
    """`4x V100-SXM2-32GB`, also several kinds with commas."""
    names: list[str] = []
    for part in value.split(","):
        found = re.fullmatch(r"\s*(?:(\d{1,4})\s*[x×*]\s*)?(\S.*?)\s*", part)
        if not found or not 1 <= int(found[1] or 1) <= _MAX_GPUS:
            raise ValueError("cards, as 4x V100-SXM2-32GB")
        names += [found[2]] * int(found[1] or 1)
    return tuple(names)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in words:
            raise ValueError(" or ".join(words))
        return value

    return read


_SHORT_NAME: Final = "end_to_end_tok_per_s"
"""Of END_TO_END, as it was called here before."""
_OWN_MARKS: Final = ("id", "source", "run", "retracted")
"""Columns that only a ledger's own CSV has."""
_DEFINITION: Final[Mapping[str, Callable[[str], Any]]] = {
    "prompt_tokens": _tokens,
    "answer_tokens": _whole,
    "scene": _text,
    "prompts": _one_of("different", "same"),
    "prefix": _one_of("cold", "warm"),
}
"""Named as our own workloads name them, so that what both say can be compared."""
_FIGURES: Final[Mapping[str, str]] = {
    TTFT_COLD: TTFT_COLD,
    TTFT_WARM: TTFT_WARM,
    DECODE: DECODE,
    AGGREGATE: AGGREGATE,
    END_TO_END: END_TO_END,
    _SHORT_NAME: END_TO_END,
    GAP: GAP,
    TOKENS_PER_CHUNK: TOKENS_PER_CHUNK,
}
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    **dict.fromkeys(
        ("origin", "note", "topology", "engine", "engine_version", "model", "kv_format", "driver", "host", "workload"),
        _text,
    ),
    "date": _date,
    "flags": _flags,
    "gpus": _gpus,
    "concurrency": _whole,
    "n": _whole,
    **_DEFINITION,
    **dict.fromkeys(_FIGURES, _positive),
}
KEYS: Final = tuple(_READERS)
_LISTS: Final = ("flags", "gpus")
_NEEDED: Final = ("origin", "date", "topology", "workload", "concurrency")


def read_references(words: Sequence[str]) -> tuple[Reference, ...]:
    """One file (`.csv`, else YAML), or `KEY=VALUE` words that make one row. Raises `GateUsageError`."""
    if not words:
        raise GateUsageError(
            "nothing was given to add; expected a YAML or CSV file, or KEY=VALUE words with at least "
            f"{', '.join(_NEEDED)} and one figure; keys: {', '.join(KEYS)}"
        )
    if len(words) == 1 and ("=" not in words[0] or Path(words[0]).is_file()):
        path = Path(words[0])
        text = _file(path)
        return _from_csv(text, str(path)) if path.suffix.lower() == ".csv" else _from_yaml(text, str(path))
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise GateUsageError(f"{word!r}: expected KEY=VALUE, as concurrency=4, or one file alone")
        if key in given:
            raise GateUsageError(f"{key} is given twice; keep one")
        given[key] = value
    return (_reference(given, lambda key: f"{key}={given[key]}" if key in given else "the row"),)


def _file(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise GateUsageError(f"{path}: {size} bytes; at most {_MAX_BYTES} are read")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise GateUsageError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


# --- CSV --------------------------------------------------------------------------------------------------------------


def _from_csv(text: str, where: str) -> tuple[Reference, ...]:
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return tuple(_csv_rows(lines, where))
    except csv.Error as error:
        raise GateUsageError(f"{where}:{lines.line_num}: is not CSV ({error})") from None


def _csv_rows(lines: Any, where: str) -> Iterator[Reference]:
    header = [name.strip() for name in next(lines, [])]
    if set(_OWN_MARKS) <= set(header):
        yield from _own_rows(lines, header, where)
        return
    if not any(header):
        raise GateUsageError(f"{where}:1: no header; expected column names, as {','.join(_NEEDED)},{DECODE}")
    if len(header) == 1 and ";" in header[0]:
        raise GateUsageError(f"{where}:1: the columns are separated by semicolons; expected commas")
    for number, name in enumerate(header, 1):
        if name not in _READERS:
            raise GateUsageError(f"{where}:1: column {number} {name!r} is not known; {nearest(name, KEYS)}")
        if name in header[: number - 1]:
            raise GateUsageError(f"{where}:1: the column {name!r} is there twice (columns {header.index(name) + 1} "
                                 f"and {number}); keep one")  # fmt: skip
    found = False
    for values in lines:
        if not any(value.strip() for value in values):
            continue
        found, line = True, lines.line_num
        if len(values) != len(header):
            raise GateUsageError(f"{where}:{line}: {len(values)} values for {len(header)} columns")
        yield _reference(
            dict(zip(header, values, strict=True)),
            lambda key, line=line: f"{where}:{line}: column {key}" if key in header else f"{where}:{line}",  # type: ignore[misc]
        )
    if not found:
        raise GateUsageError(f"{where}: has a header and no row")


def _own_rows(lines: Any, header: Sequence[str], where: str) -> Iterator[Reference]:
    """The CSV of another box's ledger. What was retracted or no measurement there is none here either."""
    unknown = [name for name in header if name not in (*_READERS, *FIELDS)]
    if unknown:
        raise GateUsageError(f"{where}:1: the column {unknown[0]!r} is not known; {nearest(unknown[0], FIELDS)}")
    for values in lines:
        if not values:
            continue
        line = f"{where}:{lines.line_num}"
        if len(values) != len(header):
            raise GateUsageError(f"{line}: {len(values)} values for {len(header)} columns")
        told = dict(zip(header, values, strict=True))
        given = {key: text for key, text in told.items() if key in _READERS}
        given["topology"] = told.get("topology") or told.get("release") or told.get("model", "")
        given["origin"] = told.get("origin") or f"{Path(where).name}, run {told['run']}"
        gone = f"retracted there: {told['retracted']}" if told["retracted"] else told.get("problem")
        read = _reference(given, lambda key, line=line: f"{line}: column {key}" if key else line, problem=gone or None)  # type: ignore[misc]
        release = told.get("release", "")
        yield replace(read, configuration=replace(read.configuration, release=release))


# --- YAML -------------------------------------------------------------------------------------------------------------


class _Loader(yaml.BaseLoader):
    """Every scalar as the text that was written. Aliases and keys given twice are refused."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: ARG002 - PyYAML's signature; rows are always read whole
        lines = {_SELF: node.start_mark.line + 1}
        for key, _ in node.value:
            if str(key.value) in lines:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            lines[str(key.value)] = key.start_mark.line + 1
        return {**super().construct_mapping(node, deep=True), _LINES: lines}


_LINES: Final = "\n"
"""Under this key a mapping knows the lines of its keys. A file that has it as a key of its own loses only that key."""
_SELF: Final = ""
"""The line on which the mapping begins."""


def _from_yaml(text: str, where: str) -> tuple[Reference, ...]:
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a loader that makes nothing but text, lists, mappings
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise GateUsageError(f"{where}{line}: {error.problem or 'not valid YAML'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise GateUsageError(f"{where}: not valid YAML ({str(error).splitlines()[0]})") from None
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise GateUsageError(f"{where}: expected `rows:` with a list of mappings; what all rows share stands beside it")
    common = dict(document) if isinstance(document, dict) else {}
    common.pop("rows", None)
    return tuple(_yaml_row(common, row, where) for row in rows)


def _yaml_row(common: Mapping[str, Any], row: Any, where: str) -> Reference:
    if not isinstance(row, dict):
        raise GateUsageError(f"{where}: rows: expected a mapping for each, got {row!r:.60}")
    given = {key: value for key, value in {**common, **row}.items() if key != _LINES}

    def place(key: str) -> str:
        lines = row[_LINES] if key in row or key not in common else common[_LINES]
        return f"{where}:{lines[key]}: {key}" if key else f"{where}:{lines[_SELF]}"

    return _reference(given, place)


# --- one row ----------------------------------------------------------------------------------------------------------


def _reference(given: Mapping[str, Any], place: Callable[[str], str], *, problem: str | None = None) -> Reference:
    """`given`: text by key, for `flags` and `gpus` also a list of texts. `place` names where a key was written.
    `problem`: why it is no measurement; then it needs no figure.
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        if key not in _READERS:
            raise GateUsageError(f"{place(key)}: the key {key!r} is not known; {nearest(key, KEYS)}")
        if not isinstance(text, str) or text.strip():
            values[key] = _value(key, text, place)
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        raise GateUsageError(f"{place('')}: {missing[0]} is missing; {_NEEDED_WHY[missing[0]]}")
    n = values.get("n", 0)
    if {END_TO_END, _SHORT_NAME} <= set(values):
        raise GateUsageError(f"{place(_SHORT_NAME)}: {_SHORT_NAME} and {END_TO_END} are one figure; keep one")
    figures = {_FIGURES[key]: Figure(values[key], n) for key in _FIGURES if key in values}
    if not figures and problem is None:
        raise GateUsageError(f"{place('')}: no figure; expected at least one of {', '.join(_FIGURES)}")
    hardware = {key: values[key] for key in (GPUS, DRIVER, HOST) if key in values}
    return Reference(
        configuration=Configuration(
            topology=values["topology"],
            engine=values.get("engine", ""),
            engine_version=values.get("engine_version", ""),
            model=values.get("model", ""),
            kv_format=values.get("kv_format", ""),
            flags=values.get("flags", ()),
            hardware={key: list(value) if isinstance(value, tuple) else value for key, value in hardware.items()},
        ),
        definition={key: values[key] for key in _DEFINITION if key in values},
        cell=Cell(
            CellKey(values["workload"], values["concurrency"]), requests=n, rounds={}, figures=figures, problem=problem
        ),
        date=values["date"],
        origin=values["origin"],
        note=values.get("note", ""),
    )


_NEEDED_WHY: Final = {
    "origin": "say where the numbers were taken from, as a link or a name",
    "date": "say when they were measured or published, as 2026-09-14",
    "topology": "say what was measured, in the words of its author",
    "workload": "give what was asked a name, as chat or 8k",
    "concurrency": "say how many streams there were at once",
}


def _value(key: str, text: Any, place: Callable[[str], str]) -> Any:
    if isinstance(text, list) and key in _LISTS and all(isinstance(item, str) for item in text):
        return tuple(text)
    if not isinstance(text, str):
        wanted = "a text or a list of texts" if key in _LISTS else "a single value"
        raise GateUsageError(f"{place(key)}: expected {wanted}, got {text!r:.60}")
    try:
        return _READERS[key](text.strip())
    except ValueError as error:
        raise GateUsageError(f"{place(key)}: expected {error}; got {text!r:.60}") from None
