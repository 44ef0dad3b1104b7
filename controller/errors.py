"""Everything that a person can be told by the controller: the sentence is the message, the class carries the exit code.

`launch` and `gates` follow the same convention: an exception with an integer `exit_code` is for people.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (documented in `docs/cli.md`)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    REFUSED = 5
    REJECTED = 10
    INCONCLUSIVE = 11
    GATE_ERROR = 12
    STILL_RUNNING = 13
    ROLLED_BACK = 14
    ROLLBACK_FAILED = 15


class CutoverError(Exception):
    """The operation failed."""

    exit_code: int = ExitCode.FAILED


class UsageError(CutoverError):
    """What was given cannot be understood."""

    exit_code = ExitCode.USAGE


class NotFoundError(CutoverError):
    """There is no such thing."""

    exit_code = ExitCode.NOT_FOUND


class NotAllowedError(CutoverError):
    """This person may not do that."""

    exit_code = ExitCode.NOT_ALLOWED


class RefusedError(CutoverError):
    """Not in this state, or somebody else holds the lock."""

    exit_code = ExitCode.REFUSED
