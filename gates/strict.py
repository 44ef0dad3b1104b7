"""Reading what people write by hand: an unknown key or a wrong type is one sentence with the place and the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gates.errors import GateUsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

_PLACES_MAX: Final = 4
"""So many further problems are named by their place."""


class StrictModel(BaseModel):
    """Unknown keys are refused: a misspelt threshold would otherwise be a threshold that nobody set."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Model = TypeVar("Model", bound=StrictModel)


def read_model(model: type[Model], mapping: Mapping[str, Any], where: str) -> Model:
    """`mapping` as `model`. Raises `GateUsageError` that names `where`, the key and what was expected."""
    try:
        return model.model_validate(dict(mapping))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
    # A misspelt key first: the one that is then missing is only its shadow.
    problems.sort(key=lambda one: one["type"] != "extra_forbidden")
    unknown_in = {one["loc"][:-1] for one in problems if one["type"] == "extra_forbidden"}
    problems = [one for one in problems if not (one["type"] == "missing" and one["loc"][:-1] in unknown_in)]
    places = list(dict.fromkeys(_place(one, mapping) for one in problems))
    raise GateUsageError(f"{where}: {_with_others(_sentence(model, problems[0], places[0]), places[1:])}")


def _sentence(model: type[BaseModel], problem: ErrorDetails, path: str) -> str:
    """One problem, with its place and what was expected."""
    if problem["type"] == "extra_forbidden":
        return f"unknown key {path!r}; {nearest(str(problem['loc'][-1]), _fields_at(model, problem['loc'][:-1]))}"
    if problem["type"] == "missing":
        return f"the key {path!r} is missing."
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{path}: {message} (got {problem['input']!r:.80})."


def _with_others(said: str, others: Sequence[str]) -> str:
    """`said`, and the places where something else is wrong."""
    if not others:
        return said
    count = "1 more problem" if len(others) == 1 else f"{len(others)} more problems"
    listed = ", ".join(repr(place) for place in others[:_PLACES_MAX]) + (", …" if len(others) > _PLACES_MAX else "")
    joined = f"{said} And" if said.endswith("?") else f"{said.removesuffix('.')}; and"
    return f"{joined} {count}: {listed}."


def _place(problem: ErrorDetails, mapping: Mapping[str, Any]) -> str:
    """Pydantic's location without the parts that it invents, as for each type that a value may have."""
    path = problem["loc"]
    value: Any = mapping
    for position, part in enumerate(path):
        try:
            value = value[part]
        except (LookupError, TypeError):
            path = path[: position + (problem["type"] == "missing")]
            break
    return ".".join(str(part) for part in path)


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    # Follows the path through nested models; positions in lists and keys of mappings lead to the model they hold.
    current: type[BaseModel] = model
    for part in path:
        field = current.model_fields.get(str(part)) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field else None
        current = inner or current
    return list(current.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next((found for argument in arguments if (found := _model_in(argument))), None)
