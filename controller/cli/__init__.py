"""The command line: `main` is the console command. Importing it stays cheap; every command imports what it needs."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # as a shell reports SIGINT
_PLAIN = {"✓": "+", "✗": "x", "–": "-", "→": ">", "·": ".", "…": "~", "≥": ">", "≤": "<", "×": "x"}
_TAKES_NOTHING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # of what was written to


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`controller.errors.ExitCode`).

    What a person got wrong, or the world refused, ends as one sentence on stderr; with `--json` as
    `{"schema": 1, "error": sentence, "exit_code": n}` on stdout. A traceback is a bug.
    """
    _open_what_is_closed()
    _say_what_can_be_said()
    from .app import app
    from .session import Session

    session = Session()
    try:
        app(args=list(sys.argv[1:] if argv is None else argv), prog_name="cutover", obj=session)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _TAKES_NOTHING and error.filename is None:
            return _stdout_is_full(error)
        told = _for_people(error)
        if told is None:
            raise
        _tell(*told, as_json=session.as_json)
        return told[1]
    return 0


def _open_what_is_closed() -> None:
    """`cutover serve >&-`: whatever is opened next would become stdout, and Python has no stream for it at all."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is this
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _say_what_can_be_said() -> None:
    """Where a terminal or a pipe has another character set, and in odd names of files: plain signs, never nothing."""
    codecs.register_error("plain", _in_plain_signs)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="plain")


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _for_people(error: Exception) -> tuple[str, int] | None:
    """Sentence and exit code; None for a bug, which keeps its traceback."""
    exit_code = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        return str(error), int(exit_code)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", 4 if isinstance(error, PermissionError) else 1
    return None


def _stdout_is_full(error: OSError) -> int:
    sys.stderr.write(f"cutover: the answer could not be written: {error.strerror}\n")
    # Python would try once more at exit, and complain in its own words.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _tell(sentence: str, exit_code: int, *, as_json: bool) -> None:
    from .terminal import clean

    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "error": clean(sentence), "exit_code": exit_code}) + "\n")
    else:
        sys.stderr.write(f"cutover: {clean(sentence)}\n")
