"""Which cards are near each other: over NVLink, and behind one PCIe switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .calls import Calls

Near = dict[str, tuple[str, ...]]
"""Card id → ids of the cards near it."""

_TO_A_SWITCH = "switch"


def read_nvlink(calls: Calls, handles: Mapping[str, Any]) -> Near:
    """Pairs with at least one active link between them; cards on NVSwitches all reach each other."""
    places = {_place(pci): uuid for uuid, handle in handles.items() if (pci := calls.ask("PciInfo", handle))}
    ends = {uuid: set(_link_ends(calls, handle)) for uuid, handle in handles.items()}
    switched = {uuid for uuid, found in ends.items() if _TO_A_SWITCH in found}
    near: dict[str, set[str]] = {uuid: set() for uuid in handles}
    for uuid, found in ends.items():
        peers = {places[end] for end in found if end in places} | (switched if uuid in switched else set())
        for peer in peers - {uuid}:
            near[uuid].add(peer)
            near[peer].add(uuid)
    return _in_order(near, handles)


def _link_ends(calls: Calls, handle: Any) -> Iterator[Any]:
    nvml = calls.nvml
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        active = calls.ask("NvLinkState", handle, link)
        if active is None:  # cards tell their links from 0 on; behind the last there are none
            return
        if not active:
            continue
        if calls.ask("NvLinkRemoteDeviceType", handle, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            yield _TO_A_SWITCH
        elif pci := calls.ask("NvLinkRemotePciInfo", handle, link):
            yield _place(pci)


def _place(pci: Any) -> tuple[int, int, int]:
    return pci.domain, pci.bus, pci.device


def read_switches(calls: Calls, handles: Mapping[str, Any]) -> Near:
    """Pairs whose nearest common point is one PCIe switch (`PIX` in nvidia-smi), or that share a board."""
    near: dict[str, set[str]] = {uuid: set() for uuid in handles}
    pairs = [(one, other) for one in handles for other in handles if one < other]
    for one, other in pairs:
        level = calls.ask("TopologyCommonAncestor", handles[one], handles[other])
        if level is not None and level <= calls.nvml.NVML_TOPOLOGY_SINGLE:
            near[one].add(other)
            near[other].add(one)
    return _in_order(near, handles)


def _in_order(near: Mapping[str, set[str]], handles: Mapping[str, Any]) -> Near:
    return {uuid: tuple(other for other in handles if other in found) for uuid, found in near.items()}
