"""The gate `throughput`: floors of the profile, and not slower than live by more than the margin."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gates import load_client
from gates.contract import Deployment, VerdictKind
from gates.strict import read_model
from gates.throughput.bench import Measured, ProbeFailedError, Progress, Subject, measure
from gates.throughput.book import Book, elsewhere, open_book, unlike
from gates.throughput.cells import UNMEASURABLE, CellRun
from gates.throughput.decide.floors import ClientError, judge_limit
from gates.throughput.decide.noninferiority import Decision, decide
from gates.throughput.decide.rule import SPOKEN, Rule
from gates.throughput.decide.spread import Spread
from gates.throughput.device_side import open_devices
from gates.throughput.explain import cliff, step_time
from gates.throughput.explain.memory_bound import with_shares
from gates.throughput.explain.waves import Request, find_waves
from gates.throughput.limits import judge_limits_on_nothing, limits_on
from gates.throughput.plain import plain_run, read_run
from gates.throughput.records import AGGREGATE, DECODE, HIGHER_IS_BETTER, Cell, Run
from gates.throughput.settings import ThroughputSettings
from gates.trial import DeadlineError
from gates.wire import parse_location

if TYPE_CHECKING:
    from gates.contract import Verdict
    from gates.trial import Trial

_FOR_GOOD: Final[Mapping[str, Any]] = {"again": False}
"""Of what stays unknown however often it is asked: the word of the gate contract."""
_WHOLE: Final = "every request ends with a finish_reason, usage, [DONE] and as many tokens as were asked for"


def run(trial: Trial) -> Verdict:
    """The gate as a profile asks for it."""
    settings = read_model(ThroughputSettings, trial.request.profile, "settings of gate throughput")
    request = trial.request
    candidate = request.candidate or Deployment()
    pages = (request.metrics_url,) if request.metrics_url else candidate.metrics_urls
    known = {name: getattr(candidate, name) for name in ("topology", "release", "digest")}
    subject = Subject(
        trial.endpoint,
        request.model,
        trial.capability,
        pages,
        candidate.flags,
        candidate.instances,
        request.engine,
        candidate.engine_version,
        {key: value for key, value in known.items() if value},
    )
    return judge(trial, settings, subject, open_book(request))


def judge(
    trial: Trial, settings: ThroughputSettings, subject: Subject, book: Book, *, thorough: bool = False
) -> Verdict:
    """Measure `subject` and judge it. What was measured is in the verdict's measurements, as `run`, and in the `book`.

    It ends as soon as the verdict can no longer change; `thorough`: a failed request does not end it, because people
    want the other numbers, and a signal does not lose what was measured.
    """
    baseline = book.baseline(settings) or _baseline(trial, settings, book)
    other = unlike(baseline, settings, book.live) if baseline is not None else None
    if other is not None:
        trial.check("baseline", VerdictKind.INCONCLUSIVE, other, measurements=_FOR_GOOD)
        return _verdict(trial, "")
    known = {} if baseline is None else book.spreads(subject.engine, _hardware(subject, book), settings)
    rule = _rule(settings, known, book.starts)
    refused = rule.refusal() if baseline is not None else None
    if refused is not None:
        trial.check("margin", VerdictKind.INCONCLUSIVE, refused, measurements=_FOR_GOOD)
        return _verdict(trial, "")
    try:
        measured = load_client.run(
            lambda: _measure(trial, settings, subject, _Enough(settings, baseline, rule, thorough))
        )
    except ProbeFailedError as error:
        return _no_answer(trial, error)
    measured = replace(measured, hardware={**measured.hardware, **book.candidate.hardware})
    measured = _explained(measured, settings, subject)
    recorded = book.keep(measured.run, measured.hardware, who=f"gate {trial.request.gate}")
    if recorded is not None:
        trial.measurements["ledger"] = {"run": recorded.run, "rows": list(recorded.rows)}
    measured = replace(measured, notes=[*measured.notes, *book.notes])
    trial.measurements["run"] = plain_run(measured.run)
    trial.measurements["hardware"] = dict(measured.hardware)
    trial.measurements["notes"] = list(measured.notes)
    for note in measured.notes:
        trial.say(note)
    if measured.interrupted is not None:
        trial.measurements["interrupted"] = measured.interrupted
        trial.check("run", VerdictKind.INCONCLUSIVE, measured.interrupted)
    if all(seen.impossible for seen in measured.cells):
        said = dict.fromkeys([cell.problem for cell in measured.run.cells if cell.problem] or measured.notes)
        sentence = f"nothing was measured: {'; '.join(said)}"
        trial.check("run", VerdictKind.INCONCLUSIVE, sentence, measurements=_FOR_GOOD)
    for seen, cell in zip(measured.cells, measured.run.cells, strict=True):
        _judge_cell(trial, settings, seen, cell, measured.run)
        _judge_waves(trial, seen)
    judge_limits_on_nothing(trial, settings, measured.run)
    if book.problem is not None:
        trial.check("ledger", VerdictKind.PASS, book.problem, warn=True)
    _judge_ladders(trial, settings, measured.run)
    if baseline is None:
        trial.skip("baseline", book.why_none)
    else:
        trial.measurements["baseline"] = {"release": _release_of_live(trial, book), "runs": list(book.runs)}
        _judge_baseline(trial, measured.run, baseline, rule)
    return _verdict(trial, headline(measured.run))


def _verdict(trial: Trial, passed: str) -> Verdict:
    """With `again: false` where no repetition can tell what this one could not."""
    undecided = [check for check in trial.checks if check.verdict is VerdictKind.INCONCLUSIVE and not check.skipped]
    if undecided and all(check.measurements.get("again") is False for check in undecided):
        trial.measurements |= _FOR_GOOD
    return trial.verdict(passed)


def _hardware(subject: Subject, book: Book) -> Mapping[str, Any]:
    """What the daemon knows of the cards; else what can be seen of them."""
    if book.candidate.hardware or book.ledger is None:
        return book.candidate.hardware
    servers = [parse_location(url)[0] for url in subject.metrics_urls]
    return open_devices(subject.endpoint.target, servers=servers).hardware()


def _explained(measured: Measured, settings: ThroughputSettings, subject: Subject) -> Measured:
    if settings.roofline is None:
        return measured
    run_, said = with_shares(measured.run, settings.roofline, subject.instances)
    return replace(measured, run=run_, notes=[*measured.notes, *said])


def _rule(settings: ThroughputSettings, known: Mapping[str, Spread], baseline_starts: int) -> Rule:
    """`known`: the spreads between starts that restarts have measured; the others are assumed."""
    spreads: dict[str, Spread] = {
        metric: known.get(metric) or Spread(settings.session_sd) for metric in settings.compared
    }
    return Rule(margin=settings.margin, metrics=settings.compared, spreads=spreads, baseline_starts=baseline_starts)


@dataclass(frozen=True)
class _Enough:
    """Can the verdict still change?"""

    settings: ThroughputSettings
    baseline: Run | None
    rule: Rule
    thorough: bool

    def __call__(self, so_far: Run, rounds: int) -> str | None:
        failed = any(kind not in UNMEASURABLE for cell in so_far.cells for kind in cell.failures)
        if failed and not self.thorough:
            return "requests failed"
        if rounds not in self.settings.rounds:
            return None
        if self.baseline is None or failed:
            return f"{rounds} round{'s were' if rounds != 1 else ' was'} asked for"
        decision = decide(asked(so_far), self.baseline, self.rule)
        return None if decision.next_look is not None else decision.sentence

    @property
    def also(self) -> dict[str, set[int]]:
        """Rungs of the baseline, by workload: what it shows has to be compared, also where limits have changed."""
        rungs: dict[str, set[int]] = {}
        for cell in self.baseline.cells if self.baseline is not None else ():
            rungs.setdefault(cell.key.workload, set()).add(cell.key.concurrency)
        return rungs


async def _measure(trial: Trial, settings: ThroughputSettings, subject: Subject, enough: _Enough) -> Measured:
    def listen(progress: Progress) -> None:
        left = f", about {progress.left_s:.0f} s left" if progress.left_s else ""
        trial.say(f"{progress.sentence} ({progress.done} of {progress.of} rounds done{left})")

    return await measure(
        subject,
        settings,
        ends_at_s=trial.ends_at_s,
        listen=listen,
        enough=enough,
        also=enough.also,
        interruptible=enough.thorough,
    )


def _no_answer(trial: Trial, error: ProbeFailedError) -> Verdict:
    """Not even a short question was answered. Raises for a missing key, a wrong model, and the gate's own end."""
    reading = error.reading
    trial.guard(reading.exchange)
    if trial.remaining_s() <= 0:
        raise DeadlineError
    untimed = reading.failure in UNMEASURABLE
    trial.check(
        "requests",
        VerdictKind.INCONCLUSIVE if untimed else VerdictKind.FAIL,
        f"{reading.sentence}: speed cannot be measured" if untimed else reading.sentence,
        rule=_WHOLE,
        exchanges=[reading.exchange],
        measurements=_FOR_GOOD if untimed else None,
    )
    return _verdict(trial, "")


