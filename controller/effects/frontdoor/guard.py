"""What the public address demands: a certificate of itself, a key of its clients. Both can change while it runs."""

from __future__ import annotations

import hashlib
import re
import stat
from typing import TYPE_CHECKING

from .config import text_of, write_if_different
from .errors import DoorError, DoorSettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from .runtime import RuntimeSocket
    from .settings import DoorSettings

MOST_KEYS = 1000
_MOST_BYTES = 128 << 10  # of either file; less than one buffer of the runtime socket
_KEY = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")  # RFC 6750, 2.1; a comma would end it in HAProxy's eyes
_MAP = "../keys.map"
_PEM = "../tls.pem"
_COMMITTED = re.compile(r"Success!")

Stamp = tuple[int, int, int]


class Guard:
    """Copies of both files lie with the door, 0600, so that one that is started again needs nothing else: the
    certificate as it is, of each key its SHA-256 and the name by which the access log knows it.
    """

    def __init__(self, settings: DoorSettings) -> None:
        self._cert = settings.tls_cert
        self._keys = settings.api_keys_file
        self._directory = settings.directory
        self._done: dict[Path, Stamp] = {}

    def write_files(self) -> None:
        """Before a start. Raises :class:`DoorSettingsError` for a file that cannot be used."""
        if self._cert is not None:
            write_if_different(self._directory / "tls.pem", _read_cert(self._cert))
        if self._keys is not None:
            write_if_different(self._directory / "keys.map", _map_text(_read_keys(self._keys)))
        self._done = self._stamps()

    def is_stale(self) -> bool:
        return self._stamps() != self._done

    def hand_over(self, runtime: RuntimeSocket) -> None:
        """To the door that runs, then to the copy that the next start reads."""
        self._require_in_force()
        stamps = self._stamps()
        if self._keys is not None:
            wished = _read_keys(self._keys)
            had = dict(line.split(" ")[1:3] for line in runtime.ask(f"show map {_MAP}").splitlines() if line)
            runtime.do([f"add map {_MAP} {digest} {name}" for digest, name in wished.items() if digest not in had])
            runtime.do([f"del map {_MAP} {digest}" for digest in had if digest not in wished])
            write_if_different(self._directory / "keys.map", _map_text(wished))
        if self._cert is not None:
            pem = _read_cert(self._cert)
            if text_of(self._directory / "tls.pem") != pem:
                self._renew(runtime, pem)
                write_if_different(self._directory / "tls.pem", pem)
        self._done = stamps

    def _require_in_force(self) -> None:
        """A door that was started without them cannot be told them."""
        running = text_of(self._directory / "haproxy.cfg") or ""
        for key, path, mark in (("tls_cert", self._cert, _PEM), ("api_keys_file", self._keys, _MAP)):
            if path is not None and mark not in running:
                raise DoorError(
                    f"{key}: the front door that runs was started without it; it takes effect when the front door is "
                    "started again, which ends the requests in it"
                )

    def _renew(self, runtime: RuntimeSocket, pem: str) -> None:
        answers = [runtime.ask(f"set ssl cert {_PEM} <<\n{pem}")]
        if "Transaction" in answers[0]:
            answers.append(runtime.ask(f"commit ssl cert {_PEM}"))
        if not _COMMITTED.search(answers[-1]):
            runtime.ask(f"abort ssl cert {_PEM}")
            said = " ".join(answers[-1].replace("+ ", "").split())
            raise DoorError(f"tls_cert: {self._cert} is not taken, the former certificate stays: {said}")

    def _stamps(self) -> dict[Path, Stamp]:
        """Who watches a file for changes must notice one that is replaced, rewritten, or gone."""
        found = {}
        for path in (self._cert, self._keys):
            if path is not None:
                try:
                    seen = path.stat()
                except OSError:
                    found[path] = (0, 0, 0)
                else:
                    found[path] = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        return found


def _read_cert(path: Path) -> str:
    """Without blank lines: one would end it on the runtime socket."""
    text = "".join(f"{line}\n" for line in _read("tls_cert", path).splitlines() if line.strip())
    if "BEGIN CERTIFICATE" not in text or "PRIVATE KEY" not in text:
        raise DoorSettingsError(f"tls_cert: {path} has to hold the certificate, its chain and the private key, as PEM")
    return text


def _read_keys(path: Path) -> dict[str, str]:
    """Digest, as HAProxy writes it, to name. The name is of the digest: it tells keys apart and opens nothing."""
    lines = enumerate(_read("api_keys_file", path).splitlines(), 1)
    keys = {}
    for number, line in ((number, line.strip()) for number, line in lines if line.strip()):
        if line.startswith("#"):
            continue
        if not _KEY.fullmatch(line):
            raise DoorSettingsError(
                f"api_keys_file: {path}:{number}: expected one key of 16 to 512 letters, digits and . _ ~ + / = -"
            )
        digest = hashlib.sha256(line.encode()).hexdigest().upper()
        keys[digest] = f"k-{digest[:8].lower()}"
    if not 0 < len(keys) <= MOST_KEYS:
        raise DoorSettingsError(f"api_keys_file: {path} has {len(keys)} keys; expected 1 to {MOST_KEYS}, one a line")
    return keys


def _read(key: str, path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise DoorSettingsError(f"{key}: {path} is not a file")
        if mode & stat.S_IROTH:
            raise DoorSettingsError(f"{key}: everybody on this machine may read {path}; `chmod o-r {path}`")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DoorSettingsError(f"{key}: {path} cannot be read: {error}") from error
    if len(data) > _MOST_BYTES:
        raise DoorSettingsError(f"{key}: {path} is too large; expected at most {_MOST_BYTES} bytes")
    return text


def _map_text(keys: dict[str, str]) -> str:
    return "".join(f"{digest} {name}\n" for digest, name in keys.items())
