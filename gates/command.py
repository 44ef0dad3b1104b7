"""`python -m gates run | probe | report | list | explain`: for people, and for scripts that have no daemon."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gates import listing
from gates.cancel import INTERRUPTED, cancelled_by_signals
from gates.contract import sendable
from gates.errors import GateUsageError
from gates.options import capability_of, read_baseline
from gates.page import page_of_run, refuse_unwritable, write_page
from gates.progress import shown
from gates.report import read_report
from gates.run import run_profile
from gates.visible import printable

if TYPE_CHECKING:
    from rich.console import RenderableType


def command(argv: list[str]) -> int:
    """Runs the subcommand; the exit code of the verdict, or of the mistake."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.action(arguments))
    except GateUsageError as error:
        print(printable(sendable(str(error))), file=sys.stderr)  # noqa: T201 - this is the command line
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; nothing is left to say, and Python must not say it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gates",
        description="Judge an OpenAI-compatible endpoint.",
        epilog="example: python -m gates run --endpoint http://127.0.0.1:8000 --model qwen --profile smoke",
    )
    actions = parser.add_subparsers(required=True, metavar="run | probe | report | list | explain | GATE")
    run = actions.add_parser("run", help="run a profile against an endpoint")
    run.add_argument("--endpoint", required=True, metavar="URL", help="base URL, with or without /v1")
    run.add_argument("--model", required=True, metavar="NAME", help="the served model name")
    run.add_argument("--profile", default="standard", metavar="NAME|FILE")
    run.add_argument("--gate", action="append", default=[], metavar="NAME", help="only this gate; may be repeated")
    run.add_argument("--api-key-env", metavar="VARIABLE", help="environment variable that holds the API key")
    pair_or_file = "as thinking=switch, or a file with a topology's capability"
    run.add_argument("--capability", metavar="KEY=VALUE|FILE", action="append", default=[], help=pair_or_file)
    run.add_argument("--baseline", type=Path, metavar="FILE", help="report (--json) of an earlier run to compare with")
    run.add_argument("--metrics-url", metavar="URL")
    run.add_argument("--live", metavar="URL", help="production, for what is asked of both; nothing that loads it is")
    run.add_argument("--live-model", metavar="NAME", help="the model's name there, where it is another")
    run.add_argument("--check", action="append", default=[], metavar="ID", help="only this check or group; repeatable")
    run.add_argument("--evidence", type=Path, metavar="DIR", help="where evidence goes; default a temporary directory")
    run.add_argument("--html", type=Path, metavar="FILE", help="the report as a page; default beside the evidence")
    run.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    run.set_defaults(action=_run)
    report = actions.add_parser("report", help="show a saved --json report again, and make its page")
    report.add_argument("report", type=Path, metavar="REPORT.json")
    report.add_argument("--html", type=Path, metavar="FILE", help="default: the same name with .html")
    report.add_argument("--json", action="store_true", help="say where the page is as JSON on stdout")
    report.set_defaults(action=_report)
    probe = actions.add_parser("probe", help="find out what an endpoint can do, for a topology's capability")
    probe.add_argument("--endpoint", required=True, metavar="URL", help="base URL, with or without /v1")
    probe.add_argument("--model", required=True, metavar="NAME", help="the served model name")
    probe.add_argument("--api-key-env", metavar="VARIABLE", help="environment variable that holds the API key")
    probe.add_argument("--capability", metavar="KEY=VALUE|FILE", action="append", default=[], help="known already")
    probe.add_argument("--json", action="store_true", help="as JSON on stdout")
    probe.set_defaults(action=_probe)
    names = actions.add_parser("list", help="the gates, profiles and checks that ship")
    names.add_argument("--json", action="store_true", help="as JSON on stdout")
    names.set_defaults(action=_list)
    explain = actions.add_parser("explain", help="what a check, a rule or a gate asks and catches, and why")
    explain.add_argument("name", metavar="CHECK|RULE|GATE", help="see `list`")
    explain.add_argument("--json", action="store_true", help="as JSON on stdout")
    explain.set_defaults(action=_explain)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    refuse_unwritable(arguments.html)
    with cancelled_by_signals() as cancel, shown() as on_progress:
        report = run_profile(
            arguments.endpoint,
            arguments.model,
            arguments.profile,
            only=arguments.gate,
            evidence_dir=arguments.evidence,
            api_key_env=arguments.api_key_env,
            capability=capability_of(arguments.capability),
            baseline=read_baseline(arguments.baseline),
            metrics_url=arguments.metrics_url,
            live_endpoint=arguments.live,
            live_model=arguments.live_model,
            checks=arguments.check,
            on_progress=on_progress,
            cancel=cancel,
        )
    if arguments.json:
        sys.stdout.write(report.to_json() + "\n")
    else:
        _print(report.table())
    page = page_of_run(report, arguments.html)
    if page is not None:
        _say_where(page)
    return INTERRUPTED if cancel.is_set() else report.exit_code


def _report(arguments: argparse.Namespace) -> int:
    report = read_report(arguments.report)
    page = arguments.html or arguments.report.with_suffix(".html")
    write_page(report, page, beside=arguments.report.parent)
    if arguments.json:
        _print_json({"schema": 1, "page": str(page), "verdict": str(report.verdict), "sentence": report.sentence})
    else:
        _print(report.table())
        _say_where(page)
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from gates.acceptance.probing import probed_document, probed_text, probed_within

    declared = capability_of(arguments.capability)
    found = probed_within(arguments.endpoint, arguments.model, declared, arguments.api_key_env)
    said = json.dumps(probed_document(found), indent=1) if arguments.json else probed_text(found)
    sys.stdout.write(said + "\n")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    found = listing.listed()
    if arguments.json:
        _print_json(found)
    else:
        _print(listing.drawn_list(found))
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    found = listing.explained(arguments.name)
    if arguments.json:
        _print_json(found)
    else:
        _print(listing.drawn_explanation(found))
    return 0


def _print(part: RenderableType) -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        Console(markup=False, highlight=False, emoji=False).print(part)
        return
    # A table is padded to a width that a pipe does not have.
    buffer = StringIO()
    Console(file=buffer, markup=False, highlight=False, emoji=False).print(part)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in buffer.getvalue().split("\n")[:-1]))


def _say_where(page: Path) -> None:
    sys.stdout.flush()  # on one terminal the report comes first
    sys.stderr.write(f"page: {page}\n")


def _print_json(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
