"""Ends with the given code: at once, or when the file `go` appears in its working directory."""

import sys
import time
from pathlib import Path

print("here I am", flush=True)
if "wait" in sys.argv:
    while not Path("go").exists():
        time.sleep(0.01)
sys.exit(int(sys.argv[1]))
