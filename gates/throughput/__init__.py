"""Gate `throughput`: how fast is it for one user, and for several, against floors and against what was live."""

from gates.throughput.gate import run
from gates.throughput.settings import ThroughputSettings

__all__ = ["ThroughputSettings", "run"]
