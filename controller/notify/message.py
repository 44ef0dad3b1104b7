"""What a target gets: one JSON document for a webhook, a title and a text for people. Pure."""

from __future__ import annotations

from typing import Any

from .events import Event
from .kinds import Kind, Severity


def document(event: Event, *, box: str, dropped: int) -> dict[str, Any]:
    """Schema 1 of docs/notifications.md; keys are only ever added."""
    return {
        "schema": 1,
        "id": event.id,
        "kind": event.kind.value,
        "severity": event.severity.value,
        "sentence": event.sentence,
        "wall_s": round(event.wall_s, 3),
        "box": box,
        "rollout": event.rollout or None,
        "release": event.release or None,
        "night": event.night or None,
        "gpu": event.gpu or None,
        "dropped": dropped,
    }


def title(event: Event, *, box: str) -> str:
    """``cutover on gpu-box: rolled back``."""
    return f"cutover on {box}: {event.kind.value.replace('_', ' ')}"


def text(event: Event, *, dropped: int) -> str:
    """The sentence, the count of what was not told before it, and the id."""
    lines = [event.sentence]
    if dropped:
        lines.append(f"{dropped} {'message' if dropped == 1 else 'messages'} before this one could not be delivered.")
    return "\n".join([*lines, f"[{event.id}]"])


def apprise_type(event: Event) -> str:
    """One of apprise's own four: info, success, warning, failure."""
    if event.kind is Kind.PROMOTED:
        return "success"
    return "failure" if event.severity is Severity.CRITICAL else event.severity.value
