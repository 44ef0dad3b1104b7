"""JSON schemas that people write: refused when they are none, and never followed out of their own document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

_NOWHERE: Final[Registry[Any]] = Registry()
"""Resolves nothing from outside: a schema in a file must not make the gate call somebody's server."""
_PATTERNS: Final = jsonschema.FormatChecker(["regex"])
"""A pattern that does not compile would raise in the middle of a judgement."""


def schema_problem(schema: Any) -> str | None:
    """Why `schema` cannot be used as a JSON schema; None when it can."""
    if not isinstance(schema, dict):
        return f"expected a JSON schema, an object; got {schema!r:.60}"
    try:
        return _problem(json.dumps(schema))
    except RecursionError:
        return "is a JSON schema that leads back to itself without end"


# The requests of a set share their tools, and looking at a schema takes milliseconds.
@lru_cache(maxsize=256)
def _problem(text: str) -> str | None:
    schema = json.loads(text)
    try:
        kind = validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema, format_checker=_PATTERNS)  # type: ignore[call-arg]  # only the protocol lacks it
        problem = next((words for ref in _references(schema) if (words := _reference_problem(schema, ref))), None)
        if problem is None:
            _validator(schema).is_valid({})
    except jsonschema.SchemaError as error:
        return f"is no JSON schema: {_where(error)}{error.message:.160}"
    return problem


def mismatch(value: Any, schema: Mapping[str, Any]) -> str | None:
    """How `value` breaks `schema`, which has no `schema_problem`; None when it does not."""
    try:
        error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    except RecursionError:
        return "it nests too deep to be judged"
    return f"{_where(error)}{error.message:.200}" if error else None


def _validator(schema: Mapping[str, Any]) -> Validator:
    kind = validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, registry=_NOWHERE)


def _where(error: jsonschema.ValidationError | jsonschema.SchemaError) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: " if path else ""


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _reference_problem(schema: Mapping[str, Any], reference: str) -> str | None:
    if not reference.startswith("#"):
        return f"$ref {reference!r} leads out of the file; copy what it means under $defs"
    specification = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    root = specification.create_resource(schema)
    try:
        _NOWHERE.resolver_with_root(root).lookup(reference)
    except Unresolvable:
        return f"$ref {reference!r} leads nowhere in this schema"
    return None
