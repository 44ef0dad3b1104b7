"""On SIGTERM it forks a successor and ends; the successor does the same."""

import os
import signal
import time
from pathlib import Path


def hand_over(*_):
    if os.fork():
        os._exit(0)


signal.signal(signal.SIGTERM, hand_over)
Path("ready").touch()
end_s = time.monotonic() + 300
while time.monotonic() < end_s:  # a handler ends the sleep of a successor, not its life
    time.sleep(10)
