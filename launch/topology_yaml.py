"""Writing a topology file for people: comments beside the keys they are about, quotes only where needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

import yaml

from launch.render import grouped

MARK = "# cutover: ?"

_PLAIN = re.compile(r"[A-Za-z0-9_./-][A-Za-z0-9_./@:+=-]*")
_KEPT_AS_WRITTEN = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})


class Draft:
    """Collects keys, remarks and questions, and writes them as YAML in the order of their arrival."""

    def __init__(self, title: str) -> None:
        self.questions: list[str] = []
        self._title = title
        self._notes: list[str] = []
        self._keys: dict[str, str] = {}
        self._asked: dict[str, list[str]] = {}
        self._hints: list[str] = []

    def add(self, key: str, value: str) -> None:
        """A key with its value in YAML."""
        self._keys[key] = value

    def add_flags(self, key: str, flags: Sequence[str]) -> None:
        """A list of flags: short ones on one line, else one flag with its values per line."""
        if not flags:
            return
        lines = [", ".join(word(str(text), inside=True) for text in line) for line in grouped(flags)]
        joined = ", ".join(lines)
        self.add(key, f"[{joined}]" if len(joined) <= 80 else "[\n  " + ",\n  ".join(lines) + ",\n]")

    def add_mapping(self, key: str, values: Mapping[str, str]) -> None:
        """A mapping of names to words."""
        if values:
            self.add(key, "\n" + "\n".join(f"  {name}: {word(value)}" for name, value in values.items()))

    def note(self, sentence: str) -> None:
        """A remark that needs no answer."""
        self._notes.append(_one_line(sentence))

    def ask(self, question: str, *, key: str = "") -> None:
        """A question; its mark stands at `key`, or at the end."""
        text = _one_line(question)
        if text not in self.questions:
            self.questions.append(text)
            self._asked.setdefault(key, []).append(text)

    def hint(self, line: str, question: str) -> None:
        """A line that is commented out until its question is answered."""
        text = _one_line(question)
        self.questions.append(text)
        self._hints.append(f"# {line}   {MARK} {text}")

    def yaml(self) -> str:
        """The file."""
        lines = [f"# {self._title} Answer what is marked `{MARK}`, and remove the mark."]
        lines += [f"# {note}" for note in self._notes]
        nested = {key.partition(".")[0] for key in self._keys if "." in key}
        begun: set[str] = set()
        for key, value in self._keys.items():
            parent, _, child = key.partition(".")
            if parent in nested and parent not in begun:
                begun.add(parent)
                lines.append(f"{parent}:")
            lines += [f"{MARK} {question}" for question in self._asked.get(key, [])]
            separator = "" if value.startswith("\n") else " "
            written = f"{child or key}:{separator}{value}"
            lines.append("\n".join(f"  {line}" for line in written.split("\n")) if child else written)
        lines += self._hints
        unplaced = [question for key, asked in self._asked.items() if key not in self._keys for question in asked]
        lines += [f"{MARK} {question}" for question in unplaced]
        return "\n".join(lines) + "\n"


def word(text: str, *, inside: bool = False) -> str:
    """A word as YAML: plain where our reader gives the same text back, else in quotes.

    `inside` a bracketed list a little more needs quotes.
    """
    plain = _PLAIN.fullmatch(text) is not None and not text.endswith(":") and not (inside and ":" in text)
    base_60 = ":" in text and text.replace(":", "").replace(".", "").isdigit()
    if plain and not base_60 and _implicit_tag(text) in _KEPT_AS_WRITTEN:
        return text
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=sys.maxsize)).rstrip("\n")


def _implicit_tag(text: str) -> str:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return str(node.tag) if isinstance(node, yaml.ScalarNode) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
