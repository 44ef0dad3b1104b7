"""Comparing what was asked with what came, as a person would."""

from __future__ import annotations

import unicodedata


def folded(value: object) -> object:
    """A text without case, diacritics and outer blanks: `Krakow` is Kraków. Other values as they are."""
    if not isinstance(value, str):
        return value
    plain = unicodedata.normalize("NFKD", value)
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold().strip()


def holds(text: str, canary: str) -> bool:
    """Is `canary` in `text`, however a writer groups or points its digits?"""
    digits = "".join(str(unicodedata.digit(c)) if unicodedata.decimal(c, None) is not None else c for c in text)
    squeezed = "".join(c for c in digits if not c.isspace() and c != "\u202f")
    plain = squeezed.replace(",", ".")
    return canary in plain or (canary.isdigit() and canary in squeezed.replace(",", "").replace(".", ""))
