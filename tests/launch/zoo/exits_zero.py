"""Ends with 0 when its worker has died (vllm-project/vllm#48966), and leaves a helper behind that hears nothing."""

import os
import signal
import time
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
worker = os.fork()
if worker == 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(1000)
Path("victim.tmp").write_text(str(worker))
Path("victim.tmp").rename("victim")
os.waitpid(worker, 0)
os._exit(0)
