"""The whole night in a few sentences: what is live now, what was tried, what users met. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .records import NightPart, NotBegun, Present, RolloutPart, UsersPart
from .words import clock, counted, dark_s, span

_MOST_NAMED = 8


def headline(
    night: NightPart, parts: Sequence[RolloutPart], not_begun: Sequence[NotBegun], users: UsersPart | None, now: Present
) -> tuple[str, ...]:
    """Sentences, the most important first."""
    if night.state == "missed":
        waited = [one for one in not_begun if one.outcome == "waits"]
        names = _few([f"{one.id} ({one.release})" for one in waited])
        had = f"{counted(len(waited), 'proposal')} had waited for it: {names}" if waited else "nobody had waited for it"
        return f"The window was missed: {night.why}.", f"{had[0].upper()}{had[1:]}."
    said = [_still_open(night, now)] if night.state == "open" else []
    said += [_live(night, parts), *_gone_back(parts), _tried(parts, not_begun)]
    dark = [part for part in parts if part.dark is not None or part.dark_back is not None]
    if dark:
        listed = _few([f"{part.id} {span(dark_s(part))}" for part in sorted(dark, key=dark_s, reverse=True)])
        said.append(f"Nothing served for {span(sum(map(dark_s, dark)))} ({listed}).")
    if users is not None and users.lost:
        said.append(f"{users.lost:,} of {counted(users.requests, 'request')} got no whole answer.")
    elif users is not None:
        said.append(f"No request was lost, of {counted(users.requests, 'request')}.")
    if night.baseline_pending:
        said.append(f"Live is not measured yet in this night ({night.baseline_why}).")
    elif night.baseline_why:
        said.append(
            f"Live was not measured in this night ({night.baseline_why}): candidates are compared with what it showed "
            "before."
        )
    return tuple(said)


def _few(names: Sequence[str]) -> str:
    """A headline stays one: of hundreds the first are named, and how many there are besides."""
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join([*names[:_MOST_NAMED], *more])


def _still_open(night: NightPart, now: Present) -> str:
    until = f"The window is open until {night.closes:%H:%M} ({night.timezone})"
    return f"{until}: {now.active}." if now.active else f"{until}; nothing is being tried just now."


def _live(night: NightPart, parts: Sequence[RolloutPart]) -> str:
    after, before = night.live_after, night.live_before
    if not after:
        return "Nothing is live." if not before else f"Nothing is live any more; {before} was."
    switched = [part for part in parts if part.switched is not None]
    if after == before:
        gone = [part for part in switched if part.phase == "rolled_back"]
        back = f" again, after {_few([part.id for part in gone])}" if gone else ""
        return f"{after} is live{back}, as before." if gone else f"{after} is live as before: users were not switched."
    to_it = next((part for part in reversed(switched) if part.release == after), None)
    if to_it is None:
        return f"{after} is live; before it was {before or 'nothing'}."
    return (
        f"{after} is live since {clock(to_it.switched)} ({to_it.id}: {to_it.why}); before it was {before or 'nothing'}."
    )


def _gone_back(parts: Sequence[RolloutPart]) -> Iterator[str]:
    """Of each that users were led to and that was worse: for how long they were on it, and what the way back cost."""
    for part in parts:
        if part.kind == "rollback" or part.switched is None:
            continue
        who = f"{part.id} ({part.release})"
        if part.phase == "rollback_failed":
            yield f"{who} could not be rolled back and is what users have: a person is needed ({part.why})."
        if part.phase == "rolled_back" and part.left is not None:
            on_it = (
                f"{span((part.left - part.switched).total_seconds())} ({clock(part.switched)} to {clock(part.left)})"
            )
            back = f"nothing served for {span(part.dark_back.seconds)}" if part.dark_back else "it was never dark"
            yield f"{who} was rolled back ({part.why}): users were on it for {on_it}, and on the way back {back}."


def _tried(parts: Sequence[RolloutPart], not_begun: Sequence[NotBegun]) -> str:
    mine = [part for part in parts if part.kind != "measure"]
    words = Counter(part.outcome for part in mine)
    listed = ", ".join(f"{many} {word}" for word, many in words.items())
    waits = sum(one.outcome == "waits" for one in not_begun)
    begun = f"{counted(len(mine), 'rollout')}: {listed}" if mine else "Nothing was tried"
    return f"{begun}; {waits} still wait{'s' * (waits == 1)}." if waits else f"{begun}."
