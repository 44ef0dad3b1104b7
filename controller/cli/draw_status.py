"""What is live, what could be, who holds which card: one screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .reporters import footer_parts
from .terminal import clock, since, span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Document = Mapping[str, Any]

_CARD_WIDTH = 20  # four cards fit a terminal of 80 columns


def draw_status(status: Document) -> list[RenderableType]:
    """`status` as the API gives it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for alarm in status["alarms"]:
        grid.add_row(Text("ALARM", style="bold red"), Text(alarm, style="bold red"))
    if status["freeze"]:
        freeze = status["freeze"]
        until = f" until {clock(freeze['until_wall_s'])}" if freeze.get("until_wall_s") else ""
        text = f"by {freeze['by']} since {clock(freeze['since_wall_s'])}{until}: {freeze['why']}"
        grid.add_row(Text("FROZEN", style="bold blue"), Text(text, style="blue"))
    for name in ("live", "previous"):
        grid.add_row(name, _seat(status[name], is_live=name == "live"))
    if status["previous"]:
        way = status["way_home"]
        grid.add_row("going back", Text(way["sentence"], style="yellow" if way["dark"] else ""))
    grid.add_row("rollout", _rollout(status["rollout"]))
    if status["queue"]:
        grid.add_row("queue", Text("\n".join(_waiting(status["queue"]))))
    grid.add_row("front door", _door(status))
    parts: list[RenderableType] = [grid]
    if status["gpus"]:
        parts.append(_gpus(status))
    parts.append(Text(status["now"], style="dim"))
    return parts


def _waiting(queue: Sequence[Document]) -> Iterator[str]:
    """Who waits, in order; the arms of a sweep that follow each other on one line."""
    for sweep, following in groupby(queue, key=lambda rollout: rollout["options"].get("sweep")):
        arms = list(following)
        if sweep and len(arms) > 1:
            yield f"{arms[0]['id']} and {len(arms) - 1} more of sweep {sweep}"
        else:
            yield from (f"{r['id']} {r['kind']} {r['release']}" for r in arms)


def _seat(seat: Document | None, *, is_live: bool) -> Text:
    from rich.text import Text

    if seat is None:
        return Text("nothing serves users" if is_live else "none: there is nothing to roll back to", style="dim")
    warm = "" if is_live else " asleep" if seat.get("asleep") else " warm" if seat["running"] else " cold"
    text = Text.assemble(
        (seat["release"], "bold green" if is_live else ""),
        (warm, "yellow" if seat["running"] else "dim"),
        f"  serves {', '.join(seat['serves'])}",
        f"  {_since(seat)}, {seat['rollout']}",
        f", back by {seat['back_by']}" if seat.get("back_by") else "",
    )
    for attempt in seat["attempts"]:
        text.append("\n").append_text(attempt_line(attempt))
    return text


def _since(seat: Document) -> str:
    return f"since {clock(seat['since'])} ({since(seat['since'])})" if seat["since"] else "since when is not known"


def attempt_line(attempt: Document) -> Text:
    """One attempt: id, state, place, and what its last probe said."""
    from rich.text import Text

    cards = ", ".join(attempt["gpus"]) or "no card"
    text = Text(f"{attempt['id']}  {attempt['state']}  {cards}  :{attempt['port']}  {_processes(attempt)}")
    probe = attempt["probe"]
    if probe is None:
        return text
    if probe["ok"]:
        first = f", first token {span(probe['ttft_s'])}" if probe["ttft_s"] is not None else ""
        return text.append(f"  generates{first}, {span(probe['age_s'])} ago", "green")
    return text.append(f"  {probe['layer']}: {probe['sentence']}", "red")


def _processes(attempt: Document) -> str:
    """Whose pid it is: an engine's processes are its shim's, and live on when that dies."""
    pids = attempt.get("pids") or []
    if attempt.get("shim_alive") is False and pids:
        more = f" and {len(pids) - _PIDS} more" if len(pids) > _PIDS else ""
        return f"shim dead, pids {', '.join(map(str, pids[:_PIDS]))}{more} live"
    return f"shim {attempt['pid'] or '—'}"


