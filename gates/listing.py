"""What can be asked of an engine, and why: gates, profiles, checks and rules, as data and as text.

`cutover gate list | explain` and `python -m gates list | explain` are thin over this.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from gates import catalog, invariants, parts
from gates.bugs import bugs_of
from gates.capability import Capability
from gates.errors import UnknownGateError
from gates.profile import DIRECTORY, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import RenderableType

    from gates.acceptance.check import Check
    from gates.bugs import Bug
    from gates.catalog import Gate

SCHEMA: Final = 1
_DOES_NOT_SAY: Final = "the capability of this topology does not say "
_MODES: Final = {
    (True, False): "streamed and whole",
    (True,): "streamed",
    (False,): "whole",
}
_RULE_MEANS: Final = (
    "fails at once where only a server can commit it, whatever was asked and whichever gate asked. What a model may do "
    "by itself is asked again, in the acceptance gate ten times, and one more breach fails."
)


def listed() -> dict[str, Any]:
    """Gates, profiles, checks by group, and rules, as plain data."""
    from gates.acceptance import register

    profiles = [load(file.stem) for file in sorted(DIRECTORY.glob("*.yaml"))]
    return {
        "schema": SCHEMA,
        "gates": [{"name": gate.name, "summary": gate.summary} for gate in catalog.BUILT_IN.values()],
        "profiles": [
            {"name": p.name, "description": p.description, "gates": [step.name for step in p.gates]} for p in profiles
        ],
        "groups": dict(register.GROUPS),
        "checks": [_brief(check) for check in register.checks()],
        "rules": [{"id": rule, "holds": holds} for rule, holds in invariants.RULES.items()],
    }


def explained(word: str) -> dict[str, Any]:
    """What `word` is: a check, a rule or what else a report shows in its place, by its id; or a gate.

    Raises `UnknownGateError`.
    """
    from gates.acceptance import register

    kinds: tuple[tuple[Mapping[str, Any], Callable[[Any], dict[str, Any]]], ...] = (
        ({check.id: check for check in register.checks()}, _check),
        ({rule: rule for rule in invariants.RULES}, _rule),
        (catalog.BUILT_IN, _gate),
        ({word: word for word in parts.WORDS}, _word),
    )
    for known, tell in kinds:
        found = next((known[name] for name in known if name.casefold() == word.casefold()), None)
        if found is not None:
            return tell(found)
    base, dot, rest = word.partition(".")
    if dot and (base.upper() in invariants.RULES or base in parts.WORDS):
        return _with_part(explained(base), f"{base.upper()}.{rest}" if base not in parts.WORDS else word)
    close = _closest(word, {name for known, _ in kinds for name in known})
    hint = f"did you mean {close!r}?" if close else "`gate list` names what there is."
    raise UnknownGateError(f"There is no gate, check or rule {word!r}; {hint}")


def _with_part(found: dict[str, Any], shown: str) -> dict[str, Any]:
    """What a report shows as `shown`, beside what its base is. Raises `UnknownGateError` for what none shows."""
    if found["kind"] == "shown":
        return found
    means = parts.means(shown)
    if means is None:
        shows = " and ".join(parts.parts_of(found["id"]))
        raise UnknownGateError(f"No report shows {shown!r}; of {found['id']} they show {shows}.")
    waived = shown in parts.shown_parts()
    return {**found, "shown": shown, "part": means, "waive": _waive(shown) if waived else ""}


def _closest(word: str, known: set[str]) -> str | None:
    # Ids are so short that many are equally close; the one that begins alike is meant more often.
    near = [close for spelled in (word, word.upper()) for close in difflib.get_close_matches(spelled, known, n=10)]
    return max(near, key=lambda close: _alike(close.casefold(), word.casefold()), default=None)


def _alike(one: str, other: str) -> int:
    """With so many characters both begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def drawn_list(listing: Mapping[str, Any]) -> RenderableType:
    """`listed()` for a rich console."""
    from rich.console import Group

    groups = listing["groups"]
    gates = [(gate["name"], gate["summary"]) for gate in listing["gates"]]
    profiles = [(p["name"], f"{p['description']} ({', '.join(p['gates'])})") for p in listing["profiles"]]
    parts = [*_section("gates", gates), *_section("profiles", profiles)]
    for letter, title in groups.items():
        rows = [_listed_check(check) for check in listing["checks"] if check["group"] == letter]
        if rows:
            parts += _section(f"checks of the gate acceptance: {letter}, {title} ({len(rows)})", rows)
    parts += _section("rules for every answer", [(rule["id"], rule["holds"]) for rule in listing["rules"]])
    return Group(*parts[1:])  # no blank line at the very top


def _listed_check(check: Mapping[str, Any]) -> tuple[str, str]:
    warns = "; warns only" if check["warns"] else ""
    head = f"{check['name']} ({check['tier']}; {check['modes']}{warns})"
    return check["id"], f"{head}\ncatches: {check['catches']}\nrule: {check['rule']}"


