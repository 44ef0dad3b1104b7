"""What may stand behind a key of `cutover.yaml`: each says what it expected."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..durations import duration_s

Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]


def _address(value: object) -> str:
    host, _, port = str(value).rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("expected host:port, for example 127.0.0.1:8000")
    return str(value)


def _loopback(value: object) -> str:
    text = _address(value)
    host = text.rpartition(":")[0].strip("[]")
    if host != "localhost" and not (_is_ip(host) and ipaddress.ip_address(host).is_loopback):
        raise ValueError(
            "expected an address of this machine alone, for example 127.0.0.1:8010: tokens must not travel in the "
            "clear; put a proxy with TLS in front of it, or use `ssh -L`"
        )
    return text


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _port_range(value: object) -> str:
    first, _, last = str(value).partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) < int(last) < 65536):
        raise ValueError("expected first-last, for example 18000-18999")
    return str(value)


def _absolute(value: object) -> str:
    if not str(value).startswith("/"):
        raise ValueError("expected an absolute path: the daemon and its users stand in different directories")
    return str(value)


def _duration(value: object) -> float:
    seconds = duration_s(value)
    if not 0 < seconds <= 1e7:
        raise ValueError("expected a duration above nothing, for example 4h, 90m or 1h30m")
    return seconds


def _auto_or_off(value: object) -> object:
    """YAML 1.1 reads an unquoted `off` as false."""
    return "off" if value is False else value


Address = Annotated[str, BeforeValidator(_address)]
Loopback = Annotated[str, BeforeValidator(_loopback)]
PortRange = Annotated[str, BeforeValidator(_port_range)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute)]
AutoOrOff = Annotated[Literal["auto", "off"], BeforeValidator(_auto_or_off)]
Duration = Annotated[float, BeforeValidator(_duration)]


STRICT = ConfigDict(extra="forbid", frozen=True)


class Strict(BaseModel):
    """A mapping: a key that it does not know is refused."""

    model_config = STRICT
