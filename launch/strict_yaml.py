"""YAML as we accept it from strangers: bounded, without aliases, duplicate keys or surprises.

PyYAML's safe loader still has three traps: a nine-deep alias bomb parses in a millisecond into millions of
elements for whoever walks it, the last of two equal keys wins in silence, and words change their type (``no`` is
false, ``12:30:45`` is 45045, ``0.90`` loses its zero). So the document is read as nodes, aliases and duplicates are
refused with their line, and scalars come back as the text that was written unless the caller asks for their value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from launch.errors import TopologyError

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16

KeyPath = tuple[str | int, ...]

# The C parser is some twenty times faster on what strangers may send; it is in every wheel of PyYAML.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_WORD_TAGS = frozenset({f"{_TAG}{kind}" for kind in ("str", "int", "float", "timestamp")})
_SWITCHES: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_NUMBER_TAGS = frozenset({f"{_TAG}int", f"{_TAG}float"})
_LONGEST_NUMBER = 64
_TYPED_TAGS = frozenset({f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")})


@dataclass(frozen=True)
class Document:
    """A parsed file: plain mappings, lists and scalars, and the line each key path was written on."""

    value: dict[str, Any]
    source: str
    lines: Mapping[KeyPath, int]

    def where(self, path: KeyPath) -> str:
        """``file.yaml:7``, the line of `path` or of its nearest parent that was written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return f"{self.source}:{self.lines[path[:length]]}"
        return self.source


def dotted(path: KeyPath) -> str:
    """``instances.a.gpus[1]``: a key path as people write it."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def _nowhere(_: KeyPath) -> bool:
    return False


def read(
    text: str,
    *,
    source: str,
    typed: Callable[[KeyPath], bool],
    switched: Callable[[KeyPath], bool] = _nowhere,
    what: str = "a topology",
) -> Document:
    """Parse one YAML mapping. `what` it is, for whoever wrote it.

    Scalars at paths where `typed` is true get YAML's own value (number, bool, null); all others are the text as
    written, and a word that YAML would turn into a bool, null or base-60 number is refused with a request for quotes.
    Where `switched` is true ``true``, ``false`` and ``null`` are meant, so written, and nothing else is.
    """
    size_bytes = len(text.encode("utf-8", errors="replace"))
    if size_bytes > MAX_BYTES:
        raise TopologyError(f"{source}: {size_bytes} bytes are too large for {what}; the limit is {MAX_BYTES}")
    try:
        _refuse_aliases_and_depth(text, source)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise TopologyError(_syntax_error(error, source)) from error
    if not isinstance(node, yaml.MappingNode):
        meant = "such as name, engine and model; see docs/topology.md" if what == "a topology" else "to their values"
        raise TopologyError(f"{source}: {what} is a mapping of keys {meant}")
    builder = _Builder(source, typed, switched)
    value = builder.build(node, ())
    assert isinstance(value, dict)  # noqa: S101  # a mapping node builds a dict
    return Document(value, source, builder.lines)


def write(data: Mapping[str, Any]) -> str:
    """YAML that :func:`read` gives back as it was, keys in their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML folds away in its plainer styles: line breaks of other alphabets, control characters."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"'),
)


def _refuse_aliases_and_depth(text: str, source: str) -> None:
    """Look at the events before anything is built from them."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise TopologyError(
                f"{source}:{_line(event)}: the alias *{event.anchor} is not accepted; "
                "write the value out where it is used",
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise TopologyError(
                f"{source}:{_line(event)}: nested deeper than {MAX_DEPTH} levels; a topology needs four"
            )


class _Builder:
    def __init__(
        self, source: str, typed: Callable[[KeyPath], bool], switched: Callable[[KeyPath], bool] = _nowhere
    ) -> None:
        self.source = source
        self.typed = typed
        self.switched = switched
        self.lines: dict[KeyPath, int] = {}

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, f"{_TAG}seq", path)
            return [self.build(item, (*path, position)) for position, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._expect_tag(node, f"{_TAG}map", path)
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refusal(key_node, path, "a key must be a plain word")
            key = str(key_node.value)
            if key_node.tag == f"{_TAG}merge":
                raise self._refusal(key_node, path, "merge keys (<<) are not accepted; write the values out")
            if key in built:
                first = self.lines[(*path, key)]
                raise self._refusal(key_node, (*path, key), f"the key is there twice (first on line {first}); keep one")
            self.lines[(*path, key)] = _line(key_node)
            built[key] = self.build(value_node, (*path, key))
        return built

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text = str(node.value)
        if node.tag in _NUMBER_TAGS and len(text) > _LONGEST_NUMBER and (self.typed(path) or _base_60(node)):
            raise self._refusal(
                node, path, f"a number of {len(text)} characters is not accepted"
            )  # nor could it be shown
        if self.typed(path):
            if node.tag not in _TYPED_TAGS:
                raise self._refusal(node, path, f"the tag {node.tag} is not accepted")
            try:
                return _value(node)
            except ValueError as error:
                raise self._refusal(node, path, f"{text} is not a value: {error}") from error
        if self.switched(path) and text in _SWITCHES and node.tag in {f"{_TAG}bool", f"{_TAG}null"}:
            return _SWITCHES[text]
        if node.tag in _WORD_TAGS and not _base_60(node):
            return text
        if node.tag == f"{_TAG}null":
            if len(path) == 1:  # `router:` with nothing after it says: none
                return None
            shown = f"an empty value ({text})" if text else "an empty value"
            raise self._refusal(node, path, f'{shown} is not a word; remove it, or quote it: ""')
        if node.tag in {f"{_TAG}bool", f"{_TAG}int", f"{_TAG}float"}:
            meaning = f"{_value(node)!r}".lower() if node.tag == f"{_TAG}bool" else f"the number {_value(node)}"
            raise self._refusal(node, path, f'YAML reads {text} as {meaning}; if you mean the word, quote it: "{text}"')
        raise self._refusal(node, path, f"the tag {node.tag} is not accepted; write plain words, lists and mappings")

    def _expect_tag(self, node: yaml.Node, tag: str, path: KeyPath) -> None:
        if node.tag != tag:
            raise self._refusal(
                node, path, f"the tag {node.tag} is not accepted; write plain words, lists and mappings"
            )

    def _refusal(self, node: yaml.Node, path: KeyPath, sentence: str) -> TopologyError:
        place = f"{dotted(path)}: " if path else ""
        return TopologyError(f"{self.source}:{_line(node)}: {place}{sentence}")


def _base_60(node: yaml.Node) -> bool:
    """True for ``12:30:45`` and ``3:1``, which YAML 1.1 reads as base-60 numbers."""
    return node.tag in {f"{_TAG}int", f"{_TAG}float"} and ":" in str(node.value)


def _value(node: yaml.Node) -> Any:
    """The number, bool or null a scalar stands for; a date stays the text it was written as."""
    if node.tag in {f"{_TAG}str", f"{_TAG}timestamp"}:
        return str(node.value)
    return yaml.SafeLoader("").construct_object(node, deep=True)


def _line(marked: Any) -> int:
    return int(marked.start_mark.line) + 1


def _syntax_error(error: yaml.YAMLError, source: str) -> str:
    mark = getattr(error, "problem_mark", None)
    place = f"{source}:{mark.line + 1}" if mark is not None else source
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    return f"{place}: not valid YAML: {problem}"
