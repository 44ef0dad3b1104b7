"""The truth file: when each chunk was due and when it was sent, so that clients can be judged against it.

JSON lines, times in nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns()` in any process of the machine):
`{"request": id, "arrived_ns": t, "prompt_tokens": n}` once, then one
`{"request": id, "chunk": i, "tokens": n, "due_ns": t, "sent_ns": t}` per chunk that carries tokens
(for an answer that is not streamed: one line, for the whole answer), and at the end
`{"request": id, "finish": reason, "completion_tokens": n}`. Who reads while the engine runs may find the last line half
written, and a request's lines a moment after its last byte.
"""

import os
from pathlib import Path


class Truth:
    """Lines are collected per request and reach the file when the request ends: one write, no locks, no threads."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def open_request(self, request_id: str, arrived_ns: int, prompt_tokens: int) -> "RequestTruth":
        return RequestTruth(self, request_id, arrived_ns, prompt_tokens)

    def write(self, lines: list[str]) -> None:
        os.write(self._fd, "".join(lines).encode())

    def close(self) -> None:
        os.close(self._fd)


class RequestTruth:
    """The truth about one request."""

    __slots__ = ("_chunk", "_head", "_lines", "_truth")

    def __init__(self, truth: Truth, request_id: str, arrived_ns: int, prompt_tokens: int) -> None:
        self._truth = truth
        self._head = f'{{"request": "{request_id}", '
        self._chunk = 0
        self._lines = [f'{self._head}"arrived_ns": {arrived_ns}, "prompt_tokens": {prompt_tokens}}}\n']

    def chunk(self, tokens: int, due_ns: int, sent_ns: int) -> None:
        self._lines.append(
            f'{self._head}"chunk": {self._chunk}, "tokens": {tokens}, "due_ns": {due_ns}, "sent_ns": {sent_ns}}}\n'
        )
        self._chunk += 1

    def close(self, finish: str, completion_tokens: int) -> None:
        """The request has ended (`abort`: its client went away)."""
        self._lines.append(f'{self._head}"finish": "{finish}", "completion_tokens": {completion_tokens}}}\n')
        self._truth.write(self._lines)
        self._lines = []
