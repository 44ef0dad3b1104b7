"""Reading a hand-written start script: its commands, with the environment and folder they would run in.

This is a reader, not a shell: it follows assignments, exports, ``cd`` and venv activation, and gives up honestly
(``wild``) where a command depends on control flow or on what another program prints.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_OPENED_BY = {"fi": "if", "done": "loop", "esac": "case", "}": "{", ")": "("}
_OPENING = {
    "if": "if",
    "for": "loop",
    "while": "loop",
    "until": "loop",
    "select": "loop",
    "case": "case",
    "{": "{",
    "(": "(",
}
_GROUPS = frozenset({"{", "("})  # what stands in them runs in any case
_SEPARATORS = frozenset({";", "&", "&&", "||", "|", "|&", ";;", "\n"})
_DROPPED_PREFIXES = frozenset({"exec", "nohup", "setsid", "command", "time"})
_REDIRECTS = re.compile(r"^\d*(>>?|<|>&|&>>?|>\||<<<)$")
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?\s*['\"]?(\w+)")
_ARRAY_USE = re.compile(r"\$\{(\w+)\[[@*]\]\}")
NEWLINE = "\n"


@dataclass(frozen=True)
class ShellCommand:
    """One command as it would be run: expanded words, its whole exported environment, and its folder."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    venv: Path | None
    sourced: tuple[str, ...]
    """Files that were sourced before it, venv activation aside."""
    unresolved: tuple[str, ...]
    """Words that depend on something this reader cannot know; they are kept as written."""
    conditional: bool
    """Inside control flow or a function: whether it runs at all is not known."""


@dataclass
class _State:
    variables: dict[str, str]
    exported: set[str]
    folder: Path
    venv: Path | None = None
    open: list[str] = field(default_factory=list)
    """What is open around the current command: if, loop, case, function, { and (."""
    arrays: dict[str, list[str]] = field(default_factory=dict)
    sourced: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)


def read_commands(text: str, folder: Path) -> tuple[ShellCommand, ...]:
    """The commands of a script in order; `folder` is where it is taken to be started."""
    home = {"HOME": os.path.expanduser("~")}  # noqa: PTH111  # a string, as the shell has it
    state = _State(dict(home), set(), folder)
    commands = []
    for words in _statements(text):
        command = _follow(words, state)
        if command is not None:
            commands.append(command)
    return tuple(commands)


def _statements(text: str) -> Iterator[list[str]]:
    """The words of each simple command; control words stay the first word of theirs."""
    words: list[str] = []
    for word in _tokens(text):
        if word in _SEPARATORS:
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _tokens(text: str) -> Iterator[str]:
    for line in _logical_lines(_without_here_documents(text.replace("\\\n", " "))):
        # What other programs are asked for is put aside: the lexer would split it at its parentheses.
        asked = _SUBSTITUTION.findall(line)
        bare = line
        for number, text_asked in enumerate(asked):
            bare = bare.replace(text_asked, f"${{__{number}}}", 1)
        lexer = shlex.shlex(bare, posix=True, punctuation_chars=";&|<>()")
        lexer.commenters = ""
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            words = [line]  # quotes that do not close: one word that nobody recognises
        for word in words:
            for number, text_asked in enumerate(asked):
                word = word.replace(f"${{__{number}}}", text_asked)  # noqa: PLW2901
            yield word
        yield NEWLINE


def _without_here_documents(text: str) -> str:
    kept, until = [], ""
    for line in text.split("\n"):
        if until:
            until = "" if line.strip() == until else until
            continue
        match = _HERE_DOCUMENT.search(line)
        until = match[1] if match else ""
        kept.append(line)
    return "\n".join(kept)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a line goes on while a quote or an array's parenthesis is open."""
    line, quote, depth, position = "", "", 0, 0
    while position < len(text):
        letter = text[position]
        before = text[position - 1] if position else "\n"
        if quote:
            quote = "" if letter == quote and not (quote == '"' and before == "\\") else quote
        elif letter in "'\"" and before != "\\":
            quote = letter
        elif letter == "#" and before in " \t;&|(\n":
            position = text.find("\n", position) if "\n" in text[position:] else len(text)
            continue
        elif letter == "(" and (depth or before == "="):
            depth += 1
        elif letter == ")" and depth:
            depth -= 1
        elif letter == "\n" and not depth:
            yield line
            line = ""
        line += letter
        position += 1
    yield line


