"""The shape of vLLM: a server, below it a core in its own session with two workers, all in the same log.

The core watches nobody: when the server is killed, core and workers stay (vllm-project/vllm#55510).
"""

import os
import signal
import time
from pathlib import Path


def work(name):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Path(f"{name}.pid").write_text(str(os.getpid()))
    while True:
        print(f"{name} works", flush=True)
        time.sleep(0.05)


if os.fork() == 0:
    os.setsid()
    for name in ("worker0", "worker1"):
        if os.fork() == 0:
            work(name)
    work("core")
Path("server.pid").write_text(str(os.getpid()))
signal.pause()
