"""A streamed chat answer: chunks put together per choice, and the rules that only a stream can break."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gates.replyparts import (
    Reply,
    Usage,
    decoded,
    error_text,
    finish_breaches,
    header_breaches,
    read_reasoning,
    read_text,
    read_usage,
    strange_number,
)
from gates.sse import AFTER, BEFORE, Flood, StrayLine, events
from gates.toolwire import Breach, ToolStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.wire import Exchange


MAX_BARE: Final = 100_000
"""Events without text or call that one answer may hold: an engine that says nothing while it holds a call's tokens back
sends one per token, which is far fewer; a server that sends nothing else would keep its reader busy for minutes."""


class _Likeness(NamedTuple):
    """The bytes around the text of a plain chunk. What differs from it in nothing but the text needs no parser."""

    head: bytes
    tail: bytes
    name: str
    choice: _Choice

    @classmethod
    def of(cls, data: bytes, chunk: dict[str, Any], choices: Mapping[int, _Choice]) -> _Likeness | None:
        """None unless the chunk is nothing but a piece of one choice's text."""
        if chunk.get("usage") or len(chunk["choices"]) != 1:
            return None
        choice = chunk["choices"][0]
        said = {name: value for name, value in (choice.get("delta") or {}).items() if value and name != "role"}
        texts = _TEXT.findall(data)
        if choice.get("finish_reason") is not None or len(said) != 1 or len(texts) != 1:
            return None
        [(name, value)] = said.items()
        found = _TEXT.search(data)
        if found is None or found[1].decode() != name or value != _unquoted(found[2]):
            return None
        head, tail = BEFORE + data[: found.start(2)], data[found.end(2) :] + AFTER
        return cls(head, tail, name, choices[choice.get("index", 0)])

    def text(self, data: bytes) -> str | None:
        """The text of another chunk of this likeness, event framing included."""
        if data.startswith(self.head) and data.endswith(self.tail) and len(data) >= len(self.head) + len(self.tail):
            return _unquoted(data[len(self.head) : -len(self.tail)])
        return None


_TEXT: Final = re.compile(rb'"(content|reasoning|reasoning_content)"\s*:\s*"((?:[^"\\]|\\.)*)"')


def _unquoted(data: bytes) -> str | None:
    """What stands between the quotes of a JSON string; None when that is not a whole string."""
    try:
        text = data.decode()
        plain = text.isprintable() and '"' not in text and "\\" not in text
        return text if plain else str(json.loads(f'"{text}"'))
    except ValueError:
        return None


