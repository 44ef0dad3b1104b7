"""The load client against the truth of the emulated engine, and its CPU time against that of aiperf and guidellm.

    python benchmarks/load_client.py [--without-rivals] [--streams 128] [--rounds 3] [--json FILE]

Accuracy: the emulator notes when it sent each chunk; what the client says is compared with that, chunk by chunk.
Cost: CPU of the process tree from the first request to the exit, the reading of the answers included, start-up not; all
tools in turn, on the same server, in the same minutes. Exits with 1 when a limit is broken.
"""

import argparse
import contextlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
from rivals import Command, Shape, commands, default_cache, install

from gates.endpoint import Endpoint
from gates.load_client import ClientCost, Load, LoadClient, run
from gates.reply import read_reply
from gates.wire import Exchange
from launch.engines.emulator.testing import RunningEmulator, emulator

TTFT_MS = 50.0
MEDIAN_LIMIT_MS = 0.5
P99_LIMIT_MS = {"independent": 2.0, "lockstep": 2.5}
RATIO_LIMIT = 6.0
# Starts a program before every ordinary one; the emulator has the same switch.
URGENT = [
    sys.executable,
    "-c",
    "import os, sys; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)); os.execv(sys.argv[1], sys.argv[1:])",
]
_SAMPLE_S = 0.1
_ENOUGH_BYTES = 500_000
_WARM_UP_TOKENS = 2


# --- our client, in a process of its own ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stamped:
    """What the client says about one request: its id, between which moments it left, when each token came."""

    request: str
    sent_at_s: float
    written_at_s: float
    token_times_s: tuple[float, ...]


