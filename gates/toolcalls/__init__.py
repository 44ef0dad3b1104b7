"""Gate `toolcalls`: does the engine call tools as its clients expect, and does it hear the tools' answers?"""

from gates.toolcalls.gate import ToolcallSettings, run

__all__ = ["ToolcallSettings", "run"]
