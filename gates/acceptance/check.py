"""What a check is: a question made anew for every try, what must hold, and the rule by which tries decide."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from gates.statistics import B80 as SPRT_80
from gates.statistics import B90 as SPRT_90
from gates.statistics import FixedPlan, Sprt

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.survey import Surroundings, Surveyed
    from gates.capability import Capability

NONCE_SIGNS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
NONCE: Final = re.compile(r"(?<![A-Z0-9-])[A-Z2-9]{3}-[A-Z2-9]{4}(?![A-Z0-9-])")
SMOKE_TRIES: Final = 5
SMOKE_REJECTS: Final = 3
"""In the smoke tier a behaviour is tried five times; three failures stop the run, and nothing is accepted by it."""


EXPOSED: Final = 30
"""Variants, each streamed and whole, after which a fault that hits one answer in twenty has been seen (95 %)."""


class Tier(StrEnum):
    SMOKE = "smoke"
    STANDARD = "standard"
    EXTENDED = "extended"

    @property
    def order(self) -> int:
        return list(Tier).index(self)


class Skip(Exception):  # noqa: N818 - no error: the check finds that it does not apply
    """Raised in an attempt or a survey: this check cannot be asked here. Its text says why."""


@dataclass(frozen=True)
class Sample:
    """One try of one check.

    Everything random comes from `rng()`, which begins anew at every call: the same sample with another `streamed` or
    `thinking` asks the same question. `thinking` is None where the switch is left alone.
    """

    check: str
    number: int
    seed: str
    streamed: bool
    greedy: bool
    thinking: bool | None = None
    variant: int = 0
    """Which question: the same for both modes of a deterministic check, another for every try of a behaviour."""
    salt: str = ""
    """Makes another nonce of the same question: a repetition that no cache answers."""

    def rng(self, purpose: str = "") -> Random:
        return Random(f"{self.seed}/{self.check}/{self.variant}/{purpose}")  # noqa: S311 - must be repeatable

    @property
    def nonce(self) -> str:
        """Seven signs that no other request of the run carries, as `7Q4-KD2F`. Goes into the user's text."""
        asked = f"{self.seed}/{self.check}/{self.number}/{self.streamed}{self.greedy}{self.thinking}{self.salt}"
        digest = blake2b(asked.encode(), digest_size=7).digest()
        text = "".join(NONCE_SIGNS[byte % 32] for byte in digest)
        return f"{text[:3]}-{text[3:]}"

    @property
    def mode(self) -> Literal["stream", "whole"]:
        return "stream" if self.streamed else "whole"

    @property
    def label(self) -> str:
        """How it was asked, for sentences: `stream, thinking on, greedy`."""
        thinking = {None: "", True: ", thinking on", False: ", thinking off"}[self.thinking]
        return f"{self.mode}{thinking}{', greedy' if self.greedy else ''}"

    def asked(self, **how: Any) -> Sample:
        """The same question, asked otherwise."""
        return replace(self, **how)


Attempt = Callable[["Asker", Sample], Awaitable[str | None]]
"""Asks, and returns what is wrong in one sentence, or None. Raises `Skip`."""

Survey = Callable[["Asker", "Surroundings"], Awaitable["Surveyed"]]
"""For checks that are no series of tries: looks at the whole and decides by itself. Raises `Skip`."""


@dataclass(frozen=True)
class Deterministic:
    """No failure among `tries` variants, each in every mode of its check: what only a server can do wrong.

    `persists`: a failing variant is asked twice more and counts only when two of the three fail (batching can flip a
    near-tie of a greedy answer once).
    """

    tries: int
    persists: bool = False
    smoke_tries: int | None = None

    def words_in(self, modes: int) -> str:
        """For a check of so many modes. With one, the attempt itself may ask more: what it asks says so."""
        variants = "1 variant" if self.tries == 1 else f"{self.tries} variants"
        both = ", each streamed and whole" if modes > 1 else ""
        twice = "; a variant counts as failed when two of three tries fail" if self.persists else ""
        return f"no failure in {variants}{both}{twice}"


