"""What gates are told of a release on its cards, so that what they measure can be kept and found again."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

from gates.contract import Deployment, start_of
from launch.errors import LaunchError
from launch.release import load_release

from ..core.records import Attempt, Release, Seat, State
from .gpus import Inventory
from .processes import HOST

_ENGINE = "engine"


class Deployments:
    """Reads the frozen release and the inventory; a release that cannot be read is known by its name alone."""

    def __init__(self, releases: Path, gpus: Inventory) -> None:
        self._releases = releases
        self._gpus = gpus

    def of(self, state: State, seat: Seat) -> Deployment:
        """The release in `seat` on the cards that it holds, or held last: in a swap live has made room already."""
        release = state.releases[seat.release]
        attempts = _latest(a for a in state.attempts.values() if (a.rollout, a.release) == (seat.rollout, seat.release))
        engines = [attempt for attempt in attempts if attempt.role == _ENGINE]
        running = [attempt for attempt in engines if attempt.holds and not attempt.is_in_bed]
        flags, version = self._frozen(release)
        return Deployment(
            topology=release.name,
            release=release.id,
            digest=release.digest,
            engine_version=version,
            flags=flags,
            instances=sum(instance.role == _ENGINE for instance in release.instances),
            start=start_of(attempt.id for attempt in running),
            hardware={
                "host": platform.node(),
                **self._gpus.hardware({gpu for attempt in engines for gpu in attempt.gpus}),
            },
            metrics_urls=tuple(f"http://{HOST}:{attempt.port}/metrics" for attempt in running),
        )

    def _frozen(self, release: Release) -> tuple[tuple[str, ...], str]:
        """The engine's flags and its version, as the release froze them."""
        try:
            frozen = load_release(self._releases, release.id)
        except (LaunchError, OSError):
            return (), ""
        return frozen.topology.flags, str(frozen.manifest["identity"].get("engine", {}).get("version") or "")


def _latest(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The last start of each instance."""
    return tuple({attempt.instance: attempt for attempt in attempts}.values())
