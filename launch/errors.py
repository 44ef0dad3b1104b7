"""Errors a user of topologies, releases and attempts can meet: one sentence each, and the exit code of its class."""

from __future__ import annotations

from typing import ClassVar


class LaunchError(Exception):
    """An operation on a topology, a release or an attempt failed.

    ``str(error)`` is one clear sentence: what is wrong, where, what was expected, what to do.
    ``exit_code`` is what a command ends with (DESIGN §9): 1 operation failed, 2 bad input, 3 not found,
    4 not allowed, 5 refused in this state or locked.
    """

    exit_code: ClassVar[int] = 1


class TopologyError(LaunchError):
    """A topology file, or a start script to import, is not acceptable as written."""

    exit_code: ClassVar[int] = 2


class ReleaseError(LaunchError):
    """A release could not be frozen, saved or read back unharmed."""

    exit_code: ClassVar[int] = 1


class ProvenanceError(LaunchError):
    """What a release would run is not there: the model, the engine's interpreter or binary, the script."""

    exit_code: ClassVar[int] = 2


class ReleaseNotFound(LaunchError):  # noqa: N818  # named for what the user did, not for the mechanism
    """No saved release answers to this id, prefix or name; or more than one does."""

    exit_code: ClassVar[int] = 3
