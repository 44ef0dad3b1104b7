"""What is wrong in `cutover.yaml`, a sentence for every mistake: file, line, key, and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from launch.strict_yaml import Document, KeyPath, dotted

from .settings import Config

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_TOLD = 20
_KEY_ITSELF = "[key]"  # pydantic's last part of the place of a key that may not be called so


def told(error: ValidationError, document: Document) -> str:
    """One sentence a line, in the order of the file; a single mistake is its sentence alone."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: _line(_path(problem), document))
    sentences = list(dict.fromkeys(_sentence(problem, document) for problem in problems))
    if len(sentences) == 1:
        return sentences[0]
    more = [f"and {len(sentences) - MOST_TOLD} more"] if len(sentences) > MOST_TOLD else []
    return "\n".join([f"{document.source}: {len(sentences)} mistakes", *sentences[:MOST_TOLD], *more])


def _path(problem: ErrorDetails) -> KeyPath:
    return tuple(part for part in problem["loc"] if part != _KEY_ITSELF)


def _line(path: KeyPath, document: Document) -> int:
    written = (path[:length] for length in range(len(path), -1, -1))
    return next((document.lines[place] for place in written if place in document.lines), 0)


def _sentence(problem: ErrorDetails, document: Document) -> str:
    path = _path(problem)
    where = document.where(path)
    if problem["type"] == "extra_forbidden":
        known = _known(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, 1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; known here: {', '.join(known)}"
        return f"{where}: unknown key `{dotted(path)}`{hint}"
    said = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        said = "this key is needed here"
    secret = path[:1] == ("notify",)  # what was written there by mistake must not come out in a log
    got = "" if secret or isinstance(problem["input"], Mapping) else f" (got {problem['input']!r})"
    return f"{where}: `{dotted(path)}`: {said}{got}" if path else f"{where}: {said}"


def _known(path: KeyPath) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        if (field := model.model_fields.get(str(part))) is None:
            continue  # the place in a list, or a name that somebody chose
        annotation = field.annotation
        chosen = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type)), None)
        if chosen is None or not issubclass(chosen, BaseModel):
            return []
        model = chosen
    return list(model.model_fields)
