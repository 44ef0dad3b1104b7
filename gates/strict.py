"""Reading what people write by hand: an unknown key or a wrong type is one sentence with the place and the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gates.errors import GateUsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        hint = nearest(key, _fields_at(model, problem["loc"][:-1]))
        raise GateUsageError(f"{where}: unknown key {path!r}; {hint}")
    if problem["type"] == "missing":
        raise GateUsageError(f"{where}: the key {path!r} is missing.")
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    raise GateUsageError(f"{where}: {path}: {message} (got {problem['input']!r:.80}).")


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
