"""The gates without a daemon.

python -m gates GATE                      one gate on the contract: request JSON on stdin, verdict JSON on stdout
python -m gates run --endpoint URL --model NAME [--profile NAME|FILE] [--gate NAME]… [--html FILE] [--json]
python -m gates report REPORT.json [--html FILE]
python -m gates list [--json]
python -m gates explain CHECK|RULE|GATE [--json]
"""

from __future__ import annotations

import os
import sys

from gates import catalog


def main(argv: list[str]) -> int:
    if argv and argv[0] in catalog.BUILT_IN:
        from gates import program

        return program.main(argv[0])
    from gates.command import command

    return command(argv)


def told(argv: list[str]) -> int:
    """`main`, and whether what it said could be said: a full disk or a closed pipe is one sentence, and exit code 1."""
    if sys.stdout is None:
        sys.stderr.write("gates: the answer could not be written: stdout is closed\n")
        return 1
    try:
        code = main(argv)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        sys.stderr.write(f"gates: the answer could not be written: {error.strerror}\n")
        # Python would try once more at exit, and complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(told(sys.argv[1:]))
