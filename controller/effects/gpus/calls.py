"""Calls into NVML: what a card does not support is None, a card that is gone is an exception."""

from __future__ import annotations

from typing import Any


class CardLostError(Exception):
    """The card fell off the bus, or needs a reset: nothing that it says counts."""


class Calls:
    """The bindings, and the name of the call that is under way: who waits wants to know for what."""

    def __init__(self) -> None:
        import pynvml

        self.nvml: Any = pynvml
        self.doing = ""

    def call(self, name: str, *arguments: Any) -> Any:
        """`nvmlXxx(...)`; raises the bindings' `NVMLError`, with the call's name as its note."""
        self.doing = name
        try:
            return getattr(self.nvml, name)(*arguments)
        except Exception as error:
            error.add_note(name)
            raise
        finally:  # else the thread's next rest, or a look at /proc, is taken for a call that hangs
            self.doing = ""

    def must(self, name: str, handle: Any, *arguments: Any) -> Any:
        """`nvmlDeviceGetXxx` of a card, which cannot be used without the answer."""
        nvml = self.nvml
        try:
            return self.call(f"nvmlDeviceGet{name}", handle, *arguments)
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired) as error:
            raise CardLostError(str(error)) from error

    def ask(self, name: str, handle: Any, *arguments: Any) -> Any:
        """The same; None where the card or the driver does not tell."""
        try:
            return self.must(name, handle, *arguments)
        except (self.nvml.NVMLError, self.nvml.NVMLLibraryMismatchError):
            return None

    def supported(self, name: str, handle: Any, *arguments: Any) -> Any:
        """The same; None only where the card or the driver cannot tell, other failures are raised."""
        nvml = self.nvml
        try:
            return self.must(name, handle, *arguments)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLLibraryMismatchError):
            return None
