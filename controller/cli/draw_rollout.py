"""One rollout from its proposal to its end; and all of them as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.verify import CHECKS
from .draw_status import attempt_line
from .moment import in_full
from .outcome import STYLES, outcome_of
from .reporters import line_of
from .terminal import clock, span

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Document = Mapping[str, Any]

_VERDICT_STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow", "error": "magenta"}
_LAST_LINES = 25


def draw_history(rollouts: Sequence[Document]) -> Table:
    """Rollouts as the API lists them (oldest first), newest on top. The why has a line of its own: it is a sentence."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for rollout in reversed(rollouts):
        took_s = rollout["ended"] - rollout["created"] if rollout["ended"] is not None else None
        head = Text.assemble(f"{rollout['kind']} {rollout['release']}  ", _phase(rollout))
        took = f", took {span(took_s)}" if took_s is not None else ""
        head.append(f"  by {rollout['asked_by']} at {clock(rollout['created'])}{took}", "dim")
        grid.add_row(Text(rollout["id"], "bold"), head.append(f"\n{rollout['why']}"))
    return grid


def _phase(rollout: Document) -> Text:
    from rich.text import Text

    outcome = outcome_of(rollout)
    return Text(outcome.replace("_", " "), style=STYLES.get(outcome, "cyan"))


def draw_rollout(rollout: Document) -> list[Text]:
    """A rollout as `/v1/rollouts/{id}` gives it: with gate reports and events."""
    from rich.text import Text

    parts = [_head(rollout)]
    for title, lines in (
        ("waits", _waits(rollout)),
        ("plan", _plan(rollout["plan"])),
        ("gates", _gates(rollout)),
        ("times", _times(rollout)),
        ("attempts", _attempts(rollout["attempts"])),
        ("what happened, and why", (Text(line_of(entry)) for entry in rollout["events"])),
    ):
        shown = list(lines)
        if shown:
            parts += [Text(f"\n{title}", style="bold"), *shown]
    return parts


def _head(rollout: Document) -> Text:
    from rich.text import Text

    ended = f", ended {clock(rollout['ended'])}" if rollout["over"] else ""
    text = Text.assemble((f"{rollout['id']} {rollout['kind']} {rollout['release']} ", "bold"), _phase(rollout))
    text.append(f"\n{rollout['why']}" if rollout["why"] else "")
    text.append(f"\nasked by {rollout['asked_by']} at {clock(rollout['created'])}{ended}")
    for key, words in (("approved_by", "approved by"), ("abort_by", "aborted by")):
        if rollout[key] and rollout["why"] != f"withdrawn by {rollout[key]}":
            text.append(f"\n{words} {rollout[key]}")
    if rollout["options"]["note"]:
        text.append(f"\nnote: {rollout['options']['note']}")
    for rule, reason in rollout["options"].get("overruled", {}).items():
        kind = "check" if rule in CHECKS else "preflight rule"
        text.append(f"\n{kind} {rule} overruled: {reason}", "yellow")
    return text


def _waits(rollout: Document) -> Iterator[Text]:
    """Of one that has not begun: for what, in which order, and until when. Of one that has passed: for whose word."""
    from rich.text import Text

    within_s = rollout.get("approval_s")
    within = f"an approval is needed before the cutover, and waited for {span(within_s)}" if within_s else ""
    if rollout["phase"] == "awaiting_approval" and within_s:
        yield Text(f"{within}, {span(rollout['phase_s'])} of them are over: `cutover approve {rollout['id']}`")
    waiting = rollout.get("waiting")
    if waiting is None:
        return
    yield Text(f"for: {waiting['waits_for']}", style="cyan")
    window = f"window {waiting['window']}" if waiting["window"] else "no window"
    yield Text(f"{window}, priority {waiting['priority']}" + (", a trial" if waiting["trial"] else ""))
    yield Text(f"not begun by {in_full(waiting['expires'])}: skipped")
    if waiting["finish_by"] is not None:
        yield Text(f"not over by {in_full(waiting['finish_by'])}: everything is as it was")
    if within:
        yield Text(within)


def _plan(plan: Document) -> Iterator[Text]:
    from rich.text import Text

    if not plan:
        return
    yield Text(f"{plan['strategy']}, plan {plan['digest']}")
    for reason in plan.get("why_not", ()):
        yield Text(reason, style="dim")
    for instance, gpus in plan["gpu_map"].items():
        yield Text(f"{instance} on {', '.join(gpus) or 'no card'}")
    for note in plan["notes"]:
        yield Text(f"note: {note}", style="yellow")


def _gates(rollout: Document) -> Iterator[Text]:
    """Every run's verdict; of one that did not pass, the checks that did not, and where their evidence is."""
    from rich.text import Text

    for result in rollout["gates"]:
        observing = " (observing)" if result["observe"] else ""
        line = Text(f"{result['gate']}{observing}  ")
        line.append(result["verdict"], _VERDICT_STYLES.get(result["verdict"], ""))
        yield line.append(f"  {result['sentence']}")
        report = rollout["reports"].get(result["run"])
        if report is None:
            continue
        failed = [c for c in report["checks"] if c["verdict"] != "pass" and not c.get("skipped")]
        for check in failed:
            yield Text(f"    {check['id']}: {check['sentence']}", style="red")
            for path in check["evidence"]:
                place = path if path.startswith("/") else f"{report['evidence_dir']}/{path}"
                yield Text(f"        {place}", style="dim")


def _times(rollout: Document) -> Iterator[Text]:
    from rich.text import Text

    words = {
        "switch_s": "switch at the front door",
        "rollback_s": "rollback, decided to served",
        "dark_s": "dark, nothing served",
    }
    for name, seconds in rollout["times"].items():
        line = Text(f"{words.get(name, name.replace('_', ' '))}: {span(seconds)}")
        if name == "dark_s":
            line.append(" = " + " + ".join(f"{part} {span(value)}" for part, value in rollout["dark"].items()), "dim")
        yield line
    if rollout["bake"]["samples"]:
        yield Text(f"bake: {rollout['bake']['samples']} samples, the last: {rollout['bake']['last']}")


def _attempts(attempts: Sequence[Document]) -> Iterator[Text]:
    from rich.text import Text

    for attempt in attempts:
        started = f"  up in {span(attempt['start_s'])}" if attempt["start_s"] is not None else ""
        woken = f", woken in {span(attempt['wake_s'])}" if attempt.get("wake_s") is not None else ""
        yield (
            attempt_line(attempt)
            .append(started + woken)
            .append(f"\n    {attempt['why']}" if attempt["state"] != "ready" else "")
        )
        if attempt["log_tail"] and attempt["start_s"] is None:
            lines = attempt["log_tail"].rstrip("\n").split("\n")[-_LAST_LINES:]
            yield Text("\n".join(f"    | {line}" for line in lines), style="dim")
