"""Bytes around events: HTTP chunks, server-sent events, compact JSON, ids."""

import json
from random import SystemRandom
from typing import Any

_identities = SystemRandom()
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def framed(event: bytes) -> bytes:
    """One HTTP chunk around one event, as the real servers send them."""
    return b"%x\r\n%b\r\n" % (len(event), event)


def event(value: Any) -> bytes:
    """One server-sent event with a JSON document, in its HTTP chunk."""
    return framed(b"data: " + compact(value) + b"\n\n")


def compact(value: Any) -> bytes:
    """JSON without spaces; what is no Unicode becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def hex_id(digits: int) -> str:
    """A random id of so many hexadecimal digits."""
    return f"{_identities.getrandbits(4 * digits):0{digits}x}"


def letters_id(length: int) -> str:
    """A random id of so many letters and digits."""
    return "".join(_identities.choices(_LETTERS, k=length))
