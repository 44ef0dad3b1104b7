"""Preflight: known incompatibilities of engines, found in a topology before anything is started.

The table is `launch.compat_rules.RULES`; here is what a rule is and how the table is applied. A rule warns or refuses.
A refusal stands on something that is known: of an engine newer than the version against which the rule was checked it
is only a warning, for the engine may have learnt meanwhile. ``python -m launch.compat > docs/preflight.md`` writes the
page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from launch import model_facts
from launch.engines.base import Engine, engine
from launch.model_facts import ModelFacts
from launch.told import Told

if TYPE_CHECKING:
    from launch.release import Release
    from launch.topology import Instance, Topology

EVERY_ENGINE = "every engine"


class Level(StrEnum):
    """What a rule does to a proposal."""

    WARN = "warn"
    REFUSE = "refuse"


class CannotTellError(Exception):
    """A condition needs a fact that is not known here; the message says which one and why."""


@dataclass(frozen=True)
class Box:
    """What preflight must know besides the release. Everything may be unknown."""

    compute_capability: tuple[int, int] | None = None
    """Of the oldest card that the release may get, such as (7, 0) for a V100."""
    wants_sleep: bool = False
    """The policy keeps the release before asleep rather than stopped."""


@dataclass(frozen=True)
class Facts:
    """What a condition may look at: one instance of a topology, as its engine will read it."""

    topology: Topology
    instance: str
    told: Told
    gpu_count: int
    version: str | None
    """The engine's, from the release's provenance; None where it is not known."""
    box: Box
    known_model: ModelFacts | str

    @property
    def kind(self) -> Engine:
        return engine(self.topology.engine)

    @property
    def model(self) -> ModelFacts:
        """Raises `CannotTellError` where the model's configuration is not readable."""
        if isinstance(self.known_model, str):
            raise CannotTellError(self.known_model)
        return self.known_model

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Raises `CannotTellError` where the cards are not known."""
        if self.box.compute_capability is None:
            raise CannotTellError("the compute capability of the cards is not known here")
        return self.box.compute_capability

    @property
    def says_tools(self) -> bool:
        """The topology declares something that only tool calls can be."""
        declared = self.topology.capability
        return any(declared.get(key) is True for key in ("tools", "parallel_calls", "required", "named"))

    @property
    def wants_tools(self) -> bool:
        """Gates ask for tool calls unless the topology says ``tools: false``."""
        return self.topology.capability.get("tools") is not False


Condition = Callable[[Facts], str | None]
"""What in the topology the rule is about, in its own words (``--pp-size 2 with …``); None where nothing is."""


@dataclass(frozen=True)
class Versions:
    """Versions of the engine that a rule is about; empty texts leave that side open."""

    since: str = ""
    until: str = ""
    """The first version in which it is so no more."""
    checked: str = ""
    """The newest version in whose source it was seen."""

    @property
    def words(self) -> str:
        parts = [f"since {self.since}" if self.since else "", f"before {self.until}" if self.until else ""]
        parts.append(f"checked in {self.checked}" if self.checked else "")
        return ", ".join(part for part in parts if part) or "any"


@dataclass(frozen=True)
class Rule:
    """One known incompatibility."""

    id: str
    engine: str
    """An engine's name, or `EVERY_ENGINE`."""
    level: Level
    condition: Condition
    message: str
    """What comes of it; follows the condition's words and a colon."""
    remedy: str
    source: tuple[str, ...]
    """Where that is written: an address, or a file of the engine's source and what stands there."""
    versions: Versions = Versions()


@dataclass(frozen=True)
class Finding:
    """A rule that applies. `sentence` is for people: what, why, what to do."""

    rule: str
    level: Level
    instances: tuple[str, ...]
    detail: str
    message: str
    remedy: str
    note: str
    """About the version, where it is not known or newer than what was checked; else empty."""
    source: tuple[str, ...]

    @property
    def sentence(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.detail}: {self.message}; {self.remedy}{note}"

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "level": self.level.value,
            "instances": list(self.instances),
            "sentence": self.sentence,
            "source": list(self.source),
        }


