"""Where a service manager runs, a shim gets a unit of its own, without anybody's right to start units.

A socket of the manager (`Accept=yes` for attempts: one unit a connection; `Accept=no` for the front door) belongs to
the daemon's user. Whoever may connect sends one message: the run directory, the environment, and the open lock of that
directory. The unit's program is this file:

    python -S -I own_unit.py            stdin: the connection, or the socket on which it waits

It takes the message and becomes the shim. The lock travels in the message (`SCM_RIGHTS`), and is held by it: as with a
fork there is no instant in which nobody holds it, wherever starter, manager or unit are killed. Standard library only.
"""

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

MOST_BYTES = 1 << 20  # of a message; the kernel's own limit for one that is sent is a fifth of it
ANSWER_S = 10.0


def asked(manager: str, run_dir: str, lock: int) -> bool:
    """Ask the manager behind that socket for a shim in `run_dir`; False when nobody was asked.

    True says that the message is the kernel's: the shim will come, or the lock will be free again.
    """
    message = json.dumps({"run_dir": run_dir, "environment": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as out:  # a message arrives whole, or not at all
        out.settimeout(ANSWER_S)
        try:
            out.connect(manager)
            socket.send_fds(out, [message], [lock])
        except OSError:
            return False
    return True


def take(stdin: socket.socket) -> tuple[str, dict[str, str], int]:
    """Run directory, environment and lock. Raises `OSError` and `ValueError` for what is no such message."""
    stdin.settimeout(ANSWER_S)
    waits = stdin.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    connection = stdin.accept()[0] if waits else stdin
    connection.settimeout(ANSWER_S)
    message, handles, *_ = socket.recv_fds(connection, MOST_BYTES, 1)
    if not message or len(handles) != 1:
        raise ValueError("nobody asks for a shim here: the daemon does, over the socket of this unit")
    request = json.loads(message)
    return request["run_dir"], request["environment"], handles[0]


def tell_manager(status: str) -> None:
    """What `systemctl status` shows of this unit: the name of an instance says nothing."""
    if address := os.environ.get("NOTIFY_SOCKET", ""):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(f"STATUS={status}".encode(), "\0" + address[1:] if address.startswith("@") else address)


def main() -> NoReturn:
    stdin = socket.socket(fileno=0)  # kept until it is replaced: its number must not be given to the next file
    try:
        run_dir, environment, lock = take(stdin)
        words = os.open(Path(run_dir) / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, ValueError) as error:
        sys.exit(f"no shim: {error}")
    tell_manager(run_dir)
    os.dup2(os.open("/dev/null", os.O_RDONLY), stdin.detach())
    os.dup2(words, 1)
    os.dup2(words, 2)
    os.set_inheritable(lock, True)
    shim = str(Path(__file__).resolve().with_name("shim.py"))
    argv = [sys.executable, "-S", "-I", shim, run_dir, str(lock), "unit"]
    os.execve(sys.executable, argv, environment)  # noqa: S606 - the same interpreter


if __name__ == "__main__":
    main()
