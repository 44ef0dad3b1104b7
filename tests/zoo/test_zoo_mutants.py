"""Bugs planted in shim, attempts, identity, effects and front door are found; a zoo that misses one is none."""

from __future__ import annotations

import pytest
from zoo_mutants import MUTANTS, ROOT, Bench, Mutant, is_found, planted

QUICK = (  # nobody waits for what never comes: a few seconds each
    "SIGKILL comes without a SIGTERM before",
    "the exit is told as whole while others of the tree live",
    "a later owner of a number is signalled",
    "what is left is not looked for before a start",
    "an attempt that has ended runs again",
    "adopted by its recorded number",
    "who was in the directory before is ended, too",
    "a directory of another start is adopted",
    "a directory in which something lives is removed",
    "the route is remembered as it was before",
    "half of an answer of HAProxy is enough",
    "a drained server is not restored",
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("bench"))


def test_every_mutant_fits_the_code():
    """One whose text is not there exactly once would be the code itself."""
    names = {mutant.name for mutant in MUTANTS}
    assert len(names) == len(MUTANTS) >= 8
    assert set(QUICK) <= names
    for mutant in MUTANTS:
        planted(mutant, (ROOT / mutant.file).read_text())
    drifted = Mutant("drifted", "launch/shim.py", "text that is not there", "anything", "")
    with pytest.raises(ValueError, match="found 0 times"):
        planted(drifted, (ROOT / drifted.file).read_text())


def test_without_a_bug_the_copy_passes(bench):
    """Else it would be the copy that is found. (The tests themselves pass in this very run.)"""
    assert (
        bench.play(["tests/zoo/test_zoo.py::test_killed_at_once", "tests/zoo/test_gate_zoo.py"], "zombie", 60.0) == ""
    )


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name in QUICK], ids=lambda m: m.name)
def test_quick_ones_are_found(mutant, bench):
    how = bench.hunt(mutant)
    assert is_found(how), f"`{mutant.name}` survived {mutant.test}: {how}"


@pytest.mark.campaign
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_every_one_is_found_and_by_nothing_but_the_bug(mutant, bench):
    assert bench.play([mutant.test], mutant.zoo, 60.0) == ""
    how = bench.hunt(mutant)
    print(f"{mutant.name}: {how.splitlines()[0][:200] if how else 'survived'}")
    assert is_found(how), f"`{mutant.name}` survived {mutant.test}: {how}"
