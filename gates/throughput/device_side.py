"""The machine beside a run: GPUs through NVML (memory, power, utilisation, clocks), host memory, strangers on cards.

Everything is absent where there is no NVML or where the endpoint is on another machine, and that is said.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import socket
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import psutil

from gates.throughput.records import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gates.wire import Target

_PERIOD_S: Final = 0.5
_MIB: Final = 1024 * 1024
_FOREIGN_SM_PERCENT: Final = 5
"""Below this a process on a card is there without working: a desktop, an engine asleep."""
_SM_CLOCK: Final = 1
"""NVML_CLOCK_SM."""


class Nvml(Protocol):
    """What is used of the module `pynvml`. Whatever goes wrong raises something of its own: nothing here may fail."""

    def nvmlInit(self) -> None: ...  # noqa: N802 - NVML's own names
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: N802
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...  # noqa: N802
    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Sequence[Any]: ...  # noqa: N802
    def nvmlDeviceGetProcessUtilization(self, handle: Any, since_us: int) -> Sequence[Any]: ...  # noqa: N802


@dataclass(frozen=True)
class Card:
    """One GPU. `index` as NVML counts, which is not always as CUDA does."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    handle: Any = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Look:
    """One sample of all cards together, and of the host; None for what NVML does not tell."""

    at_s: float
    host_used_bytes: float
    memory_bytes: float | None
    power_w: float | None
    utilisation: float | None
    sm_clock_mhz: float | None


