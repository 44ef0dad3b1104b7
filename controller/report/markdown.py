"""The report for a mail or a chat: Markdown whose tables are readable as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gates.ledger.writers import escaped, markdown_table

from .records import Figure, Present, QueuedPart, Ratio, Report, RolloutPart, SweepPart
from .words import (
    baseline_in_words,
    cell,
    change,
    clock,
    dark_in_words,
    first_token,
    is_shown_as_arm,
    label,
    moment,
    number,
    plain,
    users_in_words,
    window_words,
)


def to_markdown(report: Report) -> str:
    """Everything that people, engines and gates wrote is escaped: none of it becomes markup."""
    return "\n\n".join(part for part in _parts(report) if part) + "\n"


def _parts(report: Report) -> Iterator[str]:
    night = report.night
    hours = f"{moment(night.opens)} to {night.closes:%H:%M} ({escaped(night.timezone)})"
    yield f"# Night of {escaped(night.date)}: {escaped(night.window)}"
    yield f"{night.state}, {hours}"
    yield "\n".join(f"- **{escaped(line)}**" if not place else f"- {escaped(line)}" for place, line in _said(report))
    if report.rollouts:
        yield "## What ran"
        yield markdown_table(("began", "rollout", "release", "outcome", "why"), map(_row, report.rollouts))
    alone = [part for part in report.rollouts if not is_shown_as_arm(part, report)]
    if compared := [part for part in alone if part.compared]:
        yield "## Against live"
        yield _ratios((label(part, report), part.compared) for part in compared)
    if lines := [line for part in alone for line in _figures(part.id, part.figures)]:
        yield markdown_table(_FIGURES, lines)
        yield escaped(baseline_in_words(report))
    for part in alone:
        if part.gates or part.dark or part.dark_back:
            yield _details(part)
    for sweep in report.sweeps:
        yield _sweep(sweep)
    if report.not_begun:
        yield "## What did not begin"
        yield "\n".join(
            f"- {escaped(one.id)} {escaped(one.release)} ({escaped(one.asked_by)}): {one.outcome}, {escaped(one.why)}"
            for one in report.not_begun
        )
    yield "## Users"
    users = users_in_words(report.users) if report.users else ("what users met is not known: there was no log",)
    yield "\n".join(f"- {escaped(sentence)}" for sentence in users)
    if report.cards:
        yield "## Cards"
        yield "\n".join(f"- {clock(card.at)} {escaped(card.gpu)}: {escaped(card.sentence)}" for card in report.cards)
    yield from _present(report.present)
    yield f"{_code(f'cutover report --night {night.id}')} · written {moment(report.made_at)}"


def _said(report: Report) -> Iterator[tuple[int, str]]:
    yield from enumerate((*report.headline, *report.night.said))


def _row(part: RolloutPart) -> list[str]:
    meanwhile = "" if part.of_this_night else " (not of this window)"
    again = f" (once more, after {escaped(part.again_for)})" if part.again_for else ""
    outcome = f"**{part.outcome}**{meanwhile}{again}"
    return [clock(part.began), escaped(part.id), escaped(part.release), outcome, escaped(part.why)]


def _ratios(rows: Iterable[tuple[str, Sequence[Ratio]]]) -> str:
    lines = [[escaped(name), ratio.words, change(ratio), ratio.says] for name, compared in rows for ratio in compared]
    return markdown_table(("", "metric", "change (between)", ""), lines)


_FIGURES = ("", "cell", "each tok/s", "baseline", "together tok/s", "baseline", "first token", "baseline")


def _figures(name: str, figures: Sequence[Figure]) -> list[list[str]]:
    return [
        [
            escaped(name),
            escaped(cell(one)),
            number(one.decode_tok_per_s),
            number(one.live_decode_tok_per_s),
            number(one.aggregate_tok_per_s),
            number(one.live_aggregate_tok_per_s),
            first_token(one.ttft_s),
            first_token(one.live_ttft_s),
        ]
        for one in figures
    ]


def _details(part: RolloutPart) -> str:
    lines = [f"### {escaped(part.id)} {escaped(part.release)}: {part.outcome}", ""]
    passed = ", ".join(dict.fromkeys(escaped(gate.name) for gate in part.gates if gate.verdict == "pass"))
    lines += [f"- passed: {passed}"] if passed else []
    for gate in (gate for gate in part.gates if gate.verdict != "pass"):
        observing = " (observing)" if gate.observe else ""
        lines.append(f"- {escaped(gate.name)}{observing} **{escaped(gate.verdict)}**: {escaped(gate.sentence)}")
        lines += [f"  - {escaped(one.id)}: {escaped(one.sentence)}" for one in gate.findings]
        if gate.evidence:
            lines.append(f"  - evidence: {_code(gate.evidence)}")
    lines += [f"- {sentence}" for sentence in dark_in_words(part)]
    if part.users and (part.users.held or part.users.lost):
        lines += [f"- meanwhile {escaped(sentence)}" for sentence in users_in_words(part.users)]
    return "\n".join([*lines, f"- {_code(part.command)}"])


def _sweep(sweep: SweepPart) -> str:
    parts = [f"## Sweep {escaped(sweep.id)} {escaped(sweep.name)}", _verdict(sweep)]
    lines = [
        [
            str(arm.rank or ""),
            escaped(arm.name),
            escaped(arm.rollout),
            f"{arm.outcome}, {arm.standing}",
            escaped(arm.why),
        ]
        for arm in sweep.arms
    ]
    parts.append(markdown_table(("rank", "arm", "rollout", "", "why"), lines))
    if any(arm.compared for arm in sweep.arms):
        parts.append(_ratios((arm.name, arm.compared) for arm in sweep.arms))
    if cells := [line for arm in sweep.arms for line in _figures(arm.name, arm.figures)]:
        parts.append(markdown_table(_FIGURES, cells))
    return "\n\n".join(parts)


def _verdict(sweep: SweepPart) -> str:
    head = f"**{escaped(sweep.pick)}**: " if sweep.pick else ""
    follows = f"; {_code(f'cutover show {sweep.followed_by}')}" if sweep.followed_by else ""
    return f"{head}{escaped(sweep.why)}{follows}"


def _present(now: Present) -> Iterator[str]:
    yield f"## Now ({moment(now.at)})"
    since = f" since {moment(now.live_since)}" if now.live_since else ""
    lines = [f"live: **{escaped(now.live)}**{since}; {escaped(now.live_why)}" if now.live else "nothing is live"]
    lines += [f"to go back to: {escaped(now.previous)}"] if now.previous else []
    lines += [escaped(sentence) for sentence in (now.active, now.frozen) if sentence]
    lines += [f"**alarm**: {escaped(alarm)}" for alarm in now.alarms]
    lines += [f"{escaped(card.gpu)} {escaped(card.sentence)}" for card in now.closed_cards]
    yield "\n".join(f"- {line}" for line in lines)
    yield "## Next"
    opens = [f"{escaped(one.window)} {window_words(one, now.at)} ({escaped(one.timezone)})" for one in now.windows]
    lines = [*opens, *(_queued(one) for one in now.queue)] or ["nothing waits"]
    yield "\n".join(f"- {line}" for line in lines)


def _queued(one: QueuedPart) -> str:
    what = f"{escaped(one.id)} {escaped(one.release)} ({escaped(one.asked_by)})"
    return f"{what} waits: {escaped(one.waits_for)}"


def _code(text: str) -> str:
    """In a fence that is longer than any in it: nothing in there is markup, and nothing gets out."""
    words = plain(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", words)), default=0))
    return f"{fence} {words} {fence}" if len(fence) > 1 else f"`{words}`"
