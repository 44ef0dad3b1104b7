"""What five re-runs say of the layer at fault, and that mixed ones are said to be mixed."""

from __future__ import annotations

import pytest

from gates.acceptance.rerun import Rerun, layer

WAYS = ("the other mode", "thinking off", "alone", "the same once more, warm", "on production")


def reruns(pattern: str) -> list[Rerun]:
    """`w` wrong, `r` right, `-` not asked; in the order of `WAYS`."""
    outcome = {"w": ("it was wrong", None), "r": (None, None), "-": (None, "not asked")}
    return [Rerun(name, *outcome[sign]) for name, sign in zip(WAYS, pattern, strict=True)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("wwwwr", "below the parsers"),
        ("w-ww-", "below the parsers"),
        ("wwwww", "production does the same"),
        ("rwwww", "production does the same"),
        ("rrrrr", "not seen again"),
        ("r-rr-", "not seen again"),
        ("rwwwr", "the streaming parser"),
        ("rrwwr", "the streaming parser"),
        ("r-ww-", "the streaming parser"),
        ("wrwwr", "the reasoning parser"),
        ("rrrwr", "the prefix cache"),
        ("r-rw-", "the prefix cache"),
        ("-----", "not known"),
    ],
)
def test_a_pattern_that_names_a_layer(pattern: str, said: str) -> None:
    assert layer(reruns(pattern), streamed=True).startswith(said)


def test_the_mode_names_the_parser() -> None:
    assert layer(reruns("rwwwr"), streamed=False).startswith("the parser of whole answers")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("wrrrr", "1 of 5 was wrong again (the other mode), 4 were right"),
        ("rwrrr", "1 of 5 was wrong again (thinking off), 4 were right"),
        ("rrwrr", "1 of 5 was wrong again (alone), 4 were right"),
        ("w-wr-", "2 of 3 were wrong again (the other mode; alone), 1 was right (the same once more, warm)"),
        ("wwrwr", "3 of 5 were wrong again (the other mode; thinking off; the same once more, warm), 2 were right"),
        ("rrrrw", "1 of 5 was wrong again (on production), 4 were right"),
        ("wwwrw", "4 of 5 were wrong again"),
    ],
)
def test_reruns_that_disagree_are_said_to_be_mixed(pattern: str, said: str) -> None:
    found = layer(reruns(pattern), streamed=True)
    assert found.startswith(f"not clear, the re-runs are mixed: {said}")
    assert "\n" not in found
