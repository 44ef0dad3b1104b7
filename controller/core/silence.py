"""Busy or down: how long a live instance may fail its probes before it counts as dead. Pure.

What moves while an engine prefills a long prompt, and nothing else runs: on vLLM no token and no step is counted until
the first token (`IterationStats` is made only for a step that has outputs), but each step says how full the KV pool is;
SGLang counts the tokens of every chunk as it goes. An engine that hangs in a step moves nothing at all.
"""

from __future__ import annotations

from .policy import Policy
from .seen import ProbeSeen


def why_dead(probe: ProbeSeen | None, now_s: float, policy: Policy) -> str:
    """Why an instance of live counts as dead although its process lives, in a sentence; empty: it is well, or busy.

    Dead is what fails its probes, and
    - writes garbage: at once, however busy it looks, for its tokens are counted as if nothing were wrong;
    - moved no counter for `silent_s`;
    - counted no token for `prefill_s`, though its KV pool fills: no prefill takes that long, a livelock does;
    - takes requests, answers none for `prefill_s`, and shows no counters by which anybody could tell more.
    """
    if probe is None or probe.ok or probe.streak < policy.silent_probes:
        return ""
    said = f"{probe.layer}: {probe.sentence}"
    if probe.layer == "output":
        return f"{said}, {probe.streak} probes in a row"
    still_s = now_s - max(probe.streak_since_s, probe.progress_at_s or 0.0)
    may_prefill = is_computing(probe, now_s, policy.silent_s) or (probe.layer == "timeout" and not probe.has_counters)
    limit_s = max(policy.silent_s, policy.prefill_s) if may_prefill else policy.silent_s
    return f"{said}; no token for {still_s:.0f} s" if still_s >= limit_s else ""


def is_computing(probe: ProbeSeen, now_s: float, recent_s: float) -> bool:
    """Whether its own counters say that it worked just now: it counted tokens, or its KV pool filled or emptied."""
    moved = [at_s for at_s in (probe.progress_at_s, probe.pool_at_s) if at_s is not None]
    return probe.layer != "output" and any(now_s - at_s < recent_s for at_s in moved)


def makes_wait(probe: ProbeSeen | None, now_s: float, recent_s: float, policy: Policy) -> bool:
    """Whether a probe of it only waits its turn: it gives no answer, and its own counters say that it works.

    As long as a prompt may take, whatever else it counts meanwhile. What answers with an error, or stands still, does
    not work.
    """
    if probe is None or not is_computing(probe, now_s, recent_s):
        return False
    since_s = probe.at_s if probe.ok else probe.streak_since_s
    waits = probe.layer == "timeout" or (probe.ok and now_s - probe.at_s > recent_s)
    return waits and now_s - since_s < policy.prefill_s
