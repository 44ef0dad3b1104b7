"""The cards as a table, one line each, and the host under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .terminal import span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Document = Mapping[str, Any]

_BAR_WIDTH = 12
_STYLES = {
    "free": "dim",
    "held": "green",
    "foreign": "red",
    "untrusted": "bold red",
    "quarantined": "bold red",
    "cordoned": "yellow",
}


def draw_gpus(answer: Document) -> list[RenderableType]:
    """`answer` as `/v1/gpus` gives it."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(_source(answer), style="bold red" if answer["why"] else "dim")]
    if answer["cards"]:
        parts.append(_table(answer["cards"]))
        parts += [Text(line, style="yellow") for line in _warnings(answer["cards"])]
        parts += [Text(line, style="dim") for line in _notes(answer["cards"])]
    parts.append(Text(_host(answer["host"]), style="dim"))
    return parts


def _source(answer: Document) -> str:
    if answer["source"] == "declared":
        return "declared in the configuration, not read: nobody looks at these cards"
    if answer["source"] == "none":
        return f"no cards: {answer['why']}"
    age = f", read {span(answer['age_s'])} ago" if answer["age_s"] is not None else ""
    trouble = f"; no card counts as free: {answer['why']}" if answer["why"] else ""
    return f"NVML, driver {answer['driver'] or 'unknown'}{age}{trouble}"


def _table(cards: list[Document]) -> RenderableType:
    from rich.table import Table

    # Two lines a card, so that 80 columns leave room for who is on it.
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("GPU", "card", "memory", "load", "near"):
        table.add_column(heading, no_wrap=True)
    table.add_column("who", overflow="fold", min_width=20)
    indices = {card["id"]: str(card["index"]) for card in cards}
    for card in cards:
        table.add_row(str(card["index"]), _card(card), _memory(card), _load(card), _near(card, indices), _who(card))
    return table


def _card(card: Document) -> Text:
    from rich.text import Text

    return Text.assemble(f"{card['name']}\n" if card["name"] else "", (short(card["id"]), "dim"))


def short(card_id: str) -> str:
    """`GPU-6f0c1d2e` of a UUID; what is not one stays whole."""
    return "-".join(card_id.split("-")[:2]) if card_id.startswith("GPU-") else card_id


def _memory(card: Document) -> Text:
    from rich.text import Text

    total, used = card["memory_total_mib"], card["memory_used_mib"]
    if not total or used is None:
        return Text("—", style="dim")
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * used / total))
    style = "dim" if not card["trusted"] else "red" if used / total > 0.95 else "cyan"
    return Text.assemble(
        ("█" * filled, style), ("░" * (_BAR_WIDTH - filled), "dim"), f"\n{used / 1024:.0f} of {total / 1024:.0f} GiB"
    )


def _load(card: Document) -> str:
    """Utilisation over power."""
    words = [] if card["utilisation_percent"] is None else [f"{card['utilisation_percent']} %"]
    if card["power_w"] is not None:
        cap = f" of {card['power_cap_w']:.0f}" if card["power_cap_w"] is not None else ""
        words.append(f"{card['power_w']:.0f}{cap} W")
    return "\n".join(words) or "—"


def _near(card: Document, indices: Mapping[str, str]) -> str:
    def named(ids: list[str]) -> str:
        return ",".join(indices.get(one, "?") for one in ids)

    words = [f"NVLink {named(card['nvlink'])}"] if card["nvlink"] else []
    words += [f"switch {named(card['switch'])}"] if card["switch"] else []
    return "\n".join(words) or "—"


def _who(card: Document) -> Text:
    from rich.text import Text

    style = _STYLES[card["state"]]
    return Text("\n").join(Text(line, style=style if first else "") for first, line in _who_lines(card))


def _who_lines(card: Document) -> Iterator[tuple[bool, str]]:
    """Lines of the last column; whether each is told in the colour of the card's state."""
    if not card["trusted"]:
        yield True, f"untrusted: {card['why']}"
    for sentence in card["foreign"]:
        yield True, f"foreign: {sentence}"
    if card["closed"]:
        by = card["closed"]["by"]
        yield True, f"{f'cordoned by {by}' if by else 'quarantined'}: {card['closed']['why']}"
    if card["held_by"]:
        yield card["state"] == "held", f"{card['held_by']}, {card['role']} ({card['release']})"
    if card["state"] == "free":
        yield True, "free"
    for sleeper in card.get("sleepers", ()):
        yield False, f"{sleeper} sleeps here"


def _warnings(cards: list[Document]) -> Iterator[str]:
    """Bad memory that is still in use, or that cannot be replaced: somebody has to do something."""
    for card in cards:
        reset = f"wait for a reset (`nvidia-smi -i {card['index']} -r`, with nothing on it): until then they are used"
        if card.get("rows_pending"):
            yield f"GPU {card['index']}: bad rows of memory {reset}"
        if card.get("pages_pending"):
            yield f"GPU {card['index']}: bad pages of memory {reset}"
        if card.get("rows_failed"):
            yield f"GPU {card['index']}: bad rows of memory could not be replaced: the card is to be exchanged"


def _notes(cards: list[Document]) -> Iterator[str]:
    """What is out of the ordinary with a card, and how it was judged when not by pids."""
    for card in cards:
        words = [card["note"]] if card["note"] else []
        if card["last_xid"] is not None:
            words.append(f"Xid {card['last_xid']} since the daemon looks (`dmesg` has its text)")
        if card["ecc_uncorrected"]:
            words.append(f"{card['ecc_uncorrected']} uncorrected memory errors since the driver was loaded")
        if card.get("pages_retired"):
            words.append(f"{card['pages_retired']} bad pages of memory are retired (with 60 it is to be exchanged)")
        if servers := [process["pid"] for process in card["processes"] if process.get("mps") == "server"]:
            clients = sum(process.get("mps") == "client" for process in card["processes"])
            words.append(f"MPS serves it (pid {servers[0]}), clients: {clients}")
        if card["persistence"] is False:
            words.append("persistence mode is off: the first start on it waits for the driver")
        yield from (f"GPU {card['index']}: {word}" for word in words)


def _host(host: Document) -> str:
    swap = f", swap {_gib(host['swap_used_bytes'])} of {_gib(host['swap_total_bytes'])} GiB used"
    disk = (
        f"; {_gib(host['disk_free_bytes'])} of {_gib(host['disk_total_bytes'])} GiB free at {host['disk_path']}"
        if host["disk_free_bytes"] is not None
        else f"; {host['disk_path']} cannot be looked at"
    )
    available, total, limit = (_gib(host.get(f"ram_{what}_bytes") or 0) for what in ("available", "total", "limit"))
    memory = f"{available} of {total} GiB of memory available"
    if host.get("ram_limit_bytes") is not None:
        memory = f"{available} of {limit} GiB of memory available, this container's limit (the host has {total})"
    return f"host: {memory}{swap if host['swap_total_bytes'] else ''}{disk}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.0f}"
