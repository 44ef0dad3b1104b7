"""Forks twice with a new session in between and leaves the great unkillable grandchild; then waits, or ends itself."""

import os
import signal
import sys
import time
from pathlib import Path

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("grandchild.tmp").write_text(str(os.getpid()))
        Path("grandchild.tmp").rename("grandchild")
        time.sleep(1000)
    os._exit(0)
os.wait()
while not Path("grandchild").exists():
    time.sleep(0.01)
if "leave" not in sys.argv:
    time.sleep(1000)
