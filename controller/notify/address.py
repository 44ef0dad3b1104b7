"""Addresses of targets: what is wrong with one, and which one a file holds. Light, for the process that sends."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from .secret_files import FileTrouble, lines_of

APPRISE, WEBHOOK = "apprise", "webhook"
"""The two ways to somebody."""


def webhook_trouble(url: str) -> str:
    """What is wrong with the address of a webhook, never quoting it; empty: nothing."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is looked at when it is asked for
        (host or "").encode("idna")  # what could not even be looked up: a part of it is empty, or too long
    except ValueError:
        return "this is no URL: expected https://host/path"
    if parts.scheme not in {"https", "http"} or not host or any(c.isspace() or not c.isprintable() for c in url):
        return "this is no URL: expected https://host/path"
    if parts.scheme == "http" and not _is_loopback(host):
        return "expected https://host/path: http only to this machine (127.0.0.1), what is told must not travel openly"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def webhook_url_of(path: Path) -> str:
    """The one URL of a `webhook_file`. Raises `FileTrouble`."""
    lines = lines_of(path)
    if len(lines) > 1:
        raise FileTrouble(f"{path} holds {len(lines)} lines: a webhook is one URL")
    if trouble := webhook_trouble(lines[0]):
        raise FileTrouble(f"{path}: {trouble}")
    return lines[0]


def apprise_url_of(path: Path, line: int) -> str:
    """The URL on that line of an `apprise_file`. Raises `FileTrouble`."""
    lines = lines_of(path)
    if len(lines) < line:
        raise FileTrouble(f"{path} has no line {line} any more: start the daemon again")
    return lines[line - 1]
