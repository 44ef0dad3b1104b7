"""Writes docs/checks.md from the register of checks: `python -m gates.checklist > docs/checks.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates import invariants
from gates.acceptance import register
from gates.acceptance.check import B80, B90, Behaviour, Deterministic, Overall, Relative, Report, Tier
from gates.listing import explained
from gates.statistics import FixedPlan

if TYPE_CHECKING:
    from gates.acceptance.check import Check, Rule

_INTRO: Final = """# Checks of the acceptance gate

Written by `python -m gates.checklist`; a test compares. `cutover gate explain J07` says more about each: what it asks,
what must hold, and the public bugs behind it. What the rules mean is in [gate-statistics.md](gate-statistics.md).

- **tier**: asked in this tier and in all above it. *alone*: nothing else runs meanwhile, for it loads the engine.
  *last*: after everything else, for it may hurt the engine. Both are never asked of production. *afterwards*: asks
  nothing, looks at what the run has seen.
- **rule**: `D 12`: no failure in 12 variants, each once in every mode (`D 12, twice`: a failure counts when two of
  three tries fail) · `B90`, `B80`: a sequential test · `2 of 18`: so many failures are allowed · `R 48`: 48 tries,
  compared with production, and a floor · `W`: shown only · else in words.
- **severity**: *blocks*, *warns* (shown, and passes), *shown*.
- **needs**: what the topology's capability must say. Without it the check is skipped, and so is one that compares with
  production, reads a metrics page or a file where there is none."""
_RULES: Final = """## Rules for every answer

They hold for every answer of `smoke`, `acceptance` and `own-set`, whatever was asked.

- **I**: one breach fails, unless it is one that a model can commit by itself (arguments where nothing was forced, say).
- **I\\***: a model can commit every breach of it.

What a model can commit is asked again ten times, and one more breach fails.

| id | must hold | |
|---|---|---|"""


def markdown() -> str:
    """The whole page; ends with a newline."""
    checks = register.checks()
    tiers = ", ".join(f"{sum(check.tier is tier for check in checks)} {tier}" for tier in Tier)
    parts = [_INTRO, f"{len(checks)} checks ({tiers}) and {len(invariants.RULES)} rules for every answer."]
    for letter, title in register.GROUPS.items():
        mine = [check for check in checks if check.group == letter]
        parts.append(_group(f"## {letter}: {title}", mine))
    parts.append("\n".join([_RULES, *(_rule_row(rule) for rule in invariants.RULES)]))
    return "\n\n".join(parts) + "\n"


def _group(title: str, checks: list[Check]) -> str:
    head = [title, "", "| check | tier | rule | severity | catches | needs |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(check) for check in checks)])


def _row(check: Check) -> str:
    cells = (
        f"**{check.id}** {check.name}",
        _tier(check),
        _rule(check.rule),
        _severity(check),
        check.catches,
        ", ".join(only.removeprefix("the capability says ") for only in explained(check.id)["only_where"]),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _tier(check: Check) -> str:
    if check.destructive:
        return f"{check.tier}, last"
    if check.exclusive:
        return f"{check.tier}, alone"
    return f"{check.tier}, afterwards" if check.looks_back else str(check.tier)


def _rule(rule: Rule) -> str:
    match rule:
        case Deterministic():
            return f"D {rule.tries}{', twice' if rule.persists else ''}"
        case Behaviour(plan=FixedPlan() as plan):
            return f"{plan.allowed} of {plan.n}"
        case Behaviour():
            return {B90: "B90", B80: "B80"}.get(rule, rule.words)
        case Relative():
            floor = f", floor {rule.floor:.0%}" if rule.floor is not None else ""
            return f"R {rule.tries}, −{rule.margin:.0%}{floor}"
        case Report():
            return f"W {rule.tries}"
        case Overall():
            return rule.words


def _severity(check: Check) -> str:
    if isinstance(check.rule, Report):
        return "shown"
    return "warns" if check.warns else "blocks"


def _rule_row(rule: str) -> str:
    kind = "I\\*" if rule in invariants.BY_MODEL_ONLY else "I"
    return f"| **{rule}** | {invariants.RULES[rule]} | {kind} |"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - that is its job
