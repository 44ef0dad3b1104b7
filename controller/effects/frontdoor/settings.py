"""What the front door is told once, by the configuration of the daemon."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .address import Address
from .errors import DoorSettingsError

if TYPE_CHECKING:
    from pathlib import Path

# The whole surface of the public address, next to the door's own GET /health. An engine's other paths (/pause, /sleep,
# /collective_rpc, LoRA loading, an smg's worker list) are off-switches or worse, and carry no key.
PASSED = (
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/rerank"),
    ("POST", "/v1/score"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/version"),
)
LONGEST_RETRY_AFTER_S = 60  # SDKs ignore what is longer
LONGEST_HOLD_S = 1800  # a swap of a large model; clients' own patience ends well before (the OpenAI SDK's: 600 s)
MOST_HELD = 4096  # connections are bounded too, at most by as many
_METHOD = re.compile(r"[A-Z]{3,10}")
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """``directory`` belongs to the door alone: configuration, socket, state, maps, run directory.

    ``public`` and ``preview`` are ``host:port``. ``hold_s`` and ``hold_max`` bound how long, and how many, requests
    wait while nothing can serve them. ``binary`` None means: find one. ``extra_paths`` are passed next to
    :data:`PASSED`. With a ``tls_cert`` (one PEM: certificate, chain, key) or an ``api_keys_file`` (one a line) the
    public address demands them, and ``inner`` is the same door without, for the daemon's own probes and gates.
    """

    directory: Path
    public: str = "127.0.0.1:8000"
    preview: str = "127.0.0.1:8009"
    slots: int = 32
    hold_s: float = 60.0
    hold_max: int = 256
    retry_after_s: int = 30  # until the first route says otherwise
    binary: Path | None = None
    extra_paths: tuple[tuple[str, str], ...] = ()
    tls_cert: Path | None = None
    api_keys_file: Path | None = None
    inner: str = "127.0.0.1:8008"
    max_body_bytes: int = 64 << 20
    stream_timeout_s: int = 7200
    request_timeout_s: int = 60
    runtime_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        if self.public_address.port == self.preview_address.port:
            raise DoorSettingsError(f"public and preview are both port {self.public_address.port}; they must differ")
        if self.is_guarded:
            self._check_guard()
        if not 1 <= self.slots <= 256:
            raise DoorSettingsError(f"slots is {self.slots}; expected 1 to 256")
        if not 0 < self.hold_s <= LONGEST_HOLD_S:
            raise DoorSettingsError(f"hold_s is {self.hold_s}; expected more than 0, at most {LONGEST_HOLD_S} s")
        if not 0 <= self.hold_max <= MOST_HELD:
            raise DoorSettingsError(f"hold_max is {self.hold_max}; expected 0 (nobody waits) to {MOST_HELD}")
        for method, path in self.extra_paths:
            if not _METHOD.fullmatch(method) or not _PATH.fullmatch(path) or "//" in path or "/." in path:
                raise DoorSettingsError(
                    f"extra_paths: {method} {path} cannot be passed; expected an upper-case method and a "
                    "plain path such as /v1/audio/speech, without escapes, dots or double slashes"
                )

    def _check_guard(self) -> None:
        for key, address in (("preview", self.preview_address), ("inner", self.inner_address)):
            if not address.is_loopback:
                raise DoorSettingsError(
                    f"{key}: {address} can be reached from other machines, without the key and the certificate that "
                    "the public address demands; expected an address such as 127.0.0.1:8009"
                )
        if self.inner_address.port in (self.public_address.port, self.preview_address.port):
            raise DoorSettingsError(
                f"inner: port {self.inner_address.port} is the public or the preview's; choose another"
            )

    @property
    def is_guarded(self) -> bool:
        return self.tls_cert is not None or self.api_keys_file is not None

    @property
    def inner_address(self) -> Address:
        return Address.parse(self.inner, "inner")

    @property
    def public_address(self) -> Address:
        return Address.parse(self.public, "public")

    @property
    def preview_address(self) -> Address:
        return Address.parse(self.preview, "preview")

    @property
    def listed(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys(PASSED + self.extra_paths))
