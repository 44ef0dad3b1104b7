"""What a proposal that waits for a window has to fit into, and what it is told it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.budget import budget
from ..core.plan import Plan
from ..core.policy import Policy
from ..core.records import Kind, Now, Options, Release, Rollout, State
from ..core.window import Schedule
from ..errors import RefusedError, UsageError


def require_window(options: Options, policy: Policy, now: Now) -> None:
    """Raises `UsageError` for a window that is not configured, and for times that are over or come too early."""
    for name, at_s in (("expires", options.expires_wall_s), ("finish-by", options.finish_by_wall_s)):
        if at_s is not None and at_s <= now.wall_s:
            raise UsageError(f"--{name}: that time is over; give one that is to come, or a duration such as 12h")
    if not options.window:
        return
    schedule = policy.schedules.get(options.window)
    if schedule is None:
        known = ", ".join(policy.schedules) or "none"
        raise UsageError(
            f"--window: there is no window {options.window} (configured: {known}); set `schedule` in cutover.yaml, for "
            'example `schedule: {start: "02:00", duration: 4h, timezone: Asia/Taipei}`'
        )
    if schedule.current(now.wall_s) is not None:
        return
    opens = schedule.next(now.wall_s)
    for name, at_s in (("expires", options.expires_wall_s), ("finish-by", options.finish_by_wall_s)):
        if at_s is not None and at_s <= opens.opens_s:
            local = f"{schedule.local(opens.opens_s):%a %Y-%m-%d %H:%M}"
            raise UsageError(f"--{name}: window {options.window} opens later than that, {local} ({schedule.zone_name})")


def require_room(
    options: Options,
    plan: Plan,
    release: Release,
    profile: tuple[Mapping[str, Any], ...],
    state: State,
    policy: Policy,
    wall_s: float,
) -> None:
    """Raises `RefusedError` for what cannot be proved and undone within its window, or by the time it was given."""
    schedule = policy.schedules.get(options.window)
    there_is = [(schedule.duration_s, f"window {options.window} is open for")] if schedule else []
    if options.finish_by_wall_s is not None:
        current = schedule.current(wall_s) if schedule else None
        begins_s = schedule.next(wall_s).opens_s if schedule and current is None else wall_s
        there_is.append((options.finish_by_wall_s - begins_s, "until --finish-by there are"))
    if not there_is:
        return
    tried = Rollout("", Kind.PROPOSE, release.id, "", 0.0, options=options, profile=profile)
    known = replace(state, releases={**state.releases, release.id: release})
    need = budget(tried, plan, known, policy)
    left_s, said = min(there_is)
    if need.total_s > left_s:
        raise RefusedError(
            f"{release.id} needs about {_hours(need.total_s)} (until the cutover {_hours(need.before_s)}, bake "
            f"{_hours(need.bake_s)}, the way back {_hours(max(need.undo_s, need.return_s))}), and {said} "
            f"{_hours(left_s)}: more time, a shorter --bake, or a gate profile with shorter deadlines (what was never "
            "measured here counts as its limit)"
        )


def opens(schedule: Schedule, wall_s: float) -> str:
    """``window nightly is open until 06:00 (Asia/Taipei)``, or when it opens."""
    current = schedule.current(wall_s)
    if current is not None:
        return f"window {schedule.window} is open until {schedule.local(current.closes_s):%H:%M} ({schedule.zone_name})"
    at = schedule.local(schedule.next(wall_s).opens_s)
    return f"window {schedule.window} opens {at:%a %Y-%m-%d %H:%M} ({schedule.zone_name})"


def _hours(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
