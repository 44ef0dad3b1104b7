"""What a client asked for, read from the JSON body of a chat or text completion."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from .settings import Settings, Thinking
from .tokens import count_tokens

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class BadRequest(ValueError):  # noqa: N818 - named after the HTTP status it becomes
    """The body cannot be served. Becomes HTTP 400, or `status`."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoricCall:
    """A call in an earlier assistant message."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    text: str
    calls: tuple[HistoricCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: Literal["auto", "none", "required", "named"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to generate. `prompt` is what would be tokenised; `max_tokens` is already bounded by the context."""

    chat: bool
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    choice: ToolChoice
    parallel_calls: bool
    streamed: bool
    include_usage: bool
    max_tokens: int
    ignore_eos: bool
    thinking: bool
    answer_schema: dict[str, Any] | None
    prompt: bytes
    prompt_tokens: int

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


def read_chat(body: bytes, settings: Settings) -> Asked:
    """Read the body of POST /v1/chat/completions; raises `BadRequest`."""
    fields = _object(body)
    model = _model(fields, settings)
    messages = _messages(fields.get("messages"))
    tools = _tools(fields.get("tools"))
    choice = _choice(fields.get("tool_choice"), tools)
    thinking = _thinking(fields, settings.thinking)
    prompt = _render(messages, tools, thinking, settings.thinking)
    return _asked(fields, settings, model, messages, prompt, tools=tools, choice=choice, thinking=thinking)


def read_completion(body: bytes, settings: Settings) -> Asked:
    """Read the body of POST /v1/completions; raises `BadRequest`."""
    fields = _object(body)
    model = _model(fields, settings)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        prompt = " ".join(str(token) for token in prompt)
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest("prompt must be one non-empty string or one list of token ids", "prompt")
    fields.setdefault("max_tokens", 16)
    return _asked(fields, settings, model, (Message("user", prompt),), prompt.encode(errors="replace"), chat=False)


def _asked(  # noqa: PLR0913 - one argument per part of the request already read
    fields: dict[str, Any],
    settings: Settings,
    model: str,
    messages: tuple[Message, ...],
    prompt: bytes,
    *,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice = ToolChoice("none"),
    thinking: bool = False,
    chat: bool = True,
) -> Asked:
    if fields.get("n") not in (None, 1):
        raise BadRequest("this engine answers with one choice: n must be 1", "n")
    options = fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options must be an object", "stream_options")
    prompt_tokens = count_tokens(prompt)
    parallel = fields.get("parallel_tool_calls")
    return Asked(
        chat=chat,
        model=model,
        messages=messages,
        tools=tools,
        choice=choice,
        parallel_calls=parallel is None or bool(parallel),
        streamed=bool(fields.get("stream")),
        include_usage=bool(options.get("include_usage")),
        max_tokens=_max_tokens(fields, prompt_tokens, settings.max_model_len),
        ignore_eos=bool(fields.get("ignore_eos")),
        thinking=thinking,
        answer_schema=_answer_schema(fields.get("response_format")),
        prompt=prompt,
        prompt_tokens=prompt_tokens,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    return fields


def _model(fields: dict[str, Any], settings: Settings) -> str:
    model = fields.get("model") or settings.models[0]
    if model not in settings.models:
        raise BadRequest(f"The model `{model}` does not exist.", "model", status=404)
    return str(model)


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a non-empty list", "messages")
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(value))


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        raise BadRequest(f"{where} must be an object with a role of {', '.join(sorted(_ROLES))}", where)
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list):
        raise BadRequest(f"{where}.tool_calls must be a list", where)
    return Message(
        role=value["role"],
        text=_text(value.get("content"), where),
        calls=tuple(_historic_call(call, where) for call in calls),
        tool_call_id=str(value.get("tool_call_id") or ""),
    )


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise BadRequest(f"{where}.content must be a string, null or a list of parts", where)


def _historic_call(value: Any, where: str) -> HistoricCall:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"{where}.tool_calls must hold objects with a function and its name", where)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        raise BadRequest(f"{where}.tool_calls: arguments must be a string of JSON", where)
    return HistoricCall(str(value.get("id") or ""), function["name"], arguments)


def _tools(value: Any) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadRequest("tools must be a list", "tools")
    return tuple(_tool(item, f"tools[{index}]") for index, item in enumerate(value))


def _tool(value: Any, where: str) -> Tool:
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f'{where} must be {{"type": "function", "function": {{"name": …}}}}', where)
    schema = function.get("parameters")
    if schema is not None and not isinstance(schema, dict):
        raise BadRequest(f"{where}.function.parameters must be a JSON schema object", where)
    return Tool(function["name"], str(function.get("description") or ""), schema or {"type": "object"})


def _choice(value: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if value not in ("none", "auto", "required") and not isinstance(value, dict):
        raise BadRequest("tool_choice must be none, auto, required or a named function", "tool_choice")
    if value != "none" and not tools:
        raise BadRequest("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if not isinstance(value, dict):
        return ToolChoice(value)
    function = value.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if name not in {tool.name for tool in tools}:
        raise BadRequest(f"The tool specified in `tool_choice` does not match any of `tools`: {name!r}", "tool_choice")
    return ToolChoice("named", str(name))


def _thinking(fields: dict[str, Any], habit: Thinking) -> bool:
    if habit is Thinking.NEVER:
        return False
    kwargs = fields.get("chat_template_kwargs") or {}
    if not isinstance(kwargs, dict):
        raise BadRequest("chat_template_kwargs must be an object", "chat_template_kwargs")
    asked = kwargs.get("enable_thinking", kwargs.get("thinking"))
    return habit is Thinking.ON if asked is None else bool(asked)


def _answer_schema(value: Any) -> dict[str, Any] | None:
    if value is None or not isinstance(value, dict) or value.get("type") == "text":
        return None
    if value.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    wrapper = value.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    if value.get("type") != "json_schema" or not isinstance(schema, dict):
        raise BadRequest("response_format must be text, json_object or json_schema with a schema", "response_format")
    return schema


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


def _render(messages: tuple[Message, ...], tools: tuple[Tool, ...], thinking: bool, habit: Thinking) -> bytes:
    """The prompt as a chat template would lay it out; its length is what prompt tokens are counted from."""
    parts: list[str] = []
    if tools:
        listed = "\n".join(
            json.dumps({"name": t.name, "description": t.description, "parameters": t.schema}, ensure_ascii=False)
            for t in tools
        )
        parts.append(f"<|im_start|>system\n# Tools\n<tools>\n{listed}\n</tools><|im_end|>\n")
    for message in messages:
        calls = "".join(
            f'\n<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
            for call in message.calls
        )
        parts.append(f"<|im_start|>{message.role}\n{message.text}{calls}<|im_end|>\n")
    parts.append("<|im_start|>assistant\n")
    if habit is not Thinking.NEVER and not thinking:
        parts.append("<think>\n\n</think>\n\n")
    return "".join(parts).encode(errors="replace")
