"""What all dialects of chat completions share, and the shape that the rest of the engine writes through."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import groupby
from json.encoder import encode_basestring as quoted
from typing import Any, Protocol

from ..request import Asked
from ..tokens import Piece
from .framing import DONE, LAST_CHUNK, framed
from .written import Usage, Written


class Wire(Protocol):
    """Writes one answer. All results are bytes for the socket, event framing included."""

    request_id: str

    def opening(self, choice: int = 0) -> bytes:
        """What comes just before the first token of a choice."""

    def events(self, group: list[Piece], choice: int = 0, usage: Usage | None = None) -> bytes:
        """The event(s) of tokens that leave together; `usage` if the client wants it on every chunk."""

    def finishing(self, finish: str, choice: int = 0, matched: str | None = None, usage: Usage | None = None) -> bytes:
        """The event with the finish reason of a choice; `matched`: the stop string that ended it."""

    def closing(self, usage: Usage | None) -> bytes:
        """What comes after all choices, up to and including [DONE]; `usage` if the client wants it."""

    def failure(self, message: str, kind: str, status: int) -> bytes:
        """An error in the middle of a stream, up to and including its end."""

    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        """The whole answer as one JSON document."""

    def finish_of_calls(self) -> str:
        """The finish_reason of an answer that ends with calls."""


class Chat(ABC):
    """A dialect of chat completions. Fixed parts of an event are encoded once per request.

    `neutral_tail` closes the choice, the choices and the document of an event in the middle of a stream;
    `usage_tail` does so where it carries usage, for which it has one `%s`.
    """

    neutral_tail: str
    usage_tail: str

    def __init__(self, asked: Asked, request_id: str) -> None:
        self.request_id = request_id
        self.created = int(time.time())
        self._asked = asked
        self._envelope = f"data: {{{self.envelope()},"
        self._heads = [f'{self._envelope}"choices":[{{"index":{n},"delta":' for n in range(asked.choices)]
        self._call_ids: list[str] = []

    def opening(self, choice: int = 0) -> bytes:
        return self._event(self.first_delta(), choice)

    def events(self, group: list[Piece], choice: int = 0, usage: Usage | None = None) -> bytes:
        return b"".join(self._event(delta, choice, usage) for delta in self._deltas(group, choice))

    def finishing(self, finish: str, choice: int = 0, matched: str | None = None, usage: Usage | None = None) -> bytes:
        tail = self.finish_tail(finish, matched, self._numbers(usage))
        return framed(f"{self._heads[choice]}{self.last_delta()}{tail}\n\n".encode(errors="replace"))

    def closing(self, usage: Usage | None) -> bytes:
        events = [framed(DONE), LAST_CHUNK]
        if usage is not None:
            numbers = f'{self._envelope}"choices":[],"usage":{self._numbers(usage)}{self.usage_extra(usage)}}}\n\n'
            events.insert(0, framed(numbers.encode()))
        return b"".join(events)

    def failure(self, message: str, kind: str, status: int) -> bytes:
        error = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})
        return framed(f"data: {error}\n\n".encode()) + framed(DONE) + LAST_CHUNK

    def finish_of_calls(self) -> str:
        return "tool_calls"

    def _event(self, delta: str, choice: int, usage: Usage | None = None) -> bytes:
        tail = self.neutral_tail if usage is None else self.usage_tail % self._numbers(usage)
        return framed(f"{self._heads[choice]}{delta}{tail}\n\n".encode(errors="replace"))

    def _numbers(self, usage: Usage | None) -> str | None:
        return None if usage is None else json.dumps(self.usage(usage), separators=(",", ":"))

    def _deltas(self, group: list[Piece], choice: int) -> Iterable[str]:
        del choice
        if len(group) == 1:  # the usual case, sixty times a second for every stream
            return (self._delta(*group[0]),)
        runs = groupby(group, key=lambda piece: (piece.kind, piece.call))
        return [self._delta(kind, "".join(piece.text for piece in pieces), call) for (kind, call), pieces in runs]

    def _delta(self, kind: str, text: str, call: int) -> str:
        match kind:
            case "content":
                return self.delta(content=quoted(text))
            case "reasoning":
                return self.delta(reasoning=quoted(text))
            case "call":
                self._call_ids.append(self.call_id())
                return self.delta(calls=self.call_opening(call, quoted(self._call_ids[-1]), quoted(text)))
            case _:
                return self.delta(calls=self.call_arguments(call, quoted(text)))

    # What dialects have in common more often than not.

    def envelope(self) -> str:
        """The fields of every event of the stream, without braces."""
        names = f'"object":"chat.completion.chunk","created":{self.created},"model":{quoted(self._asked.model)}'
        return f'"id":"{self.request_id}",{names}'

    def usage(self, usage: Usage) -> dict[str, Any]:
        details = None if usage.cached_tokens is None else {"cached_tokens": usage.cached_tokens}
        return {
            "prompt_tokens": usage.prompt_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "completion_tokens": usage.completion_tokens,
            "prompt_tokens_details": details,
        }

    def usage_extra(self, usage: Usage) -> str:
        """Further fields of the event with the usage, each behind its comma."""
        del usage
        return ""

    # The dialect's own part.

    @abstractmethod
    def first_delta(self) -> str:
        """The delta before the first token."""

    @abstractmethod
    def delta(self, *, content: str = "", reasoning: str = "", calls: str = "") -> str:
        """A delta with what is given, as JSON text each."""

    @abstractmethod
    def last_delta(self) -> str:
        """The delta beside the finish reason."""

    @abstractmethod
    def finish_tail(self, finish: str, matched: str | None, usage: str | None) -> str:
        """The neutral tail with a finish reason in it."""

    @abstractmethod
    def call_id(self) -> str:
        """A fresh id."""

    @abstractmethod
    def call_opening(self, index: int, call_id: str, name: str) -> str:
        """The list with the first delta of a call."""

    @abstractmethod
    def call_arguments(self, index: int, text: str) -> str:
        """The list with a further delta of a call."""

    @abstractmethod
    def body(self, choices: Sequence[Written], usage: Usage | None) -> bytes:
        """The whole answer as one JSON document."""
