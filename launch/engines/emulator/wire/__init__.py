"""The wire format of one answer: server-sent events or one JSON body, in the dialect of one engine."""

from collections.abc import Callable

from ..request import Asked
from ..settings import Dialect
from .chat import Chat, Wire
from .errors import error_body
from .framing import DONE, LAST_CHUNK, compact, framed, hex_id
from .llamacpp import LlamacppChat
from .sglang import SglangChat
from .smg import SmgChat
from .text import TextWire
from .vllm import VllmChat, VllmOldChat
from .written import Usage, Written

__all__ = [
    "DONE", "LAST_CHUNK", "Chat", "Usage", "Wire", "Written", "compact", "error_body", "framed", "hex_id", "wire_for",
]  # fmt: skip

_CHATS: dict[Dialect, Callable[[Asked], Chat]] = {
    Dialect.VLLM: VllmChat,
    Dialect.VLLM_OLD: VllmOldChat,
    Dialect.SGLANG: SglangChat,
    Dialect.LLAMACPP: LlamacppChat,
    Dialect.SMG: SmgChat,
}


def wire_for(asked: Asked, dialect: Dialect) -> Wire:
    """Who writes the answer to this request."""
    return _CHATS[dialect](asked) if asked.chat else TextWire(asked, dialect)
