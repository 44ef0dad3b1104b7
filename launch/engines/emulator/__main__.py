"""The command line of the emulated engine."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.errors import LaunchError

from .faults import FaultError, FaultSetting, describe_faults
from .mistakes import BEHAVIOURS, read_right
from .settings import THINKING_SWITCHES, Dialect, Headers, Settings, Thinking, Timing

_EPILOG = """examples:
  %(prog)s --port 8001 --model emu --ttft-ms 50 --itl-ms 5
  %(prog)s --port 8001 --model emu --dialect sglang --thinking on --start-s 3 --listen-early
  %(prog)s --port 8001 --model emu --slots 32 --step-base-ms 11.3 --step-per-seq-ms 4.83 --cliff-at 9 --cliff-factor 4
  %(prog)s --port 8001 --model emu --fault leak-think@0.1 --fault slow-after-s=8:3
  %(prog)s --list-faults
"""


_PROG = "python -m launch.engines.emulator"


def main(argv: Sequence[str] | None = None, *, prog: str = _PROG) -> int:
    """Run one emulated engine until it is told to stop; returns its exit code (2: bad arguments)."""
    parser = build_parser(prog)
    options = parser.parse_args(argv)
    if options.list_faults:
        sys.stdout.write(describe_faults() + "\n")
        return 0
    try:
        settings = settings_from(options)
    except (LaunchError, ValueError) as error:
        sys.stderr.write(f"emulator: {error}\n")
        return 2
    # Late, so that --help and mistakes answer at once.
    from .process import run

    return run(settings)


def build_parser(prog: str = _PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="An emulated OpenAI-compatible engine with exact timing and faults by name.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_place(parser)
    _add_model(parser)
    _add_timing(parser)
    _add_life(parser)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--host", default="127.0.0.1")
    group.add_argument("--port", type=int, default=8000, help="0 takes a free one (default 8000)")
    group.add_argument("--port-file", type=Path, metavar="FILE", help="write the bound port here")
    group.add_argument("--api-key-env", metavar="NAME", help="demand the key in this environment variable under /v1")


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it claims to be")
    group.add_argument("--model", nargs="+", default=["emu"], metavar="NAME", help="served name, and further ones")
    group.add_argument("--dialect", choices=[d.value for d in Dialect], default="vllm")
    group.add_argument(
        "--thinking",
        choices=[t.value for t in Thinking],
        default="off",
        help="habit when a request does not say; never, always: a model without the switch (default off)",
    )
    group.add_argument(
        "--thinking-switch",
        choices=["any", *THINKING_SWITCHES],
        default="any",
        help="the spelling of the switch that the model knows (default any)",
    )
    group.add_argument(
        "--keeps-reasoning", action="store_true", help="the template renders the reasoning of earlier turns"
    )
    group.add_argument(
        "--right",
        action="append",
        default=[],
        metavar="[BEHAVIOUR=]P",
        help="how often the model is right (default 1); behaviours: " + ", ".join(BEHAVIOURS),
    )
    group.add_argument("--max-model-len", type=int, default=32768, metavar="TOKENS")
    group.add_argument("--kv-tokens", type=int, default=524288, metavar="TOKENS", help="size of the KV pool")
    group.add_argument("--answer-tokens", type=int, default=160, metavar="N", help="usual length of prose answers")
    group.add_argument("--cache-report", action="store_true", help="report cached prompt tokens in usage")
    group.add_argument("--tp", type=int, default=1, metavar="N", help="tensor parallel size, for show")
    group.add_argument(
        "--workers", type=int, default=0, metavar="N", help="idle child processes that outlive a SIGKILL"
    )
    group.add_argument("--vram-mib", type=int, default=0, metavar="MIB", help="memory to claim in the server info")
    group.add_argument("--seed", type=int, default=0, help="same seed and prompt, same answer (default 0)")


def _add_timing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("timing")
    group.add_argument("--ttft-ms", type=float, default=20.0, metavar="MS", help="arrival to first token (default 20)")
    group.add_argument(
        "--prefill-tok-per-s",
        type=float,
        default=0.0,
        metavar="RATE",
        help="adds uncached prompt tokens / RATE; 0: none",
    )
    group.add_argument("--itl-ms", type=float, default=5.0, metavar="MS", help="time per token (default 5)")
    group.add_argument("--tokens-per-chunk", type=int, default=1, metavar="N")
    group.add_argument("--slots", type=int, default=256, metavar="N", help="requests that run at once; more wait")
    group.add_argument("--step-base-ms", type=float, metavar="A", help="step law instead of --itl-ms: A + B * running")
    group.add_argument("--step-per-seq-ms", type=float, default=0.0, metavar="B")
    group.add_argument("--cliff-at", type=int, default=0, metavar="K", help="from K running requests on …")
    group.add_argument("--cliff-factor", type=float, default=4.0, metavar="F", help="… gaps are F times as long")
    group.add_argument(
        "--lockstep", action="store_true", help="engine steps: the chunks of all streams are due at the same instant"
    )
    group.add_argument("--headers", choices=[h.value for h in Headers], help="default: late for sglang, else early")
    group.add_argument(
        "--realtime", action="store_true", help="real-time scheduling: exact on a busy machine too; as root"
    )
    group.add_argument("--truth", type=Path, metavar="FILE", help="record when each chunk was due and sent")


def _add_life(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("life and death")
    group.add_argument("--start-s", type=float, default=0.0, metavar="S", help="time until ready")
    group.add_argument("--listen-early", action="store_true", help="listen at once, /health is 503 until ready")
    group.add_argument("--shutdown-timeout-s", type=float, default=0.0, metavar="S", help="let streams end on SIGTERM")
    group.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE][@FRACTION][+CONDITION]")
    group.add_argument("--list-faults", action="store_true", help="show the vocabulary of faults and exit")


def settings_from(options: argparse.Namespace) -> Settings:
    """Settings from parsed options; raises `ValueError` with one sentence for those that make no sense."""
    _check_ranges(options)
    dialect = Dialect(options.dialect)
    headers = Headers(options.headers) if options.headers else _usual_headers(dialect)
    faults = tuple(FaultSetting.parse(text) for text in options.fault)
    names = {setting.fault.name for setting in faults}
    if "exits-zero-on-crash" in names and not names & {"dies-loading", "dies-under-load", "dies-after-requests"}:
        raise FaultError("fault 'exits-zero-on-crash' needs a crash beside it: dies-loading or dies-under-load, say")
    return Settings(
        host=options.host,
        port=options.port,
        models=tuple(options.model),
        dialect=dialect,
        timing=_timing(options),
        headers=headers,
        lockstep=options.lockstep,
        thinking=Thinking(options.thinking),
        thinking_switch=options.thinking_switch,
        keeps_reasoning=options.keeps_reasoning,
        right=read_right(options.right),
        slots=options.slots,
        seed=options.seed,
        start_s=options.start_s,
        # An engine that is never ready has to answer to show it.
        listen_early=options.listen_early or "never-ready" in names,
        shutdown_timeout_s=options.shutdown_timeout_s,
        max_model_len=options.max_model_len,
        kv_tokens=options.kv_tokens,
        answer_tokens=options.answer_tokens,
        tensor_parallel=options.tp,
        workers=options.workers,
        vram_mib=options.vram_mib,
        cache_report=options.cache_report,
        realtime=options.realtime,
        faults=faults,
        port_file=options.port_file,
        truth_file=options.truth,
        api_key=_api_key(options.api_key_env),
    )


def _timing(options: argparse.Namespace) -> Timing:
    return Timing(
        ttft_ms=options.ttft_ms,
        itl_ms=options.itl_ms,
        prefill_tok_per_s=options.prefill_tok_per_s,
        tokens_per_chunk=options.tokens_per_chunk,
        step_base_ms=options.step_base_ms,
        step_per_seq_ms=options.step_per_seq_ms,
        cliff_at=options.cliff_at,
        cliff_factor=options.cliff_factor,
    )


def _usual_headers(dialect: Dialect) -> Headers:
    return Headers.LATE if dialect is Dialect.SGLANG else Headers.EARLY


def _api_key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise ValueError(f"--api-key-env {name}: there is no such environment variable, or it is empty")
    return key


def _check_ranges(options: argparse.Namespace) -> None:
    at_least_one = ("tokens_per_chunk", "slots", "max_model_len", "kv_tokens", "answer_tokens", "tp")
    for name, value in vars(options).items():
        if isinstance(value, int | float) and name != "seed" and value < (1 if name in at_least_one else 0):
            least = 1 if name in at_least_one else 0
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, not {value}")
    if not -(2**63) <= options.seed < 2**63:
        raise ValueError(f"--seed must fit into 64 bits, not {options.seed}")
    for flag, path in (("--truth", options.truth), ("--port-file", options.port_file)):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{flag} {path}: there is no folder {path.parent}; make it first")
    if not 0 <= options.port <= 65535:
        raise ValueError(f"--port must be between 0 and 65535, not {options.port}")


if __name__ == "__main__":
    sys.exit(main())
