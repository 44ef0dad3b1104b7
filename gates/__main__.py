"""The gates without a daemon.

python -m gates GATE                      one gate on the contract: request JSON on stdin, verdict JSON on stdout
python -m gates run --endpoint URL --model NAME [--profile NAME|FILE] [--gate NAME]… [--html FILE] [--json]
python -m gates report REPORT.json [--html FILE]
python -m gates list [--json]
python -m gates explain CHECK|RULE|GATE [--json]
"""

from __future__ import annotations

import sys

from gates import catalog


def main(argv: list[str]) -> int:
    if argv and argv[0] in catalog.BUILT_IN:
        from gates import program

        return program.main(argv[0])
    from gates.command import command

    return command(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
