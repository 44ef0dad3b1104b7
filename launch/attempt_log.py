"""The log of an attempt: engine.log.head (the first part ever), engine.log.1 and engine.log (the newest)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from launch import shim

LOOK_BACK_BYTES = 256 * 1024
OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")  # a progress bar: only its last state is worth reading
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[^\S\n\t ]|[\x00-\x08\x0e-\x1f\x7f]")
# Python and vLLM: "[Errno 98] Address already in use"; uvicorn: "error while attempting to bind on address (…): address
# already in use"; torch's TCPStore: "name: EADDRINUSE"; Rust: "Address already in use (os error 98)"; SGLang: "port at
# 40290 is not available in 30 seconds. … is used by a process already"; llama.cpp: "couldn't bind HTTP server socket".
PORT_IN_USE = re.compile(
    rb"address already in use|EADDRINUSE|is used by a process already|port at \d+ is not available"
    rb"|couldn't bind HTTP server socket",
    re.IGNORECASE,
)


def log_path(run_dir: Path) -> Path:
    """Where the newest output is; stays the same file while the attempt lives, and is cut in place at its cap."""
    return run_dir / shim.LOG


def log_tail(run_dir: Path, lines: int = 40) -> str:
    """The last lines of output, fit for a terminal: no control characters, progress bars collapsed; "" if none."""
    text = b""
    for part in _parts_newest_first(run_dir):
        text = _last_bytes(part) + text
        if text.count(b"\n") > lines:
            break
    readable = ESCAPES.sub("", OVERWRITTEN.sub("", text.decode("utf-8", "replace")))
    return "\n".join(readable.rstrip("\n").split("\n")[-lines:])


def says_port_in_use(run_dir: Path) -> bool:
    return any(PORT_IN_USE.search(_last_bytes(part)) for part in _parts_newest_first(run_dir))


def parts_oldest_first(run_dir: Path) -> tuple[Path, ...]:
    """The files of the log; one that does not exist (yet) is among them."""
    return tuple(run_dir / f"{shim.LOG}{suffix}" for suffix in (".head", ".1", ""))


def _parts_newest_first(run_dir: Path) -> tuple[Path, ...]:
    return parts_oldest_first(run_dir)[::-1]


def _last_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOOK_BACK_BYTES))
            return file.read(LOOK_BACK_BYTES)
    except FileNotFoundError:
        return b""
