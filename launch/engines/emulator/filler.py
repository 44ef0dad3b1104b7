"""Fills a schema with what a message offers: literals behind the properties' names, then what stands to reason."""

import json
import re
from datetime import date
from typing import Any

from .errors import BadRequest
from .harvest import Harvest, name_words
from .patterns import matches, sample
from .reading import MISSING, literal, read
from .schema import follow
from .vocabulary import word_list

NAME_LIKE = frozenset(word_list("city location place town country name person customer owner user who region"))
TEXT_LIKE = frozenset(word_list("text content message body document verbatim"))
_PHRASE_LIKE = frozenset(word_list("query note prompt question cmd command expression q title subject"))
ID_LIKE = frozenset(word_list("id code sku key token ref reference number zip serial record order ticket uuid"))
_DEEPEST = 40
_LONGEST_GUESS = 60
_FORMATS = {
    "date": "2026-01-15", "date-time": "2026-01-15T09:00:00Z", "time": "09:00:00Z", "email": "someone@example.org",
    "uri": "https://example.org/", "uuid": "3f2b8c1e-5d4a-4e6b-9f7a-0c1d2e3f4a5b", "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7", "hostname": "example.org",
}  # fmt: skip


def fill(schema: Any, text: str, *, own_words: frozenset[str] = frozenset(), blocks: tuple[str, ...] = ()) -> Any:
    """A value that is valid against the schema. `own_words`: those that name nothing here, as the tool's own."""
    return Filler(schema, Harvest(text, own_words), list(blocks)).value(schema, "")


