"""Several conversations side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker

Result = TypeVar("Result")


async def together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All at once, results in order; when one ends the run, none is left behind."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def in_turn(asker: Asker, coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All of them, as many at once as the run allows; results in order."""

    async def one(coroutine: Coroutine[Any, Any, Result]) -> Result:
        async with asker.slot():
            return await coroutine

    return await together(one(coroutine) for coroutine in coroutines)
