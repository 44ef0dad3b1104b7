"""The groups of checks, in the order in which a run asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance import (
    accuracy,
    agreement,
    answers,
    arithmetic,
    calls,
    chains,
    choice,
    continuation,
    copying,
    cross_talk,
    drift,
    engine_counters,
    feedback,
    history,
    languages,
    limits,
    load,
    long_context,
    long_text,
    parallel,
    prefix,
    prompt_vector,
    prose,
    protocol,
    quoted,
    sampling,
    structured,
    thinking,
    thinking_edges,
    tool_lists,
)

if TYPE_CHECKING:
    from gates.acceptance.check import Check

ALL: Final[tuple[Check, ...]] = (
    *protocol.CHECKS,
    *arithmetic.CHECKS,
    *prompt_vector.CHECKS,
    *calls.CHECKS,
    *copying.CHECKS,
    *parallel.CHECKS,
    *choice.CHECKS,
    *tool_lists.CHECKS,
    *structured.CHECKS,
    *quoted.CHECKS,
    *long_context.CHECKS,
    *load.CHECKS,
    *agreement.CHECKS,
    *feedback.CHECKS,
    *history.CHECKS,
    *chains.CHECKS,
    *continuation.CHECKS,
    *thinking.CHECKS,
    *thinking_edges.CHECKS,
    *answers.CHECKS,
    *prose.CHECKS,
    *languages.CHECKS,
    *sampling.CHECKS,
    *cross_talk.CHECKS,
    *prefix.CHECKS,
    *long_text.CHECKS,
    *drift.CHECKS,
    *engine_counters.CHECKS,
    *limits.CHECKS,
    *accuracy.CHECKS,
)
