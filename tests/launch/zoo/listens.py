"""Listens on the given port (0: one of its choice) and writes which; with `fork`, the child holds it, too."""

import os
import socket
import sys
import time
from pathlib import Path

server = socket.socket()
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
if "fork" in sys.argv:
    os.fork()
Path(f"port.{os.getpid()}.tmp").write_text(str(server.getsockname()[1]))
Path(f"port.{os.getpid()}.tmp").rename("port")
time.sleep(1000)
