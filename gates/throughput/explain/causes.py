"""What the engine's own settings say about a step between two concurrencies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any


def known_cause(engine: Mapping[str, Any], below: int, above: int) -> str | None:
    """Why something changes between `below` and `above` sequences, as far as `Run.engine` shows it; None: it does not.

    Reads ``captures`` (batch sizes with a captured graph), ``limit`` (most sequences at once) and, for the tokens that
    speculation adds to each sequence, ``flags``.
    """
    limit = _count(engine.get("limit"))
    captures = [size for size in engine.get("captures") or () if _count(size)]
    if captures:
        tokens = 1 + draft_tokens(engine.get("flags") or ())
        covered = max(captures) // tokens
        if below <= covered < above:
            each = f" of {tokens} tokens each (speculation)" if tokens > 1 else ""
            upto = f" up to the {limit * tokens} that the engine may run" if limit and limit > covered else ""
            return (
                f"graphs are captured up to size {max(captures)}, which is {covered} sequences{each}; larger steps run "
                f"without one: add capture sizes{upto}"
            )
    if limit and below <= limit < above:
        return f"the engine runs at most {limit} sequences at once; the others wait"
    return None


def draft_tokens(flags: Sequence[object]) -> int:
    """How many tokens speculation adds to each sequence of a step in vLLM's capture sizes; 0 when none are named.

    SGLang's capture sizes count requests, so its draft tokens change nothing.
    """
    words = [part for flag in map(str, flags) for part in (flag.split("=", 1) if flag.startswith("--") else [flag])]
    for word, value in pairwise(words):
        if word.replace("_", "-") == "--speculative-config":
            try:
                config = json.loads(value)
            except ValueError:
                return 0
            return _count(config.get("num_speculative_tokens")) or 0 if isinstance(config, dict) else 0
    return 0


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
