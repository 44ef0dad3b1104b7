"""Text to fill a context with: plain sentences that no two runs share, and how many tokens they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.check import Skip

if TYPE_CHECKING:
    from random import Random

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

_WHO: Final = ("The keeper", "A student", "The captain", "My neighbour", "The baker", "An engineer", "The old teacher")
_DID: Final = ("carried", "repaired", "painted", "measured", "found", "described", "sold", "counted", "forgot")
_WHAT: Final = (
    "a lantern",
    "the long ladder",
    "two maps",
    "an empty crate",
    "the wooden gate",
    "a letter",
    "some rope",
)
_WHERE: Final = ("near the bridge", "in the harbour", "behind the mill", "on the hill", "by the river", "at the market")
_WHEN: Final = (
    "before noon",
    "on a cold evening",
    "after the storm",
    "in early spring",
    "while it rained",
    "last week",
)
_PROBE_CHARS: Final = 4000


def sentence(rng: Random) -> str:
    """One sentence of about a dozen words."""
    parts = (rng.choice(words) for words in (_WHO, _DID, _WHAT, _WHERE, _WHEN))
    return f"{' '.join(parts)}, and that took {rng.randrange(2, 60)} minutes."


def filler(rng: Random, chars: int) -> str:
    """Whole sentences, at least so many characters of them; none for 0."""
    sentences: list[str] = []
    length = 0
    while length < chars:
        sentences.append(sentence(rng))
        length += len(sentences[-1]) + 1
    return " ".join(sentences)


async def prompt_tokens(asker: Asker, sample: Sample, asked: Sequence[Mapping[str, Any]] | str) -> int:
    """How many prompt tokens the engine counts for what `Asker.chat` takes. Raises `Skip` when it does not tell."""
    whole = sample.asked(streamed=False, greedy=True)
    answer = await asker.chat(whole, asked, max_tokens=1)
    counted = answer.reply.usage.prompt_tokens if answer.reply.usage else None
    if not counted:
        raise Skip(f"prompt tokens could not be counted: {answer.first_problem or 'there is no usage'}")
    return counted


async def tokens_per_char(asker: Asker, sample: Sample) -> float:
    """Measured on the endpoint, template left out. Raises `Skip`."""
    text = filler(sample.rng("probe"), _PROBE_CHARS)
    less = await prompt_tokens(asker, sample, text[: _PROBE_CHARS // 4])
    more = await prompt_tokens(asker, sample, text)
    return max(0.01, (more - less) / (len(text) - _PROBE_CHARS // 4))


async def context_tokens(asker: Asker) -> int:
    """The longest context, as declared or as ``/v1/models`` says. Raises `Skip` when nobody says."""
    if asker.capability.max_context_tokens is not None:
        return asker.capability.max_context_tokens
    exchange = await asker.raw("GET", "/v1/models", timeout_s=10.0)
    try:
        cards = json.loads(exchange.body)["data"]
        found = [card["max_model_len"] for card in cards if card.get("id") == asker.model]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = []
    if found and isinstance(found[0], int) and found[0] > 0:
        return found[0]
    raise Skip("the longest context is not known; declare max_context_tokens")
