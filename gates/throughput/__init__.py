"""Gate `throughput`: how fast is it for one user, and for several, against floors and against what was live."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

# The ledger lives off `records` alone, and a table must not cost the import of a whole load client.
_WHERE: Final = {"run": "gates.throughput.gate", "ThroughputSettings": "gates.throughput.settings"}


def __getattr__(name: str) -> Any:
    """`run` and `ThroughputSettings`, imported when they are asked for."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
