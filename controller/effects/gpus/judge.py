"""Ours or a stranger's: one reading of NVML against the pids and cards that are ours. Nothing is looked up here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from .card import Card, Process

IDLE_MIB = 1024  # what a card may show with nobody on it: the driver's own, and a desktop
BY_MEMORY = "NVML names the host's pids, which mean nothing in this container: judged by memory alone"


def judge(
    cards: tuple[Card, ...], ours: Collection[int], held: Collection[str], *, contained: bool
) -> tuple[Card, ...]:
    """`ours`: pids of our attempts; `held`: cards that one of our attempts holds; `contained`: pids may be the host's.

    A stranger on a held card is found by pid alone: memory there is ours until the lease is given back. So is what the
    server of MPS holds there, for cards before Volta count its clients' memory as its own.
    """
    by_memory = contained and any(not process.visible for card in cards for process in card.processes)
    if by_memory:
        return tuple(_by_memory(card, card.id in held) for card in cards)
    return tuple(_by_pid(card, ours, card.id in held) for card in cards)


def _by_pid(card: Card, ours: Collection[int], held: bool) -> Card:
    processes = tuple(replace(process, ours=process.pid in ours) for process in card.processes)
    strangers = [
        process
        for process in processes
        if not process.ours and _computes(process) and not (held and process.mps == "server")
    ]
    foreign = [process.sentence for process in strangers]
    if not held:
        foreign += _unnamed(card, processes)
    return replace(
        card,
        processes=processes,
        foreign=tuple(foreign),
        strangers_mib=_sum(process.memory_mib for process in strangers),
        ours=any(process.ours for process in processes),
    )


def _sum(sizes_mib: Iterable[int | None]) -> int | None:
    told = list(sizes_mib)
    return None if None in told else sum(size for size in told if size is not None)


def _computes(process: Process) -> bool:
    """A desktop that draws, and a server of MPS that nobody uses, are let be while they are small."""
    return not (process.graphics or process.mps == "server") or (process.memory_mib or 0) > IDLE_MIB


def _unnamed(card: Card, processes: tuple[Process, ...]) -> Iterator[str]:
    """Memory that no listed process accounts for: a container's, a dead process' that did not come back."""
    if card.memory_used_mib is None or any(process.memory_mib is None for process in processes):
        return
    unnamed_mib = card.memory_used_mib - sum(process.memory_mib or 0 for process in processes)
    if unnamed_mib > IDLE_MIB:
        yield f"{unnamed_mib} MiB are in use by nobody that NVML names"


def _by_memory(card: Card, held: bool) -> Card:
    if held:
        return replace(card, foreign=(), note=f"{BY_MEMORY}; an attempt of ours holds it", by_memory=True)
    used_mib = card.memory_used_mib
    foreign: tuple[str, ...] = ()
    if used_mib is None and card.processes:
        foreign = ("a process that cannot be told from here",)
    elif (used_mib or 0) > IDLE_MIB:
        foreign = (f"{used_mib} MiB are in use by somebody who cannot be told from inside this container",)
    return replace(card, foreign=foreign, note=BY_MEMORY, by_memory=True)
