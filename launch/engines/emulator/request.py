"""What a client asked for, read from the JSON body of a chat or text completion."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .conversation import HistoricCall, Message, Tool, ToolChoice, read_choice, read_messages, read_tools
from .errors import BadRequest
from .prompt import Segment, messages_in, render, tools_in, written
from .schema import check_schema
from .settings import THINKING_SWITCHES, Dialect, Settings, Thinking
from .tokens import count_tokens

__all__ = ["Asked", "BadRequest", "HistoricCall", "Message", "Tool", "ToolChoice", "read_chat", "read_completion"]

_MOST_CHOICES = 16
_NO_TOOLS = ToolChoice("none")
_ANY_OBJECT = {"type": "object"}
_THINKING_WORDS = {"enabled": True, "adaptive": True, "on": True, "disabled": False, "off": False, "none": False}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to generate. `max_tokens` is already bounded by the context.

    `prompt` is what would be tokenised; `messages` and `tools` are what somebody knows who has read only that.
    `answer_schema` is what the content has to be valid against, None where it is free.
    """

    chat: bool
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel_calls: bool
    streamed: bool
    include_usage: bool
    continuous_usage: bool
    max_tokens: int
    ignore_eos: bool
    thinking: bool
    answer_schema: dict[str, Any] | None
    stop: tuple[str, ...]
    temperature: float | None
    choices: int
    segments: tuple[Segment, ...]
    prompt: bytes
    prompt_tokens: int
    usual_tokens: int  # the length of ordinary prose answers

    @property
    def results(self) -> tuple[Message, ...]:
        """Tool results that wait for an answer: those after the last user message."""
        if self.messages[-1].role != "tool":
            return ()
        last_user = max((i for i, m in enumerate(self.messages) if m.role == "user"), default=-1)
        return tuple(m for m in self.messages[last_user + 1 :] if m.role == "tool")

    @property
    def turn(self) -> int:
        """1 for a conversation's first user message."""
        return sum(m.role == "user" for m in self.messages)

    @property
    def user_text(self) -> str:
        return next((m.text for m in reversed(self.messages) if m.role == "user"), self.messages[-1].text)

    def reading(self, segments: Iterable[Segment]) -> "Asked":
        """The same request, of which the model gets to see another prompt."""
        segments = tuple(segments)
        prompt = written(segments)
        return replace(
            self,
            segments=segments,
            prompt=prompt,
            prompt_tokens=count_tokens(prompt),
            messages=messages_in(segments) or (Message("user", ""),),
            tools=tools_in(segments, self.tools),
        )


def read_chat(body: bytes, settings: Settings) -> Asked:
    """Read the body of POST /v1/chat/completions; raises `BadRequest`."""
    fields = read_object(body)
    model = _model(fields, settings)
    tools = read_tools(fields.get("tools"))
    choice = read_choice(fields.get("tool_choice"), tools)
    thinking = _thinking(fields, settings)
    segments = chat_segments(fields, settings, tools, choice)
    return _asked(fields, settings, model, segments, tools=tools, choice=choice, thinking=thinking)


def chat_segments(
    fields: dict[str, Any], settings: Settings, tools: tuple[Tool, ...], choice: ToolChoice
) -> tuple[Segment, ...]:
    """The prompt of a chat request, as this engine's template renders it; raises `BadRequest`."""
    names = ("reasoning", "reasoning_content") if settings.dialect is Dialect.VLLM else ("reasoning_content",)
    messages = read_messages(fields.get("messages"), names)
    if not settings.keeps_reasoning:
        messages = tuple(replace(message, reasoning="") if message.reasoning else message for message in messages)
    no_thought = settings.thinking.has_switch and not _thinking(fields, settings)
    return render(messages, _rendered_tools(tools, choice, settings.dialect), no_thought=no_thought)


def prompt_of(fields: dict[str, Any], settings: Settings) -> bytes:
    """The prompt that these fields of a tokenize request stand for: a plain `prompt`, or messages and tools."""
    prompt = fields.get("prompt")
    if isinstance(prompt, str):
        return prompt.encode(errors="replace")
    tools = read_tools(fields.get("tools"))
    return written(chat_segments(fields, settings, tools, read_choice(fields.get("tool_choice"), tools)))


def _rendered_tools(tools: tuple[Tool, ...], choice: ToolChoice, dialect: Dialect) -> tuple[Tool, ...]:
    """SGLang's template sees no tools that may not be called."""
    if dialect is not Dialect.SGLANG or choice.mode in ("auto", "required"):
        return tools
    return tuple(tool for tool in tools if choice.mode == "named" and tool.name == choice.name)


