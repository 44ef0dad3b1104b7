"""The command line: `main` is the console command. Importing it stays cheap; every command imports what it needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

INTERRUPTED = 130  # as a shell reports SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`controller.errors.ExitCode`).

    What a person got wrong, or the world refused, ends as one sentence on stderr; with `--json` as
    `{"schema": 1, "error": sentence, "exit_code": n}` on stdout. A traceback is a bug.
    """
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
        exit_code = getattr(error, "exit_code", None)
        if not isinstance(exit_code, int):
            raise
        _tell(str(error), int(exit_code), as_json=session.as_json)
        return int(exit_code)
    return 0


def _tell(sentence: str, exit_code: int, *, as_json: bool) -> None:
    from .terminal import clean

    if as_json:
        sys.stdout.write(json.dumps({"schema": 1, "error": clean(sentence), "exit_code": exit_code}) + "\n")
    else:
        sys.stderr.write(f"cutover: {clean(sentence)}\n")
