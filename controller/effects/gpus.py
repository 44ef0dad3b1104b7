"""The GPU inventory: NVML where it is, else what the configuration declares. Reads; never signals anybody."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import psutil

from gates.contract import sendable

from ..config import Gpus as GpuSettings
from ..core.seen import Gpu
from ..errors import CutoverError
from .clock import Clock

_POLL_S = 2.0
_STALE_S = 15.0  # a reading older than that says nothing: the cards are not trusted


class GpuError(CutoverError):
    """The inventory cannot be read."""


class DeclaredInventory:
    """`gpus: {kind: none, count: 4}`: a box without cards runs the emulator and CPU engines as if it had them."""

    def __init__(self, count: int) -> None:
        self._gpus = tuple(Gpu(f"gpu-{n}", n) for n in range(count))

    def read(self, ours: Collection[int]) -> tuple[Gpu, ...]:  # noqa: ARG002 - nobody is on a card that is not there
        return self._gpus

    def facts(self) -> dict[str, Any]:
        return {"inventory": "declared", "gpus": [gpu.id for gpu in self._gpus]}

    def hardware(self, gpus: Collection[str]) -> dict[str, Any]:  # noqa: ARG002 - cards that are not there are of no kind
        return {}

    def close(self) -> None:
        """Nothing to let go."""


class NvmlInventory:
    """Read in a thread of its own: an NVML call that hangs must not stop the loop, and never counts as free."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._driver = str(pynvml.nvmlSystemGetDriverVersion())
            self._names = dict(self._read_names())
            self._reading = tuple(self._read())
        except pynvml.NVMLError as error:
            raise GpuError(
                f"NVML cannot read the GPUs ({error}); install the driver, or declare `gpus: {{kind: none, count: N}}`"
            ) from error
        self._read_at_s = Clock.boot_s()
        self._stop = threading.Event()
        threading.Thread(target=self._poll, name="nvml", daemon=True).start()

    def _read(self) -> Iterator[Gpu]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            users = []
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                used = (process.usedGpuMemory or 0) >> 20
                users.append(f"{process.pid}:{used}")
            yield Gpu(
                id=str(nvml.nvmlDeviceGetUUID(handle)),
                index=index,
                memory_total_mib=memory.total >> 20,
                memory_used_mib=memory.used >> 20,
                foreign=tuple(users),
            )

    def _read_names(self) -> Iterator[tuple[str, str]]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            yield str(self._nvml.nvmlDeviceGetUUID(handle)), str(self._nvml.nvmlDeviceGetName(handle))

    def _poll(self) -> None:
        while not self._stop.wait(_POLL_S):
            with contextlib.suppress(self._nvml.NVMLError):
                self._reading = tuple(self._read())
                self._read_at_s = Clock.boot_s()

    def read(self, ours: Collection[int]) -> tuple[Gpu, ...]:
        fresh = Clock.boot_s() - self._read_at_s < _STALE_S
        return tuple(replace(gpu, foreign=tuple(_strangers(gpu, ours)), trusted=fresh) for gpu in self._reading)

    def facts(self) -> dict[str, Any]:
        return {"inventory": "nvml", "driver": self._driver, "gpus": [gpu.id for gpu in self._reading]}

    def hardware(self, gpus: Collection[str]) -> dict[str, Any]:
        """What a measurement on these cards was made on, as the ledger keeps it: their names in order, the driver."""
        names = [self._names[gpu.id] for gpu in self._reading if gpu.id in gpus and gpu.id in self._names]
        return {"driver": self._driver, **({"gpus": names} if names else {})}

    def close(self) -> None:
        self._stop.set()


def _strangers(gpu: Gpu, ours: Collection[int]) -> Iterator[str]:
    """Sentences for processes on a card that are not ours: pid, command, user, memory."""
    for entry in gpu.foreign:
        pid, _, used_mib = entry.partition(":")
        if int(pid) in ours:
            continue
        try:
            process = psutil.Process(int(pid))
            who = f"pid {pid} ({process.name()}, {process.username()})"
        except psutil.Error:
            who = f"pid {pid} (not visible from here)"
        yield f"{sendable(who)} holds {used_mib} MiB"


Inventory = DeclaredInventory | NvmlInventory


def open_inventory(settings: GpuSettings) -> Inventory:
    """`auto` asks NVML and falls back to the declared count; `nvml` insists."""
    if settings.kind == "none":
        return DeclaredInventory(settings.count)
    try:
        return NvmlInventory()
    except GpuError:
        if settings.kind == "nvml":
            raise
        return DeclaredInventory(settings.count)
