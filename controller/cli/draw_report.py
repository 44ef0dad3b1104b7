"""The morning report for a terminal: what is live now first, then what ran, against live, what waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..report.charts import Dots, Whisker, dots
from ..report.records import Figure, Report, RolloutPart, SweepPart
from ..report.words import (
    baseline_in_words,
    cell,
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

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_STYLES = {"good": "green", "bad": "red", "unsure": "yellow", "quiet": "dim", "open": "cyan"}
_VERDICTS = {"pass": "green", "fail": "bold red", "inconclusive": "yellow", "error": "magenta"}
_PLOT_CELLS = 41


def draw_report(report: Report) -> Iterator[RenderableType]:
    from rich.text import Text

    night = report.night
    yield Text(f"Night of {plain(night.date)}: {plain(night.window)}", style="bold")
    yield Text(f"{night.state}, {moment(night.opens)} to {night.closes:%H:%M} ({plain(night.timezone)})", style="dim")
    for place, sentence in enumerate((*report.headline, *night.said)):
        yield Text(plain(sentence), style="bold" if not place else "")
    for alarm in report.present.alarms:
        yield Text(f"! {plain(alarm)}", style="bold red")
    for title, parts in (
        ("what ran", _rollouts(report)),
        ("against live", _against_live(report)),
        *((f"sweep {one.id} {plain(one.name)}", _sweep(one)) for one in report.sweeps),
        ("what did not begin", _not_begun(report)),
        ("users", _users(report)),
        ("cards", (Text(f"{clock(c.at)}  {plain(c.gpu)}  {plain(c.sentence)}") for c in report.cards)),
        (f"now, {moment(report.present.at)}", _present(report)),
        ("next", _next(report)),
    ):
        shown = list(parts)
        if shown:
            yield Text(f"\n{title}", style="bold")
            yield from shown


def _rollouts(report: Report) -> Iterator[Text]:
    from rich.text import Text

    for part in report.rollouts:
        line = Text.assemble((f"{clock(part.began)}  ", "dim"), (f"{part.id}  ", "bold"))
        line.append(part.outcome, _STYLES[part.tone]).append(f"  {plain(part.release)}")
        line.append(f"  (once more, after {plain(part.again_for)})" if part.again_for else "", "dim")
        yield line if part.of_this_night else line.append("  (not of this window)", "dim")
        yield Text(f"          {plain(part.why)}")
        for gate in part.gates:
            if gate.verdict != "pass":
                told = Text.assemble(
                    f"          {plain(gate.name)}  ", (plain(gate.verdict), _VERDICTS.get(gate.verdict, ""))
                )
                yield told.append(f"  {plain(gate.sentence)}")
                if gate.evidence:
                    yield Text(f"          {plain(gate.evidence)}", style="dim")
        yield from _dark(part)


def _dark(part: RolloutPart) -> Iterator[Text]:
    from rich.text import Text

    for sentence in dark_in_words(part):
        yield Text(f"          {sentence}", style="yellow")
    if part.users is not None and (part.users.held or part.users.lost):
        yield Text(f"          meanwhile {'; '.join(users_in_words(part.users))}", style="dim")


def _against_live(report: Report) -> Iterator[Text]:
    from rich.text import Text

    alone = [part for part in report.rollouts if not is_shown_as_arm(part, report)]
    yield from _dots(dots([(label(part, report), part.compared) for part in alone]))
    figures = [(part.id, one) for part in alone for one in part.figures]
    yield from _figures(figures)
    if figures and (said := baseline_in_words(report)):
        yield Text(f"  {said}", style="dim")


def _dots(charts: Sequence[Dots]) -> Iterator[Text]:
    from rich.text import Text

    widest = max((len(plain(row.label)) for chart in charts for row in chart.rows), default=0)
    for chart in charts:
        yield Text(f"{chart.title} ({chart.note})", style="dim")
        for row in chart.rows:
            line = Text(f"  {plain(row.label):<{widest}} ")
            line.append(_whisker(row, chart), _STYLES[row.tone])
            yield line.append(f" {row.says} {row.words}")


def _whisker(row: Whisker, chart: Dots) -> str:
    """``     ├──●──┤   │      ``: the line is the uncertainty, `│` is live."""
    signs = [" "] * _PLOT_CELLS
    signs[_place(next(tick.at for tick in chart.ticks if tick.bold))] = "│"
    low, high = _place(row.low), _place(row.high)
    for place in range(low, high + 1):
        signs[place] = "─"
    signs[low], signs[high], signs[_place(row.dot)] = "├", "┤", "●"
    return "".join(signs)


def _place(per_cent: float) -> int:
    return round(per_cent / 100 * (_PLOT_CELLS - 1))


def _figures(listed: Sequence[tuple[str, Figure]]) -> Iterator[Text]:
    from rich.text import Text

    for name, one in listed:
        rows = (
            (number(one.decode_tok_per_s), number(one.live_decode_tok_per_s), "tok/s each"),
            (number(one.aggregate_tok_per_s), number(one.live_aggregate_tok_per_s), "together"),
            (first_token(one.ttft_s), first_token(one.live_ttft_s), "to the first token"),
        )
        told = ", ".join(
            f"{mine} {words}" + (f" (baseline {live})" if live != "–" else "") for mine, live, words in rows
        )
        yield Text(f"  {plain(name)} {cell(one)}: {told}", style="dim")


def _sweep(sweep: SweepPart) -> Iterator[Text]:
    from rich.text import Text

    yield Text(plain(sweep.why), style="bold")
    for arm in sweep.arms:
        line = Text(f"  {arm.rank or '–':>2}  {plain(arm.name)}  ")
        line.append(arm.outcome, _STYLES[arm.tone]).append(f", {arm.standing}", "dim")
        yield line.append(f"  {plain(arm.why)}", "dim")
    yield from _dots(dots([(arm.name, arm.compared) for arm in sweep.arms]))
    yield from _figures([(arm.name, one) for arm in sweep.arms for one in arm.figures])


def _not_begun(report: Report) -> Iterator[Text]:
    from rich.text import Text

    for one in report.not_begun:
        yield Text(f"{one.id}  {one.outcome}  {plain(one.release)} ({plain(one.asked_by)}): {plain(one.why)}")


def _users(report: Report) -> Iterator[Text]:
    from rich.text import Text

    if report.users is None:
        yield Text("what users met is not known: there was no log", style="dim")
        return
    for sentence in users_in_words(report.users):
        yield Text(sentence)


def _present(report: Report) -> Iterator[Text]:
    from rich.text import Text

    now = report.present
    since = f" since {moment(now.live_since)}" if now.live_since else ""
    yield Text(f"live: {plain(now.live)}{since}; {plain(now.live_why)}" if now.live else "nothing is live")
    for words in (f"to go back to: {now.previous}" if now.previous else "", now.active, now.frozen):
        if words:
            yield Text(plain(words))
    for card in now.closed_cards:
        yield Text(f"{plain(card.gpu)} {plain(card.sentence)}", style="yellow")


def _next(report: Report) -> Iterator[Text]:
    from rich.text import Text

    now = report.present
    for window in now.windows:
        when = window_words(window, now.at)
        yield Text(f"window {plain(window.window)} {when} ({plain(window.timezone)})")
    for one in now.queue:
        yield Text(f"{one.id}  {plain(one.release)} ({plain(one.asked_by)}) waits: {plain(one.waits_for)}")
    if not now.queue:
        yield Text("nothing waits")
