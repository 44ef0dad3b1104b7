"""Which files make a service of the product, and what stands in them here. Pure, but for the templates it reads.

The templates are `systemd/` of a checkout, and `share/cutover/systemd` of an environment into which it was installed:
units as systemd reads them, with the places of this box as `@NAME@`.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..core.window import ALWAYS, DAYS, Schedule
from ..errors import CutoverError, UsageError

UNITS = (
    "cutover.service",
    "cutover-attempt.socket",
    "cutover-attempt@.service",
    "cutover-frontdoor.socket",
    "cutover-frontdoor.service",
    "cutover.slice",
    "cutover-nightly.service",
    "cutover-nightly.timer",
)
SERVICES = tuple(name for name in UNITS if name.endswith(".service"))
SYSUSERS, TMPFILES = "cutover.sysusers", "cutover.tmpfiles"
WITHOUT_WINDOWS = "*-*-* 02:00:00"
# What a user's own manager cannot do, or has no need of: the daemon there has no other rights than who started it.
_NOT_FOR_USERS = re.compile(
    r"(User|SocketUser|StateDirectory|StateDirectoryMode|RuntimeDirectory|RuntimeDirectoryMode|ConfigurationDirectory"
    r"|OOMScoreAdjust|LimitMEMLOCK|CapabilityBoundingSet|AmbientCapabilities|NoNewPrivileges|ReadWritePaths|InaccessiblePaths"
    r"|Lock\w+|Private\w+|Protect\w+|Restrict\w+|SystemCall\w+)="
)
_PLAIN = re.compile(r"/[A-Za-z0-9/._+:,=~-]*")


@dataclass(frozen=True, slots=True)
class Facts:
    """Of this box. Paths are absolute; `config`: one that was named, else None (the service finds the usual ones)."""

    cutover: Path  # the command
    python: Path
    own_unit: Path  # launch/own_unit.py
    writable: tuple[Path, ...]  # the state directory, and where else the daemon and engines write
    config: Path | None = None
    windows: Mapping[str, Schedule] | None = None
    roots_locks: Path | None = None  # where the locks of cards lie, if nobody but root may make a file there


@dataclass(frozen=True, slots=True)
class Target:
    """Where the files go: of the box, or of one user (`home`: where their configuration lies); below `root`."""

    user: bool = False
    root: Path = Path("/")
    home: Path = Path("/root/.config")

    @property
    def units(self) -> Path:
        return self._below(self.home / "systemd/user" if self.user else Path("/etc/systemd/system"))

    @property
    def sysusers(self) -> Path:
        return self._below(Path("/etc/sysusers.d/cutover.conf"))

    @property
    def tmpfiles(self) -> Path:
        return self._below(Path("/etc/tmpfiles.d/cutover.conf"))

    def every(self) -> list[Path]:
        """Each file that an installation may have made."""
        return [*(self.units / name for name in UNITS), *([] if self.user else [self.sysusers, self.tmpfiles])]

    def _below(self, path: Path) -> Path:
        return self.root / path.relative_to("/")


def files(target: Target, facts: Facts) -> dict[Path, str]:
    """Path → text. Raises `UsageError` for a place that cannot be written into a unit."""
    words = _words(target, facts)
    made = {target.units / name: _filled(name, words, user=target.user) for name in UNITS}
    if not target.user:
        made[target.sysusers] = _filled(SYSUSERS, words)
        if facts.roots_locks is not None:
            made[target.tmpfiles] = _filled(TMPFILES, words)
    return made


def _words(target: Target, facts: Facts) -> dict[str, str]:
    for path in (facts.cutover, facts.python, facts.own_unit, *facts.writable, facts.config, facts.roots_locks):
        if path is not None and not _PLAIN.fullmatch(str(path)):
            raise UsageError(f"{path}: systemd would read this path as something else; choose one of plain characters")
    named = f" --config {facts.config}" if facts.config else ""
    return {
        "CUTOVER": f"{facts.cutover}{named}",
        "PYTHON": str(facts.python),
        "OWN_UNIT": str(facts.own_unit),
        "WRITABLE": " ".join(f"-{path}" for path in facts.writable),
        "LOCKS": str(facts.roots_locks),
        "UNITS": "%t/cutover-units" if target.user else "/run/cutover-units",
        "ON_CALENDAR": "\n".join(f"OnCalendar={when}" for when in on_calendar((facts.windows or {}).values())),
    }


def on_calendar(schedules: Iterable[Schedule]) -> list[str]:
    """When the windows open, as systemd.time(7) writes it; every night at two where there are none."""
    return [_opens(schedule) for schedule in schedules] or [WITHOUT_WINDOWS]


def _opens(schedule: Schedule) -> str:
    days = "" if schedule.days == ALWAYS else ",".join(DAYS[day].title() for day in sorted(schedule.days)) + " "
    return f"{days}*-*-* {schedule.start:%H:%M:%S} {schedule.zone_name}"


def _filled(name: str, words: Mapping[str, str], *, user: bool = False) -> str:
    text = _template(name)
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return _for_a_user(text) if user else text


def _for_a_user(text: str) -> str:
    """The same for a user's own manager; the remarks are about what is left out here."""
    lines = [line for line in text.splitlines() if not line.startswith("#") and not _NOT_FOR_USERS.match(line)]
    text = "\n".join(lines).strip().replace("WantedBy=multi-user.target", "WantedBy=default.target")
    return re.sub(r"\n{2,}", "\n\n", text) + "\n"


def _template(name: str) -> str:
    for folder in (Path(__file__).parents[2] / "systemd", Path(sysconfig.get_path("data")) / "share/cutover/systemd"):
        if (folder / "cutover.service").is_file():
            return (folder / name).read_text()
    raise CutoverError("the units are not in this installation: install the package again")
