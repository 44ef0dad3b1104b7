"""The watch after cutover: is the new release worse than the one before it? Pure; one sentence per sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from .frozen import replace
from .policy import Policy
from .records import Attempt, Bake, Rollout, State
from .route import Traffic
from .seen import ProbeSeen, Seen
from .silence import makes_wait

RECENT_PROBES = 5
ENOUGH_PROBES = 3
MANY_FAILURES = 3
FAILURE_SHARE = 0.01


def bake_s(rollout: Rollout, policy: Policy) -> float:
    """How long it is watched after the cutover."""
    return policy.bake_s if rollout.options.bake_s is None else rollout.options.bake_s


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile (the smallest value that at least `share` of the sample does not exceed); 0 if empty."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def first_byte_p95_s(attempts: Sequence[Attempt], traffic: dict[str, Traffic], minimum: int) -> float:
    """p95 over the attempts' answers, or 0 when there are fewer than `minimum` of them (p95 of ten means nothing)."""
    times = [t for a in attempts if a.id in traffic for t in traffic[a.id].first_byte_s]
    return percentile(times, 0.95) if len(times) >= minimum else 0.0


def _too_slow(value_s: float, baseline_s: float, policy: Policy) -> bool:
    if value_s <= 0 or baseline_s <= 0:
        return False
    return value_s > baseline_s * policy.bake_latency_factor and value_s > baseline_s + policy.bake_latency_slack_s


def _probe_problem(
    name: str, probe: ProbeSeen | None, since_s: float, now_s: float, fresh_s: float, *, waits: bool
) -> str | None:
    """`waits`: an engine of live prefills, and a probe through the front door may stand behind that."""
    if name == "public" and waits and probe is not None and (probe.ok or probe.layer == "timeout"):
        return None
    if probe is None or probe.started_at_s < since_s:
        return f"{name} has not been probed since the cutover" if now_s - since_s > fresh_s else None
    if not probe.ok:
        return f"{name} fails its probe ({probe.layer}: {probe.sentence})"
    if now_s - probe.at_s > fresh_s:
        return f"{name} was last heard {now_s - probe.at_s:.0f} s ago"
    return None


def all_asked(state: State, seen: Seen) -> bool:
    """Whether this daemon knows what came of a probe of each, whatever it was: one that has just begun does not.

    A probe has an end, so this comes soon; that a daemon was started anew, or dies again and again, is no bad sample.
    """
    return all(name in seen.probes for name in (*(a.id for a in state.seat_attempts(state.live)), "public"))


def problems(state: State, seen: Seen, bake: Bake, since_s: float, policy: Policy) -> list[str]:
    """Everything that makes this sample a bad one; empty when it is good."""
    attempts = state.seat_attempts(state.live)
    now_s = seen.now.boot_s
    fresh_s = max(policy.probe_fresh_s, 3 * policy.bake_interval_s)
    # While an engine prefills a long prompt, everybody's first token waits, also at the release before.
    waits = {a.id for a in attempts if makes_wait(seen.probes.get(a.id), now_s, fresh_s, policy)}
    found = [
        _probe_problem(name, seen.probes.get(name), since_s, now_s, fresh_s, waits=bool(waits))
        for name in (*(a.id for a in attempts if a.id not in waits), "public")
    ]
    traffic = {a.id: seen.traffic[a.id] for a in attempts if a.id in seen.traffic}
    failures, requests = failures_of(state, seen)
    if failures > bake.failures:
        found.append(f"{failures - bake.failures} requests got a 5xx or a cut stream since the last sample")
    elif failures >= MANY_FAILURES and failures / requests > bake.baseline_failure_share + FAILURE_SHARE:
        found.append(f"{failures} of {requests} requests got a 5xx or a cut stream since the switch")
    p95_s = first_byte_p95_s(attempts, traffic, policy.bake_min_requests)
    before_s = bake.baseline_first_byte_p95_s
    if _too_slow(p95_s, before_s, policy):
        found.append(f"time to first byte p95 {p95_s * 1000:.0f} ms, before it was {before_s * 1000:.0f} ms")
    found += _slow_probes(bake, policy)
    return [text for text in found if text]


def with_probe(bake: Bake, probe: ProbeSeen | None, since_s: float) -> Bake:
    """The bake with the newest probe through the public address, when it was made after the switch and is a new one."""
    if probe is None or not probe.ok or probe.started_at_s < max(since_s, bake.last_probe_s):
        return bake
    if probe.ttft_s is None or probe.total_s is None:
        return bake
    kept = (*bake.probes, (probe.ttft_s, probe.total_s))[-RECENT_PROBES:]
    return replace(bake, probes=kept, last_probe_s=probe.at_s)


def failures_of(state: State, seen: Seen) -> tuple[int, int]:
    """5xx and cut streams of live's attempts and of the front door itself, and how many requests there were.

    One failure is an incident: it makes its own sample a bad one. Failures that keep coming make two in a row, and a
    share above what the release before showed makes every sample bad.
    """
    ours = [seen.traffic[a.id] for a in state.seat_attempts(state.live) if a.id in seen.traffic]
    own = seen.traffic.get("")  # what the front door had to answer itself, because no engine did
    counted = [*ours, *([own] if own else [])]
    failures = sum(t.errors_5xx + t.truncated for t in counted)
    return failures, max(failures, sum(t.requests for t in counted), 1)


def _slow_probes(bake: Bake, policy: Policy) -> list[str]:
    """Medians against what live showed: one probe that waited behind a full batch is an anecdote."""
    if len(bake.probes) < ENOUGH_PROBES:
        return []
    ttft_s, total_s = (median(values) for values in zip(*bake.probes, strict=True))
    compared = (
        ("wait {:.0f} ms for their first token", ttft_s, bake.baseline_probe_ttft_s),
        ("take {:.0f} ms for their answer", total_s, bake.baseline_probe_total_s),
    )
    return [
        f"probes {text.format(value_s * 1000)}, before it was {before_s * 1000:.0f} ms"
        for text, value_s, before_s in compared
        if _too_slow(value_s, before_s, policy)
    ]


def baseline(state: State, seen: Seen, policy: Policy) -> Bake:
    """What live shows at the moment of the cutover, under the users' own load; zeros where it shows nothing."""
    failures, requests = failures_of(state, seen)
    public = seen.probes.get("public")
    # One lost probe is an anecdote: those before it still show what live is. But what mends a live that is down is not
    # to be measured by its good days.
    known = public is not None and state.live is not None and (public.ok or public.streak < policy.silent_probes)
    return Bake(
        # In the dark the failures are those of requests that waited in vain: live is not to blame for them.
        baseline_failure_share=failures / requests if state.is_served() else 0.0,
        baseline_first_byte_p95_s=first_byte_p95_s(
            state.seat_attempts(state.live), dict(seen.traffic), policy.bake_min_requests
        ),
        baseline_probe_ttft_s=(public.typical_ttft_s or 0.0) if public is not None and known else 0.0,
        baseline_probe_total_s=(public.typical_total_s or 0.0) if public is not None and known else 0.0,
    )