_PIDS = 4


def _rollout(rollout: Document | None) -> Text:
    from rich.text import Text

    if rollout is None:
        return Text("none is running", style="dim")
    return Text.assemble(*footer_parts(rollout, 0.0), f"\n{rollout['why']}")


def _door(status: Document) -> Text:
    from rich.text import Text

    door = status["front_door"]
    if not door["alive"]:
        return Text(f"does not answer on {door['public']}: {door['why']}", style="bold red")
    text = Text(f"{door['public']} {door['mode']}, preview {door['preview']}, pid {door['pid']}")
    if held := hold_line(door["held"], door.get("hold", {})):
        text.append(f"\n{held}", "yellow" if door["held"] else "dim")
    for slot in door["slots"]:
        state = slot["state"] if slot["up"] or slot["state"] == "maint" else f"{slot['state']}, down"
        style = "green" if slot["up"] and slot["state"] == "ready" else "yellow"
        text.append(f"\n{slot['backend']:<7} slot {slot['number']:<2} {slot['attempt']}  ")
        text.append(state, style).append(f"  {slot['in_flight']} in flight")
    return text


_ENDS = {
    "released": "went on",
    "timed_out": "waited too long",
    "left": "left while waiting",
    "refused": "were sent away when it refused",
    "full": "found it full",
}


def hold_line(waiting: int, hold: Document) -> str:
    """Who waits, and how waits ended since the front door's process began; empty where nobody ever did."""
    ends = ", ".join(f"{hold[key]} {words}" for key, words in _ENDS.items() if hold.get(key))
    now = f"{waiting} held, the first for {span(hold.get('oldest_s'))}" if waiting else "nobody held now"
    if not waiting and not ends:
        return ""
    return f"{now}; of those before, {ends}" if ends else now


def _gpus(status: Document) -> RenderableType:
    from rich.columns import Columns

    return Columns([_box(gpu, label, style) for gpu, label, style in _cards(status)], padding=0)


def _cards(status: Document) -> Iterator[tuple[Document, str, str]]:
    """Every card with who holds it, and in which role."""
    roles: dict[str, tuple[str, str]] = {}
    for name, style in (("previous", "yellow"), ("live", "green")):
        for attempt in (status[name] or {}).get("attempts", ()):
            roles[attempt["id"]] = ("warm" if name == "previous" else name, style)
    others = ("candidate" if status["rollout"] else "leaving", "cyan")
    for gpu in status["gpus"]:
        role, style = roles.get(gpu["held_by"] or "", others)
        # Who serves on a card that nobody else gets is no less there.
        holder = f"{gpu['held_by']} {role}\n" if gpu["held_by"] else ""
        if not gpu["trusted"]:
            yield gpu, f"{holder}untrusted\n{gpu.get('why', '')}", "bold red"
        elif gpu.get("closed"):
            by = gpu["closed"]["by"]
            word = f"cordoned by {by}" if by else "QUARANTINED"
            yield gpu, f"{holder}{word}\n{gpu['closed']['why']}", "yellow" if by else "bold red"
        elif gpu["foreign"]:
            yield gpu, f"{holder}foreign\n" + "\n".join(gpu["foreign"]), "red"
        elif gpu["held_by"]:
            yield gpu, f"{gpu['held_by']}\n{role}", style
        else:
            yield gpu, "free\n", "dim"


def _box(gpu: Document, label: str, style: str) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    text = Text(label, overflow="fold")
    for sleeper in gpu.get("sleepers", ()):
        text.append(f"\n{sleeper} sleeps", "dim")
    if gpu["memory_total_mib"] is not None:
        text.append(f"\n{gpu['memory_used_mib'] / 1024:.0f} of {gpu['memory_total_mib'] / 1024:.0f} GiB")
    return Panel(text, title=f"GPU {gpu['index']}", title_align="left", border_style=style, width=_CARD_WIDTH)
