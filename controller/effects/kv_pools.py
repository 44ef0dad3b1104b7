"""What engines say of their KV pools: read once after each start, in a thread, so that the loop never waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import structlog

from launch.engine_key import read_key
from launch.engines.base import Engine, PoolMetric, engine
from launch.kv_pool import tokens_in_log, tokens_on_page

from ..core.records import Attempt, State
from ..core.seen import PoolSeen
from ..core.verify import is_due
from .engine_pages import metrics_page

log = structlog.get_logger("kv-pools")

_PAGE_TIMEOUT_S = 2.0


class KvPools:
    """`run_dir` gives the run directory of an attempt."""

    def __init__(self, run_dir: Callable[[str], Path]) -> None:
        self._run_dir = run_dir
        self._readings: dict[str, Future[PoolSeen]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="kv-pool")

    def look(self, state: State) -> Mapping[str, PoolSeen]:
        """What is known by now of every engine that is to be looked at; what is not known yet is begun to be read."""
        due = {attempt.id: attempt for attempt in state.attempts.values() if is_due(attempt)}
        self._readings = {name: reading for name, reading in self._readings.items() if name in due}
        for name, attempt in due.items():
            if name not in self._readings:
                kind = state.releases[attempt.release].engine
                self._readings[name] = self._pool.submit(self._read, attempt, kind)
        return {name: reading.result() for name, reading in self._readings.items() if reading.done()}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, attempt: Attempt, kind: str) -> PoolSeen:
        try:
            return read_pool(engine(kind), self._run_dir(attempt.id), attempt.port)
        except Exception as error:
            # A log that cannot be read is no reason to reject a candidate, and none to stop the loop.
            log.exception("the KV pool cannot be read", attempt=attempt.id)
            return PoolSeen(None, f"it cannot be read: {error}")


def read_pool(kind: Engine, run_dir: Path, port: int) -> PoolSeen:
    """From the log, else from the metrics of the engine that listens on this port of the loopback address."""
    if kind.kv_pool_log is not None and (tokens := tokens_in_log(run_dir, kind.kv_pool_log)) is not None:
        return PoolSeen(tokens, "its log")
    if (tokens := _from_page(port, read_key(run_dir), kind.kv_pool_metrics)) is not None:
        return PoolSeen(tokens, "its metrics")
    return PoolSeen(None, "neither its log nor its metrics say so")


def _from_page(port: int, key: str | None, metrics: tuple[PoolMetric, ...]) -> int | None:
    page = metrics_page(port, key, _PAGE_TIMEOUT_S) if metrics else None
    return None if page is None else tokens_on_page(page, metrics)