# --- one cell ---------------------------------------------------------------------------------------------------------


def _judge_cell(trial: Trial, settings: ThroughputSettings, seen: CellRun, cell: Cell, run_: Run) -> None:
    name = f"{cell.key.workload}.c{cell.key.concurrency}"
    failed = {kind: count for kind, count in cell.failures.items() if kind not in UNMEASURABLE}
    if failed:
        kind = max(failed, key=lambda each: failed[each])
        listed = ", ".join(f"{count} × {each}" for each, count in failed.items())
        sentence = f"{sum(failed.values())} of {cell.requests} requests failed ({listed}): {seen.sentences[kind]}"
        trial.check(f"{name}.requests", VerdictKind.FAIL, sentence, rule=_WHOLE, exchanges=seen.shown)
        return
    if seen.impossible:
        trial.skip(f"{name}.measurement", cell.problem or "its requests do not fit into the context")
        return
    if cell.problem is not None:
        known = _FOR_GOOD if seen.untimeable else None
        trial.check(
            f"{name}.measurement", VerdictKind.INCONCLUSIVE, cell.problem, exchanges=seen.shown, measurements=known
        )
        return
    trial.check(
        f"{name}.requests",
        VerdictKind.PASS,
        f"{cell.requests} of {cell.requests} requests complete" + _odd_counts(seen),
        rule=_WHOLE,
        exchanges=seen.shown[:1],
        measurements=cell_numbers(cell),
        warn=seen.watch.missing > 0,
    )
    client = ClientError(seen.client_error, seen.cost.lag_p99_s)
    for limit, check_id in limits_on(settings, cell, run_):
        decision = judge_limit(cell, limit, client)
        trial.check(f"{name}.{check_id}", decision.verdict, decision.sentence)