class Filler:
    """Walks a schema and takes values out of one message."""

    def __init__(self, root: Any, harvest: Harvest, blocks: list[str]) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._harvest = harvest
        self._blocks = blocks

    def value(self, schema: Any, name: str, depth: int = 0) -> Any:
        """The value of one property."""
        schema = self._resolved(schema, name)
        if "const" in schema:
            return schema["const"]
        given = literal(self._harvest.text, name) if name else MISSING
        if given is not MISSING:
            fitting = _fitting(given, schema)
            if fitting is not MISSING:
                self._used(given)
                return fitting
        if schema.get("enum"):
            return self._enum(schema["enum"])
        match _kind(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number" as kind:
                return self._number(schema, name, whole=kind == "integer")
            case "boolean":
                return self._boolean(name)
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _used(self, given: Any) -> None:
        """What a name has claimed is nobody else's."""
        if isinstance(given, str) and given in self._harvest.quoted:
            self._harvest.quoted.remove(given)
        elif isinstance(given, int | float) and (text := json.dumps(given)) in self._harvest.numbers:
            self._harvest.numbers.remove(text)

    def _resolved(self, schema: Any, name: str) -> dict[str, Any]:
        """Follow references, merge allOf, and of several branches take the one that fits what the message says."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict):
                return {}
            if "$ref" in schema:
                try:
                    schema = follow(schema, self._root)
                except BadRequest:
                    return {}
            elif branches := schema.get("anyOf") or schema.get("oneOf"):
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                branch = self._branch(branches, name)
                schema = {**rest, **branch} if isinstance(branch, dict) else rest
            elif schema.get("allOf"):
                schema = self._merged(schema, name)
            else:
                return schema
        return {}

    def _branch(self, branches: list[Any], name: str) -> Any:
        given = literal(self._harvest.text, name) if name else MISSING
        if given is not MISSING:
            for branch in branches:
                if isinstance(branch, dict) and _fitting(given, self._resolved(branch, ""), strict=True) is not MISSING:
                    return branch
        return next((b for b in branches if isinstance(b, dict) and b.get("type") != "null"), branches[0])

    def _merged(self, schema: dict[str, Any], name: str) -> dict[str, Any]:
        merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema["allOf"]:
            resolved = self._resolved(part, name)
            properties = {**merged.get("properties", {}), **resolved.get("properties", {})}
            required = [*merged.get("required", []), *resolved.get("required", [])]
            merged = {**resolved, **merged}
            if properties:
                merged |= {"properties": properties, "required": required}
        return merged

    def _enum(self, options: list[Any]) -> Any:
        return next((o for o in options if self._harvest.mentions(str(o))), options[0])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = set(schema.get("required") or [])
        wanted = [k for k in properties if k in required or (depth < 8 and self._is_mentioned(k, properties[k]))]
        # Values that stand behind their property's name are taken first, before others help themselves.
        first = sorted(wanted, key=lambda k: literal(self._harvest.text, k) is MISSING)
        filled = {k: self.value(properties[k], k, depth + 1) for k in first if depth < _DEEPEST}
        return {k: filled[k] for k in wanted if k in filled} | {k: "" for k in required if k not in properties}

    def _is_mentioned(self, name: str, schema: Any) -> bool:
        """An optional property is given when the text speaks of it."""
        if literal(self._harvest.text, name) is not MISSING:
            return True
        options = self._resolved(schema, name).get("enum") or []
        if any(self._harvest.mentions(str(o)) for o in options if len(str(o)) > 1):
            return True
        return self._harvest.mentions(" ".join(name_words(name))) or self._harvest.mentions(name)

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        items = self._resolved(schema.get("items") or {"type": "string"}, "")
        least = int(schema.get("minItems", 0 if depth > 8 else 1))
        count = max(least, 0 if depth > 8 else 1)
        if items.get("type") in ("integer", "number"):
            count = max(count, len(self._harvest.numbers))
        elif items.get("enum"):
            mentioned = [o for o in items["enum"] if self._harvest.mentions(str(o))]
            if len(mentioned) >= count:
                return mentioned[: schema.get("maxItems")]
        elif _kind(items) == "string":
            count = max(count, len(self._harvest.quoted) or len(self._harvest.names))
        count = min(count, int(schema.get("maxItems", 64)))
        singular = re.sub(r"s$", "", name)
        values = [self.value(items, singular, depth + 1) for _ in range(count)]
        return _all_different(values, items) if schema.get("uniqueItems") else values

    def _number(self, schema: dict[str, Any], name: str, *, whole: bool) -> float | int:
        beside = self._harvest.beside(name) if name else None
        value: float | int | None = None
        if beside is not None:
            try:
                value = int(beside) if whole or re.fullmatch(r"[-+]?\d+", beside) else float(beside)
            except ValueError:
                value = None
        if value is None:
            value = self._harvest.take_number(whole=whole)
        if value is None:
            value = schema.get("default", schema.get("minimum", 1))
        return _within(value, schema, whole=whole)

    def _boolean(self, name: str) -> bool:
        words = r"[ _-]?".join(name_words(name)) or "it"
        denied = rf"\b(?:no|not|don't|do not|without|never|disable)\b[^.]{{0,20}}\b{words}"
        switched_off = rf"\b{words}\b\W+(?:is |= ?|: ?)?(?:false|off|no)\b"
        no = f"{denied}|{switched_off}"
        return re.search(no, self._harvest.text, re.IGNORECASE) is None

    def _string(self, schema: dict[str, Any], name: str) -> str:
        words = set(name_words(name))
        if self._blocks and (words & TEXT_LIKE or not words & (NAME_LIKE | ID_LIKE | {"path", "file"})):
            return self._blocks.pop(0)
        found = self._candidate(schema, words, name)
        if found is None:
            found = str(schema.get("default") or _guess(self._harvest.text) or name or "text")
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not matches(pattern, found):
            harvest = self._harvest
            pool = [*harvest.identifiers, *harvest.quoted, *harvest.names, *harvest.text.split()[:200]]
            found = next((c for c in pool if matches(pattern, c)), None) or sample(pattern)
        form = schema.get("format")
        if form in _FORMATS and not _has_format(found, form):
            found = _FORMATS[form]
        longest = schema.get("maxLength")
        found = found[:longest] if isinstance(longest, int) else found
        return found.ljust(int(schema.get("minLength", 0)), "x")

    def _candidate(self, schema: dict[str, Any], words: set[str], name: str) -> str | None:
        harvest = self._harvest
        if beside := harvest.beside(name) if name else None:
            return beside
        form = schema.get("format")
        if form == "email" or "email" in words:
            return harvest.email() or _FORMATS["email"]
        if form in ("date", "date-time") or words & {"date", "day", "start", "end", "when"}:
            return harvest.date() or _FORMATS["date-time" if form == "date-time" else "date"]
        if form in ("uri", "url") or words & {"url", "uri", "link"}:
            return harvest.uri() or _FORMATS["uri"]
        if words & {"path", "file", "filename", "cwd", "directory"} and (path := harvest.path()):
            if path in harvest.quoted:
                harvest.quoted.remove(path)
            return path
        if words & ID_LIKE:
            return harvest.take_quoted(code=True) or harvest.take_identifier() or harvest.take_name()
        if words & NAME_LIKE:
            return harvest.take_quoted(code=False) or harvest.take_name() or harvest.take_identifier()
        if words & (TEXT_LIKE | _PHRASE_LIKE):
            return harvest.take_quoted()
        return harvest.take_quoted() or harvest.take_name() or harvest.take_identifier()


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _fitting(given: Any, schema: dict[str, Any], *, strict: bool = False) -> Any:
    """A literal as the schema wants it, or `MISSING` when it wants something else."""
    if schema.get("enum"):
        return given if given in schema["enum"] else MISSING
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds] if kinds else []
    if not kinds:
        return given
    named = {
        bool: ("boolean",), type(None): ("null",), str: ("string",), int: ("integer", "number"), float: ("number",),
        dict: ("object",), list: ("array",),
    }[type(given)]  # fmt: skip
    if any(kind in kinds for kind in named):
        return given
    if "integer" in kinds and isinstance(given, float) and given.is_integer():
        return int(given)
    if "string" in kinds and isinstance(given, int | float) and not isinstance(given, bool) and not strict:
        return json.dumps(given)
    return MISSING


def _within(value: float, schema: dict[str, Any], *, whole: bool) -> float | int:
    step = 1 if whole else 0.5
    low, high = schema.get("minimum"), schema.get("maximum")
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = above + step if low is None else max(low, above + step)
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = below - step if high is None else min(high, below - step)
    value = value if low is None else max(value, low)
    value = value if high is None else min(value, high)
    if multiple := schema.get("multipleOf"):
        value = round(value / multiple) * multiple
        value = value + multiple if low is not None and value < low else value
    return int(value) if whole else value


def _all_different(values: list[Any], items: dict[str, Any]) -> list[Any]:
    different: list[Any] = []
    for value in values:
        while value in different:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                break
            value = f"{value}x" if isinstance(value, str) else value + 1  # noqa: PLW2901 - until it is new
        if value not in different:
            different.append(value)
    options = [o for o in items.get("enum") or [] if o not in different]
    return [*different, *options[: len(values) - len(different)]] if items.get("enum") else different


def _guess(text: str) -> str:
    """The first words of a text, for a string of which it says nothing."""
    words = " ".join(re.sub(r"<[^<>\n]{1,60}>|[{}<>\[\]\"`]", " ", text[:400]).split())
    return words[:_LONGEST_GUESS].strip(" .,;:")


def _has_format(text: str, form: str) -> bool:
    match form:
        case "date":
            try:
                date.fromisoformat(text)
            except ValueError:
                return False
            return True
        case "date-time":
            return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", text) is not None
        case "uri":
            return text.startswith(("http://", "https://"))
        case "email":
            return "@" in text
        case _:
            return matches(r"^[0-9a-fA-F:.-]+Z?$", text)


def object_of(schema: dict[str, Any], text: str) -> Any:
    """A structured answer to a message: a value for the schema, made of what the message offers."""
    question = read(text)
    return fill(schema, question.plain, blocks=question.blocks)
