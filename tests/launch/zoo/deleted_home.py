"""Its child sits in a directory that is not there any more, and has closed its log."""

import os
import time
from pathlib import Path

if os.fork() == 0:
    Path("home").mkdir()
    os.chdir("home")
    os.closerange(0, 256)
    Path("../home").rmdir()
    Path("../ready").touch()
time.sleep(1000)
