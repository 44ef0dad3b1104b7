"""A plan as a person reads it: what happens to every card, step by step, and what it costs to go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .terminal import span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Document = Mapping[str, Any]

STAGES = {
    "blue-green": ("now", "make room", "start and prove", "switch", "bake"),
    "rolling": ("now", "make room", "start and prove", "switch, the rest follows", "bake"),
    "swap": ("now", "hold, drain, free", "start and prove: DARK", "open", "bake"),
}
_FREE = ("free", "dim")


def draw_plan(plan: Document, status: Document, file: str) -> list[RenderableType]:
    """`plan` and `status` as the API gives them."""
    from rich.text import Text

    head = Text.assemble((f"{plan['release']}", "bold"), f"  {plan['strategy']}, plan {plan['digest']}")
    parts: list[RenderableType] = [head, Text(_cost(plan)), Text(), _timeline(plan, status), Text()]
    parts += [Text(f"{number}. {step}") for number, step in enumerate(plan["steps"], 1)]
    parts += [Text(reason, style="dim") for reason in plan["why_not"]]
    parts += [Text(f"note: {note}", style="yellow") for note in plan["notes"]]
    wanted = " --strategy swap" if plan["strategy"] == "swap" else ""
    parts.append(Text(f"\npropose exactly this: cutover propose {file}{wanted} --plan {plan['digest']}"))
    return parts


def _cost(plan: Document) -> str:
    start = f"up in about {span(plan['start_s'])}" if plan["start_s"] is not None else "its start was never timed here"
    known = plan["rollback_s"] is not None
    back = {
        "running": "back in about a second, the release before stays warm",
        "cold": f"back in about {span(plan['rollback_s'])}"
        if known
        else "going back is a start that was never timed here",
        "asleep": f"back in about {span(plan['rollback_s'])}: the release before sleeps"
        if known
        else "the release before sleeps, and its wake was never timed here",
        "none": "nothing to go back to",
    }.get(plan["rollback"], str(plan["rollback"]))
    again = ", DARK meanwhile" if plan.get("rollback_dark") else ""
    return f"{_dark(plan)}; {start}; {back}{again}"


def _dark(plan: Document) -> str:
    if plan["strategy"] != "swap":
        return "never dark"
    if plan["blackout_s"] is None:
        return "DARK for as long as drain, start and gates take: this box has not measured them yet"
    return f"DARK for about {span(plan['blackout_s'])}"


def _timeline(plan: Document, status: Document) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    comes = {gpu: instance for instance, gpus in plan["gpu_map"].items() for gpu in gpus}
    table = Table("card", *STAGES[plan["strategy"]], header_style="dim", box=SIMPLE_HEAD)
    for gpu in status["gpus"]:
        cells = _row(gpu, plan, status, comes.get(gpu["id"]))
        table.add_row(str(gpu["index"]), *(Text(text, style=style) for text, style in cells))
    for instance, gpus in plan["gpu_map"].items():
        if not gpus:
            table.add_row("cpu", "", "", f"{instance} starts", f"{instance} LIVE", f"{instance} LIVE")
    return table


def _row(gpu: Document, plan: Document, status: Document, instance: str | None) -> list[tuple[str, str]]:
    """What happens on one card in five stages."""
    holder = gpu["held_by"]
    if gpu["foreign"]:
        return [("; ".join(gpu["foreign"]), "red")] * 5
    if gpu.get("closed") and not holder and instance is None:
        return [("cordoned" if gpu["closed"]["by"] else "quarantined", "yellow")] * 5
    live = {a["id"] for a in (status["live"] or {}).get("attempts", ())}
    now = (f"{holder} LIVE", "green") if holder in live else (f"{holder} warm", "yellow") if holder else _FREE
    serves = [(f"{instance} LIVE", "green")] * 2 if instance else [_FREE] * 2
    starts = (f"{instance} starts", "cyan")
    leaves = "sleeps" if plan["rollback"] == "asleep" else "stops"
    if holder in plan["later"]:  # rolling: it serves until the others do
        return [
            now,
            now,
            now,
            (f"{holder} {leaves}, {instance} starts" if instance else f"{holder} {leaves}", "cyan"),
            serves[1],
        ]
    if holder in plan["gives_way"]:
        return [now, (f"{holder} {leaves}", "yellow"), starts if instance else _FREE, *serves]
    if holder in live:
        return [now, now, now, (f"{holder} drains", "yellow"), (f"{holder} warm", "yellow")]
    if instance is None:
        return [now] * 5
    return [now, _FREE, starts, *serves]
