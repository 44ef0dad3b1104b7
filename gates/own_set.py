"""A user's own acceptance set: a JSONL file of requests, each with what its answer must be like.

One request a line::

    {"id": "refund-1", "messages": [...], "tools": [...], "expect": {"called": "refund", "arguments": {"order": "A7"}}}

Reading is strict: whatever could make an expectation silently vanish is refused with the line that holds it.
`gates.own_judge` judges the answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from gates.errors import GateUsageError
from gates.json_schemas import schema_problem
from gates.reply import FINISH_REASONS
from gates.statistics import B80, B90, FixedPlan, Plan
from gates.strict import StrictModel, read_model

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
MAX_ITEMS: Final = 10_000
MAX_REPEAT: Final = 200
MAX_TRIES: Final = 50_000
MAX_DEPTH: Final = 100

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_CHOICES: Final = ("auto", "none", "required")
_SET_BY_THE_GATE: Final = frozenset({"model", "stream", "stream_options", "n"})
_ONE_LEVEL_UP: Final = frozenset({"messages", "tools", "tool_choice"})


def _texts(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("expected a text or a list of texts, none of them empty")
    return tuple(texts)


def _patterns(value: Any) -> Any:
    for text in _texts(value):
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is no regular expression of Python: {error}") from None
    return _texts(value)


def _schema(value: Any) -> Any:
    problem = schema_problem(value)
    if problem:
        raise ValueError(problem)
    return value


def _finish(value: Any) -> Any:
    if value not in FINISH_REASONS:
        raise ValueError(f"expected one of {', '.join(FINISH_REASONS)}")
    return value


def _id(value: Any) -> Any:
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ValueError("expected 1 to 80 letters, digits, dots, dashes and underscores, a letter or digit first")


def _choice(value: Any) -> Any:
    if value is None or isinstance(value, str | dict):
        return value
    raise ValueError(f"expected one of {', '.join(_CHOICES)}, or an object that names a tool")


class Expect(StrictModel):
    """What the answer must be like; everything that is given must hold. Texts are looked for in the content."""

    contains: Annotated[tuple[str, ...], BeforeValidator(_texts)] = ()
    """All of these, in these letters."""
    not_contains: Annotated[tuple[str, ...], BeforeValidator(_texts)] = ()
    """None of these."""
    regex: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = ()
    """Each is found somewhere (Python's `re.search`; start with ``(?i)`` for any case)."""
    json_schema: Annotated[Mapping[str, Any] | None, BeforeValidator(_schema)] = None
    """The whole content is JSON of this schema."""
    called: str | None = Field(default=None, min_length=1)
    """A tool of this name is called."""
    arguments: Mapping[str, Any] | None = None
    """With these arguments; others may be there too."""
    no_tool: Literal[True] | None = None
    """No tool is called."""
    finish: Annotated[str | None, BeforeValidator(_finish)] = None

    @model_validator(mode="after")
    def _something_that_can_be(self) -> Expect:
        if not self.model_fields_set:
            raise ValueError(f"says nothing; expected one or more of {', '.join(Expect.model_fields)}")
        if self.no_tool and (self.called or self.finish == "tool_calls"):
            raise ValueError("no_tool contradicts called and finish: tool_calls; remove one of them")
        if self.arguments is not None and self.called is None:
            raise ValueError("arguments need the tool they belong to; add called: its name")
        return self


Must = Literal["always", "B90", "B80"]


class Item(StrictModel):
    """One request of the set and what is expected of it."""

    id: Annotated[str, BeforeValidator(_id)]
    """Names the request in reports and its files of evidence."""
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    tool_choice: Annotated[str | dict[str, Any] | None, BeforeValidator(_choice)] = None
    request: Mapping[str, Any] = Field(default_factory=dict)
    """Further keys of the request, as temperature or response_format."""
    expect: Expect
    repeat: int = Field(default=1, ge=1, le=MAX_REPEAT)
    must: Must = "always"

    def body(self) -> dict[str, Any]:
        """The request, without model and stream."""
        body = {**self.request, "messages": self.messages}
        if self.tools:
            body["tools"] = self.tools
        if self.tool_choice is not None:
            body["tool_choice"] = self.tool_choice
        return body

    def parameters(self, tool: str) -> Mapping[str, Any] | None:
        """The declared parameters of `tool`; None when it is not on offer."""
        for offered in self.tools:
            if offered["function"]["name"] == tool:
                declared: Mapping[str, Any] = offered["function"].get("parameters") or {"type": "object"}
                return declared
        return None


@dataclass(frozen=True)
class Ask:
    """One time that an item is asked; `number` counts from 1 within its plan."""

    item: Item
    number: int
    streamed: bool


@dataclass(frozen=True)
class Series:
    """Asks that are judged together, in their order, by one plan."""

    name: str
    plan: Plan
    asks: tuple[Ask, ...]


def series(items: Iterable[Item], seed: str) -> tuple[Series, ...]:
    """What to ask. `always`: a series per item, every repetition streamed and whole, none may fail. `B90` and `B80`:
    one series each over all their items in an order drawn by `seed`, odd asks streamed, as far as the test goes.
    """
    every = tuple(items)
    found = [Series(item.id, FixedPlan(2 * item.repeat), _both_ways(item)) for item in every if item.must == "always"]
    for must, plan in (("B90", B90), ("B80", B80)):
        pool = [item for item in every if item.must == must]
        if pool:
            found.append(Series(must, plan, _sampled(pool, plan.cap, Random(f"{seed}/{must}"))))  # noqa: S311 - to be repeated
    return tuple(found)


def read(path: Path) -> tuple[Item, ...]:
    """The set in the file at `path`. Raises `GateUsageError`: ``file:line: key: what is wrong, what is expected``."""
    try:
        if not path.is_file():
            raise GateUsageError(f"{path}: there is no such file; expected a JSONL file, one request a line.")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise GateUsageError(f"{path}: a set of {size} bytes; at most {MAX_FILE_BYTES} are read. Split it.")
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise GateUsageError(f"{path}: cannot be read ({error.strerror}).") from None


def parse(data: bytes, where: str) -> tuple[Item, ...]:
    """`data` as a set; `where` names it in sentences. Raises `GateUsageError`."""
    items: list[Item] = []
    lines: dict[str, int] = {}
    # By line feed alone: JSON may hold a bare U+2028, which `splitlines` takes for the end of a line.
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        item = _item(line, f"{where}:{number}")
        if item.id in lines:
            raise GateUsageError(f"{where}:{number}: id: {item.id!r} is the id of line {lines[item.id]}; give another.")
        lines[item.id] = number
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise GateUsageError(f"{where}:{number}: more than {MAX_ITEMS} requests; split the set.")
    if not items:
        raise GateUsageError(f"{where}: holds no request; expected one JSON object a line, with id, messages, expect.")
    tries = sum(item.repeat for item in items)
    if tries > MAX_TRIES:
        raise GateUsageError(f"{where}: repeat adds up to {tries} tries; at most {MAX_TRIES} are made. Lower repeat.")
    _check_pools(items, where)
    return tuple(items)


def _item(line: bytes, where: str) -> Item:
    if len(line) > MAX_LINE_BYTES:
        raise GateUsageError(f"{where}: a request of {len(line)} bytes; at most {MAX_LINE_BYTES} are read.")
    document = _document(line, where)
    item = read_model(Item, document, where)
    # In this order: the later ones rely on tools that have names.
    for key, problem_of in (
        ("messages", _messages_problem),
        ("tools", _tools_problem),
        ("tool_choice", _choice_problem),
        ("request", _request_problem),
        ("expect", _expect_problem),
    ):
        problem = problem_of(item)
        if problem:
            raise GateUsageError(f"{where}: {key}: {problem}.")
    return item


def _document(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line.decode(), object_pairs_hook=_without_doubles, parse_constant=_no_number)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise GateUsageError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8.") from None
    except UnicodeEncodeError:
        raise GateUsageError(f"{where}: holds half of a surrogate pair (\\ud800 …), which no request can.") from None
    except json.JSONDecodeError as error:
        hint = "; each request stands on one line, without comments" if line.lstrip()[:1] != b"{" else ""
        raise GateUsageError(f"{where}: not JSON at column {error.colno} ({error.msg}){hint}.") from None
    except ValueError as error:
        raise GateUsageError(f"{where}: {error}.") from None
    except RecursionError:
        raise GateUsageError(f"{where}: nests deeper than {MAX_DEPTH} levels.") from None
    if not isinstance(document, dict):
        raise GateUsageError(f"{where}: expected a JSON object with id, messages, expect; got {document!r:.60}.")
    if _deeper_than(document, MAX_DEPTH):
        raise GateUsageError(f"{where}: nests deeper than {MAX_DEPTH} levels.")
    return document


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {double!r} is given twice in one object; remove one of them")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; expected a number, a text or null")


