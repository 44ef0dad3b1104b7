"""A worker by `multiprocessing`, method spawn: a fresh interpreter with a tracker beside it, and nobody cleans up."""

import multiprocessing
import time
from pathlib import Path


def work():
    Path("ready").touch()
    time.sleep(1000)


if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work, daemon=True).start()
    time.sleep(1000)
