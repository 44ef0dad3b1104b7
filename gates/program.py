"""A built-in gate as a program on the contract. Whatever happens, it ends with one verdict and never a traceback."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import IO

import psutil

from gates import catalog
from gates.contract import MAX_DOCUMENT_BYTES, GateRequest, Verdict, VerdictKind, broken, parse_request
from gates.errors import GateUsageError
from gates.trial import CannotJudgeError, DeadlineError, Trial, WrongModelError, open_trial


def main(name: str) -> int:
    """The gate `name` as this process; returns its exit code."""
    age_s = max(0.0, time.time() - psutil.Process().create_time())
    return judge(name, sys.stdin.buffer, sys.stdout, sys.stderr, age_s=age_s)


def judge(name: str, stdin: IO[bytes], stdout: IO[str], stderr: IO[str], *, age_s: float = 0.0) -> int:
    """Read the request, run gate `name`, write the verdict; the exit code of the verdict."""
    try:
        request = parse_request(stdin.read(MAX_DOCUMENT_BYTES))
    except ValueError as error:
        verdict = broken(name, str(error))
    else:
        verdict = _verdict(name, request, stderr, age_s)
    stdout.write(verdict.to_json() + "\n")
    stdout.flush()
    return verdict.exit_code


def _verdict(name: str, request: GateRequest, stderr: IO[str], age_s: float) -> Verdict:
    if request.gate != name:
        return broken(name, f"The request is for gate {request.gate!r}; this is {name!r}.")
    try:
        trial = open_trial(request, stderr, age_s=age_s)
    except GateUsageError as error:
        return broken(name, str(error))
    return _run(trial, stderr)


def _run(trial: Trial, stderr: IO[str]) -> Verdict:
    with trial.teller.heartbeat():
        return settled(trial, catalog.find(trial.request.gate).run, stderr)


def settled(trial: Trial, judging: Callable[[Trial], Verdict], stderr: IO[str]) -> Verdict:
    """What `judging` says about `trial`, or the verdict that its way of ending amounts to. Never raises."""
    try:
        return judging(trial)
    except GateUsageError as error:
        return broken(trial.request.gate, trial.evidence.redactor.text(str(error)))
    except CannotJudgeError as error:
        trial.check("access", VerdictKind.ERROR, str(error))
    except WrongModelError as error:
        trial.check("P17", VerdictKind.FAIL, str(error))
    except DeadlineError as error:
        sentence = f"the deadline of {trial.request.deadline_s:g} s passed before everything was looked at"
        sentence += f": {error}" if str(error) else ""
        trial.check("deadline", VerdictKind.INCONCLUSIVE, sentence)
    except Exception as error:  # noqa: BLE001 - a broken judge is a verdict too; what broke goes to stderr
        stderr.write(trial.evidence.redactor.text(traceback.format_exc()))
        trial.check("gate", VerdictKind.ERROR, f"the gate itself broke: {type(error).__name__}: {error}")
    return trial.verdict("")
