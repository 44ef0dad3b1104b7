"""`cutover demo`: the whole mission in under two minutes, with clients talking to it all the time."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any


def main(
    engine: str = "emulator",
    *,
    strategy: str = "blue-green",
    night: bool = False,
    yes: bool = False,
    as_json: bool = False,
    keep: Path | None = None,
) -> int:
    """Play the demo on emulated engines, or on real vLLM on the CPU; returns the exit code.

    `strategy`: `blue-green` on a box with free cards, `rolling` or `swap` on one without.
    `night`: three candidates wait for a window, and are judged in it one after the other.
    `keep`: directory that keeps everything (journal, logs, evidence); else a temporary one is used and removed.
    """
    from rich.console import Console

    from .acts import by_night, emulated, without_free_cards
    from .show import Play, play

    # A pipe has no width of its own, and the closing table needs one.
    signal.signal(signal.SIGTERM, _leave)
    console = Console(stderr=as_json, highlight=False, width=None if sys.stdout.isatty() else 130)
    if engine == "vllm":
        from .vllm import vllm_play

        show = vllm_play(console, yes=yes)
        return play(show, console, as_json=as_json, keep=keep) if show else 1
    settings: dict[str, Any] = {
        "gpus": {"kind": "none", "count": 4},
        "bake": {"seconds": 8, "interval_s": 1},
        "drain_s": 60,
        "start_s": 60,
        # A candidate that fails in the dark costs its gates and the start of what was live.
        "hold_s": 110,
    }
    if night:
        opened = time.strftime("%H:%M", time.gmtime(time.time() - 60))
        settings["schedule"] = {"start": opened, "duration": "1h", "timezone": "UTC"}
    acts = by_night() if night else emulated() if strategy == "blue-green" else without_free_cards(strategy)
    show = Play(
        acts,
        model="demo",
        streams=16,
        max_tokens=160,
        settings=settings,
        act_timeout_s=180.0,
        instances=2 if strategy == "rolling" else 1,
        by_night=night,
    )
    return play(show, console, as_json=as_json, keep=keep)


def _leave(number: int, frame: object) -> None:  # noqa: ARG001 - a signal handler
    """Being ended is a reason to clean up: nothing that the demo started may outlive it."""
    signal.signal(number, signal.SIG_IGN)  # once is enough: a second one would cut the cleaning up short
    raise SystemExit(128 + number)
