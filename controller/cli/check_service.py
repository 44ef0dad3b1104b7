"""What `cutover doctor` says of the units of systemd, where `cutover install` has written some."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CutoverError
from .checks import Check
from .service import config_of_service, listed, pieces_of, target_of

if TYPE_CHECKING:
    from ..config import Config

_NAME = "service"
_STARTS = re.compile(r"^ExecStart=\S+(?: --config (\S+))? serve$", re.MULTILINE)
_SOCKETS = ("attempt", "frontdoor")


def service(config: Config, root: Path | None = None) -> Iterator[Check]:
    """Whether the units are those that would be written now, and engines get units of their own. Hints, no faults."""
    target = target_of(root, user=False)
    unit = target.units / "cutover.service"
    try:
        started = _STARTS.search(unit.read_text())
        named = Path(started[1]) if started and started[1] else None
        of_service = config_of_service(named, user=False)
        if config.state_dir != of_service.state_dir:
            return  # another daemon's
        behind = [p.path for p in pieces_of(named, of_service, target) if p.found in {"new", "older"}]
    except FileNotFoundError:
        return
    except (CutoverError, OSError) as error:
        yield Check(_NAME, None, f"the units were not looked at: {error}")
        return
    if behind:
        words = f"written by another version, environment or configuration: {listed(behind)}"
        yield Check(_NAME, None, words, "`cutover install`, then `systemctl restart cutover`")
    closed = [name for name in _SOCKETS if not os.access(_socket(target.root, name), os.F_OK)]
    if closed:
        names = " ".join(f"cutover-{name}.socket" for name in closed)
        words = f"{names} does not listen: what starts next does so in the daemon's own unit"
        unless = ", which systemd refuses the front door's until that door has ended" if _SOCKETS[1] in closed else ""
        yield Check(_NAME, None, words, f"`systemctl start {names}`{unless}")
    if not behind and not closed:
        yield Check(_NAME, True, f"{unit} and what belongs to it are as `cutover install` writes them")


def _socket(root: Path, name: str) -> Path:
    return root / "run/cutover-units" / f"{name}.sock"
