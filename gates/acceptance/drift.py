"""Group O, numeric drift: how likely the model finds four fixed texts, here and on production.

Needs no taste and no chance: the same weights find the same text equally likely, a wrong shard is whole nats off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gates.acceptance.check import Check, Overall, Skip
from gates.acceptance.filler import filler
from gates.acceptance.survey import Surroundings, Surveyed, failed, passed, warned
from gates.reply import error_text

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.wire import Exchange

TEXTS: Final = 4
TEXT_CHARS: Final = 4_500
"""About a thousand tokens."""
SAME: Final = 0.02
"""Nats per token by which the same weights may differ over kernels and parallelism."""
BLOCKS: Final = 0.5
MIN_TOKENS: Final = 50


class _Way(NamedTuple):
    """One of the ways in which engines tell log-probabilities of a prompt."""

    path: str
    body: Callable[[str, str], Mapping[str, Any]]
    read: Callable[[Any], list[Any]]


def _echoed(document: Any) -> list[Any]:
    # The last one belongs to the token that was generated.
    found: list[Any] = document["choices"][0]["logprobs"]["token_logprobs"][:-1]
    return found


def _of_prompt(document: Any) -> list[Any]:
    """vLLM: one mapping per token; with 0 asked for it holds the prompt's own token only."""
    entries = document["choices"][0]["prompt_logprobs"]
    return [next(iter(entry.values()))["logprob"] if entry else None for entry in entries]


def _of_input(document: Any) -> list[Any]:
    """SGLang: ``[logprob, token, text]`` for each."""
    return [entry[0] for entry in document["meta_info"]["input_token_logprobs"]]


_WAYS: Final = (
    _Way(
        "/v1/completions",
        lambda model, text: {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0},
        _of_prompt,
    ),
    _Way(
        "/generate",
        lambda _, text: {
            "text": text,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
        },
        _of_input,
    ),
    _Way(
        "/v1/completions",
        lambda model, text: {
            "model": model,
            "prompt": text,
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": 1,
        },
        _echoed,
    ),
)


def texts() -> tuple[str, ...]:
    """The same in every run, everywhere."""
    return tuple(filler(Random(f"drift {number}"), TEXT_CHARS) for number in range(TEXTS))  # noqa: S311 - repeatable


async def mean_nll(asker: Asker) -> float:
    """Nats per token over the four texts. Raises `Skip` when the endpoint does not tell."""
    why = ""
    for way in _WAYS:
        found = []
        for text in texts():
            exchange = await asker.raw("POST", way.path, way.body(asker.model, text))
            nll = read_nll(exchange, way.read)
            if isinstance(nll, str):
                why = why or nll
                break
            found.append(nll)
        if len(found) == TEXTS:
            return fmean(found)
    raise Skip(f"the endpoint does not tell how likely a prompt is ({why})")


def read_nll(exchange: Exchange, read: Callable[[Any], list[Any]]) -> float | str:
    """Mean over one text, or why there is none."""
    if exchange.failure is not None:
        return exchange.failure.sentence
    if exchange.status != 200:
        return f"HTTP {exchange.status}: {error_text(exchange.body)}"
    try:
        values = [value for value in read(json.loads(exchange.body)) if isinstance(value, int | float)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "the answer holds no log-probabilities"
    finite = [-value for value in values if math.isfinite(value)]
    return fmean(finite) if len(finite) >= MIN_TOKENS else "too few log-probabilities came"


async def _survey(asker: Asker, around: Surroundings) -> Surveyed:
    here = await mean_nll(asker)
    there = around.before("O13").get("nll")
    if not isinstance(there, int | float) and around.live is not None:
        there = await mean_nll(around.live)
    return judge(here, there if isinstance(there, int | float) else None)


def judge(here: float, there: float | None) -> Surveyed:
    """Nats per token of candidate and production; None: unknown."""
    figures = {"nll": round(here, 5), "production": there}
    if there is None:
        return passed(f"{here:.3f} nats per token; nothing to compare with", **figures)
    moved = here - there
    sentence = f"{here:.3f} nats per token, production {there:.3f}: moved by {moved:+.3f}"
    if abs(moved) > BLOCKS:
        return failed(f"{sentence}; these are not the same weights in the same order", **figures)
    if abs(moved) > SAME:
        return warned(f"{sentence}, more than the same weights and precision would", **figures)
    return passed(sentence, **figures)


CHECKS: Final = (
    Check(
        id="O13",
        name="numeric drift",
        asks="How likely four fixed texts of a thousand tokens are, here and on production.",
        holds="no more drift than kernels and precision explain",
        catches="a wrong shard, damaged weights or a broken kernel, in numbers instead of words",
        rule=Overall(f"more than {BLOCKS:g} nats per token off production fails, more than {SAME:g} is said"),
        survey=_survey,
    ),
)
