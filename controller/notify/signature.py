"""How a receiver knows that a message is ours. Pure."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE_HEADER = "X-Cutover-Signature"


def signature(body: bytes, secret: bytes) -> str:
    """``sha256=`` and the HMAC-SHA256 (RFC 2104) of the body as it is sent, in hexadecimal."""
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