@dataclass(frozen=True)
class Report:
    """What preflight found in one release."""

    findings: tuple[Finding, ...]
    untold: tuple[tuple[str, str], ...]
    """Rules that could not be judged here, and why."""

    def refused(self, overruled: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
        """The findings that refuse and that nobody overruled."""
        return tuple(f for f in self.findings if f.level is Level.REFUSE and f.rule not in (overruled or {}))

    def as_json(self) -> dict[str, Any]:
        return {
            "findings": [finding.as_json() for finding in self.findings],
            "untold": [{"rule": rule, "why": why} for rule, why in self.untold],
        }


def check(release: Release, box: Box | None = None, rules: Sequence[Rule] | None = None) -> Report:
    """Apply the table to a frozen release: refusals first, then warnings. Reads the model's configuration."""
    if rules is None:
        from launch.compat_rules import RULES

        rules = RULES
    topology = release.topology
    mine = [rule for rule in rules if rule.engine in {topology.engine, EVERY_ENGINE}]
    identity = release.manifest.get("identity", {}).get("engine", {})
    known_model = model_facts.read(topology.model)
    findings: dict[tuple[str, str], Finding] = {}
    untold: dict[tuple[str, str], None] = {}
    for name, instance in sorted(topology.instances.items()):
        facts = Facts(
            topology=topology,
            instance=name,
            told=told(topology, instance),
            gpu_count=instance.gpu_count,
            version=identity.get("version"),
            box=box or Box(),
            known_model=known_model,
        )
        for rule in mine:
            try:
                found = _apply(rule, facts)
            except CannotTellError as error:
                untold[rule.id, str(error)] = None
                continue
            if found is not None:
                before = findings.get((rule.id, found.detail))
                instances = (*before.instances, name) if before is not None else (name,)
                findings[rule.id, found.detail] = replace(found, instances=instances)
    ordered = sorted(findings.values(), key=lambda finding: finding.level is not Level.REFUSE)
    return Report(tuple(ordered), tuple(untold))


def told(topology: Topology, instance: Instance) -> Told:
    """The flags and the environment of an instance, with the habits of its engine."""
    is_llamacpp = topology.engine == "llamacpp"
    return Told(
        flags=topology.flags,
        env={**topology.env, **instance.env},
        abbreviates=engine(topology.engine).abbreviates,
        joins=not is_llamacpp,
        capitals_are_binary=topology.engine != "sglang",
        env_prefix="LLAMA_ARG_" if is_llamacpp else "",
    )


def _apply(rule: Rule, facts: Facts) -> Finding | None:
    known = release_number(facts.version)
    versions = rule.versions
    if known is not None and versions.since and known < _number(versions.since):
        return None
    if known is not None and versions.until and known >= _number(versions.until):
        return None
    detail = rule.condition(facts)
    if detail is None:
        return None
    newer = known is not None and bool(versions.checked) and known > _number(versions.checked)
    note = ""
    if newer:
        note = f"so it was in {versions.checked}; this is {facts.version}"
    elif known is None and versions != Versions():
        note = f"the engine's version is not known here; the rule: {versions.words}"
    return Finding(
        rule=rule.id,
        level=Level.WARN if newer else rule.level,
        instances=(facts.instance,),
        detail=detail,
        message=rule.message,
        remedy=rule.remedy,
        note=note,
        source=rule.source,
    )


def release_number(version: str | None) -> tuple[int, ...] | None:
    """``0.11.2rc1+cu128`` → (0, 11, 2); None for a commit, or where nothing is known."""
    match = re.match(r"v?(\d+(?:\.\d+)+)", version or "")
    return tuple(int(part) for part in match.group(1).split(".")) if match is not None else None


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def unknown_rule(name: str) -> str | None:
    """A sentence for a rule that does not exist, with the nearest that does; None where it exists."""
    from difflib import get_close_matches

    from launch.compat_rules import RULES

    known = [rule.id for rule in RULES]
    if name in known:
        return None
    close = get_close_matches(name, known, n=1)
    return f"there is no preflight rule {name!r}; " + (
        f"did you mean {close[0]}?" if close else "docs/preflight.md lists them"
    )


# --- the page -------------------------------------------------------------------------------------------------------

_INTRO = """# Preflight rules

Written by `python -m launch.compat`; a test compares.

Before anything is started, a topology is looked at for combinations that are known not to work, or not to do what they
seem to. `cutover release check FILE` shows what is found, `cutover plan` shows it with the plan, and `cutover propose`
refuses what a rule refuses. Somebody who knows better says so, with a reason that stays in the rollout's record:

    cutover propose FILE --overrule sglang-dflash-pipeline="patched build, tried by hand"

- **refuse**: the engine would not start, or would not do what the topology says. **warn**: it works, and is worse than
  it looks.
- **versions**: those that a rule is about. Of an engine newer than the one a rule was checked in, a refusal is only a
  warning: the engine may have learnt. Where the version is not known (a binary, a program that is not on this box), the
  rule holds, and the finding says so.
- Flags are read as the engine reads them: `--flag value` and `--flag=value`, short forms and beginnings, dashes and
  underscores where the engine takes both, JSON values and their pieces, `LLAMA_ARG_…`. What an `env_file` sets is not
  looked at: it is a secret. What a start script of your own does (engine script) is its own affair.
- What a rule needs and this box cannot tell (a model that is not here, cards that nobody has looked at) is listed as
  not judged; it refuses nothing."""


def markdown() -> str:
    """The page of all rules; ends with a newline."""
    from launch.compat_rules import RULES

    parts = [_INTRO]
    for name in dict.fromkeys(rule.engine for rule in RULES):
        parts.append(f"## {name}")
        parts += [_entry(rule) for rule in RULES if rule.engine == name]
    return "\n\n".join(parts) + "\n"


def _entry(rule: Rule) -> str:
    sources = "; ".join(f"<{one}>" if one.startswith("https://") else one for one in rule.source)
    return "\n".join(
        (
            f"### {rule.id}",
            "",
            f"**{rule.level.value}** · versions: {rule.versions.words}",
            "",
            f"{_summary(rule)}: {rule.message}. Remedy: {rule.remedy}.",
            "",
            f"Source: {sources}.",
        )
    )


def _summary(rule: Rule) -> str:
    text = " ".join((rule.condition.__doc__ or "").split()).removesuffix(".")
    return text or rule.id


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the page is for a file
