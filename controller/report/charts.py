"""Small charts as shares of a width: positions in per cent, so that text keeps its size on every screen. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from .records import Ratio, Report, RolloutPart
from .words import change, clock, parts_in_words, plain, span

_WIDEST: Final = 4.0
_TICKS: Final = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
_APART: Final = 11.0  # per cent of the width between two labels: `+25 %` on a phone
_ROOM: Final = 3.0  # per cent that stay free at both ends
_MOST_HOURS: Final = 7
_TONES: Final = {"better": "good", "worse": "bad", "no difference": "quiet"}


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    label: str
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Whisker:
    """One candidate's ratio to live, with its bounds; `allowed`: where the margin ends."""

    label: str
    dot: float
    low: float
    high: float
    allowed: float
    tone: str
    says: str
    words: str


@dataclass(frozen=True, slots=True)
class Dots:
    title: str
    note: str
    rows: tuple[Whisker, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    at: float
    width: float
    kind: str  # tone of a rollout · watched · dark
    words: str


_BarMaker = Callable[[datetime, datetime, str, str], Bar]


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    closes: float | None  # where the window closes, if it is not the end of the axis


def dots(named: Sequence[tuple[str, Sequence[Ratio]]]) -> tuple[Dots, ...]:
    """One chart per metric: every candidate that was compared by it."""
    flat = [(name, ratio) for name, ratios in named for ratio in ratios]
    metrics = dict.fromkeys(ratio.metric for _, ratio in flat)
    return tuple(_dots([(name, ratio) for name, ratio in flat if ratio.metric == metric]) for metric in metrics)


def _dots(rows: Sequence[tuple[str, Ratio]]) -> Dots:
    reach = max(1.12, *(max(ratio.high, 1 / ratio.low) for _, ratio in rows))
    far = math.log(min(_WIDEST, reach))

    def at(value: float) -> float:
        share = (math.log(value) + far) / (2 * far)
        return round(_ROOM + (100 - 2 * _ROOM) * min(1.0, max(0.0, share)), 2)

    first = rows[0][1]
    return Dots(
        first.words,
        "right is better" if first.higher_is_better else "left is better",
        tuple(_whisker(name, ratio, at) for name, ratio in rows),
        tuple(_spread([Tick(at(v), _percent(v), v == 1.0) for v in _TICKS if abs(math.log(v)) <= far])),
    )


def _whisker(name: str, ratio: Ratio, at: Callable[[float], float]) -> Whisker:
    dot, low, high, allowed = (at(value) for value in (ratio.ratio, ratio.low, ratio.high, _allowed(ratio)))
    return Whisker(name, dot, low, high, allowed, _TONES.get(ratio.says, "quiet"), ratio.says, change(ratio))


def _allowed(ratio: Ratio) -> float:
    kept = 1 - min(0.9, ratio.margin)
    return kept if ratio.higher_is_better else 1 / kept


def _percent(value: float) -> str:
    return "live" if value == 1.0 else f"{(value - 1) * 100:+.0f} %"


def _spread(ticks: Sequence[Tick]) -> Iterable[Tick]:
    """Those whose labels have room, with live in any case."""
    middle = next(tick for tick in ticks if tick.bold)
    for side in ([t for t in ticks if t.at < middle.at][::-1], [t for t in ticks if t.at > middle.at]):
        last = middle.at
        for tick in side:
            if abs(tick.at - last) >= _APART:
                yield tick
                last = tick.at
    yield middle


def timeline(report: Report) -> Timeline | None:
    """The night from its opening; None where nothing ran in it."""
    night = report.night
    begun = [part for part in report.rollouts if part.began is not None]
    if not begun:
        return None
    begin = night.opens
    end = max([night.closes, *(one for one in (night.ended, *(p.ended for p in begun)) if one is not None)])
    whole_s = max(1.0, (end - begin).total_seconds())

    def at(moment: datetime) -> float:
        return round(100 * min(1.0, max(0.0, (moment - begin).total_seconds() / whole_s)), 3)

    def bar(since: datetime, until: datetime, kind: str, words: str) -> Bar:
        return Bar(at(since), max(0.35, round(at(until) - at(since), 3)), kind, words)

    rows = tuple(_row(parts, report.made_at, bar) for parts in _together(begun))
    every = max(1, -(-len(night.hours) // _MOST_HOURS))
    ticks = tuple(Tick(at(hour), f"{hour:%H:%M}") for hour in night.hours[::every])
    late = (end - night.closes).total_seconds() > whole_s / 100
    return Timeline(rows, ticks, at(night.closes) if late else None)


def _together(begun: Sequence[RolloutPart]) -> Iterable[Sequence[RolloutPart]]:
    """The arms of a sweep, which run one after the other, are one row: hundreds of rows are no picture of a night."""
    rows: dict[str, list[RolloutPart]] = {}
    for part in begun:
        rows.setdefault(part.sweep if part.trial and part.sweep else part.id, []).append(part)
    return rows.values()


def _row(parts: Sequence[RolloutPart], now: datetime, bar: _BarMaker) -> Row:
    first, *others = parts
    if not others:
        return Row(f"{first.id} {plain(first.release)}", tuple(_bars(first, now, bar)))
    bars = (replace(one, words=f"{part.id}, {one.words}") for part in parts for one in _bars(part, now, bar))
    return Row(f"sweep {first.sweep}: {len(parts)} arms", tuple(bars))


def _bars(part: RolloutPart, now: datetime, bar: _BarMaker) -> Iterable[Bar]:
    began, over = part.began, part.ended or now
    if began is None:
        return
    switched = part.switched if part.switched and part.kind != "rollback" else None
    yield bar(began, switched or over, part.tone, f"{clock(began)} to {clock(switched or over)}: {part.outcome}")
    if switched:
        left = part.left or over
        yield bar(switched, left, "watched", f"{clock(switched)} to {clock(left)}: with users, and watched")
    for found in (part.dark, part.dark_back):
        if found is None or found.since is None:
            continue
        until = found.until or now
        went = f" ({parts_in_words(found.parts)})" if found.parts else ""
        words = f"{clock(found.since)} to {clock(until)}: dark {span(found.seconds)}{went}"
        yield bar(found.since, until, "dark", words)
