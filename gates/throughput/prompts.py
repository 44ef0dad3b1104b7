"""Prompts nobody has sent before: natural language, since speculation lives off it, and a nonce in the first tokens."""

from __future__ import annotations

import random
import secrets
from typing import Final

_OPENINGS: Final = ("In the year", "Around", "Shortly after", "Long before", "Towards the end of")
_SUBJECTS: Final = (
    "the harbour master",
    "a travelling teacher",
    "the engineer of the mill",
    "an old printer",
    "the keeper of the archive",
    "a young surveyor",
    "the ferry company",
    "the town council",
)
_VERBS: Final = ("described", "rebuilt", "measured", "argued about", "drew a plan of", "paid for", "forgot", "sold")
_OBJECTS: Final = (
    "the stone bridge",
    "a new granary",
    "the northern canal",
    "three wooden cranes",
    "the observatory",
    "a set of maps",
    "the market hall",
    "the lighthouse",
)
_REASONS: Final = (
    "because the winter had been long",
    "although nobody had asked for it",
    "while the river was still high",
    "so that the grain could be kept dry",
    "before the railway reached the valley",
)


def unique_prompt(words: int) -> str:
    """About `words` words of a chronicle that exists nowhere else, and the order to continue it."""
    generator = random.Random(secrets.randbits(64))  # noqa: S311 - variety is wanted, not secrecy
    nonce = secrets.token_hex(6)
    text = f"Chronicle {nonce}."
    while text.count(" ") < words:
        year = generator.randrange(1600, 1900)
        text += " " + " ".join(
            [
                generator.choice(_OPENINGS),
                f"{year}",
                generator.choice(_SUBJECTS),
                generator.choice(_VERBS),
                generator.choice(_OBJECTS),
                generator.choice(_REASONS) + ".",
            ]
        )
    return f"{text} Continue this chronicle in the same plain style, at length."
