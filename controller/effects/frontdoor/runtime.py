"""HAProxy's runtime socket: ask, answer, never wait long."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import TYPE_CHECKING, Self

from .errors import DoorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

_PROMPT = b"\n> "
_CONVERSATION = 5  # a box under load answers slowly, a door that hangs does not answer


class RuntimeSocket:
    """One connection in HAProxy's interactive mode: each command gets its own answer. Use as a context manager.

    ``timeout_s`` bounds the wait for each answer, five times that the whole conversation. Whatever goes wrong is a
    :class:`DoorError`.
    """

    def __init__(self, path: Path, timeout_s: float = 1.0) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._give_up_at_s = self._answer_by_s = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""

    def __enter__(self) -> Self:
        self._give_up_at_s = time.monotonic() + _CONVERSATION * self._timeout_s
        try:
            self._start_waiting()
            self._connect()
            self._socket.sendall(b"prompt\n")
            self._answer()
        except OSError as error:
            self._socket.close()
            raise DoorError(f"the front door's runtime socket {self._path} does not answer: {_words(error)}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, command: str) -> str:
        """The answer to one command, without surrounding blank lines."""
        try:
            self._start_waiting()
            self._socket.settimeout(self._left_s())
            self._socket.sendall(command.encode() + b"\n")
            return self._answer()
        except OSError as error:
            raise DoorError(f"the front door did not answer `{command}` on {self._path}: {_words(error)}") from error

    def do(self, commands: Sequence[str]) -> None:
        """Send commands that change something; an answer that is not the known confirmation is an error."""
        for command in commands:
            answer = self.ask(command)
            if answer and not all(map(_CONFIRMED.search, answer.split(", "))):  # it names address and port each
                raise DoorError(f"the front door refused `{command}`: {answer}")

    def _connect(self) -> None:
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:  # by way of the directory: the path of a Unix socket must fit into 108 bytes
            self._socket.settimeout(self._left_s())
            self._socket.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)

    def _answer(self) -> str:
        while not (b"\n" + self._buffer).endswith(_PROMPT):
            self._socket.settimeout(self._left_s())
            received = self._socket.recv(1 << 18)
            if not received:
                raise ConnectionResetError("it closed the connection")
            self._buffer += received
        text, self._buffer = self._buffer[: -len(_PROMPT) + 1], b""
        return text.decode(errors="replace").strip("\n")

    def _start_waiting(self) -> None:
        self._answer_by_s = min(time.monotonic() + self._timeout_s, self._give_up_at_s)

    def _left_s(self) -> float:
        left_s = self._answer_by_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


_CONFIRMED = re.compile(r"changed from|no need to change")


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, FileNotFoundError):
        return "it does not exist: no front door runs here, or one whose socket was removed"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens, so no front door runs here"
    return error.strerror or str(error)
