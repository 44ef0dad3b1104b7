"""Its first thread ends while another lives on: /proc calls the whole process a zombie, and it is not."""

import ctypes
import threading
import time
from pathlib import Path


def live():
    time.sleep(0.2)
    Path("ready").touch()
    time.sleep(1000)


threading.Thread(target=live).start()
ctypes.CDLL(None).pthread_exit(None)