def _follow(words: list[str], state: _State) -> ShellCommand | None:
    """Apply one statement to the state; the command it runs, if it runs one."""
    state.unresolved = []
    if len(words) > 1 and words[0].endswith("=") and words[1] == "(":
        _array(words, state)
        return None
    words = _without_redirects(_control_flow(words, state))
    words = [expanded for word in words for expanded in _expanded(word, state)]
    assignments: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        assignments[match[1]] = match[2]
        words = words[1:]
    while words and words[0] in _DROPPED_PREFIXES | {"env"}:
        words = words[1:]
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            assignments[match[1]] = match[2]
            words = words[1:]
    if not words:
        state.variables |= assignments
        return None
    if _builtin(words, state):
        return None
    exported = {name: state.variables[name] for name in state.exported if name in state.variables}
    return ShellCommand(
        words=tuple(words),
        environment=exported | assignments,
        folder=state.folder,
        venv=state.venv,
        sourced=tuple(state.sourced),
        unresolved=tuple(state.unresolved),
        conditional=not _GROUPS.issuperset(state.open),
    )


def _control_flow(words: list[str], state: _State) -> list[str]:
    """The command's own words; what opens and closes around it is kept in the state."""
    if (len(words) >= 2 and (words[1] == "()" or words[1:3] == ["(", ")"])) or words[:1] == ["function"]:
        state.open += ["function"] if "}" not in words else []
        return []  # its body follows on other lines, or is not for us
    if state.open[-1:] == ["case"] and ")" in words:
        words = words[words.index(")") + 1 :]
    while words and (words[0] in _OPENING or words[0] in {"then", "else", "elif", "do", "!"}):
        if words[0] in _OPENING and not (words[0] == "{" and state.open[-1:] == ["function"]):
            state.open.append(_OPENING[words[0]])
        words = words[1:]
    kept = []
    for position, word in enumerate(words):
        opener = _OPENED_BY.get(word)
        closes_a_block = word in {"}", ")"} or position == 0
        if opener is None or not closes_a_block:
            kept.append(word)
        elif state.open and state.open[-1] in {opener, "function" if word == "}" else opener}:
            state.open.pop()
    return kept


def _without_redirects(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for position, word in enumerate(words):
        if skip:
            skip = False
        elif _REDIRECTS.match(word):
            skip = True
        elif word.isdigit() and position + 1 < len(words) and _REDIRECTS.match(words[position + 1]):
            continue  # the 2 of 2>&1
        else:
            kept.append(word)
    return kept


def _array(words: list[str], state: _State) -> None:
    """``NAME=(a b)`` and ``NAME+=(c)``."""
    name = words[0].rstrip("=+")
    values = [expanded for word in words[2:] if word != ")" for expanded in _expanded(word, state)]
    state.arrays[name] = [*(state.arrays.get(name, []) if "+" in words[0] else []), *values]


def _expanded(word: str, state: _State) -> list[str]:
    """The word with what the script itself has set; anything else marks it as unresolved."""
    match = _ARRAY_USE.fullmatch(word)
    if match and match[1] in state.arrays:
        return list(state.arrays[match[1]])
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        name, default = match[1] or match[2], match[3]
        if name in state.variables:
            return state.variables[name]
        unknown = unknown or default is None
        return match[0] if default is None else default

    text = _VARIABLE.sub(value, word)
    if unknown or any(sign in text for sign in ("$(", "`", "$@", "[@]")):
        state.unresolved.append(word)
    return [state.variables["HOME"] + text[1:] if text.startswith("~/") else text]


def _builtin(words: list[str], state: _State) -> bool:
    """Follow what changes the shell itself; False for a command that is a program."""
    name, arguments = words[0], words[1:]
    if name in {"export", "declare", "typeset", "readonly"}:
        for argument in arguments:
            match = _ASSIGNMENT.fullmatch(argument)
            if match:
                state.variables[match[1]] = match[2]
            if not argument.startswith("-") and name == "export":
                state.exported.add(match[1] if match else argument)
        return True
    if name == "unset":
        state.exported -= set(arguments)
        return True
    if name == "cd" and arguments:
        state.folder = state.folder / arguments[-1]
        return True
    if name in {"source", "."} and arguments:
        script = state.folder / arguments[0]
        if script.name == "activate" and script.parent.name == "bin":
            state.venv = Path(os.path.normpath(script.parent.parent))
        else:
            state.sourced.append(str(script))
        return True
    return False
