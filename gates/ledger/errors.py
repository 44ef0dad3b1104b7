"""What a person is told when the ledger cannot do what was asked; the class carries the exit code."""

from __future__ import annotations


class LedgerError(Exception):
    """The file cannot be used: damaged, newer, full, not ours to write."""

    exit_code = 1


class NoSuchRowError(LedgerError):
    """No row, run or release of that name."""

    exit_code = 3


class LedgerRefusedError(LedgerError):
    """Asked for something that would make the ledger say what it must not."""

    exit_code = 5
