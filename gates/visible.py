"""What engines and gates write, shown so that nothing acts on it and nothing hides: control characters as escapes."""

from __future__ import annotations

import re
from typing import Any, Final

from markupsafe import Markup

# Newline and tab stay. The others move cursors, change colours or turn the reading direction.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""`text` with what a terminal or a page would act on spelled out: ``\x1b``, ``\u202e``."""
    return _CONTROLS.sub(_spelled, text.replace("\r\n", "\n"))


def visible(value: Any) -> Any:
    """`printable` for every value that a template shows; what is no text stays as it is. Markup stays markup."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704 - no escape holds a character that means anything in HTML
    return printable(value) if isinstance(value, str) else value


def _spelled(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
