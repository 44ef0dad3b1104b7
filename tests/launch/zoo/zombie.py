"""Never waits for its child, which has ended: a process table says that there are two."""

import os
import time
from pathlib import Path

child = os.fork()
if child == 0:
    os._exit(3)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
Path("ready").touch()
time.sleep(1000)
