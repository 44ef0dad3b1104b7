"""Tokens as this emulator counts them: small pieces of text that join back to exactly the same text."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Literal, NamedTuple
from zlib import crc32

_TOKEN = re.compile(r"\s*\w{1,8}|\s*[^\w\s]|\s+")
_BYTES_PER_TOKEN = 4
_VOCABULARY = 151_643
_BLOCK_BYTES = 16 * _BYTES_PER_TOKEN


class Piece(NamedTuple):
    """One generated token and where it belongs. A `call` piece opens call `call`; its text is the tool's name."""

    kind: Literal["reasoning", "content", "call", "arguments"]
    text: str
    call: int = 0


def split_tokens(text: str) -> Iterator[str]:
    """The tokens of a text; joined they are the text."""
    return iter(_TOKEN.findall(text))


def count_tokens(prompt: bytes) -> int:
    """Prompt tokens of rendered text: a fixed number of bytes each, so that longer prompts always count more."""
    return -(-len(prompt) // _BYTES_PER_TOKEN)


def prompt_pieces(prompt: bytes) -> list[bytes]:
    """The prompt's tokens as `count_tokens` counts them."""
    return [prompt[start : start + _BYTES_PER_TOKEN] for start in range(0, len(prompt), _BYTES_PER_TOKEN)]


def token_id(token: bytes) -> int:
    """A number for a token; the same token has the same number everywhere."""
    return crc32(token) % _VOCABULARY


class PrefixCache:
    """Which prompt prefixes were seen before, in blocks of 16 tokens, least recently used forgotten first."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity_blocks = max(1, capacity_tokens // 16)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def take(self, prompt: bytes) -> int:
        """Tokens at the start of this prompt that are already cached; the prompt is cached afterwards.

        As in real engines the last block never counts: one token at least has to be computed.
        """
        chains = tuple(_chains(prompt))
        cached_tokens = self._known(chains)
        for chain in chains:
            self._blocks[chain] = None
            self._blocks.move_to_end(chain)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)
        return cached_tokens

    def known(self, prompt: bytes) -> int:
        """Tokens at the start of this prompt that are already cached; nothing changes."""
        return self._known(_chains(prompt))

    def clear(self) -> None:
        self._blocks.clear()

    def _known(self, chains: Iterable[int]) -> int:
        return 16 * sum(1 for _ in takewhile(self._blocks.__contains__, chains))


def _chains(prompt: bytes) -> Iterator[int]:
    """One number per whole block, which stands for the block and for everything before it."""
    chain = 0
    for start in range(0, len(prompt) - _BLOCK_BYTES, _BLOCK_BYTES):
        chain = hash((chain, prompt[start : start + _BLOCK_BYTES]))
        yield chain