def drive(port: int, shape: Shape, spread: int, target: Path) -> int:
    """Warm up, measure, read all answers, and leave them in `target`."""

    def body(stream: int, turn: int, tokens: int) -> dict[str, object]:
        text = f"[ref {stream}-{turn}] Tell me about the harbours of the north and the people who live there."
        asked = {"model": "emu", "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        return {**asked, "max_tokens": tokens, "messages": [{"role": "user", "content": text}]}

    def tokens(stream: int, turn: int) -> int:
        return shape.tokens + (stream * 37 + turn * 11) % (2 * spread + 1) - spread

    async def measure() -> Load:
        client = LoadClient(Endpoint.at(f"http://127.0.0.1:{port}"))
        deadline_s = time.monotonic() + 600
        try:
            await client.wave([body(n, -1, _WARM_UP_TOKENS) for n in range(shape.streams)], deadline_s=deadline_s)
            bodies = [[body(n, t, tokens(n, t)) for t in range(shape.requests)] for n in range(shape.streams)]
            load = await client.streams(bodies, deadline_s=deadline_s)
        finally:
            client.close()
        return load

    load = run(measure)
    stamped = [stamp(exchange) for exchange in load.exchanges]
    target.write_bytes(pickle.dumps((load.cost, stamped)))
    return 0


def stamp(exchange: Exchange) -> Stamped:
    reply = read_reply(exchange, streamed=True)
    if reply.breaches:
        raise SystemExit(f"an answer is not what was asked for: {reply.breaches[0].sentence}")
    request = json.loads(exchange.body.split(b"\n", 1)[0].removeprefix(b"data: "))["id"]
    if exchange.written_at_s is None:
        raise SystemExit("a request did not fit into the socket at once")
    return Stamped(request, exchange.sent_at_s, exchange.written_at_s, reply.token_times_s)


# --- the truth --------------------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """One request as the emulator saw it; nanoseconds of CLOCK_MONOTONIC."""

    arrived_ns: int
    sent_ns: list[int] = field(default_factory=list)
    due_ns: list[int] = field(default_factory=list)


def read_truth(path: Path) -> dict[str, Truth]:
    """Measured requests by id; those of warm-ups and of tools that look whether anybody is there are left out."""
    truth: dict[str, Truth] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if "arrived_ns" in entry:
            truth[entry["request"]] = Truth(entry["arrived_ns"])
        elif "chunk" in entry:
            truth[entry["request"]].sent_ns.append(entry["sent_ns"])
            truth[entry["request"]].due_ns.append(entry["due_ns"])
    return {name: one for name, one in truth.items() if len(one.sent_ns) > _WARM_UP_TOKENS}


@dataclass(frozen=True)
class Accuracy:
    """Milliseconds: median and 99th percentile of the amounts.

    `late`: sent by the emulator → stamped by the client. `read`: stamped by the client → read by the emulator, which
    mostly is how long the emulator is busy with other streams, and no error of the client.
    """

    mode: str
    chunks: int
    chunks_per_s: float
    ttft_ms: tuple[float, float]
    gap_ms: tuple[float, float]
    late_ms: tuple[float, float]
    read_ms: tuple[float, float]
    emulator_late_ms: tuple[float, float]
    cost: ClientCost
    load_average: float

    @property
    def verdicts(self) -> dict[str, bool]:
        p99_ms = P99_LIMIT_MS[self.mode]
        return {
            f"{self.mode}: {what} error {name} ≤ {limit_ms:g} ms": value <= limit_ms
            for what, (median, p99) in (("TTFT", self.ttft_ms), ("inter-token", self.gap_ms))
            for name, value, limit_ms in (("median", median, MEDIAN_LIMIT_MS), ("p99", p99, p99_ms))
        }


def quantiles(values_ns: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(abs(value) for value in values_ns)
    return ordered[len(ordered) // 2] / 1e6, ordered[int(len(ordered) * 0.99)] / 1e6


def accuracy(mode: str, shape: Shape, options: argparse.Namespace) -> Accuracy:
    average = os.getloadavg()[0]
    with serving(mode, options) as (running, folder):
        target = folder / "stamped"
        urgent = URGENT if options.realtime else []
        subprocess.run([*urgent, *own_argv(running.port, shape, shape.tokens // 4, target)], check=True)
        running.stop()
        truth = read_truth(folder / "truth.jsonl")
        cost, stamped = pickle.loads(target.read_bytes())  # noqa: S301 - our own child wrote it
    if len(stamped) != len(truth) or len(stamped) != shape.streams * shape.requests:
        raise SystemExit(f"{len(stamped)} answers were received, {len(truth)} were sent")
    ttft: list[float] = []
    gaps: list[float] = []
    late: list[float] = []
    read: list[float] = []
    for one in stamped:
        true, received = truth[one.request], [time_s * 1e9 for time_s in one.token_times_s]
        # A request leaves somewhere between its time stamp and the end of its system call: all of that counts as error.
        ttft.append(abs(received[0] - true.sent_ns[0]) + (one.written_at_s - one.sent_at_s) * 1e9)
        read.append(true.arrived_ns - one.sent_at_s * 1e9)
        late += [at - sent for at, sent in zip(received, true.sent_ns, strict=True)]
        gaps += [(b - a) - (d - c) for (a, b), (c, d) in zip(pairwise(received), pairwise(true.sent_ns), strict=True)]
    begin, end = min(one.arrived_ns for one in truth.values()), max(one.sent_ns[-1] for one in truth.values())
    own = [sent - due for one in truth.values() for sent, due in zip(one.sent_ns, one.due_ns, strict=True)]
    rate = len(late) / (end - begin) * 1e9
    return Accuracy(mode, len(late), rate, *map(quantiles, (ttft, gaps, late, read, own)), cost, average)


# --- cost -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """CPU of one run of a tool, all its processes, from the first request to the exit: per 1,000 chunks."""

    tool: str
    cpu_ms_per_1000: float
    whole_cpu_s: float
    chunks: int
    chunks_per_s: float
    load_average: float


def cost(tool: str, argv: list[str], folder: Path, shape: Shape) -> Cost:
    """Run a tool to its end and see what it took."""
    truth_file = folder / "truth.jsonl"
    truth_file.write_text("")
    average = os.getloadavg()[0]
    log = folder / f"{tool}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=folder)
        samples = list(watch(process.pid, truth_file))
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{tool} ended with code {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
    truth = read_truth(truth_file)
    chunks = sum(len(one.sent_ns) for one in truth.values())
    if chunks < shape.chunks * 0.9:
        raise SystemExit(f"{tool} fetched {chunks} chunks; {shape.chunks} were asked for")
    begin, end = min(one.arrived_ns for one in truth.values()), max(one.sent_ns[-1] for one in truth.values())
    before_s = max((cpu_s for at_ns, cpu_s in samples if at_ns <= begin), default=0.0)
    whole_s = usage.ru_utime + usage.ru_stime
    rate = chunks / (end - begin) * 1e9
    return Cost(tool, (whole_s - before_s) / chunks * 1e6, whole_s, chunks, rate, average)


def watch(pid: int, truth_file: Path) -> Iterator[tuple[int, float]]:
    """(time, CPU seconds of the tree so far) until answers come in numbers: looking costs time of its own."""
    tree = psutil.Process(pid)
    while truth_file.stat().st_size < _ENOUGH_BYTES:
        at_ns, total_s = time.monotonic_ns(), 0.0
        with contextlib.suppress(psutil.Error):
            if tree.status() == psutil.STATUS_ZOMBIE:
                return
            for process in [tree, *tree.children(recursive=True)]:
                times = process.cpu_times()
                total_s += times.user + times.system + times.children_user + times.children_system
        yield at_ns, total_s
        time.sleep(_SAMPLE_S)


def costs(shape: Shape, tools: dict[str, Command], options: argparse.Namespace) -> list[Cost]:
    """All tools in turn, round by round, on one server."""
    measured = []
    with serving("independent", options) as (running, folder):
        for number in range(options.rounds):
            for tool, command in {"cutover": own_command, **tools}.items():
                target = folder / f"{tool}-{number}"
                target.mkdir()
                measured.append(cost(tool, command(running.port, shape, target), folder, shape))
                print(f"  round {number + 1}: {line(measured[-1])}", flush=True)
    return measured


def own_command(port: int, shape: Shape, folder: Path) -> list[str]:
    return own_argv(port, shape, 0, folder / "stamped")


# --- both -------------------------------------------------------------------------------------------------------------


def own_argv(port: int, shape: Shape, spread: int, target: Path) -> list[str]:
    numbers = [port, shape.streams, shape.requests, shape.tokens, spread]
    return [sys.executable, __file__, "--drive", *map(str, numbers), str(target)]


@contextlib.contextmanager
def serving(mode: str, options: argparse.Namespace) -> Iterator[tuple[RunningEmulator, Path]]:
    """An emulator with a truth file in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        timing = ["--ttft-ms", str(TTFT_MS), "--itl-ms", str(options.itl_ms), *(["--lockstep"] * (mode == "lockstep"))]
        timing += ["--realtime"] * options.realtime
        with emulator(*timing, "--truth", str(folder / "truth.jsonl"), *options.flags) as running:
            yield running, folder


def line(one: Cost) -> str:
    per = f"{one.cpu_ms_per_1000:7.2f} ms CPU per 1,000 chunks ({one.whole_cpu_s:.1f} s in all)"
    return f"{one.tool:9} {per}, {one.chunks_per_s:6.0f} chunks/s, load average {one.load_average:.1f}"


def show_accuracy(one: Accuracy) -> None:
    print(f"\n{one.mode}: {one.chunks} chunks, {one.chunks_per_s:.0f}/s, load average {one.load_average:.2f}; ", end="")
    print(f"client {one.cost.core_share:.0%} of a core, loop lag p99 {one.cost.lag_p99_s * 1e3:.2f} ms")
    rows = {
        "TTFT error": one.ttft_ms,
        "inter-token error": one.gap_ms,
        "sent → stamped": one.late_ms,
        "request stamped → read": one.read_ms,
        "emulator: due → sent": one.emulator_late_ms,
    }
    for name, (median_ms, p99_ms) in rows.items():
        print(f"  {name:24} median {median_ms:7.3f} ms   p99 {p99_ms:7.3f} ms")


def ratios(measured: list[Cost]) -> dict[str, float]:
    """Per rival the median over the rounds of its cost to ours in the same round."""
    by_tool: dict[str, list[float]] = {}
    for one in measured:
        by_tool.setdefault(one.tool, []).append(one.cpu_ms_per_1000)
    own = by_tool.pop("cutover")
    return {
        tool: statistics.median(theirs / ours for theirs, ours in zip(values, own, strict=True))
        for tool, values in by_tool.items()
    }


def main() -> int:
    options = parse()
    if options.drive:
        port, streams, requests, tokens, spread = map(int, options.drive[:5])
        return drive(port, Shape(streams, requests, tokens), spread, Path(options.drive[5]))
    tools = {} if options.without_rivals else commands(install(options.cache))
    shape = Shape(options.streams, options.requests, options.tokens)
    print(
        f"{os.cpu_count()} cores; {shape.streams} streams, {options.itl_ms:g} ms per token, TTFT {TTFT_MS:g} ms", end=""
    )
    print("; emulator and accuracy under real-time scheduling" if options.realtime else "")
    accuracies = [accuracy(mode, shape, options) for mode in options.modes]
    for one in accuracies:
        show_accuracy(one)
    print("\ncost:")
    measured = costs(shape, tools, options)
    compared = ratios(measured)
    verdicts = {name: kept for one in accuracies for name, kept in one.verdicts.items()}
    for tool, ratio in compared.items():
        print(f"  {tool}: {ratio:.1f} times the CPU of ours")
        verdicts[f"cost: at most a sixth of {tool}'s"] = ratio >= RATIO_LIMIT
    print(f"\nload average at the end: {os.getloadavg()[0]:.2f}")
    for name, kept in verdicts.items():
        print(f"{'PASS' if kept else 'BROKEN'}  {name}")
    if options.json:
        document = {"accuracy": [asdict(a) for a in accuracies], "cost": [asdict(c) for c in measured]}
        options.json.write_text(json.dumps({**document, "ratios": compared, "verdicts": verdicts}, indent=1) + "\n")
    return 0 if all(verdicts.values()) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--requests", type=int, default=4, help="per stream, one after the other")
    parser.add_argument("--tokens", type=int, default=200, help="per answer")
    parser.add_argument("--itl-ms", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3, help="of the cost of every tool")
    parser.add_argument("--modes", nargs="+", choices=list(P99_LIMIT_MS), default=list(P99_LIMIT_MS))
    parser.add_argument("--without-rivals", action="store_true", help="measure our own client alone")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="real-time scheduling for the emulator always, and for our client where accuracy is measured: what both "
        "can do while other work is going on (as root)",
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the rivals are installed")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--drive", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", help="further flags for the emulator, after --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
