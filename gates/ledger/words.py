"""Rows in words and numbers, the same for terminal, Markdown and CSV."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gates.ledger.rows import DRIVER, HOST, TTFT_COLD, TTFT_WARM, Configuration, Row, Source, gpus_in_words
from gates.throughput.records import TTFT, Figure

NOTHING: Final = "–"


def number(value: float | None, unit: str = "") -> str:
    """Four digits at most: `0.0271`, `0.271`, `4.19`, `68.2`, `391.4`, `1188`."""
    if value is None:
        return NOTHING
    if value == 0:
        return f"0{unit}"
    size = abs(value)
    decimals = 4 if size < 0.1 else 3 if size < 1 else 2 if size < 10 else 1 if size < 1000 else 0
    return f"{value:.{decimals}f}{unit}"


def sample_size(row: Row, n: int) -> str:
    """Of somebody else's numbers 0 means that nobody said."""
    return "?" if n == 0 and row.source is Source.REFERENCE else str(n)


def time_to_first_token(row: Row, name: str) -> Figure:
    """`TTFT_COLD` or `TTFT_WARM`: the figure of that name, else the row's own TTFT when its workload is of that kind.

    A workload that does not say so is cold: prompts are new unless somebody repeats them.
    """
    figure = row.figure(name)
    kind = TTFT_WARM if row.definition.get("prefix") == "warm" else TTFT_COLD
    return row.figure(TTFT) if figure.value is None and name == kind else figure


def workload_in_words(name: str, definition: Mapping[str, Any]) -> str:
    """`chat 200→256`, `8k 8000→100–400 warm same`: the name, and what of the definition changes numbers most."""
    asked = _range(definition, "prompt_tokens")
    told = _range(definition, "answer_tokens")
    lengths = f"{asked or '?'}→{told or '?'}" if asked or told else ""
    odd = [
        str(value)
        for key, usual in (("prefix", "cold"), ("prompts", "different"))
        if (value := definition.get(key)) not in (None, usual)
    ]
    return " ".join(part for part in (name, lengths, *odd) if part)


def _range(definition: Mapping[str, Any], key: str) -> str:
    low, high = definition.get(key), definition.get(f"{key}_max")
    return "" if low is None else f"{low}–{high}" if high is not None else str(low)


def configuration_in_words(configuration: Configuration) -> str:
    """One line: name, engine, model, KV format, cards, driver, host. What nobody knew is left out."""
    return " · ".join(_parts(configuration))


def shared_words(configurations: Sequence[Configuration]) -> tuple[str, tuple[str, ...]]:
    """What all have in common, and of each the name and the rest: for tables where a line has little room."""
    every = [_parts(configuration) for configuration in configurations]
    common = [part for part in every[0][1:] if all(part in parts for parts in every)] if every else []
    return " · ".join(common), tuple(" · ".join(p for p in parts if p not in common) for parts in every)


def _parts(configuration: Configuration) -> list[str]:
    hardware = configuration.hardware
    engine = f"{configuration.engine} {configuration.engine_version}".strip()
    parts = (
        configuration.name,
        engine,
        configuration.model if configuration.model != configuration.name else "",
        f"at {configuration.endpoint}" if configuration.endpoint else "",
        f"KV {configuration.kv_format}" if configuration.kv_format else "",
        gpus_in_words(hardware),
        f"driver {hardware[DRIVER]}" if hardware.get(DRIVER) else "",
        str(hardware.get(HOST) or ""),
    )
    return [part for part in parts if part]


def flags_in_words(flags: Sequence[str]) -> str:
    return shlex.join(flags)


def remark(row: Row) -> str:
    """What must be read beside the number: retracted, no measurement, failures, note, where it is from."""
    parts: list[str] = []
    if row.retracted is not None:
        parts.append(f"retracted {row.retracted.at[:10]} by {row.retracted.who}: {row.retracted.reason}")
    if row.cell.problem is not None:
        parts.append(f"no measurement: {row.cell.problem}")
    failed = {kind: count for kind, count in row.cell.failures.items() if count}
    if failed:
        parts.append("failed: " + ", ".join(f"{count} {kind}" for kind, count in failed.items()))
    if row.origin:
        parts.append(f"from {row.origin}")
    if row.note:
        parts.append(row.note)
    return "; ".join(parts)


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'s' * (number != 1)}"
