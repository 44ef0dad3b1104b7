"""Spans, outcomes and counts as people read them; shared by every rendering, so that all of them say the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gates.report_terminal import printable

from .records import Dark, Figure, Opens, Ratio, Report, RolloutPart, UsersPart


def plain(text: str) -> str:
    """On one line, without what a terminal or a mail program would act on."""
    return " ".join(printable(text).split())


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def span(seconds: float) -> str:
    """`0.4 s`, `74 s`, `12 min`, `3.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}" if at is not None else "–"


def moment(at: datetime | None) -> str:
    """With its date: `Mon 2026-11-30 02:41`."""
    return f"{at:%a %Y-%m-%d %H:%M}" if at is not None else "–"


def window_words(window: Opens, at: datetime) -> str:
    """`opens Mon 2026-11-30 02:00`, or until when it is open."""
    return f"is open until {moment(window.closes)}" if window.opens <= at else f"opens {moment(window.opens)}"


def percent(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


def change(ratio: Ratio) -> str:
    """`+12.0 % (+5.1 % … +19.4 %)`."""
    return f"{percent(ratio.ratio)} ({percent(ratio.low)} … {percent(ratio.high)})"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def first_token(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def label(part: RolloutPart, report: Report) -> str:
    """Who is compared; and with whom, where that is not who was live before the night."""
    other = part.compared_with not in {"", report.night.live_before}
    return plain(f"{part.id} {part.release}" + (f", against {part.compared_with}" if other else ""))


def baseline_in_words(report: Report) -> str:
    """Whose figures stand beside those of candidates; empty where live was not measured."""
    night = report.night
    shown = next((part for part in report.rollouts if part.id == night.baseline and part.figures), None)
    return f"baseline: what {plain(shown.release)} showed in this night ({shown.id})" if shown else ""


def cell(figure: Figure) -> str:
    return f"{plain(figure.workload)} c{figure.concurrency}"


def dark_s(part: RolloutPart) -> float:
    """On the way there and on the way back."""
    return sum(found.seconds for found in (part.dark, part.dark_back) if found is not None)


def dark_in_words(part: RolloutPart) -> tuple[str, ...]:
    """`dark 13 s: start 9.1 s, drain 3.9 s`; of what was rolled back also the dark after it."""
    named = (("dark", part.dark), ("on the way back dark", part.dark_back))
    return tuple(_one_dark(name, found) for name, found in named if found is not None)


def _one_dark(name: str, found: Dark) -> str:
    went = parts_in_words(found.parts)
    over = "" if found.until is not None or found.since is None else " (not over)"
    return f"{name} {span(found.seconds)}{over}" + (f": {went}" if went else "")


_DARK = {"rest": "switch or way back"}


def parts_in_words(parts: Mapping[str, float]) -> str:
    """`start 61 s, drain 9.0 s, switch or way back 4.1 s`: where dark seconds went, the most first."""
    worth = sorted(((name, s) for name, s in parts.items() if s >= 0.05), key=lambda item: -item[1])
    return ", ".join(f"{_DARK.get(name, name)} {span(seconds)}" for name, seconds in worth)


def users_in_words(users: UsersPart) -> tuple[str, ...]:
    """One sentence on who waited, one on who got no whole answer."""
    said = []
    if users.held:
        waited = f"{counted(users.held, 'request')} waited at the door, {span(users.longest_wait_s)} at the longest"
        ends = [(users.released, "served then"), (users.left, "gave up"), (users.timed_out, "sent away with 503")]
        said.append(f"{waited}: " + ", ".join(f"{many:,} {words}" for many, words in ends if many))
    else:
        said.append("nobody had to wait at the door")
    kinds = [
        (users.timed_out, "waited too long"),
        (users.refused, "refused with 503"),
        (users.cut, "cut in the middle"),
        (users.errors_5xx, "answered with 5xx"),
    ]
    lost = ", ".join(f"{many:,} {words}" for many, words in kinds if many)
    of = f"of {counted(users.requests, 'request')} at the public address"
    said.append(f"{users.lost:,} {of} got no whole answer: {lost}" if users.lost else f"{of} none was lost")
    if users.since is not None:
        said.append(f"the front door's log goes back to {moment(users.since)} only: what was before is not counted")
    return tuple(said)


def is_shown_as_arm(part: RolloutPart, report: Report) -> bool:
    """Its figures stand with those of the other arms of its sweep."""
    return any(part.id == arm.rollout for sweep in report.sweeps for arm in sweep.arms)
