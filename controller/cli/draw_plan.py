"""A plan as a person reads it: what happens to every card, step by step, and what it costs to go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .terminal import span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Document = Mapping[str, Any]

STAGES = ("now", "make room", "start and prove", "switch", "bake")
_FREE = ("free", "dim")


def draw_plan(plan: Document, status: Document, file: str) -> list[RenderableType]:
    """`plan` and `status` as the API gives them."""
    from rich.text import Text

    head = Text.assemble((f"{plan['release']}", "bold"), f"  {plan['strategy']}, plan {plan['digest']}")
    parts: list[RenderableType] = [head, Text(_cost(plan)), Text(), _timeline(plan, status), Text()]
    parts += [Text(f"{number}. {step}") for number, step in enumerate(plan["steps"], 1)]
    parts += [Text(f"note: {note}", style="yellow") for note in plan["notes"]]
    parts.append(Text(f"\npropose exactly this: cutover propose {file} --plan {plan['digest']}"))
    return parts


def _cost(plan: Document) -> str:
    dark = "users never wait" if not plan["blackout_s"] else f"users wait about {span(plan['blackout_s'])}"
    start = f"up in about {span(plan['start_s'])}" if plan["start_s"] is not None else "its start was never timed here"
    back = {
        "running": f"back in about {span(plan['rollback_s'])}, the release before stays warm",
        "cold": "going back is a cold start",
        "none": "nothing to go back to",
    }.get(plan["rollback"], str(plan["rollback"]))
    return f"{dark}; {start}; {back}"


def _timeline(plan: Document, status: Document) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    live = {a["id"] for a in (status["live"] or {}).get("attempts", ())}
    comes = {gpu: instance for instance, gpus in plan["gpu_map"].items() for gpu in gpus}
    table = Table("card", *STAGES, header_style="dim", box=SIMPLE_HEAD)
    for gpu in status["gpus"]:
        cells = _row(gpu, live, set(plan["gives_way"]), comes.get(gpu["id"]))
        table.add_row(str(gpu["index"]), *(Text(text, style=style) for text, style in cells))
    for instance, gpus in plan["gpu_map"].items():
        if not gpus:
            table.add_row("cpu", "", "", f"{instance} starts", f"{instance} LIVE", f"{instance} LIVE")
    return table


def _row(gpu: Document, live: set[str], gives_way: set[str], instance: str | None) -> list[tuple[str, str]]:
    holder = gpu["held_by"]
    if gpu["foreign"]:
        return [("; ".join(gpu["foreign"]), "red")] * len(STAGES)
    if holder in live:
        return [(f"{holder} LIVE", "green")] * 3 + [(f"{holder} drains", "yellow"), (f"{holder} warm", "yellow")]
    now = (f"{holder} warm", "yellow") if holder else _FREE
    if instance is None:
        return [now, *([(f"{holder} stops", "yellow"), *[_FREE] * 3] if holder in gives_way else [now] * 4)]
    room = (f"{holder} stops", "yellow") if holder in gives_way else _FREE
    return [now, room, (f"{instance} starts", "cyan"), (f"{instance} LIVE", "green"), (f"{instance} LIVE", "green")]
