"""Durations as people write them."""

from __future__ import annotations

import re

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def duration_s(text: object) -> float:
    """``4h``, ``90m``, ``1h30m``, ``3d``, ``3600`` → seconds. Raises `ValueError` with what was expected."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    written = str(text).strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(min|[smhd])", written)
    if "".join(f"{number}{unit}" for number, unit in parts) == written and parts:
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    try:
        return float(written)
    except ValueError:
        raise ValueError("expected a duration, for example 4h, 90m or 1h30m") from None
