"""Leaves its directory, as daemons do, and its child goes with it; what they write still goes to the log."""

import os
import time
from pathlib import Path

home = Path.cwd()
os.fork()
os.chdir("/")
(home / f"ready.{os.getpid()}").touch()
time.sleep(1000)
