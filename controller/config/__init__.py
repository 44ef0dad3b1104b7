"""`cutover.yaml`: every key with its default; every refusal names file, line, key and what was expected."""

from .file import SYSTEM_SOCKET, default_paths, is_of_the_system, load_config, parse_config
from .sections import Gpus, Keep
from .settings import NIGHTLY, Config

__all__ = [
    "NIGHTLY",
    "SYSTEM_SOCKET",
    "Config",
    "Gpus",
    "Keep",
    "default_paths",
    "is_of_the_system",
    "load_config",
    "parse_config",
]
