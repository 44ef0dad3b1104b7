"""What the acceptance gate costs: its own CPU, and its wall time against what the engine alone would have needed.

    python benchmarks/gate_cost.py [--tier smoke|standard] [--rate 1500] [--slots 16]

The engine is an emulated one that writes so many tokens per second over all its slots and no more. Its own limit is the
time that the tokens of this run take at that rate; the ratio says how well the gate keeps it busy.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from launch.engines.emulator.testing import emulator

DECLARED = ("thinking=switch", "required=true", "named=true", "parallel_calls=true", "json_schema=true")


def generated_tokens(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=["smoke", "standard"], default="standard")
    parser.add_argument("--rate", type=float, default=1500.0, help="tokens per second over all slots")
    parser.add_argument("--slots", type=int, default=16)
    arguments = parser.parse_args()
    gap_ms = arguments.slots / arguments.rate * 1000
    flags = ["--ttft-ms", f"{gap_ms:g}", "--itl-ms", f"{gap_ms:g}", "--slots", str(arguments.slots)]
    with emulator(*flags, "--max-model-len", "32768", model="emu") as engine, tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "cost.yaml"
        settings = {"tier": arguments.tier, "concurrency": arguments.slots}
        gate = {"name": "acceptance", "deadline_s": 3600, "settings": settings}
        profile.write_text(json.dumps({"gates": [gate]}))
        argv = [sys.executable, "-m", "gates", "run", "--endpoint", engine.url, "--model", "emu", "--json"]
        argv += ["--profile", str(profile), "--evidence", folder]
        for pair in (*DECLARED, "max_context_tokens=32768"):
            argv += ["--capability", pair]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started_s = time.monotonic()
        ran = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
        wall_s = time.monotonic() - started_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        tokens = generated_tokens(engine.url)
    report = json.loads(ran.stdout)
    requests = report["steps"][0]["verdict"]["measurements"]["requests"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    limit_s = tokens / arguments.rate
    print(f"tier {arguments.tier}: {report['verdict']}, {requests} requests, {tokens:.0f} tokens generated")
    print(f"client CPU          {cpu_s:8.1f} s   {cpu_s / requests * 1000:.2f} s per 1,000 requests")
    print(f"wall                {wall_s:8.1f} s")
    print(
        f"engine's own limit  {limit_s:8.1f} s   at {arguments.rate:g} tok/s; wall is {wall_s / limit_s:.2f} times it"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
