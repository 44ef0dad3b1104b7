"""Calls itself something else, as vLLM's workers do, which also overwrites its environment; so does its child."""

import os
import time
from pathlib import Path

import setproctitle

setproctitle.setproctitle("nginx: worker process")
os.fork()
Path(f"retitled.{os.getpid()}").touch()
time.sleep(1000)
