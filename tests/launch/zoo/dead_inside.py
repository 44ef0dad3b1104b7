"""A child of it says 200 on the given port, whatever is asked, while the program itself has halted for good."""

import os
import signal
import socket
import sys
from pathlib import Path

server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
if os.fork() == 0:
    Path("ready").touch()
    while True:
        client = server.accept()[0]
        while client.recv(4096):  # it never closes first: the port would linger
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        client.close()
os.kill(os.getpid(), signal.SIGSTOP)
signal.pause()