def read_completion(body: bytes, settings: Settings) -> Asked:
    """Read the body of POST /v1/completions; raises `BadRequest`."""
    fields = read_object(body)
    model = _model(fields, settings)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        prompt = " ".join(str(token) for token in prompt)
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt must be one non-empty string or one list of token ids", "prompt")
    fields.setdefault("max_tokens", 16)
    return _asked(fields, settings, model, (Segment("text", prompt),), chat=False)


def read_object(body: bytes) -> dict[str, Any]:
    """The fields of a body; raises `BadRequest` when it holds no JSON object."""
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    return fields


def _asked(
    fields: dict[str, Any],
    settings: Settings,
    model: str,
    segments: tuple[Segment, ...],
    *,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice = _NO_TOOLS,
    thinking: bool = False,
    chat: bool = True,
) -> Asked:
    options = fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options must be an object", "stream_options")
    _check_sampling(fields)
    prompt = written(segments)
    prompt_tokens = count_tokens(prompt)
    parallel = fields.get("parallel_tool_calls")
    return Asked(
        chat=chat,
        model=model,
        messages=messages_in(segments) if chat else (Message("user", segments[0].body),),
        tools=tools,
        choice=choice,
        parallel_calls=parallel is None or bool(parallel),
        streamed=bool(fields.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats")),
        max_tokens=_max_tokens(fields, prompt_tokens, settings.max_model_len),
        ignore_eos=bool(fields.get("ignore_eos")),
        thinking=thinking,
        answer_schema=_answer_schema(fields.get("response_format")),
        stop=_stop(fields.get("stop")),
        temperature=fields.get("temperature"),
        choices=_choices(fields.get("n")),
        segments=segments,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        usual_tokens=settings.answer_tokens,
    )


def _model(fields: dict[str, Any], settings: Settings) -> str:
    model = fields.get("model") or settings.models[0]
    if model not in settings.models:
        raise BadRequest(f"The model `{model}` does not exist.", "model", status=404)
    return str(model)


def _thinking(fields: dict[str, Any], settings: Settings) -> bool:
    """Whether the model thinks, by that spelling of its switch that the client uses and the model knows."""
    kwargs = fields.get("chat_template_kwargs") or {}
    if not isinstance(kwargs, dict):
        raise BadRequest("chat_template_kwargs must be an object", "chat_template_kwargs")
    habit = settings.thinking
    if not habit.has_switch:
        return habit is Thinking.ALWAYS
    known = THINKING_SWITCHES if settings.thinking_switch == "any" else (settings.thinking_switch,)
    given = {"reasoning_effort": fields.get("reasoning_effort"), **kwargs}
    asked = next((given[name] for name in known if given.get(name) is not None), habit is Thinking.ON)
    return _THINKING_WORDS.get(asked.lower(), True) if isinstance(asked, str) else bool(asked)


def _answer_schema(value: Any) -> dict[str, Any] | None:
    if value is None or (isinstance(value, dict) and value.get("type") == "text"):
        return None
    if isinstance(value, dict) and value.get("type") == "json_object":
        return _ANY_OBJECT
    wrapper = value.get("json_schema") if isinstance(value, dict) and value.get("type") == "json_schema" else None
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if not isinstance(schema, dict):
        raise BadRequest("response_format must be text, json_object or json_schema with a schema", "response_format")
    check_schema(schema, "response_format.json_schema.schema")
    return schema


def _stop(value: Any) -> tuple[str, ...]:
    strings = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(string, str) and string for string in strings):
        raise BadRequest("stop must be a non-empty string or a list of such", "stop")
    return tuple(strings)


def _choices(value: Any) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_CHOICES:
        raise BadRequest(f"n must be a whole number from 1 to {_MOST_CHOICES}, got {value!r}", "n")
    return value


def _check_sampling(fields: dict[str, Any]) -> None:
    for name, least, most in (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0)):
        value = fields.get(name)
        if value is not None and (
            not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most
        ):
            raise BadRequest(f"{name} must be a number from {least:g} to {most:g}, got {value!r}", name)


def _max_tokens(fields: dict[str, Any], prompt_tokens: int, max_model_len: int) -> int:
    asked = fields.get("max_completion_tokens")
    if asked is None:
        asked = fields.get("max_tokens")
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        raise BadRequest(f"max_tokens must be a whole number of at least 1, got {asked!r}", "max_tokens")
    room = max_model_len - prompt_tokens
    wanted = asked or 1
    if wanted > room:
        raise BadRequest(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {wanted} output "
            f"tokens and your prompt contains {prompt_tokens} input tokens, for a total of {wanted + prompt_tokens} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            "max_tokens" if asked else "messages",
        )
    return asked or room
