"""When to call a tool, which one, and with what arguments: enough sense for a believable model."""

import json
import re
from typing import Any

from .answer import Call
from .conversation import Tool
from .harvest import Harvest, name_words
from .request import Asked
from .vocabulary import word_list

_VERBS = frozenset(
    word_list(
        "get set fetch list find search query make create do run call use read write add delete update lookup look "
        "save store send current by the a an of in for to and tool function value"
    )
)
_NAME_LIKE = frozenset(word_list("city location place town country name person customer owner user who region"))
_TEXT_LIKE = frozenset(word_list("text query content message body note prompt question cmd command expression q"))
_ID_LIKE = frozenset(word_list("id code sku key token ref reference number zip serial record order ticket uuid"))


def calls_for(asked: Asked) -> tuple[Call, ...]:
    """The calls this request deserves, none when it asks for nothing a tool does."""
    text = asked.user_text
    if asked.choice.mode == "named":
        chosen = [tool for tool in asked.tools if tool.name == asked.choice.name][:1]
    else:
        chosen = _matching(asked.tools, text)
        if not chosen and asked.choice.mode == "required":
            chosen = [_nearest(asked.tools, text)]
    calls = [call for tool in chosen for call in _calls_of(tool, text, alone=len(chosen) == 1)]
    return tuple(calls if asked.parallel_calls else calls[:1])


def fill(schema: dict[str, Any], text: str) -> Any:
    """A value that is valid against the schema, made of what the text offers."""
    return _Filler(schema, Harvest(text)).value(schema, "")