@dataclass(frozen=True)
class Behaviour:
    """What a model may get wrong now and then: a sequential test over different prompts."""

    plan: Sprt | FixedPlan

    @property
    def words(self) -> str:
        if isinstance(self.plan, FixedPlan):
            return f"at most {self.plan.allowed} failures in {self.plan.n} tries"
        good, bad = self.plan.p0, self.plan.p1
        return f"sequential test: passes a model that is right in {good:.0%}, rejects one that is right in {bad:.0%}"


@dataclass(frozen=True)
class Relative:
    """Not worse than production on the same questions by more than `margin`; never below `floor` in any case.

    Without a baseline only the floor decides.
    """

    tries: int
    margin: float = 0.10
    floor: float | None = None

    @property
    def words(self) -> str:
        least = f", and at least {self.floor:.0%} in any case" if self.floor is not None else ""
        return f"{self.tries} tries, not worse than production by more than {self.margin:.0%}{least}"


@dataclass(frozen=True)
class Report:
    """Looked at and shown; never blocks."""

    tries: int

    @property
    def words(self) -> str:
        return f"{self.tries} tries, reported only"


@dataclass(frozen=True)
class Overall:
    """The rule of a survey, which decides by itself: `words` say how."""

    words: str


Rule = Deterministic | Behaviour | Relative | Report | Overall
B90: Final = Behaviour(SPRT_90)
B80: Final = Behaviour(SPRT_80)


def always(capability: Capability) -> str | None:  # noqa: ARG001 - one of the conditions of `Check.needs`
    """Applies everywhere."""
    return None


@dataclass(frozen=True)
class Check:
    """One declarative piece. Exactly one of `attempt` and `survey` is given."""

    id: str
    name: str
    asks: str
    """What is asked, in one sentence."""
    holds: str
    """What must hold, in one sentence."""
    catches: str
    """What in production this finds, in one sentence."""
    rule: Rule
    attempt: Attempt | None = None
    survey: Survey | None = None
    tier: Tier = Tier.STANDARD
    needs: Callable[[Capability], str | None] = always
    """Why it does not apply to this capability; None when it does."""
    thinking: tuple[bool | None, ...] | None = None
    """Positions of the switch to go through; None: on and off where there is a switch, else left alone."""
    modes: tuple[bool, ...] = (True, False)
    """Streamed or not, in turn."""
    warns: bool = False
    """A failure is shown and does not block."""
    exclusive: bool = False
    """Runs alone: it loads the engine, or would be disturbed."""
    destructive: bool = False
    """May hurt the engine: last of all, and never asked of production."""
    looks_back: bool = False
    """A survey of what the run has seen: after everything that asks, and itself harmless."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.id[0]

    @property
    def rule_words(self) -> str:
        """The rule of this check in words."""
        return self.rule.words_in(len(self.modes)) if isinstance(self.rule, Deterministic) else self.rule.words

    def sample(self, number: int, seed: str, capability: Capability) -> Sample:
        """The try of this number: modes, switch and sampling go round independently of one another."""
        positions = self.thinking
        if positions is None:
            positions = (True, False) if capability.thinking == "switch" else (None,)
        modes, switch = len(self.modes), len(positions)
        return Sample(
            check=self.id,
            number=number,
            variant=number // modes if isinstance(self.rule, Deterministic) else number,
            seed=seed,
            streamed=self.modes[number % modes],
            thinking=positions[number // modes % switch],
            greedy=number // (modes * switch) % 2 == 0,
        )


def needs(**declared: Any) -> Callable[[Capability], str | None]:
    """A condition on the capability: `needs(parallel_calls=True)`, `needs(thinking=("switch", "always"))`."""

    def missing(capability: Capability) -> str | None:
        for key, wanted in declared.items():
            has = getattr(capability, key)
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            if has not in allowed:
                spelled = " or ".join(
                    str(value).lower() if isinstance(value, bool) else str(value) for value in allowed
                )
                return f"the capability of this topology does not say {key}: {spelled}"
        return None

    return missing
