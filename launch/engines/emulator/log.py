"""Log lines on stderr, in the shape of vLLM's."""

import sys
import time


def log(message: str, level: str = "INFO") -> None:
    """One line. A closed stderr must not end an engine."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    try:
        sys.stderr.write(f"{level} {stamp} [emulator] {message}\n")
        sys.stderr.flush()
    except OSError:
        return


def log_crash(error: str) -> None:
    """What an engine leaves in its log when it dies."""
    log("EngineCore encountered a fatal error.", "ERROR")
    for line in (
        "Traceback (most recent call last):",
        '  File "/emulated/engine/core.py", line 1018, in run_engine_core',
        "    engine_core.run_busy_loop()",
        '  File "/emulated/engine/gpu_worker.py", line 344, in load_or_execute_model',
        "    output = self.model_runner.execute_model(scheduler_output)",
        error,
    ):
        log(line, "ERROR")