def _matching(tools: tuple[Tool, ...], text: str) -> list[Tool]:
    words = _stems(text)
    squeezed = re.sub(r"[\W_]+", "", text.lower())
    scored = [(_share(tool, words, squeezed), tool) for tool in tools]
    named = [tool for tool in tools if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", text)]
    if named:
        return named
    best = [tool for share, tool in scored if share >= 0.5]
    if best:
        return sorted(best, key=lambda tool: _first_mention(tool, text))
    described = [(len(_stems(tool.description) & words), tool) for tool in tools]
    overlap, tool = max(described, key=lambda pair: pair[0], default=(0, None))
    if tool is not None and (
        overlap >= 2 or re.search(r"\b(?:use|call)\b.{0,20}\b(?:tool|function)", text, re.IGNORECASE)
    ):
        return [tool]
    return []


def _share(tool: Tool, words: frozenset[str], squeezed: str) -> float:
    """Which part of the meaningful words of a tool's name the text mentions."""
    if "".join(name_words(tool.name)) in squeezed:
        return 1.0
    meaningful = _stems(" ".join(name_words(tool.name)))
    return len(meaningful & words) / len(meaningful) if meaningful else 0.0


def _first_mention(tool: Tool, text: str) -> int:
    places = [text.lower().find(stem) for stem in _stems(" ".join(name_words(tool.name)))]
    return min((place for place in places if place >= 0), default=len(text))


def _nearest(tools: tuple[Tool, ...], text: str) -> Tool:
    words = _stems(text)
    return max(tools, key=lambda tool: len(_stems(tool.description) & words))


def _stems(text: str) -> frozenset[str]:
    """Words without endings and without those that say nothing about a tool's purpose."""
    words = re.findall(r"[^\W_]{3,}", text.lower())
    return frozenset(re.sub(r"(?:ies|es|s)$", "", word) for word in words if word not in _VERBS)


def _calls_of(tool: Tool, text: str, *, alone: bool) -> list[Call]:
    """One call; or one per name, when the tool takes one name and the text lists several."""
    schema = tool.schema
    properties = schema.get("properties") or {}
    own_words = frozenset(name_words(" ".join([tool.name, tool.description, *properties])))
    harvest = Harvest(text, own_words)
    key = next((k for k in schema.get("required") or [] if _NAME_LIKE & set(name_words(k))), None)
    listed = harvest.listed_names() if alone and key and properties.get(key, {}).get("type") == "string" else []
    if key is None or len(listed) < 2:
        return [Call(tool.name, _written(_Filler(schema, harvest).value(schema, "")))]
    arguments = _Filler(schema, harvest).value(schema, "")
    return [Call(tool.name, _written({**arguments, key: name})) for name in listed]


def _written(arguments: Any) -> str:
    return json.dumps(arguments if isinstance(arguments, dict) else {}, ensure_ascii=False)


class _Filler:
    """Walks a schema and takes values out of one harvest."""

    def __init__(self, root: dict[str, Any], harvest: Harvest) -> None:
        self._root = root
        self._harvest = harvest

    def value(self, schema: Any, name: str, depth: int = 0) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._enum(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number":
                return self._number(schema, name, whole=kind == "integer")
            case "boolean":
                return self._boolean(name)
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Follow references, merge allOf, take the first branch that is not null."""
        for _ in range(8):
            if not isinstance(schema, dict):
                return {}
            if isinstance(schema.get("$ref"), str):
                schema = self._referenced(schema["$ref"])
            elif schema.get("anyOf") or schema.get("oneOf"):
                branches: list[Any] = schema.get("anyOf") or schema.get("oneOf") or []
                schema = next((b for b in branches if isinstance(b, dict) and b.get("type") != "null"), branches[0])
            elif schema.get("allOf"):
                merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
                for part in schema["allOf"]:
                    resolved = self._resolved(part)
                    merged["properties"] = {**merged.get("properties", {}), **resolved.get("properties", {})}
                    merged["required"] = [*merged.get("required", []), *resolved.get("required", [])]
                    merged = {**resolved, **merged}
                schema = merged
            else:
                return schema
        return {}

    def _referenced(self, reference: str) -> Any:
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            found = found.get(step, {}) if isinstance(found, dict) and step else found
        return found

    def _enum(self, options: list[Any]) -> Any:
        return next((o for o in options if self._harvest.mentions(str(o))), options[0])

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = [k for k in schema.get("required") or [] if k in properties]
        wanted = [k for k in properties if k in required or self._is_mentioned(k, properties[k])]
        # Values that stand beside their argument's name are taken first, before others help themselves.
        filled = {k: self.value(properties[k], k, depth + 1) for k in wanted if depth < 8}
        return {**{k: "" for k in schema.get("required") or [] if k not in properties}, **filled}

    def _is_mentioned(self, name: str, schema: Any) -> bool:
        """An optional property is given when the text speaks of it."""
        options = self._resolved(schema).get("enum") or []
        if any(self._harvest.mentions(str(o)) for o in options if len(str(o)) > 1):
            return True
        return self._harvest.mentions(" ".join(name_words(name))) or self._harvest.mentions(name)

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        items = self._resolved(schema.get("items") or {"type": "string"})
        count = max(1, int(schema.get("minItems", 1)))
        if items.get("type") in ("integer", "number"):
            count = max(count, len(self._harvest.numbers))
        elif items.get("enum"):
            mentioned = [o for o in items["enum"] if self._harvest.mentions(str(o))]
            if len(mentioned) >= count:
                return mentioned
        elif items.get("type") == "string":
            count = max(count, len(self._harvest.quoted) or len(self._harvest.names))
        count = min(count, int(schema.get("maxItems", 64)))
        singular = re.sub(r"s$", "", name)
        return [self.value(items, singular, depth + 1) for _ in range(count)]

    def _number(self, schema: dict[str, Any], name: str, *, whole: bool) -> float | int:
        beside = self._harvest.beside(name) if name else None
        value: float | int | None = None
        if beside is not None:
            try:
                value = int(beside) if whole or re.fullmatch(r"[-+]?\d+", beside) else float(beside)
            except ValueError:
                value = None
        if value is None:
            value = self._harvest.take_number(whole=whole)
        if value is None:
            value = schema.get("default", schema.get("minimum", 1))
        low, high = schema.get("minimum"), schema.get("maximum")
        value = max(value, low) if low is not None else value
        return min(value, high) if high is not None else value

    def _boolean(self, name: str) -> bool:
        words = r"[ _-]?".join(name_words(name)) or "it"
        denied = rf"\b(?:no|not|don't|do not|without|never|disable)\b[^.]{{0,20}}\b{words}"
        switched_off = rf"\b{words}\b\W+(?:is |= ?|: ?)?(?:false|off|no)\b"
        no = f"{denied}|{switched_off}"
        return re.search(no, self._harvest.text, re.IGNORECASE) is None

    def _string(self, schema: dict[str, Any], name: str) -> str:
        found = self._candidate(schema, set(name_words(name)), name)
        if found is None:
            found = str(schema.get("default") or self._harvest.text.strip() or name or "text")
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not _matches(pattern, found):
            pool = [
                *self._harvest.identifiers,
                *self._harvest.quoted,
                *self._harvest.names,
                *self._harvest.text.split(),
            ]
            found = next((c for c in pool if _matches(pattern, c)), found)
        longest = schema.get("maxLength")
        found = found[:longest] if isinstance(longest, int) else found
        return found.ljust(int(schema.get("minLength", 0)), "x")

    def _candidate(self, schema: dict[str, Any], words: set[str], name: str) -> str | None:
        harvest = self._harvest
        if beside := harvest.beside(name) if name else None:
            return beside
        form = schema.get("format")
        if form == "email" or "email" in words:
            return harvest.email() or "someone@example.org"
        if form in ("date", "date-time") or words & {"date", "day", "start", "end", "when"}:
            default = "2026-01-15T09:00:00Z" if form == "date-time" else "2026-01-15"
            return harvest.date() or default
        if form in ("uri", "url") or words & {"url", "uri", "link"}:
            return harvest.uri() or "https://example.org/"
        if words & {"path", "file", "filename", "cwd", "directory"} and (path := harvest.path()):
            if path in harvest.quoted:
                harvest.quoted.remove(path)
            return path
        if words & _ID_LIKE:
            return harvest.take_quoted() or harvest.take_identifier() or harvest.take_name()
        if words & _NAME_LIKE:
            return harvest.take_quoted() or harvest.take_name() or harvest.take_identifier()
        if words & _TEXT_LIKE:
            return harvest.take_quoted()
        return harvest.take_quoted() or harvest.take_name() or harvest.take_identifier()


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # a dialect of patterns that Python does not speak: nothing to compare with
