"""Prints numbered lines, the given number of megabytes, fast; then how long it took; then ends, or stays."""

import sys
import time
from pathlib import Path

size_bytes, line, began_s = int(float(sys.argv[1]) * 1e6), 0, time.monotonic()
while size_bytes > 0:
    block = "".join(f"line {number} {'.' * 80}\n" for number in range(line, line + 1000))
    size_bytes -= sys.stdout.write(block)
    line += 1000
sys.stdout.flush()
print(f"last line after {time.monotonic() - began_s:.3f} s", flush=True)
if "stay" in sys.argv:
    Path("ready").touch()
    time.sleep(1000)
