"""Which cards an instance gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_world import make_release

from controller.core.cards import is_back, memory_note, oldest_capability, place, shows
from controller.core.plan import make_plan
from controller.core.policy import Policy
from controller.core.records import Closed, State
from controller.core.seen import Gpu


def box(*, nvlink=(), switch=()) -> tuple[Gpu, ...]:
    """Four cards, and which pairs of them are connected."""

    def others(pairs, n):
        return tuple(f"gpu-{b if a == n else a}" for a, b in pairs if n in (a, b))

    return tuple(Gpu(f"gpu-{n}", n, nvlink=others(nvlink, n), switch=others(switch, n)) for n in range(4))


def placed(cards: tuple[Gpu, ...], gpus: int, instances: int, free=None) -> dict[str, tuple[str, ...]]:
    release = make_release("one", gpus=gpus, instances=instances)
    return place(release.instances, cards if free is None else tuple(cards[n] for n in free), cards)


def test_cards_go_in_index_order_where_all_are_alike():
    assert placed(box(), 2, 2) == {"a": ("gpu-0", "gpu-1"), "b": ("gpu-2", "gpu-3")}


def test_cards_that_share_nvlink_go_together():
    cards = box(nvlink=[(0, 3), (1, 2)])
    assert placed(cards, 2, 2) == {"a": ("gpu-0", "gpu-3"), "b": ("gpu-1", "gpu-2")}


def test_nvlink_counts_before_a_switch_and_a_switch_before_the_order():
    cards = box(nvlink=[(2, 3)], switch=[(0, 2)])
    assert placed(cards, 2, 1) == {"a": ("gpu-2", "gpu-3")}
    assert placed(cards, 2, 1, free=(0, 1, 2)) == {"a": ("gpu-0", "gpu-2")}


def test_an_instance_without_cards_gets_none():
    assert placed(box(), 0, 1) == {"a": ()}


def oldest(cards: tuple[Gpu, ...], gpus: tuple[str, ...] | None = None, closed_by: str | None = None):
    """Of a release for one card, or for those named; `closed_by`: card 0 is closed by somebody."""
    release = make_release("one", gpus=1)
    instance = replace(release.instances[0], gpus=gpus, gpu_count=len(gpus) if gpus else 1)
    closed = {} if closed_by is None else {"gpu-0": Closed(closed_by, "", 0.0)}
    return oldest_capability(State(closed=closed), replace(release, instances=(instance,)), cards)


def test_the_oldest_card_that_a_release_may_get():
    mixed = (Gpu("gpu-0", 0, compute_capability=(7, 0)), Gpu("gpu-1", 1, compute_capability=(8, 6)), Gpu("gpu-2", 2))
    assert oldest(mixed) == (7, 0)
    assert oldest(mixed, gpus=("1",)) == (8, 6)
    assert oldest(mixed, gpus=("gpu-1", "0")) == (7, 0)
    assert oldest(mixed, closed_by="boss") == (8, 6)
    assert oldest(mixed, closed_by="") == (7, 0)  # quarantine ends by itself


def test_a_card_that_does_not_tell_its_capability_says_nothing():
    assert oldest((Gpu("gpu-0", 0), Gpu("gpu-1", 1))) is None
    assert oldest((Gpu("gpu-0", 0), Gpu("gpu-1", 1, compute_capability=(9, 0))), gpus=("0",)) is None
    assert oldest(()) is None


def test_a_card_that_does_not_exist_is_told_with_those_that_do_and_where_to_write_it():
    release = make_release("one", gpus=1)
    named = replace(release, instances=(replace(release.instances[0], gpus=("6",)),))
    refusal = make_plan(State(), named, (Gpu("gpu-0", 0), Gpu("gpu-1", 1)), Policy())
    assert refusal.why == "instance a wants GPU 6, which does not exist: this box has GPUs 0, 1"
    assert "instances.a.gpus" in refusal.remedy


@pytest.mark.parametrize(
    ("total_mib", "said"),
    [
        ((81_920, 81_920), "the smallest of its cards has 80.0"),
        ((81_920, 24_576), "GPU 1 has 24.0: expect it not to load"),
        ((81_920, None), "not judged: GPU 1 tells no memory"),
        ((None, None), "not judged: GPU 0, 1 tell no memory"),
    ],
)
def test_memory_that_a_topology_declares_is_judged_or_said_not_to_be(total_mib, said):
    cards = tuple(Gpu(f"gpu-{n}", n, memory_total_mib=total) for n, total in enumerate(total_mib))
    note = memory_note(70.0, {"a": ("gpu-0", "gpu-1")}, cards)
    assert note.startswith("memory: it needs 70 GiB on each card")
    assert said in note


def used(memory_used_mib: int, **told) -> Gpu:
    return Gpu("gpu-0", 0, memory_total_mib=24_000, memory_used_mib=memory_used_mib, **told)


STRANGER = ("pid 7 (a job) holds 9000 MiB",)


@pytest.mark.parametrize(
    ("gpu", "back"),
    [
        (used(500), True),
        (used(20_000), False),
        (used(9_400, foreign=STRANGER, strangers_mib=9_000), True),
        (used(29_000, foreign=STRANGER, strangers_mib=9_000), False),  # beside a stranger ours leaks
        (used(20_000, foreign=("20000 MiB are in use by nobody that NVML names",), strangers_mib=0), False),
        (used(20_000, foreign=STRANGER, ours=False), True),  # what it holds is not told, and nobody of ours is there
        (used(20_000, foreign=STRANGER, ours=True), False),
        (used(20_000, foreign=("20000 MiB are in use by somebody",), ours=None), False),  # it may be ours
        (used(500, ours=None), True),
        (used(500, trusted=False), False),
        (None, False),
    ],
)
def test_a_card_is_back_when_ours_is_gone_from_it(gpu, back):
    assert is_back(gpu, 512) is back


def test_what_a_card_shows_says_what_cannot_be_told():
    assert shows("gpu-0", None) == "gpu-0 is not in the inventory"
    assert shows("gpu-0", used(0, trusted=False, why="GPU is lost")) == "gpu-0 cannot be read (GPU is lost)"
    assert shows("gpu-0", used(29_000, strangers_mib=9_000)).endswith("29000 MiB in use, 9000 of them a stranger's")
    assert "whose they are cannot be told" in shows("gpu-0", used(29_000, ours=None))
