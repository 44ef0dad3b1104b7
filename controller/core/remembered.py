"""Pure questions that a pass asks several times of one state. A state never changes, so no answer ever gets old."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, TypeVarTuple

from .records import State

_Of = TypeVarTuple("_Of")
_Said = TypeVar("_Said")
_NEVER: Any = object()


def remembered(ask: Callable[[State, *_Of], _Said]) -> Callable[[State, *_Of], _Said]:
    """The answer is kept beside the state, which takes it along when it goes. What else is asked of is hashable."""

    @wraps(ask)
    def asked(state: State, *of: *_Of) -> _Said:
        kept, key = state.kept, (ask, *of)
        said: _Said = kept.get(key, _NEVER)
        if said is _NEVER:
            said = kept[key] = ask(state, *of)
        return said

    return asked
