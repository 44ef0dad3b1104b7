"""The files that HAProxy starts from: configuration, Lua, maps and the state of the servers."""

from __future__ import annotations

import contextlib
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

from ... import wholefile
from ...core.route import SlotState
from . import limits
from .changes import DEFAULT_HEALTH_PATH, NOBODY, control_values
from .snapshot import admin_state, columns, rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .settings import DoorSettings
    from .snapshot import Snapshot

RETRY_BYTES = 262144
ENGINE_MAP = "engine.map"
"""The key that the door brings to every engine; empty where there is none."""
_ERRORS = (  # status, code, type, message; 503 is in the template, it carries Retry-After
    (400, "bad_request", "invalid_request_error", "the request is not valid"),
    (404, "not_found", "invalid_request_error", "this path is not served here"),
    (405, "method_not_allowed", "invalid_request_error", "this method is not served on this path"),
    (408, "request_timeout", "invalid_request_error", "the request did not arrive in time"),
    (413, "request_too_large", "invalid_request_error", "the request body is too large"),
    (502, "upstream", "server_error", "the engine went away before it answered"),
    (504, "upstream_timeout", "server_error", "the engine did not answer in time"),
)


def render(settings: DoorSettings) -> str:
    """The configuration as text: the same settings on the same machine give the same bytes."""
    template = jinja2.Template(
        _packaged("haproxy.cfg.j2"), undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    threads = limits.threads()
    connections = limits.max_connections(settings.slots)
    text: str = template.render(
        max_connections=connections,
        public_connections=limits.public_connections(connections),
        threads=threads,
        retry_bytes=RETRY_BYTES,
        request_timeout_s=settings.request_timeout_s,
        stream_timeout_s=settings.stream_timeout_s,
        max_body_bytes=settings.max_body_bytes,
        slots=settings.slots,
        tls=settings.tls_cert is not None,
        keys=settings.api_keys_file is not None,
        inner=settings.inner_address if settings.is_guarded else None,
        errors=_ERRORS,
        listed=settings.listed,
        paths=sorted({path for _, path in settings.listed}),
        frontends=(
            ("public", settings.public_address, "engines", 1),
            ("preview", settings.preview_address, "preview", threads),
        ),
    )
    return text


def fixed_files(settings: DoorSettings) -> dict[str, str]:
    """What every start writes anew, by file name."""
    return {"haproxy.cfg": render(settings), "hold.lua": _packaged("hold.lua")}


def first_files(settings: DoorSettings) -> dict[str, str]:
    """What must be there before the first start, by file name; files of an earlier run hold the committed route."""
    slots = range(1, settings.slots + 1)
    return {
        "ctl.map": _map_text(control_values(None, settings)),
        "attempt.map": _map_text({f"s{number}": NOBODY for number in slots}),
        "health.map": _map_text({f"s{number}": DEFAULT_HEALTH_PATH for number in slots}),
        "haproxy.state": "",
    }


def engine_key_file(key: str | None) -> str:
    """The text of :data:`ENGINE_MAP`."""
    return _map_text({"engine": key} if key is not None else {})


def engine_key_in(directory: Path) -> str | None:
    """What the door of this directory was last started with; None also for one that an earlier version started."""
    knows = ENGINE_MAP in (text_of(directory / "haproxy.cfg") or "")
    words = (text_of(directory / ENGINE_MAP) or "").split() if knows else []
    return words[1] if len(words) > 1 else None


def text_of(path: Path) -> str | None:
    """A file of the door's; None where there is none, or none that can be its own: it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def is_state(text: str) -> bool:
    """Whether a door wrote it; one that starts from anything else may not start at all."""
    try:
        rows(text)
    except (ValueError, LookupError):
        return False
    return True


def with_defaults(defaults: str, kept: str) -> str:
    """A map file of an earlier run, completed by what this version or a larger number of slots needs besides."""
    values = [dict(line.split(" ", 1) for line in text.splitlines() if " " in line) for text in (defaults, kept)]
    return _map_text(values[0] | values[1])


def committed_files(seen: Snapshot) -> dict[str, str]:
    """What a front door that starts again must find, so that it serves the route it served."""
    return {f"{name}.map": _map_text(values) for name, values in seen.maps.items()} | {
        "haproxy.state": _committed_state(seen.server_state)
    }


def write_if_different(path: Path, text: str) -> bool:
    """Atomically; a reader sees the old file or the new one."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == text.encode():
            return False
    wholefile.put(path, text, mode=0o600, durable=False)  # a route is written in the middle of a switch
    return True


def _committed_state(server_state: str) -> str:
    """`show servers state`, with what the checks found replaced by "up, not yet checked".

    A front door that comes back tries what it should serve at once, and learns from its own checks; it must not start
    from the health of another time. It also makes the file a function of the route alone.
    """
    unchecked = {"srv_time_since_last_change": "0", "srv_check_status": "1", "srv_check_result": "0"}
    serving = unchecked | {"srv_op_state": "2", "srv_check_health": "1", "srv_check_state": "6"}
    resting = unchecked | {"srv_op_state": "0", "srv_check_health": "0", "srv_check_state": "14"}
    names = columns(server_state)
    lines = ["1", "# " + " ".join(names)]
    for row in rows(server_state):
        rests = admin_state(int(row["srv_admin_state"])) is SlotState.MAINT
        lines.append(" ".join({**row, **(resting if rests else serving)}[name] for name in names))
    return "\n".join(lines) + "\n"


def _map_text(values: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in values.items())


def _packaged(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
