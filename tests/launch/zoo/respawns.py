"""Hears no SIGTERM and starts its worker anew whenever it has ended, at most a thousand times."""

import os
import signal
import time
from pathlib import Path

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(1000):
    if os.fork() == 0:
        Path("ready").touch()
        time.sleep(1000)
        os._exit(0)
    os.wait()
    time.sleep(0.02)
