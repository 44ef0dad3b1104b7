"""What only means something next to production: asked there first, and on while it is undecided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.asker import SilentError
from gates.acceptance.check import Relative, Tier
from gates.acceptance.decide import Decision, decide
from gates.acceptance.tries import Tries, more_tries, run_tries
from gates.contract import VerdictKind
from gates.statistics import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Check

TIME_KEPT: Final = 0.25
"""The share of a run's time that no further look takes from the checks that have not been asked."""


@dataclass
class Production:
    """Production's own tries, by check; empty where it is not there or an earlier run tells enough."""

    live: Asker | None
    seed: str
    tries: dict[str, Tries] = field(default_factory=dict)

    async def measure(self, checks: Iterable[Check]) -> str | None:
        """Ask the checks that are only relative; none may load an engine or hurt it. In words why nothing is known."""
        if self.live is None:
            return None
        for check in checks:
            if not isinstance(check.rule, Relative) or check.exclusive or check.destructive:
                continue
            self.live.trial.say(f"production first: {check.id}")
            try:
                tries = await run_tries(check, self.live, self.seed, Tier.STANDARD)
            except SilentError as silent:
                self.tries.clear()
                return f"production does not answer, so nothing is compared with it: {silent}"
            if tries.skipped is None:
                self.tries[check.id] = tries
        return None

    async def ask_on(self, check: Check, most: int) -> None:
        """As many tries of this check as the candidate has now, where it was asked at all and still answers."""
        if self.live is not None and (tries := self.tries.get(check.id)) is not None:
            try:
                await more_tries(tries, self.live, self.seed, most)
            except SilentError:
                # What it answered before still counts.
                self.live = None

    def before(self, check_id: str) -> Mapping[str, Any]:
        """For `decide`; empty where it was not asked."""
        tries = self.tries.get(check_id)
        if tries is None:
            return {}
        return {"n": len(tries.done), "right": tries.right, "outcomes": tries.outcomes()}

    def figures(self) -> dict[str, dict[str, int]]:
        """For the verdict's measurements."""
        return {name: {"n": len(tries.done), "right": tries.right} for name, tries in self.tries.items()}


async def decided(
    tries: Tries, asker: Asker, tier: Tier, production: Production, earlier: Mapping[str, Any]
) -> Decision:
    """The decision on a series of tries. While a comparison is undecided, both sides are asked twice as much again.

    `earlier` is what an earlier run showed of production, for checks that it was not asked in this one. At most
    `LOOKS` looks, and none that would take the time of the other checks.
    """
    check = tries.check
    decision = decide(tries, tier, production.before(check.id) or earlier)
    if not isinstance(check.rule, Relative) or tier is Tier.SMOKE:
        return decision
    for look in LOOKS[1:]:
        late = asker.remaining_s() < TIME_KEPT * asker.trial.request.deadline_s
        if decision.verdict is not VerdictKind.INCONCLUSIVE or tries.skipped is not None or late:
            break
        most = check.rule.tries * look
        asker.trial.say(f"{check.id} is undecided: asked up to {most} times")
        await more_tries(tries, asker, production.seed, most)
        await production.ask_on(check, most)
        decision = decide(tries, tier, production.before(check.id) or earlier)
    return decision
