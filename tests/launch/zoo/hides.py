"""Leaves its directory and closes its log; what is left of it to be known by is the port that it listens on."""

import os
import socket
import sys
import time
from pathlib import Path

ready = Path("ready").resolve()
os.chdir("/")
os.closerange(0, 256)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
ready.touch()
time.sleep(1000)
