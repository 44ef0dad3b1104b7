"""Emulated engines as real processes, one shared by each module per dialect."""

from collections.abc import Callable, Iterator

import pytest
from emulator_asking import FAST, Asking

from launch.engines.emulator.testing import emulator


@pytest.fixture
def start() -> Iterator[Callable[..., Asking]]:
    """Start an engine for this test alone."""
    opened = []

    def started(*flags: str, wait: bool = True) -> Asking:
        context = emulator(*FAST, *flags, wait=wait)
        opened.append(context)
        return Asking(context.__enter__())

    yield started
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def vllm() -> Iterator[Asking]:
    with emulator(*FAST) as running:
        yield Asking(running)


@pytest.fixture(scope="module")
def sglang() -> Iterator[Asking]:
    with emulator(*FAST, "--dialect", "sglang") as running:
        yield Asking(running)


@pytest.fixture(params=["vllm", "sglang"])
def either(request: pytest.FixtureRequest) -> Asking:
    """Each test runs against both dialects."""
    return request.getfixturevalue(request.param)