@dataclass
class _Choice:
    """What came of one choice so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    reasoning_field: str | None = None
    tools: ToolStream = field(default_factory=ToolStream)
    finishes: list[object] = field(default_factory=list)
    role_seen: bool = False
    spoken: bool = False
    """Content that is more than blanks, or a call, has begun: reasoning must be over."""
    breaches: list[Breach] = field(default_factory=list)

    def take(self, delta: dict[str, Any], finish: object) -> bool:
        """True when the delta carried text or a piece of a call."""
        role = delta.get("role")
        self.role_seen = self.role_seen or role == "assistant"
        if role not in ("assistant", "", None):
            self._broken("P02", f"a delta's role is {role!r}")
        content = read_text(delta.get("content"), "delta.content", self.breaches)
        reasoning, spelled = read_reasoning(delta, self.breaches)
        self.reasoning_field = self.reasoning_field or spelled
        called = self.tools.add(delta["tool_calls"]) if delta.get("tool_calls") else False
        self._judge_order(content, reasoning, finish)
        self.spoken = self.spoken or bool(content.strip()) or called
        if (content or reasoning or called) and self.finishes:
            self._broken("P03", "text or a call follows the finish_reason")
        if finish is not None:
            self.finishes.append(finish)
        self.content.append(content)
        self.reasoning.append(reasoning)
        return bool(content or reasoning or called)

    def go_on(self, name: str, text: str) -> bool:
        """`take` for a delta that is nothing but text."""
        if name != "content" or self.finishes:
            return self.take({name: text}, None)
        self.spoken = self.spoken or bool(text.strip())
        self.content.append(text)
        return bool(text)

    def judge_end(self) -> None:
        """Rules that need the whole stream."""
        if not self.role_seen:
            self._broken("P02", "no delta has the role 'assistant'")
        if len(self.finishes) > 1:
            self._broken("P03", f"{len(self.finishes)} finish_reasons came; expected one")
        self.breaches += finish_breaches(self.finishes[-1] if self.finishes else None, "P03")
        self.tools.finish()

    def reply(self, *, complete: bool) -> Reply:
        finish = self.finishes[-1] if self.finishes else None
        return Reply(
            streamed=True,
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            reasoning_field=self.reasoning_field,
            calls=self.tools.calls(),
            finish_reason=finish if isinstance(finish, str) else None,
            breaches=(*self.breaches, *self.tools.breaches),
            complete=complete,
        )

    def _judge_order(self, content: str, reasoning: str, finish: object) -> None:
        if reasoning.strip() and self.spoken:
            self._broken("T07", "reasoning comes after content or a call has begun")
        thought = "".join(self.reasoning) if finish == "tool_calls" and content.strip() else ""
        # The rest of a thought that the last chunk hands out as content: nothing else of content came before it.
        if thought and not "".join(self.content).strip():
            self._broken("T07", f"the finish chunk of a call carries content after the reasoning: {content[:60]!r}")

    def _broken(self, rule: str, sentence: str) -> None:
        self.breaches.append(Breach(rule, sentence))


@dataclass
class StreamReader:
    """Reads one exchange. A choice's pieces go by its index: those of choice 1 never land in choice 0."""

    breaches: list[Breach] = field(default_factory=list)
    choices: dict[int, _Choice] = field(default_factory=dict)
    token_times_s: list[float] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    model: str | None = None
    usage: Usage | None = None
    done: bool = False
    error: bool = False
    chunks: int = 0
    _alike: _Likeness | None = None

    def read(self, exchange: Exchange) -> Reply:
        """Never raises."""
        if exchange.content_type != "text/event-stream":
            self._broken("P01", f"the stream's content type is {exchange.content_type or 'absent'!r}")
        bare = 0
        for event in events(exchange.pieces, self._takes):
            told = len(self.token_times_s)
            if isinstance(event, Flood):
                self._flooded(event.line.decode())
                break
            if isinstance(event, StrayLine):
                self._broken("P01", f"a line that is no server-sent event: {event.line[:80]!r}")
            else:
                self._event(event.at_s, event.data)
            bare += len(self.token_times_s) == told
            if bare > MAX_BARE:
                self._flooded(f"more than {MAX_BARE} events carry neither text nor a call; the rest was not read")
                break
        if exchange.failure is not None:
            self._broken("P08", exchange.failure.sentence)
        elif not self.error:
            self._judge_end()
        return self._reply(complete=exchange.failure is None and not self.error)

    def _flooded(self, sentence: str) -> None:
        self.error = True  # what follows is not known: nothing can be said about the end
        self._broken("P08", f"the stream is a flood: {sentence}")

    def _takes(self, at_s: float, data: bytes) -> bool:
        """Whether a piece is one more chunk of the likeness of the last; then it is read."""
        alike = self._alike
        if alike is None or self.done or (text := alike.text(data)) is None:
            return False
        self.chunks += 1
        if alike.choice.go_on(alike.name, text):
            self.token_times_s.append(at_s)
        return True

    def _event(self, at_s: float, data: bytes) -> None:
        if self.done:
            self._broken("P01", "something follows [DONE]")
            return
        if self._takes(at_s, BEFORE + data + AFTER):
            return  # it shared its piece with others
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            text = decoded(data, self.breaches)
            chunk = json.loads(text)
            strange = strange_number(text)
        except (ValueError, RecursionError):
            chunk = strange = None
        if strange is not None:
            self._broken("P01", f"a chunk is not JSON: {strange}")
        if not isinstance(chunk, dict):
            self._broken("P01", f"an event is not a JSON object: {data[:80]!r}")
        elif chunk.get("error") or chunk.get("object") == "error":
            self.error = True
            self._broken("P08", f"an error inside the stream: {error_text(data)}")
        else:
            self._chunk(at_s, data, chunk)

    def _chunk(self, at_s: float, data: bytes, chunk: dict[str, Any]) -> None:
        self.chunks += 1
        self.ids.add(str(chunk.get("id")))
        self.breaches += header_breaches(chunk, "P01", "a chunk", "chat.completion.chunk")
        model = chunk["model"] if isinstance(chunk.get("model"), str) else None
        if self.model and model and model != self.model:
            self._broken("P17", f"the model's name changes within one stream: {self.model!r}, {model!r}")
        self.model = self.model or model
        self._count(read_usage(chunk.get("usage"), self.breaches))
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._broken("P01", "a chunk has no list of choices")
            return
        known = len(self.breaches)
        for choice in choices:
            self._take(at_s, choice)
        self._alike = _Likeness.of(data, chunk, self.choices) if len(self.breaches) == known else None

    def _take(self, at_s: float, choice: object) -> None:
        if not isinstance(choice, dict) or not isinstance(choice.get("delta") or {}, dict):
            self._broken("P01", "a choice is not an object with a delta")
            return
        index = choice.get("index", 0)
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            self._broken("P01", f"a choice has index {index!r}; expected an integer from 0")
            return
        if self.choices.setdefault(index, _Choice()).take(choice.get("delta") or {}, choice.get("finish_reason")):
            self.token_times_s.append(at_s)

    def _count(self, usage: Usage | None) -> None:
        # Once at the end or with every chunk: both are in use. Counts that shrink are wrong in either case.
        if usage is None:
            return
        before = self.usage
        if before is not None and usage.prompt_tokens != before.prompt_tokens:
            self._broken(
                "P07", f"prompt_tokens change within one stream: {before.prompt_tokens}, {usage.prompt_tokens}"
            )
        if before is not None and (usage.completion_tokens or 0) < (before.completion_tokens or 0):
            self._broken("P07", "completion_tokens shrink within one stream")
        self.usage = usage

    def _judge_end(self) -> None:
        if not self.done:
            self._broken("P01", "the stream ended without [DONE]")
        if not self.chunks:
            self._broken("P08", "the stream held no chunk at all")
            return
        if len(self.ids) > 1:
            self._broken("P01", f"the chunks of one answer carry {len(self.ids)} different ids")
        if not self.choices:
            self._broken("P08", "no chunk of the stream held a choice")
        for choice in self.choices.values():
            choice.judge_end()

    def _reply(self, *, complete: bool) -> Reply:
        first = self.choices.get(0, _Choice()).reply(complete=complete)
        others = [self.choices[index].reply(complete=complete) for index in sorted(self.choices) if index > 0]
        return replace(
            first,
            model=self.model,
            usage=self.usage,
            token_times_s=tuple(self.token_times_s),
            breaches=_distinct((*self.breaches, *first.breaches)),
            answered=self.chunks > 0,
            others=tuple(replace(other, breaches=_distinct(other.breaches)) for other in others),
        )

    def _broken(self, rule: str, sentence: str) -> None:
        self.breaches.append(Breach(rule, sentence))


def _distinct(breaches: tuple[Breach, ...]) -> tuple[Breach, ...]:
    # A rule that every chunk of a stream breaks is one finding.
    return tuple(dict.fromkeys(breaches))
