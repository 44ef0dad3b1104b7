"""What the runs of a campaign amount to, in Markdown: one row per fault, dialect or model, none averaged away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from campaign_runs import MODELS, Done, Mutant, known

from gates.statistics import wilson_lower

WEAK_BELOW = 0.95
"""A fault in one of twenty answers has to be blocked in this share of seeds."""
_FEWEST = 10
"""So many runs say something about a share."""


def tables(done: Sequence[Done]) -> str:
    """Both tables; what was not run has no row."""
    rows: dict[tuple[str, str], list[Done]] = defaultdict(list)
    for one in done:
        rows[one.job.measure, one.job.name].append(one)
    parts = []
    engines = [(key, ran) for key, ran in rows.items() if key[0] in ("healthy", "model")]
    if engines:
        parts += ["| engine | runs of the standard tier | blocked | by | expected |", "|---|---|---|---|---|"]
        parts += [_engine(measure, name, ran) for (measure, name), ran in engines]
    faults = list(dict.fromkeys(name for measure, name in rows if measure in ("full", "fraction")))
    if faults:
        parts += [""] if parts else []
        parts += ["| fault | in every answer | by the right check | checks | requests | one of twenty | requests |"]
        parts += ["|---|---|---|---|---|---|---|"]
        parts += [
            _fault(known()[name], rows.get(("full", name), []), rows.get(("fraction", name), [])) for name in faults
        ]
    return "\n".join(parts)


def shortfalls(done: Iterable[Done]) -> list[str]:
    """Every single run that did not end as it must, then every row that is too weak, then what was tried twice."""
    done = list(done)
    single = [f"{_where(one)}: {problem}" for one in done if (problem := _problem(one)) is not None]
    again = [f"{_where(one)}: tried twice; the first time {one.first_try}" for one in done if one.first_try]
    return [*single, *_weak_rows(done), *again]


def _problem(one: Done) -> str | None:
    outcome = one.outcome
    if outcome.verdict == "error":
        return outcome.sentence
    if one.job.measure == "healthy":
        return None if outcome.verdict == "pass" else f"{outcome.verdict}, {outcome.sentence}"
    if one.job.measure != "full":
        return None
    mutant = known()[one.job.name]
    if mutant.harmless:
        said = f"blocked by {', '.join(outcome.blocking)}, and it is harmless ({outcome.sentence})"
        return said if outcome.blocked else None
    if not outcome.blocked:
        return f"{outcome.verdict}, not blocked ({outcome.sentence})"
    if not one.seen:
        return f"not seen by {_listed(mutant.seen_by)}, but by {_listed(one.aimed or outcome.blocking)}"
    return None


def _weak_rows(done: Iterable[Done]) -> list[str]:
    ran: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for one in done:
        if one.job.measure in ("fraction", "model"):
            ran[one.job.measure, one.job.name].append(one.outcome.blocked)
    weak = []
    for (measure, name), blocked in ran.items():
        share, n = sum(blocked) / len(blocked), f"{sum(blocked)} of {len(blocked)}"
        if measure == "fraction" and share < WEAK_BELOW:
            weak.append(f"fraction {name}: blocked in {n}, expected at least {WEAK_BELOW:.0%}")
        model = next((model for model in MODELS if model.name == name), None)
        if model is not None and len(blocked) >= _FEWEST and not model.as_expected(share):
            weak.append(f"model {name}: blocked in {n}; it {model.expectation}")
    return weak


def _engine(measure: str, name: str, ran: list[Done]) -> str:
    expected = "never blocked" if measure == "healthy" else next(m.expectation for m in MODELS if m.name == name)
    label = f"healthy, {name}" if measure == "healthy" else name
    blocked = [one for one in ran if one.outcome.blocked]
    checks = _listed({check for one in blocked for check in one.outcome.blocking})
    return f"| {label} | {len(ran)}{_twice(ran)} | {len(blocked)} | {checks} | {expected} |"


def _fault(mutant: Mutant, full: list[Done], fraction: list[Done]) -> str:
    blocked = [one.outcome for one in full if one.outcome.blocked]
    right = "" if mutant.harmless or not full else f"{sum(one.seen for one in full)} of {len(full)}"
    checks = {check for one in full for check in (*one.outcome.blocking, *one.aimed)}
    if mutant.harmless:
        warned = {check for one in full for check in one.outcome.warned}
        shown = f"harmless; warned: {_listed(warned)}" if warned else "harmless"
    else:
        seen = {check for check in checks if check.startswith(tuple(mutant.seen_by))}
        shown = _listed(seen or checks)
    late = [one.outcome for one in fraction if one.outcome.blocked]
    return (
        f"| `{mutant.fault}` | {_share(full)} | {right} | {shown} | {_requests(blocked)} "
        f"| {_share(fraction) if mutant.wire and not mutant.harmless else '–'} | {_requests(late)} |"
    )


def _share(ran: list[Done]) -> str:
    if not ran:
        return ""
    blocked = sum(one.outcome.blocked for one in ran)
    bound = f" (≥ {wilson_lower(blocked, len(ran)):.0%})" if len(ran) >= _FEWEST and blocked else ""
    return f"{blocked} of {len(ran)}{bound}{_twice(ran)}"


def _twice(ran: list[Done]) -> str:
    again = sum(one.first_try is not None for one in ran)
    return f", {again} tried twice" if again else ""


def _requests(outcomes: list) -> str:
    return f"{median(one.requests for one in outcomes):.0f}" if outcomes else ""


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    return ", ".join(ordered[:6]) + (" …" if len(ordered) > 6 else "")


def _where(one: Done) -> str:
    return f"{one.job.measure} {one.job.name} seed {one.job.seed}"
