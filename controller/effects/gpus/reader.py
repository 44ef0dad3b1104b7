"""One reading of every card through the bindings. One card's failure is that card's alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import people
from .calls import Calls, CardLostError
from .card import Card, Process
from .topology import Near, read_nvlink, read_switches


class Reader:
    """NVML, opened. Used by one thread; everything may raise the bindings' `NVMLError`, or hang."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._nvlink: Near = {}
        self._switches: Near = {}
        self._pages_retired: dict[str, int | None] = {}
        self._known: dict[str, Card] = {}  # every card that was ever read, as it was last
        self._xids: dict[str, int] = {}
        self._events: Any = None
        self.driver: str | None = None

    def open(self) -> None:
        """Begin, also anew: a card that was reset, and a driver that was loaded again, are seen only after that."""
        calls = self._calls
        if self._events is not None:  # it belongs to the session that ends here
            with contextlib.suppress(calls.nvml.NVMLError):
                calls.call("nvmlEventSetFree", self._events)
        with contextlib.suppress(calls.nvml.NVMLError):
            calls.call("nvmlShutdown")
        calls.call("nvmlInit")
        self.driver = str(calls.call("nvmlSystemGetDriverVersion"))
        self._events = self._watch_xids()
        self.read_seldom()

    def read_seldom(self) -> None:
        """Who is near whom, and which memory was given up: slow on large boxes, and changes when something breaks."""
        handles: dict[str, Any] = {}
        for handle in self._handles():
            with contextlib.suppress(CardLostError, self._calls.nvml.NVMLError):
                handles[str(self._calls.must("UUID", handle))] = handle
        try:
            self._pages_retired = {uuid: self._count_pages(handle) for uuid, handle in handles.items()}
            self._nvlink, self._switches = read_nvlink(self._calls, handles), read_switches(self._calls, handles)
        except CardLostError:  # its reading says so; the others keep what was known of them
            return

    def read(self) -> tuple[Card, ...]:
        """Every card, by index; one that was there before and is not now is among them, untrusted."""
        self._collect_xids()
        found = {card.id: card for card in map(self._card, self._indices())}
        gone = [
            replace(card, trusted=False, why="NVML does not list it any more", processes=())
            for card in self._known.values()
            if card.id not in found
        ]
        self._known |= {card.id: card for card in found.values() if card.trusted}
        # One that is gone comes before one that has taken its index since.
        return tuple(sorted([*gone, *found.values()], key=lambda card: (card.index, card.trusted)))

    def _indices(self) -> range:
        return range(self._calls.call("nvmlDeviceGetCount"))

    def _handle(self, index: int) -> Any:
        return self._calls.must("HandleByIndex", index)

    def _handles(self) -> Iterator[Any]:
        """Of those that have one."""
        for index in self._indices():
            with contextlib.suppress(CardLostError, self._calls.nvml.NVMLError):
                yield self._handle(index)

    def _card(self, index: int) -> Card:
        nvml = self._calls.nvml
        try:
            handle = self._handle(index)
            uuid = str(self._calls.must("UUID", handle))
            mig = self._calls.ask("MigMode", handle)
            if mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
                return self._cut(uuid, index, handle)
            return replace(self._fields(uuid, index, handle), mig=None if mig is None else False)
        except nvml.NVMLError_Uninitialized:
            raise  # that is no card's fault: NVML has to be opened anew
        except (CardLostError, nvml.NVMLError) as error:
            return replace(self._last(index), trusted=False, why=str(error), processes=())

    def _last(self, index: int) -> Card:
        """What was last known of the card at this index."""
        known = [card for card in self._known.values() if card.index == index]
        return known[-1] if known else Card(f"unreadable-{index}", index)

    def _cut(self, uuid: str, index: int, handle: Any) -> Card:
        """A card in MIG mode: memory and processes are its instances', and not told to everybody."""
        return Card(
            id=uuid,
            index=index,
            name=str(self._calls.ask("Name", handle) or ""),
            compute_capability=self._calls.ask("CudaComputeCapability", handle),
            mig=True,
            trusted=False,
            why=f"it is in MIG mode, and parts of a card are not leased: `nvidia-smi -i {index} -mig 0` makes it whole",
        )

    def _count_pages(self, handle: Any) -> int | None:
        nvml = self._calls.nvml
        causes = (
            nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
            nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
        )
        told = [self._calls.ask("RetiredPages", handle, cause) for cause in causes]
        return None if None in told else sum(map(len, told))

    def _fields(self, uuid: str, index: int, handle: Any) -> Card:
        ask, nvml = self._calls.ask, self._calls.nvml
        memory = self._memory(handle)
        utilisation = ask("UtilizationRates", handle)
        ecc = ask("EccMode", handle)
        rows = ask("RemappedRows", handle)
        pci = ask("PciInfo", handle)
        return Card(
            id=uuid,
            index=index,
            name=str(ask("Name", handle) or ""),
            bus_id=_text(pci.busId) if pci else None,
            compute_capability=ask("CudaComputeCapability", handle),
            memory_total_mib=memory.total >> 20 if memory else None,
            memory_used_mib=memory.used >> 20 if memory else None,
            utilisation_percent=utilisation.gpu if utilisation else None,
            power_w=_watts(ask("PowerUsage", handle)),
            power_cap_w=_watts(ask("EnforcedPowerLimit", handle)),
            persistence=_yes(ask("PersistenceMode", handle)),
            sm_clock_mhz=ask("ClockInfo", handle, nvml.NVML_CLOCK_SM),
            sm_clock_max_mhz=ask("MaxClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask("ClockInfo", handle, nvml.NVML_CLOCK_MEM),
            memory_clock_max_mhz=ask("MaxClockInfo", handle, nvml.NVML_CLOCK_MEM),
            ecc=_yes(ecc[0]) if ecc else None,
            ecc_corrected=self._ecc_errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._ecc_errors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            rows_pending=_yes(rows[2]) if rows else None,
            rows_failed=_yes(rows[3]) if rows else None,
            pages_retired=self._pages_retired.get(uuid),
            pages_pending=_yes(ask("RetiredPagesPendingStatus", handle)),
            last_xid=self._xids.get(uuid),
            nvlink=self._nvlink.get(uuid, ()),
            switch=self._switches.get(uuid, ()),
            processes=tuple(self._processes(handle)),
        )

    def _memory(self, handle: Any) -> Any:
        """Version 2 leaves the driver's own reserve out of `used`; drivers before 510 know only version 1."""
        second = self._calls.supported("MemoryInfo", handle, self._calls.nvml.nvmlMemory_v2)
        return second or self._calls.supported("MemoryInfo", handle)

    def _ecc_errors(self, handle: Any, kind: int) -> int | None:
        found: int | None = self._calls.ask("TotalEccErrors", handle, kind, self._calls.nvml.NVML_VOLATILE_ECC)
        return found

    def _processes(self, handle: Any) -> Iterator[Process]:
        computing = self._calls.supported("ComputeRunningProcesses", handle)
        if computing is None:  # a driver before 510 has the second version only
            computing = self._calls.supported("ComputeRunningProcesses_v2", handle) or []
        clients = self._calls.ask("MPSComputeRunningProcesses", handle) or []
        drawing = self._calls.ask("GraphicsRunningProcesses", handle) or []
        through_mps = {process.pid for process in clients}
        listed: dict[int, Process] = {}
        # One process may be in several lists: who draws may compute too, and clients of MPS are in one or two.
        for found, graphics in ((computing, False), (clients, False), (drawing, True)):
            for one in found:
                if one.pid not in listed:
                    listed[one.pid] = _explained(one, graphics=graphics, client=one.pid in through_mps)
        yield from listed.values()

    def _watch_xids(self) -> Any:
        """An event set that hears of Xid errors; None where there are no events."""
        nvml = self._calls.nvml
        try:
            events = self._calls.call("nvmlEventSetCreate")
        except nvml.NVMLError:
            return None
        for handle in self._handles():
            with contextlib.suppress(nvml.NVMLError):
                self._calls.call("nvmlDeviceRegisterEvents", handle, nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def _collect_xids(self) -> None:
        nvml = self._calls.nvml
        if self._events is None:
            return
        with contextlib.suppress(nvml.NVMLError, CardLostError):  # the last of them ends with a timeout of 0 ms
            while True:
                event = self._calls.call("nvmlEventSetWait", self._events, 0)
                self._xids[str(self._calls.must("UUID", event.device))] = int(event.eventData)


def _explained(process: Any, *, graphics: bool, client: bool) -> Process:
    pid = int(process.pid)
    memory_mib = None if process.usedGpuMemory is None else int(process.usedGpuMemory) >> 20
    if not people.is_visible(pid):
        return Process(pid, memory_mib, graphics, "client" if client else None, visible=False)
    command = people.command_of(pid)
    return Process(
        pid,
        memory_mib,
        graphics,
        "server" if people.is_mps_server(command) else "client" if client else None,
        user=people.user_of(pid),
        command=command,
        container=people.container_of(pid),
    )


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _yes(value: int | None) -> bool | None:
    return None if value is None else bool(value)