def _deeper_than(document: Any, levels: int) -> bool:
    layer = [document]
    for _ in range(levels):
        inner = [each for value in layer if isinstance(value, dict) for each in value.values()]
        inner += [each for value in layer if isinstance(value, list) for each in value]
        layer = [value for value in inner if isinstance(value, dict | list)]
        if not layer:
            return False
    return True


def _messages_problem(item: Item) -> str | None:
    for number, message in enumerate(item.messages):
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            return f"message {number} has role {role!r}; expected one of {', '.join(_ROLES)}"
        if content is not None and not isinstance(content, str | list):
            return f"content of message {number} is {content!r:.60}; expected a text, a list of parts or null"
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            return f"message {number} is a tool's result without tool_call_id; add the id of its call"
    return None


def _tools_problem(item: Item) -> str | None:
    names: set[str] = set()
    for number, tool in enumerate(item.tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if tool.get("type") != "function" or not isinstance(function, dict) or not isinstance(name, str) or not name:
            return f"tool {number} is {tool!r:.60}; expected type: function and a function with a name"
        if name in names:
            return f"two tools are called {name!r}; give each a name of its own"
        names.add(name)
        problem = schema_problem(function.get("parameters") or {})
        if problem:
            return f"parameters of {name}: {problem}"
    return None


def _choice_problem(item: Item) -> str | None:
    choice = item.tool_choice
    if choice is None:
        return None
    if not item.tools:
        return f"{choice!r:.60} needs tools; add them, or remove it"
    if isinstance(choice, str):
        return (
            None if choice in _CHOICES else f"{choice!r} is unknown; expected one of {', '.join(_CHOICES)}, or a tool"
        )
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        return f'{choice!r:.60} is unknown; expected {{"type": "function", "function": {{"name": ...}}}}'
    return None if item.parameters(name) is not None else f"names {name!r}, which is not among the tools"


def _request_problem(item: Item) -> str | None:
    taken = sorted(_SET_BY_THE_GATE & item.request.keys())
    if taken:
        return f"{taken[0]!r} is set by the gate itself, which asks for one answer, streamed or whole; remove it"
    misplaced = sorted(_ONE_LEVEL_UP & item.request.keys())
    return f"{misplaced[0]!r} belongs beside request, not into it; move it up" if misplaced else None


def _expect_problem(item: Item) -> str | None:
    called = item.expect.called
    if called is None:
        return None
    if item.parameters(called) is None:
        names = ", ".join(tool["function"]["name"] for tool in item.tools) or "there are none"
        return f"called: {called!r} is not among the tools ({names}); add it to tools"
    if item.tool_choice == "none":
        return "called contradicts tool_choice: none; remove one of them"
    return None


def _check_pools(items: list[Item], where: str) -> None:
    for must, plan in (("B90", B90), ("B80", B80)):
        tries = sum(item.repeat for item in items if item.must == must)
        if 0 < tries < plan.fewest:
            raise GateUsageError(
                f"{where}: must: {must} is judged over all its requests together, and accepts after {plan.fewest} "
                f"right answers at the earliest; these make {tries} (their repeat added up). Add requests, raise "
                "repeat, or use must: always."
            )


def _both_ways(item: Item) -> tuple[Ask, ...]:
    return tuple(Ask(item, number + 1, number % 2 == 0) for number in range(2 * item.repeat))


def _sampled(pool: list[Item], most: int, random: Random) -> tuple[Ask, ...]:
    # A sequential test stops early, so what it saw until then must be a fair sample: not the top of the file.
    left = {item.id: item.repeat for item in pool}
    order: list[Item] = []
    while any(left.values()) and len(order) < most:
        again = [item for item in pool if left[item.id]]
        random.shuffle(again)
        order += again
        for item in again:
            left[item.id] -= 1
    return tuple(Ask(item, number, number % 2 == 1) for number, item in enumerate(order[:most], 1))
