"""Where messages go: every line of an `apprise_file` is a destination of its own, so is every webhook.

Each has its own queue and its own thread: of two services in one file, the one that is down neither delays the other
nor makes it hear everything again and again.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .address import APPRISE, WEBHOOK, webhook_url_of
from .secret_files import FileTrouble, lines_of, secret_of
from .target import Target

MOST_LINES = 16
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(frozen=True, slots=True)
class Destination:
    """One address. The address itself is not in it where it lies in a file: whoever sends reads it there."""

    name: str  # ops; ops:2 for the second line of its file
    target: Target
    how: str  # apprise | webhook
    file: Path | None
    line: int = 1  # among the lines of the file that are URLs
    url: str = ""  # of a webhook that is no secret


def destinations(targets: Iterable[Target]) -> tuple[Destination, ...]:
    """All of them, in order. Raises `UsageError` for files that cannot be used, and where apprise is missing."""
    return tuple(destination for target in targets for destination in destinations_of(target))


def destinations_of(target: Target) -> tuple[Destination, ...]:
    """Of one target. Raises `UsageError` with a sentence that names the target and the file, never a URL."""
    try:
        if target.secret_file is not None:
            secret_of(target.secret_file)
        if target.apprise_file is not None:
            return _by_apprise(target, target.apprise_file)
        if target.webhook_file is not None:
            webhook_url_of(target.webhook_file)
            return (Destination(target.name, target, WEBHOOK, target.webhook_file),)
    except FileTrouble as trouble:
        raise UsageError(f"notify: {target.name}: {trouble}") from None
    return (Destination(target.name, target, WEBHOOK, None, url=target.webhook or ""),)


def _by_apprise(target: Target, path: Path) -> tuple[Destination, ...]:
    if importlib.util.find_spec("apprise") is None:
        raise UsageError(
            f"notify: {target.name}: `apprise_file` needs apprise, which is not installed: it is the extra `notify`, "
            f"`{sys.prefix}/bin/pip install '.[notify]'` in the checkout that this was installed from; or use "
            "`webhook`, which needs nothing"
        )
    lines = lines_of(path)
    if len(lines) > MOST_LINES:
        raise FileTrouble(f"{path} holds {len(lines)} URLs, {MOST_LINES} are the most: each is carried by a thread")
    for number, line in enumerate(lines, 1):
        if not _URL.fullmatch(line):
            raise FileTrouble(f"{path}: URL {number} is none: expected service://…, as apprise has them")
    return tuple(
        Destination(target.name if number == 1 else f"{target.name}:{number}", target, APPRISE, path, number)
        for number in range(1, len(lines) + 1)
    )