def _odd_counts(seen: CellRun) -> str:
    """What the engine's count has to say about ours, where the two differ."""
    if seen.watch.missing:
        return f"; the engine's page counts {seen.watch.missing:.0f} fewer (is it the page of one engine of several?)"
    if seen.watch.beyond:
        return f"; the engine finished {seen.watch.beyond:.0f} more, of hardly any tokens: somebody's health probes"
    return ""


# --- all of it --------------------------------------------------------------------------------------------------------


def _judge_ladders(trial: Trial, settings: ThroughputSettings, run_: Run) -> None:
    # Cells that are no measurement have been named, with the reason.
    run_ = replace(run_, cells=[cell for cell in run_.cells if cell.problem is None])
    for found in cliff.find_all(run_):
        if len(found.rungs) < 2:
            continue
        law = step_time.fit(run_, found.workload)
        blocks = found.cliffs and settings.on_cliff == "fail"
        trial.check(
            f"{found.workload}.ladder",
            VerdictKind.FAIL if blocks else VerdictKind.PASS,
            # Beyond a cliff no law of the step time holds.
            found.sentence if found.cliffs or law.base_s is None else f"{found.sentence}; {law.words}",
            rule="no step of the ladder breaks the trend of those below it",
            warn=bool(found.cliffs),
        )


def _judge_waves(trial: Trial, seen: CellRun) -> None:
    """Named where requests ran in waves: a batch in, a batch out, and nobody let in between."""
    for streams in seen.rounds:
        found = find_waves([Request(s.sent_at_s, s.first_at_s, s.last_at_s) for one in streams for s in one.samples])
        if found.synchronous:
            trial.check(
                f"{seen.key.workload}.c{seen.key.concurrency}.waves", VerdictKind.PASS, found.sentence, warn=True
            )
            return


