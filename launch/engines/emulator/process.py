"""The life of an emulated engine: bind, load, listen, serve, stop."""

import asyncio
import errno
import gc
import os
import signal
import socket
from pathlib import Path

import uvloop

from .connection import Connection
from .engine import Engine, Exit
from .faults import FaultPlan
from .log import log, log_crash
from .pacer import Pacer
from .routes import VERSIONS, Routes
from .settings import Settings
from .truth import Truth
from .workers import spawn_workers, stop_workers

_BACKLOG = 2048


def run(settings: Settings) -> int:
    """Serve until SIGTERM; returns the exit code."""
    log(f"{settings.dialect.value} {VERSIONS[settings.dialect]} (emulated), model {settings.models[0]}, "
        f"tensor_parallel_size={settings.tensor_parallel}")  # fmt: skip
    try:
        listener = _bind(settings.host, settings.port)
    except OSError as error:
        _log_no_port(error, settings)
        return 1
    if settings.port_file is not None:
        _write_port(settings.port_file, listener.getsockname()[1])
    workers = spawn_workers(settings.workers, settings.dialect, listener)
    try:
        if settings.realtime and not _go_realtime():
            return 1
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_Life(settings, listener).live())
    finally:
        stop_workers(workers)


class _Life:
    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._plan = FaultPlan(settings.faults, settings.seed)
        self._connections: set[Connection] = set()
        self._stop = asyncio.Event()

    async def live(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        truth = Truth(self._settings.truth_file) if self._settings.truth_file else None
        pacer = Pacer(loop)
        engine = Engine(self._settings, pacer, truth, Exit(self._crash_code()))
        try:
            return await self._serve(loop, pacer, engine)
        finally:
            engine.cut_all()
            for connection in [*self._connections]:
                connection.cut()
            pacer.close()
            if truth is not None:
                truth.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop, pacer: Pacer, engine: Engine) -> int:
        routes = Routes(engine)

        async def listen() -> asyncio.Server:
            return await loop.create_server(
                lambda: Connection(routes.serve, pacer, self._connections), sock=self._listener, backlog=_BACKLOG
            )

        server = await listen() if self._settings.listen_early else None
        if not await self._load():
            return self._code_if_not_stopped()
        if server is None and self._plan.standing("never-listens") is None:
            try:
                server = await listen()
            except OSError as error:
                _log_no_port(error, self._settings)
                return 1
        if server is not None:
            self._come_up(engine)
        await self._stop.wait()
        if server is not None:
            server.close()
        for connection in [*self._connections]:
            connection.retire()
        await self._drain(engine)
        return 0

    def _come_up(self, engine: Engine) -> None:
        engine.become_ready()
        # What start-up left behind never has to be looked at again; what requests leave is young and small.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        host, port = self._listener.getsockname()[:2]
        log("Application startup complete.")
        log(f"listening on http://{host}:{port}")

    async def _load(self) -> bool:
        """Take the time a start takes. False if it ended early: by a crash or a signal."""
        half_s = self._settings.start_s / 2
        log("Loading safetensors checkpoint shards:   0% Completed")
        if await self._stopped_within(half_s):
            return False
        log("Loading safetensors checkpoint shards:  50% Completed")
        if self._plan.standing("dies-loading") is not None:
            log_crash("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
            return False
        if await self._stopped_within(half_s):
            return False
        log("Loading safetensors checkpoint shards: 100% Completed")
        self._log_pool()
        return True

    def _log_pool(self) -> None:
        settings = self._settings
        concurrency = settings.kv_tokens / settings.max_model_len
        if settings.dialect.is_vllm:
            log(f"GPU KV cache size: {settings.kv_tokens:,} tokens, Maximum concurrency for "
                f"{settings.max_model_len:,} tokens per request: {concurrency:.2f}x")  # fmt: skip
        else:
            log(f"max_total_num_tokens={settings.kv_tokens}, max_running_requests={settings.slots}, "
                f"context_len={settings.max_model_len}")  # fmt: skip

    async def _stopped_within(self, time_s: float) -> bool:
        try:
            async with asyncio.timeout(time_s):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _drain(self, engine: Engine) -> None:
        """Let running requests end for as long as we were told; what is left is cut by the caller."""
        deadline = asyncio.get_running_loop().time() + self._settings.shutdown_timeout_s
        while engine.running_count + engine.waiting_count and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - the engine's hot path raises no events
            await asyncio.sleep(0.01)
        log("Shutting down.")

    def _signalled(self, number: signal.Signals) -> None:
        if number is signal.SIGTERM and self._plan.standing("ignores-term") is not None:
            log("SIGTERM ignored", "WARNING")
            return
        if self._stop.is_set():
            os._exit(128 + number)  # asked twice: at once
        log(f"{number.name} received")
        self._stop.set()

    def _crash_code(self) -> int:
        return 0 if self._plan.standing("exits-zero-on-crash") else 1

    def _code_if_not_stopped(self) -> int:
        return 0 if self._stop.is_set() else self._crash_code()


def _go_realtime() -> bool:
    """Run before every ordinary process, so that their load does not make tokens late. False: not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        log("--realtime needs root or CAP_SYS_NICE; start without it, or with the capability", "ERROR")
        return False
    return True


def _bind(host: str, port: int) -> socket.socket:
    """Bound at once, as vLLM does, so that a taken port is known before the model loads; listening comes later."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _log_no_port(error: OSError, settings: Settings) -> None:
    reason = f"[Errno {error.errno}] {os.strerror(error.errno or errno.EINVAL)}"
    log(f"{reason}: cannot listen on {settings.host}:{settings.port}; choose another --port", "ERROR")


def _write_port(path: Path, port: int) -> None:
    """Appears whole or not at all: whoever waits for the file may read it at once."""
    part = path.with_name(path.name + ".part")
    part.write_text(f"{port}\n")
    part.replace(path)
