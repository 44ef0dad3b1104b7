"""A stranger that writes down every signal which can be heard, in the file that it is given, and goes on.

It may be given a directory to visit as soon as an attempt runs there.
"""

import os
import signal
import sys
import time
from pathlib import Path

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda number, _: os.write(file, f"{number}\n".encode()))
Path(sys.argv[1]).rename(sys.argv[2])
if len(sys.argv) > 3:
    while not Path(sys.argv[3], "shim.json").exists():
        time.sleep(0.02)
    os.chdir(sys.argv[3])
while True:
    time.sleep(1000)