def _baseline(trial: Trial, settings: ThroughputSettings, book: Book) -> Run | None:
    """What the request says was measured before; not where that was on other cards than live has now.

    Of live only the workloads that the profile asks, as out of the ledger.
    """
    measurements = (trial.request.baseline or {}).get("measurements")
    document = measurements.get("run") if isinstance(measurements, Mapping) else None
    if not isinstance(measurements, Mapping) or not isinstance(document, Mapping):
        return None
    hardware = measurements.get("hardware")
    if book.live is not None and isinstance(hardware, Mapping):
        other = elsewhere(hardware, book.live.hardware)
        if other is not None:
            book.why_none = f"{book.why_none}; as a candidate it was on other hardware ({other})"
            return None
    try:
        run_ = asked(read_run(document))
    except ValueError as error:
        trial.say(f"the baseline cannot be read: {error}")
        return None
    if book.live is None:
        return run_
    names = {workload.name for workload in settings.workloads}
    kept = [cell for cell in run_.cells if cell.key.workload in names]
    if not kept:
        return None
    return replace(run_, cells=kept, workloads={name: run_.workloads[name] for name in names & {*run_.workloads}})


def asked(run_: Run) -> Run:
    """Without the cells for which nothing was sent: what an engine has no room for is not compared."""
    return replace(run_, cells=[cell for cell in run_.cells if cell.requests])


def _release_of_live(trial: Trial, book: Book) -> str:
    """Of whom the baseline is; empty where nobody says."""
    return (book.live.release if book.live is not None else "") or str(
        (trial.request.baseline or {}).get("release", "")
    )


def _judge_baseline(trial: Trial, run_: Run, baseline: Run, rule: Rule) -> None:
    untimed = [str(cell.key) for cell in run_.cells if any(kind in UNMEASURABLE for kind in cell.failures)]
    if untimed:
        sentence = f"nothing to compare: {', '.join(untimed)} cannot be timed"
        trial.check("baseline", VerdictKind.INCONCLUSIVE, sentence, measurements=_FOR_GOOD)
        return
    decision = decide(asked(run_), baseline, rule)
    trial.measurements["baseline_notes"] = list(decision.notes)
    trial.measurements["compared"] = compared(decision, rule)
    if not decision.families:
        trial.check("baseline", decision.verdict, decision.sentence)
    for family in decision.families:
        trial.check(
            f"baseline.{family.metric}",
            family.verdict,
            family.sentence,
            rule=f"not worse than the baseline by more than {rule.margin_of(family.metric):.0%}",
            measurements=_FOR_GOOD if family.short_baseline else None,
        )


def compared(decision: Decision, rule: Rule) -> list[dict[str, Any]]:
    """Candidate against baseline, plain: per metric the ratio of the metric itself between two bounds.

    Above 1 is faster for a rate and slower for a time. A metric without a cell to compare is left out.
    """
    return [
        {
            "metric": family.metric,
            "name": SPOKEN[family.metric],
            "higher_is_better": HIGHER_IS_BETTER[family.metric],
            "verdict": str(family.verdict),
            "ratio": family.ratio,
            "low": family.low,
            "high": family.high,
            "margin": rule.margin_of(family.metric),
            "cells": len(family.cells),
            "rounds": family.rounds,
        }
        for family in decision.families
        if family.cells
    ]


def cell_numbers(cell: Cell) -> dict[str, Any]:
    """What people look at first, each as its median with the number of rounds or samples."""
    rounds = {metric: {"median": statistics.median(values), "n": len(values)} for metric, values in cell.rounds.items()}
    return {**rounds, **{name: {"value": f.value, "n": f.n} for name, f in cell.figures.items()}}


def headline(run_: Run) -> str:
    """The run on one line: each workload's lowest rung, and the one that yields most."""
    good = [c for c in run_.cells if c.problem is None and c.rounds.get(DECODE) and c.rounds.get(AGGREGATE)]
    said = []
    for workload in dict.fromkeys(cell.key.workload for cell in good):
        cells = [cell for cell in good if cell.key.workload == workload]
        first = min(cells, key=lambda cell: cell.key.concurrency)
        most = max(cells, key=lambda cell: statistics.median(cell.rounds[AGGREGATE]))
        said.append(
            f"{first.key} {statistics.median(first.rounds[DECODE]):.1f} tok/s each"
            f", at most {statistics.median(most.rounds[AGGREGATE]):.1f} together at c{most.key.concurrency}"
        )
    return "; ".join(said) or "measured"
