"""The simulator finds the bugs that are planted in core, store and loop; an oracle that misses one is no oracle."""

from __future__ import annotations

import pytest
from sim_mutants import ENOUGH, MUTANTS, Mutant, hunt, plant

QUICK = (  # each dies within a few histories
    "users are sent to the candidate before the commit",
    "verdicts count for any gate",
    "a lease is given back before its holder is dead",
    "an intent is written in two transactions",
)


def test_every_mutant_fits_the_code(tmp_path):
    """One whose text is not there exactly once would be the code itself."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    for number, mutant in enumerate(MUTANTS):
        plant(mutant, tmp_path / str(number))
    drifted = Mutant("drifted", (("controller/loop.py", "text that is not there", "anything"),))
    with pytest.raises(ValueError, match="found 0 times"):
        plant(drifted, tmp_path / "drifted")


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.name in QUICK], ids=lambda m: m.name)
def test_quick_ones_are_found(mutant, tmp_path):
    assert hunt(mutant, tmp_path, histories=200, timeout_s=100.0) is not None


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_every_mutant_is_found(mutant, tmp_path):
    found = hunt(mutant, tmp_path)
    print(f"found in history {found}: {mutant.name}")
    assert found is not None, f"`{mutant.name}` survived {ENOUGH} histories"