def drawn_explanation(found: Mapping[str, Any]) -> RenderableType:
    """`explained()` for a rich console."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    title = f"{found['name']}: {found['summary']}" if found["kind"] == "gate" else f"{found['id']} {found['name']}"
    parts: list[RenderableType] = [Text(title, style="bold"), ""]
    parts += [Text.assemble((f"{label}: ", "dim"), text) for label, text in _paragraphs(found)]
    if found.get("settings"):
        lines = [f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in found["settings"].items()]
        parts += ["", Text("\n".join(["Settings, with their defaults", *lines]))]
    if found.get("bugs"):
        parts += _section("Public bugs behind it", [_bug_row(bug) for bug in found["bugs"]])
    if found.get("waive"):
        parts += ["", Text("To let it through for a while, with a reason that every report shows, in a profile:")]
        parts.append(Padding(Text(found["waive"]), (0, 0, 0, 2)))
    return Group(*parts)


def _section(title: str, rows: list[tuple[str, str]]) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, min_width=10)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name, style="bold"), Text(text))
    return ["", Text(title, style="bold underline"), Padding(grid, (0, 0, 0, 2))]


def _paragraphs(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "shown" in found:
        yield f"As {found['shown']} a report shows", found["part"]
    labels = {
        "asks": "Asks",
        "holds": "Must hold",
        "rule": "Rule",
        "means": "A failure",
        "catches": "Catches",
        "tier": "Tier",
        "modes": "Asked",
        "only_where": "Only where",
        "also": "Also",
    }
    for key, label in labels.items():
        text = found.get(key)
        if text:
            yield label, "; ".join(text) if isinstance(text, list) else text


def _bug_row(bug: Mapping[str, Any]) -> tuple[str, str]:
    note = f" [{bug['note']}]" if bug["note"] else ""
    return (str(bug["row"]), f"{bug['shape']}{note}\n{', '.join(bug['reports'])} ({bug['circumstances']})")


def _brief(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": check.name,
        "group": check.group,
        "tier": str(check.tier),
        "modes": _modes(check),
        "rule": check.rule_words,
        "catches": check.catches,
        "warns": check.warns,
    }


def _check(check: Check) -> dict[str, Any]:
    rule = invariants.RULES.get(check.id)
    return {
        "schema": SCHEMA,
        "kind": "check",
        **_brief(check),
        "asks": check.asks,
        "holds": check.holds,
        "means": _means(check),
        "only_where": _conditions(check),
        "also": f"the rule {check.id} holds for every answer of every gate: {rule}" if rule else "",
        "bugs": [_bug(bug) for bug in bugs_of(check.id)],
        "waive": _waive(check.id),
    }


def _rule(rule: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "rule",
        "id": rule,
        "name": "a rule for every answer",
        "holds": invariants.RULES[rule],
        "means": _RULE_MEANS,
        "bugs": [_bug(bug) for bug in bugs_of(rule)],
        "waive": _waive(rule),
    }


def _word(word: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "shown",
        "id": word,
        "name": "in the place of a check",
        "means": f"says: {parts.WORDS[word]}.",
    }


def _gate(gate: Gate) -> dict[str, Any]:
    fields = gate.settings().model_fields
    settings = {
        key: "(required)" if field.is_required() else field.get_default(call_default_factory=True)
        for key, field in fields.items()
    }
    return {
        "schema": SCHEMA,
        "kind": "gate",
        "name": gate.name,
        "summary": gate.summary,
        "catches": gate.catches,
        "settings": json.loads(json.dumps(settings, default=_plain)),
    }


def _means(check: Check) -> str:
    """What one failing try means for the verdict."""
    from gates.acceptance.check import Behaviour, Deterministic, Overall, Relative
    from gates.statistics import FixedPlan

    if check.warns:
        return "is shown and does not block."
    match check.rule:
        case Deterministic():
            return "blocks: one is enough, for a model cannot be the reason."
        case Behaviour(plan=FixedPlan() as plan):
            times = "once" if plan.allowed == 1 else f"{plan.allowed} times"
            return f"is allowed {times} in {plan.n}; one more blocks."
        case Behaviour(plan=plan):
            return (
                f"is counted: {plan.fewest} tries without one pass, too many block, and after {plan.cap} tries without "
                "a ruling the verdict is inconclusive."
            )
        case Relative():
            return "is counted, and compared with production's own count on the same questions."
        case Overall():
            return "is what the rule says."
    return "is shown and does not block."


def _modes(check: Check) -> str:
    if check.looks_back:
        return "no questions of its own: looks at what the run has seen"
    return _MODES.get(check.modes, "streamed and whole")


def _conditions(check: Check) -> list[str]:
    """What a topology must declare, found by taking one thing at a time from a topology that declares everything."""
    everything = Capability(
        tools=True, thinking="switch", required=True, parallel_calls=True, named=True, json_schema=True,
        keeps_reasoning=True, max_context_tokens=131_072,
    )  # fmt: skip
    less: tuple[dict[str, Any], ...] = (
        {}, {"tools": False}, {"thinking": "none"}, {"thinking": "always"}, {"required": False}, {"named": False},
        {"parallel_calls": False}, {"json_schema": False}, {"keeps_reasoning": False}, {"max_context_tokens": None},
    )  # fmt: skip
    reasons = [check.needs(everything.model_copy(update=change)) for change in less]
    return list(dict.fromkeys(_condition(reason) for reason in reasons if reason is not None))


def _condition(reason: str) -> str:
    says = reason.removeprefix(_DOES_NOT_SAY)
    return f"the capability says {says}" if says != reason else f"not: {reason}"


def _bug(bug: Bug) -> dict[str, Any]:
    return {**asdict(bug), "circumstances": bug.circumstances}


def _waive(check_id: str) -> str:
    return f"""gates:
  - name: acceptance
    settings:
      waivers:
        - check: {check_id}
          reason: where it is reported, and why it does no harm here
          expires: YYYY-MM-DD"""


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, set | frozenset | tuple) else str(value)
