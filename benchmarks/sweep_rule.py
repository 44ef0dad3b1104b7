"""How often does a sweep pick an arm that is not better, and how often the one that is? Simulated, ranked as real arms.

    python benchmarks/sweep_rule.py                  # 1,000 sweeps per entry: a quarter of an hour on one core
    python benchmarks/sweep_rule.py --sweeps 200

Prints Markdown. 3 % noise, starts that differ by 1 %; live is measured over three rounds, and every arm as the gate
does it, until it passes, fails or cannot tell, and only one that passes is compared. One arm is better by so much, the
others are as live. Beside what `core.ranking` picks stands how often some arm would have passed the bound that is
meant for a candidate on its own.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "throughput")]

from ladder_kit import Engine, Noise, seeded  # noqa: E402 - the path above leads there

from controller.core.night_records import Arm, OnSuccess, Sweep  # noqa: E402
from controller.core.ranking import rank  # noqa: E402
from controller.core.records import GateResult, Kind, Phase, Rollout, State  # noqa: E402
from gates.contract import VerdictKind  # noqa: E402
from gates.throughput.decide.noninferiority import Decision, decide  # noqa: E402
from gates.throughput.decide.rule import LOOKS, Rule  # noqa: E402
from gates.throughput.gate import compared  # noqa: E402
from gates.throughput.records import DECODE, Run  # noqa: E402

RULE = Rule(metrics=(DECODE,))
NOISE = Noise(sd=0.03, starts=0.01)
BEST = "arm 1"


def one(seed: int, arms: int, cells: int, gain: float) -> tuple[str, bool]:
    """What a sweep picks (empty: no arm), and whether some arm is better by its own bound alone."""
    dice = seeded(seed)
    live = Engine(dice, [0.0] * cells, NOISE).measured(LOOKS[0])
    levels = {f"arm {number}": gain if number == 1 else 0.0 for number in range(1, arms + 1)}
    judged = {name: _judged(Engine(dice, [level] * cells, NOISE), live) for name, level in levels.items()}
    rollouts = {name: _rollout(name, decision) for name, decision in judged.items()}
    sweep = Sweep("s", "s", "", 0.0, OnSuccess.REPORT, tuple(Arm(name, name, rollout=name) for name in rollouts))
    passed = [decision for decision in judged.values() if decision.verdict is VerdictKind.PASS]
    alone = any(decision.families[0].low > 1 for decision in passed)
    return rank(State(rollouts=rollouts), sweep).pick, alone


def _judged(arm: Engine, live: Run) -> Decision:
    """Look by look, as long as another one could change the verdict."""
    decision = decide(arm.measured(LOOKS[0]), live, RULE)
    while decision.next_look is not None:
        decision = decide(arm.measured(decision.next_look), live, RULE)
    return decision


def _rollout(name: str, decision: Decision) -> Rollout:
    gate = GateResult("throughput", 0, name, "pass", "", measurements={"compared": compared(decision, RULE)})
    phase = Phase.MEASURED if decision.verdict is VerdictKind.PASS else Phase.REJECTED
    return Rollout(name, Kind.PROPOSE, name, "", 0.0, phase, gates=(gate,))


def row(arms: int, cells: int, gain: float, sweeps: int) -> str:
    found = [one(sweep * 1000 + arms, arms, cells, gain) for sweep in range(sweeps)]
    picks = Counter("none" if not pick else "best" if pick == BEST and gain else "other" for pick, _ in found)
    shares = [picks["best"] / sweeps if gain else None, picks["other"] / sweeps, sum(a for _, a in found) / sweeps]
    said = " | ".join("–" if share is None else f"{share:.1%}" for share in shares)
    return f"| {arms} | {cells} | {gain:.0%} | {said} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=1000)
    sweeps = parser.parse_args().sweeps
    print("| arms | cells | one is better by | it is picked | another is picked | some arm passes alone |")
    print("|---|---|---|---|---|---|", flush=True)
    for arms in (4, 8, 32):
        for cells in (2, 8):
            for gain in (0.0, 0.05, 0.10):
                print(row(arms, cells, gain, sweeps), flush=True)


if __name__ == "__main__":
    main()