class Devices:
    """Samples in a thread of its own between `watching`'s begin and end; figures for any span in between."""

    def __init__(
        self,
        nvml: Nvml | None,
        cards: Sequence[Card] = (),
        engine_pids: frozenset[int] = frozenset(),
        *,
        absent: str | None = None,
        local: bool = True,
    ) -> None:
        self.cards = tuple(cards)
        self.absent = absent
        """Why there are no figures of GPUs; None when there are."""
        self._local = local
        self._nvml = nvml
        self._engine_pids = engine_pids
        self._looks: list[_Look] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        if not self._local:
            yield
            return
        thread = threading.Thread(target=self._watch, name="devices", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(5.0)
            if self._nvml is not None:
                with contextlib.suppress(Exception):  # NVML's own errors share no base that is always there
                    self._nvml.nvmlShutdown()

    def figures(self, spans: Sequence[tuple[float, float]]) -> dict[str, Figure]:
        """Over the looks within `spans` (monotonic seconds): sums over the cards, highest memory, means of the rest."""
        looks = [look for look in self._looks if any(begin <= look.at_s <= end for begin, end in spans)]
        if not looks:
            return {}
        figures = {"host_memory_used_bytes": _most([look.host_used_bytes for look in looks])}
        if self.cards:
            figures["gpu_memory_used_bytes"] = _most([v for look in looks if (v := look.memory_bytes) is not None])
            for name in ("power_w", "utilisation", "sm_clock_mhz"):
                values = [v for look in looks if (v := getattr(look, name)) is not None]
                figures[f"gpu_{name}"] = Figure(statistics.fmean(values) if values else None, len(values))
        return figures

    def foreign(self, since_wall_s: float) -> str | None:
        """Processes that are not the engine's and worked on its cards since then; None where nobody can tell."""
        if self._nvml is None or not self._engine_pids:
            return None
        found: dict[int, int] = {}
        ask = self._nvml.nvmlDeviceGetProcessUtilization
        for card in self.cards:
            for used in self._told(ask, card.handle, int(since_wall_s * 1e6)) or ():
                if used.smUtil >= _FOREIGN_SM_PERCENT and used.pid not in self._engine_pids:
                    found[used.pid] = card.index
        if not found:
            return None
        pid, index = next(iter(found.items()))
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"foreign load: process {pid} ({_name(pid)}) works on GPU {index}{more}"

    def hardware(self) -> dict[str, Any]:
        """What the numbers were measured on, as the ledger keeps it; empty for an endpoint on another machine."""
        if not self._local:
            return {}
        known: dict[str, Any] = {"host": platform.node(), "cpus": os.cpu_count()}
        if self.cards and self._nvml is not None:
            driver = self._told(self._nvml.nvmlSystemGetDriverVersion)
            known["driver"] = None if driver is None else _text(driver)
            known["gpus"] = [card.name for card in self.cards]
            known["gpu_uuids"] = [card.uuid for card in self.cards]
        return known

    def _watch(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self._looks.append(self._look())

    def _look(self) -> _Look:
        memory, power, busy, clock = [], [], [], []
        for nvml, card in [(self._nvml, card) for card in self.cards if self._nvml is not None]:
            used = self._told(nvml.nvmlDeviceGetMemoryInfo, card.handle)
            milliwatts = self._told(nvml.nvmlDeviceGetPowerUsage, card.handle)
            rates = self._told(nvml.nvmlDeviceGetUtilizationRates, card.handle)
            mhz = self._told(nvml.nvmlDeviceGetClockInfo, card.handle, _SM_CLOCK)
            memory.append(None if used is None else float(used.used))
            power.append(None if milliwatts is None else milliwatts / 1000)
            busy.append(None if rates is None else rates.gpu / 100)
            clock.append(None if mhz is None else float(mhz))
        return _Look(
            time.monotonic(),
            float(psutil.virtual_memory().total - psutil.virtual_memory().available),
            _all(memory, sum),
            _all(power, sum),
            _all(busy, statistics.fmean),
            _all(clock, statistics.fmean),
        )

    @staticmethod
    def _told(ask: Callable[..., Any], *arguments: Any) -> Any:
        """None for what this card or driver does not support."""
        try:
            return ask(*arguments)
        except Exception:  # noqa: BLE001 - a figure that cannot be had is no reason to lose the others
            return None


def open_devices(target: Target, nvml: Nvml | None = None, *, servers: Sequence[Target] = ()) -> Devices:
    """The cards of the engine behind `target`: those that its processes hold, where these can be told, else all.

    `servers`: the engine's own, where a front door stands before them. `nvml` is the module `pynvml` unless given.
    Never raises.
    """
    if not is_local(target.host):
        return Devices(None, absent=f"the endpoint {target.authority} is on another machine", local=False)
    try:
        if nvml is None:
            import pynvml

            nvml = pynvml
        nvml.nvmlInit()
        cards = [_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except Exception as error:  # noqa: BLE001 - no driver, no library, no permission: one sentence for all
        return Devices(None, absent=f"NVML is not here: {error}")
    pids = _engine_pids([target.port, *(server.port for server in servers if is_local(server.host))])
    held = [card for card in cards if pids & _pids_on(nvml, card)]
    absent = None if cards else "there is no GPU here"
    return Devices(nvml, held or cards, pids if held else frozenset(), absent=absent)


def is_local(host: str) -> bool:
    """Does the name or address belong to this machine?"""
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    own = {one.address.partition("%")[0] for each in psutil.net_if_addrs().values() for one in each}
    return any(address in own or ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _card(nvml: Nvml, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = (_text(v) for v in (nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)))
    return Card(index, name, uuid, int(nvml.nvmlDeviceGetMemoryInfo(handle).total), handle)


def _pids_on(nvml: Nvml, card: Card) -> frozenset[int]:
    try:
        return frozenset(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(card.handle))
    except Exception:  # noqa: BLE001 - then nobody can tell whose card it is
        return frozenset()


def _engine_pids(ports: Sequence[int]) -> frozenset[int]:
    """Whoever listens on the ports, and their children."""
    try:
        open_ports = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        listening = {c.pid for c in open_ports if getattr(c.laddr, "port", None) in ports}
    except (psutil.Error, OSError):
        return frozenset()
    pids: set[int] = set()
    for pid in listening:
        with contextlib.suppress(psutil.Error):
            if pid is not None:
                process = psutil.Process(pid)
                pids |= {pid, *(child.pid for child in process.children(recursive=True))}
    return frozenset(pids)


def _name(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()[:3]
    except (psutil.Error, OSError):
        return "gone or not ours to see"
    return " ".join(words) or "unnamed"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _all(values: Sequence[float | None], combine: Callable[[Sequence[float]], float]) -> float | None:
    """Combined when every card told: a sum that lacks one is a wrong sum."""
    told = [value for value in values if value is not None]
    return combine(told) if told and len(told) == len(values) else None


def _most(values: Sequence[float]) -> Figure:
    return Figure(max(values, default=None), len(values))
