"""Ctrl-C, `kill` and a closed terminal end a measurement in order: what was measured by then is still told."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_a_signal(work: Coroutine[Any, Any, None], then: Callable[[], None]) -> bool:
    """Do `work`; the first signal calls `then` and cancels it. Whether one came.

    A second signal does what it did before: it ends the process at once. Signals are heard in the main thread alone.
    """
    heard = False
    task = asyncio.ensure_future(work)

    def hear() -> None:
        nonlocal heard
        heard = True
        then()
        task.cancel()

    with _first_signal(hear):
        try:
            await task
        except asyncio.CancelledError:
            if not heard:
                raise
    return heard


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` also when this task is cancelled meanwhile: that takes effect after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


@contextlib.contextmanager
def _first_signal(hear: Callable[[], None]) -> Iterator[None]:
    """What is ignored stays ignored: `nohup` means that a closed terminal ends nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in found.items() if handler not in (None, signal.SIG_IGN)}

    def leave() -> None:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def once() -> None:
        leave()
        hear()

    for number in before:
        loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        leave()
