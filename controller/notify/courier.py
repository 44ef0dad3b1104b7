"""Carries one message at a time to one destination, by a process that is ended when it takes too long."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

from .destination import Destination
from .events import Event
from .message import apprise_type, document, text, title

DEADLINE_S = 10.0
_START_S = 20.0  # on a box that loads models, Python itself needs a while before its deadline begins


@dataclass(frozen=True, slots=True)
class Answer:
    ok: bool
    sentence: str


class Courier:
    def __init__(self, destination: Destination, deadline_s: float = DEADLINE_S) -> None:
        self.destination = destination
        self._deadline_s = deadline_s
        self._box = socket.gethostname()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def send(self, event: Event, dropped: int = 0) -> Answer:
        """One try. `dropped`: how many messages were not told before this one."""
        try:
            child = self._start()
        except OSError as error:
            return Answer(False, f"nothing can be started to send it: {error.strerror}")
        if child is None:
            return Answer(False, "stopped")
        with child:
            try:
                out, _ = child.communicate(self._job(event, dropped), self._deadline_s + _START_S)
            except subprocess.TimeoutExpired:
                child.kill()
                out = b""
        with self._lock:
            self._child = None
        return self._answer(out, child.returncode)

    def stop(self) -> None:
        """Ends the try that is under way; there is no other after it."""
        with self._lock:
            self._stopped = True
            if self._child is not None:
                self._child.kill()

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped:
                return None
            self._child = subprocess.Popen(
                # -P: a stranger called `controller` in the working directory is not picked up
                [sys.executable, "-P", "-m", "controller.notify.post"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # plugins log what they were given
                env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            )
            return self._child

    def _job(self, event: Event, dropped: int) -> bytes:
        to = self.destination
        secret_file = to.target.secret_file
        job: dict[str, Any] = {
            "how": to.how,
            "url": to.url,
            "file": str(to.file) if to.file else None,
            "line": to.line,
            "secret_file": str(secret_file) if secret_file else None,
            "deadline_s": self._deadline_s,
            "title": title(event, box=self._box),
            "text": text(event, dropped=dropped),
            "type": apprise_type(event),
            "body": document(event, box=self._box, dropped=dropped),
        }
        return json.dumps(job).encode()

    def _answer(self, out: bytes, code: int) -> Answer:
        if code in {-signal.SIGALRM, -signal.SIGKILL}:
            return Answer(False, f"no answer within {self._deadline_s:g} s")
        try:
            said = json.loads(out)
            return Answer(said["ok"] is True, str(said["sentence"]))
        except (ValueError, KeyError, TypeError):
            return Answer(False, f"what was to send it broke (exit code {code})")
