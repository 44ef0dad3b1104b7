"""The gate under test: an emulated engine with one fault, and whether the gate blocks it, and by which check.

Shared by the tests and by `benchmarks/gate_sensitivity.py`.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from gates import program
from gates.acceptance import register
from gates.acceptance.check import Tier
from gates.bugs import ALL as BUGS
from gates.contract import GateRequest, Verdict, parse_verdict
from gates.invariants import RULES
from launch.engines.emulator.faults import BY_NAME, Group, Need, vocabulary
from launch.engines.emulator.hosted import hosted

MODEL: Final = "emu"
DIALECTS: Final = ("vllm", "vllm-old", "sglang", "llamacpp", "smg")
CAPABILITY: Final[Mapping[str, Any]] = {
    "thinking": "switch",
    "required": True,
    "named": True,
    "parallel_calls": True,
    "json_schema": True,
    "keeps_reasoning": True,
    "max_context_tokens": 32768,
}
FLAGS: Final = (
    *("--ttft-ms", "1", "--itl-ms", "0", "--tokens-per-chunk", "4", "--slots", "256", "--cache-report"),
    *("--keeps-reasoning", "--max-model-len", "32768"),
)
WIRE_GROUPS: Final = (Group.ARGS, Group.NAMES, Group.CALLS, Group.TRANSPORT, Group.THINKING, Group.TEXT)


@dataclass(frozen=True)
class Mutant:
    """One fault and the checks that should see it; `seen_by` is empty for what is harmless."""

    fault: str
    seen_by: frozenset[str]
    harmless: bool
    wire: bool

    def spelled(self, fraction: float = 1.0) -> str:
        """As on the command line."""
        name = self.fault.replace("_", "-")
        return name if fraction >= 1 else f"{name}@{fraction:g}"


@dataclass(frozen=True)
class Model:
    """An engine without any fault, and a model that is right only so often."""

    name: str
    flags: tuple[str, ...]
    blocked: bool
    """What should become of it, in at least `share` of the runs."""
    share: float

    @property
    def expectation(self) -> str:
        return f"{'is blocked' if self.blocked else 'passes'} in at least {self.share:.0%}"

    def as_expected(self, blocked_share: float) -> bool:
        return (blocked_share if self.blocked else 1 - blocked_share) >= self.share


MODELS: Final = (
    Model(
        "right in .99, in .95 where it may be",
        ("--right", "0.99", "--right", "parallel=0.95", "--right", "no-call=0.95"),
        blocked=False,
        share=0.90,
    ),
    Model("calls right in .80", ("--right", "calls=0.8"), blocked=True, share=0.98),
    Model("results right in .80", ("--right", "results=0.8"), blocked=True, share=0.98),
    Model("parallel calls right in .80", ("--right", "parallel=0.8"), blocked=True, share=0.90),
)


@dataclass(frozen=True)
class Outcome:
    """One run of the gate against one engine. `warned`: checks that showed something and let it pass."""

    verdict: str
    blocking: tuple[str, ...]
    warned: tuple[str, ...]
    requests: int
    duration_s: float
    sentence: str
    timed_out: bool = False
    """The gate's own deadline ended it."""

    @property
    def blocked(self) -> bool:
        return self.verdict == "fail"

    def blocked_by(self, checks: frozenset[str]) -> bool:
        """Is one of these among the checks that block? `J01` is also seen in `J01.model`, `F08` in `F08b`."""
        return any(found.startswith(check) for found in self.blocking for check in checks)


@cache
def mutants() -> tuple[Mutant, ...]:
    """The whole vocabulary but what needs a life cycle (sleep and wake), which only the daemon can show."""
    expected = _expected_checks()
    return tuple(
        Mutant(
            fault=fault.name,
            seen_by=frozenset() if fault.healthy or fault.name in _WARN_ONLY else expected.get(fault.name, frozenset()),
            harmless=fault.healthy or fault.name in _WARN_ONLY,
            wire=fault.group in WIRE_GROUPS and not fault.healthy,
        )
        for fault in vocabulary()
        if Need.SLEEP not in fault.needs
    )


