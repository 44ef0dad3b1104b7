"""A moving target: each generation below it forks the next and ends; all of them ignore SIGTERM."""

import os
import signal
import sys
import time
from pathlib import Path

every_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.005
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() and os.fork():
    Path("ready").touch()
    time.sleep(1000)
end_s = time.monotonic() + 60  # whatever becomes of the test, the storm ends by itself
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
    time.sleep(every_s)
