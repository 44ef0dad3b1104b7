"""What agents send along with every question: a long system prompt and a dozen tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gates.acceptance.tools import Tool, tool

if TYPE_CHECKING:
    from random import Random

PROMPT_BYTES: Final = 12_000
"""About 3,000 tokens."""

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 1}

AGENT_TOOLS: Final[tuple[Tool, ...]] = (
    tool("search_files", "Finds files of the workspace by a glob.", {"glob": _TEXT, "limit": _COUNT}, "limit"),
    tool("read_file", "Reads lines of a file.", {"path": _TEXT, "first": _COUNT, "last": _COUNT}, "first", "last"),
    tool("write_file", "Writes a file, its folders included.", {"path": _TEXT, "text": _TEXT}),
    tool("apply_patch", "Applies a unified diff.", {"patch": _TEXT}),
    tool("run_tests", "Runs the test suite or a part of it.", {"selection": _TEXT}, "selection"),
    tool("git_commit", "Commits what is staged.", {"message": _TEXT}),
    tool("open_pull_request", "Opens a pull request.", {"title": _TEXT, "body": _TEXT, "draft": {"type": "boolean"}}),
    tool("query_database", "Runs a read-only statement.", {"statement": _TEXT}),
    tool("list_tickets", "Lists tickets of a project.", {"project": _TEXT, "state": _TEXT}, "state"),
    tool("create_ticket", "Creates a ticket.", {"project": _TEXT, "title": _TEXT, "priority": _COUNT}, "priority"),
    tool("fetch_page", "Fetches a page from the intranet.", {"url": _TEXT}),
    tool("send_mail", "Sends a mail.", {"to": {"type": "array", "items": _TEXT}, "subject": _TEXT, "body": _TEXT}),
)

_BEGINNING: Final = (
    "You are a careful assistant inside a developer's workspace. You have tools; use one only when the user's request "
    "cannot be answered without it. Questions that need nothing from the workspace are answered at once, in plain "
    "text, briefly, without any tool.\n\n# Rules\n"
)
_WHEN: Final = (
    "Before a file is changed", "When a test fails", "If a ticket is unclear", "Before a branch is merged",
    "When a statement returns nothing", "If a page cannot be fetched", "After a patch is applied",
    "When two files disagree", "Before anything is deleted", "If a mail has several readers",
)  # fmt: skip
_WHAT: Final = (
    "read the whole of it first", "say so in one sentence and stop", "name the line and the reason",
    "look for the same mistake elsewhere", "keep the change as small as it can be", "ask rather than guess",
    "quote what you found word for word", "leave formatting alone", "prefer what the project already has",
    "write down what was left out",
)  # fmt: skip
_WHY: Final = (
    "others rely on it", "nobody can see your screen", "the history is read for years", "a wrong guess costs a day",
    "reviewers have little time", "the same question comes back", "machines read it as well", "names outlive code",
)  # fmt: skip


def agent_prompt(rng: Random, size_bytes: int = PROMPT_BYTES) -> str:
    """Rules in plain English, numbered, no two prompts alike."""
    rules: list[str] = []
    length = len(_BEGINNING)
    while length < size_bytes:
        first, second = rng.sample(_WHAT, 2)
        rule = f"{len(rules) + 1}. {rng.choice(_WHEN)}, {first} and {second}, because {rng.choice(_WHY)}.\n"
        rules.append(rule)
        length += len(rule)
    return _BEGINNING + "".join(rules)
