"""A process of the load client: `python -m gates.load.worker`, started and fed by `fleet.py` alone."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from gates.load.fleet import LENGTH, READY
from gates.load_client import LoadClient, run

if TYPE_CHECKING:
    from gates.load.fleet import Job
    from gates.load.lanes import Load


async def work(source: BinaryIO, target: BinaryIO) -> None:
    """Jobs until the parent closes the pipe, or is gone."""
    endpoint, limit_bytes = read(source)
    client = LoadClient(endpoint, limit_bytes)

    async def start() -> float:
        write(target, READY)
        start_at_s: float = read(source)
        return start_at_s

    try:
        while True:
            write(target, await drive(client, read(source), start))
    except (EOFError, BrokenPipeError):
        return
    finally:
        client.close()


async def drive(client: LoadClient, job: Job, start: Any) -> Load:
    window = job.window
    load = await client.streams(
        job.payloads,
        deadline_s=window.deadline_s,
        send_until_s=window.send_until_s,
        request_timeout_s=window.request_timeout_s,
        held_bytes=window.max_held_bytes,
        start=start,
    )
    # The parent has the bodies.
    bare = tuple(tuple(replace(e, request_body=b"") for e in stream) for stream in load.streams)
    return replace(load, streams=bare)


def read(source: BinaryIO) -> Any:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(source.read(*LENGTH.unpack(head)))  # noqa: S301 - our own parent wrote it


def write(target: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()


if __name__ == "__main__":
    run(lambda: work(sys.stdin.buffer, sys.stdout.buffer))
