"""What can go wrong with the front door: one sentence each, and the exit code of its class."""

from __future__ import annotations

from typing import ClassVar


class DoorError(Exception):
    """The front door did not do, or could not be asked for, what was wanted.

    ``str(error)`` is one sentence: what is wrong, where, what was expected, what to do.
    """

    exit_code: ClassVar[int] = 1


class DoorSettingsError(DoorError):
    """The configuration of the front door, or the route it was given, cannot be right as written."""

    exit_code: ClassVar[int] = 2


class DoorBinaryError(DoorError):
    """There is no HAProxy that could be the front door."""

    exit_code: ClassVar[int] = 2


class DoorPermissionError(DoorError):
    """The address of the front door may not be bound by this user."""

    exit_code: ClassVar[int] = 4


class DoorPortTakenError(DoorError):
    """Somebody else listens on an address of the front door."""

    exit_code: ClassVar[int] = 5
