"""Which JSON schemas this engine takes. What its grammar could not honour is refused with a sentence, not tried."""

import re
from collections.abc import Iterator
from typing import Any

from .errors import BadRequest

_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_DEEPEST = 32
_NAMED_MEMBERS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_LISTED_MEMBERS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE_MEMBERS = frozenset({"items", "additionalProperties", "not"})
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# Repetition of something that ends with a repetition: (a+)+. Matching it may take for ever.
_BOMB = re.compile(r"[+*}]\)[+*{]|[+*}]\s*\|[^)]*\)[+*{]")


def check_schema(schema: Any, where: str) -> None:
    """Raises `BadRequest` with the place of what is wrong."""
    if not isinstance(schema, dict):
        raise BadRequest(f"{where} must be a JSON schema object", where)
    _check(schema, schema, where, 0)


def _check(schema: Any, root: dict[str, Any], where: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise BadRequest(f"{where} must be a JSON schema: an object, true or false", where)
    if depth > _DEEPEST:
        raise BadRequest(f"{where} is nested more than {_DEEPEST} levels deep", where)
    _check_values(schema, where)
    if "$ref" in schema:
        follow(schema, root, where)
    for name, member in _members(schema, where):
        _check(member, root, f"{where}.{name}", depth + 1)


def _members(schema: dict[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Every schema inside this one, with its name."""
    for key, value in schema.items():
        if key in _NAMED_MEMBERS:
            if not isinstance(value, dict):
                raise BadRequest(f"{where}.{key} must be an object", where)
            yield from value.items()
        elif key in _LISTED_MEMBERS:
            if not isinstance(value, list) or not value:
                raise BadRequest(f"{where}.{key} must be a non-empty list", where)
            yield from ((f"{key}[{number}]", member) for number, member in enumerate(value))
        elif key in _SINGLE_MEMBERS:
            yield key, value


def _check_values(schema: dict[str, Any], where: str) -> None:
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise BadRequest(f"{where}: there is no type {kind!r} in JSON schema", where)
    if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
        raise BadRequest(f"{where}.enum must be a non-empty list", where)
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise BadRequest(f"{where}.required must be a list of names", where)
    for key in _COUNTS:
        if key in schema and (isinstance(schema[key], bool) or not isinstance(schema[key], int) or schema[key] < 0):
            raise BadRequest(f"{where}.{key} must be a whole number of at least 0", where)
    for key in _BOUNDS:
        if key in schema and (isinstance(schema[key], bool) or not isinstance(schema[key], int | float)):
            raise BadRequest(f"{where}.{key} must be a number", where)
    if "pattern" in schema:
        _check_pattern(schema["pattern"], where)


def _check_pattern(pattern: Any, where: str) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError):
        raise BadRequest(f"{where}.pattern is no regular expression: {str(pattern)[:80]!r}", where) from None
    if _BOMB.search(compiled.pattern):
        raise BadRequest(f"{where}.pattern repeats a repetition, which the grammar cannot hold", where)


def follow(schema: Any, root: dict[str, Any], where: str = "schema") -> Any:
    """The schema at the end of a chain of references; raises `BadRequest` for one that leads nowhere."""
    seen: set[str] = set()
    while isinstance(schema, dict) and "$ref" in schema:
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadRequest(f"{where}: $ref {str(reference)[:80]!r} must point into the schema itself", where)
        if reference in seen:
            raise BadRequest(f"{where}: $ref {reference!r} leads back to itself", where)
        seen.add(reference)
        schema = root
        for step in filter(None, reference.removeprefix("#").split("/")):
            step = step.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901 - the same step, unescaped
            if not isinstance(schema, dict) or step not in schema:
                raise BadRequest(f"{where}: $ref {reference!r} points to nothing", where)
            schema = schema[step]
    return schema
