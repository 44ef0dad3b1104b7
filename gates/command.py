"""`python -m gates run | list | explain`: for people, and for scripts that have no daemon."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates import catalog
from gates.errors import GateUsageError
from gates.options import capability_pair, read_baseline
from gates.profile import DIRECTORY, load
from gates.run import run_profile


def command(argv: list[str]) -> int:
    """Runs the subcommand; the exit code of the verdict, or of the mistake."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.action(arguments))
    except GateUsageError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is the command line
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to say, and Python must not say it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gates",
        description="Judge an OpenAI-compatible endpoint.",
        epilog="example: python -m gates run --endpoint http://127.0.0.1:8000 --model qwen --profile smoke",
    )
    actions = parser.add_subparsers(required=True, metavar="run | list | explain | GATE")
    run = actions.add_parser("run", help="run a profile against an endpoint")
    run.add_argument("--endpoint", required=True, metavar="URL", help="base URL, with or without /v1")
    run.add_argument("--model", required=True, metavar="NAME", help="the served model name")
    run.add_argument("--profile", default="standard", metavar="NAME|FILE")
    run.add_argument("--gate", action="append", default=[], metavar="NAME", help="only this gate; may be repeated")
    run.add_argument("--api-key-env", metavar="VARIABLE", help="environment variable that holds the API key")
    run.add_argument("--capability", metavar="KEY=VALUE", action="append", default=[], help="as thinking=switch")
    run.add_argument("--baseline", type=Path, metavar="FILE", help="report (--json) of an earlier run to compare with")
    run.add_argument("--metrics-url", metavar="URL")
    run.add_argument("--evidence", type=Path, metavar="DIR", help="where evidence goes; default a temporary directory")
    run.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    run.set_defaults(action=_run)
    listing = actions.add_parser("list", help="the gates and profiles that ship")
    listing.set_defaults(action=_list)
    explain = actions.add_parser("explain", help="what a gate catches, and its settings")
    explain.add_argument("gate")
    explain.set_defaults(action=_explain)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    report = run_profile(
        arguments.endpoint,
        arguments.model,
        arguments.profile,
        only=arguments.gate,
        evidence_dir=arguments.evidence,
        api_key_env=arguments.api_key_env,
        capability=dict(capability_pair(text) for text in arguments.capability),
        baseline=read_baseline(arguments.baseline),
        metrics_url=arguments.metrics_url,
        on_progress=_progress,
    )
    if arguments.json:
        sys.stdout.write(report.to_json() + "\n")
    else:
        from rich.console import Console

        Console().print(report.table())
    return report.exit_code


def _progress(fields: Mapping[str, Any]) -> None:
    said = fields.get("sentence") or fields.get("log") or ("started" if fields.get("started") else "")
    left = f" (then {', '.join(fields['left'])})" if fields.get("left") else ""
    verdict = f"{fields['verdict']}: " if "verdict" in fields else ""
    check = f" {fields['check']}" if "check" in fields else ""
    sys.stderr.write(f"{fields.get('gate')}{check}: {verdict}{said}{left}\n")


def _list(_arguments: argparse.Namespace) -> int:
    for gate in catalog.BUILT_IN.values():
        sys.stdout.write(f"{gate.name:12} {gate.summary}\n")
    sys.stdout.write("\nprofiles\n")
    for file in sorted(DIRECTORY.glob("*.yaml")):
        profile = load(file.stem)
        names = ", ".join(step.name for step in profile.gates)
        sys.stdout.write(f"{profile.name:12} {profile.description} ({names})\n")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    gate = catalog.find(arguments.gate)
    sys.stdout.write(f"{gate.name}: {gate.summary}\n\nCatches: {gate.catches}\n\nSettings\n")
    for name, field in gate.settings().model_fields.items():
        sys.stdout.write(f"  {name} (default {field.get_default(call_default_factory=True)!r})\n")
    return 0