def judge(
    tier: str,
    seed: int,
    *faults: str,
    dialect: str = "vllm",
    flags: tuple[str, ...] = (),
    deadline_s: float = 900.0,
    **settings: Any,
) -> Outcome:
    """The gate `acceptance` against an engine of its own with these faults."""
    words = ["--dialect", dialect, *FLAGS, *flags, "--seed", str(seed)]
    for fault in faults:
        words += ["--fault", fault]
    with hosted(*words, model=MODEL) as engine, tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        request = GateRequest(
            gate="acceptance",
            endpoint=engine.url,
            model=MODEL,
            deadline_s=deadline_s,
            evidence_dir=folder,
            capability=CAPABILITY,
            metrics_url=f"{engine.url}/metrics",
            profile={"tier": tier, "seed": str(seed), "concurrency": 16, "timeout_s": _patience_s(faults), **settings},
        )
        stdout, stderr = io.StringIO(), io.StringIO()
        program.judge("acceptance", io.BytesIO(request.to_json().encode()), stdout, stderr)
        assert "Traceback" not in stderr.getvalue(), stderr.getvalue()[-4000:]
        return _outcome(parse_verdict(stdout.getvalue().encode(), "acceptance"))


def _patience_s(faults: Sequence[str]) -> float:
    """A busy machine must not look like an engine that hangs; where it does hang, nobody has to wait long for that."""
    return 8.0 if any(fault.startswith("hang") for fault in faults) else 60.0


def _outcome(verdict: Verdict) -> Outcome:
    return Outcome(
        verdict=str(verdict.verdict),
        blocking=tuple(check.id for check in verdict.checks if check.verdict == "fail" and not check.skipped),
        warned=tuple(check.id for check in verdict.checks if check.warn),
        requests=int(verdict.measurements.get("requests", 0)),
        duration_s=verdict.duration_s,
        sentence=verdict.sentence,
        timed_out=any(check.id == "deadline" for check in verdict.checks),
    )


def _expected_checks() -> Mapping[str, frozenset[str]]:
    """For every fault the checks that should see it, as the catalogue of public bugs says."""
    found: dict[str, set[str]] = {}
    for bug in BUGS:
        for fault in bug.faults:
            found.setdefault(_known(fault), set()).update(bug.checks)
    for fault, checks in _BEYOND_THE_CATALOGUE.items():
        found.setdefault(_known(fault), set()).update(checks)
    return {fault: frozenset(checks) for fault, checks in found.items()}


def _known(fault: str) -> str:
    return BY_NAME[fault.replace("_", "-")].name


# Faults without a public report, and checks that must see a fault although no report named them: transport faults are
# P08 wherever they strike, arguments that no longer parse or fit are J20, an unknown finish_reason is P06.
_BEYOND_THE_CATALOGUE: Final[Mapping[str, tuple[str, ...]]] = {
    "id_duplicate": ("P04", "P06"),
    "unknown_name": ("J25",),
    "no_done": ("P01",),
    "two_finish": ("P03",),
    "name_empty": ("P04", "P06"),
    "stream_cut": ("P01", "P08"),
    "wrong_schema_arguments": ("J01", "J20"),
    "no_usage": ("P07",),
    "loses_tool_result": ("F01",),
    "garbage": ("O01", "O02"),
    "args_head_cut": ("J20",),
    "http500_history": ("P08",),
    "http400": ("P08",),
    "conn_drop": ("P08",),
    "engine_death": ("P08",),
    "hang": ("P08",),
    "abort": ("P03", "P06"),
    "no_finish": ("P06",),
    "usage_wrong": ("P07",),
    "index_by_tool": ("P04", "P05"),
    "state_bleed": ("J20", "O06"),
    "fin_stop_on_calls": ("P03", "P06"),
    "reasoning_gap": ("P12", "T01"),
    "second_args_lost": ("J20",),
    "prompt_last_system": ("F08",),
    "html_escaped": ("J04", "J05", "J27"),
    "html_unescaped": ("J04", "J05", "J27"),
    "int_rounded": ("J03", "J28"),
    "first_args_lost": ("J20",),
    "lang_drift": ("O17",),
    "invisible": ("O04",),
    "nan_in_json": ("P01", "P06"),
    "model_renamed": ("P17",),
    "headless": ("P01", "P06"),
}
_WARN_ONLY: Final = frozenset({"choice-mix"})
"""Seen by checks that warn: several choices in one answer (P10)."""

_TRAFFIC: Final = ("J01", "J02", "J08", "F01", "T01", "O01")
"""Checks that make answers of every kind, for rules that hold for every answer."""


def targets(mutant: Mutant) -> tuple[str, ...]:
    """The checks that a run needs in which the ones that should see this fault can show it."""
    asked = [check.id for check in register.checks() if check.id.startswith(tuple(mutant.seen_by))]
    asked = [name for name in asked if register.find(name).tier is not Tier.EXTENDED] or asked
    return tuple(dict.fromkeys([*asked, *(_TRAFFIC if any(name in RULES for name in mutant.seen_by) else ())]))
