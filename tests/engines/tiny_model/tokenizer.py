"""The tiny model's tokenizer and chat template.

Whole tokens for the words that dialogues have in common, single characters for everything else: names, codes and
numbers are then always spelled the same way, wherever they stand, and copying them is something a small model can
learn. There are no merges, so no piece of an unknown word is ever swallowed. Any UTF-8 text survives (bytes).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import wording as w
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
]
# Letters that touch a digit are part of a code and are spelled; so are words that the vocabulary does not know.
PIECES = r"""(?: |(?<![0-9A-Za-z]))[A-Za-z]+(?![0-9A-Za-z])| ?[^\sA-Za-z0-9]+(?: ["{\[]+)?|\n+|[0-9A-Za-z]|\s"""
TEMPLATE = (Path(__file__).with_name("chat_template.jinja")).read_text()


def _pieces() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _written_words() -> set[str]:
    """Every word that stands in the sources of the dialogues; a random word that happens to be frequent does not."""
    here = Path(__file__).parent
    text = "\n".join((here / name).read_text() for name in ("wording.py", "dialogues.py", "chat_template.jinja"))
    values = set(re.findall("[A-Za-z]+", " ".join(w.CITIES + w.ACCENTED_CITIES + w.COLORS_AND_ANIMALS)))
    words = set(re.findall("[A-Za-z]{2,}", text)) | {"a", "I"}
    return (words | {word.capitalize() for word in w.VERBS}) - values


def _common_pieces(corpus: Iterable[str], at_least: int) -> list[str]:
    splitter = _pieces()
    counts: Counter[str] = Counter()
    for text in corpus:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    words = _written_words()

    def whole(piece: str) -> bool:
        bare = piece.removeprefix("Ġ")
        if piece == "ĊĊ":
            return True
        if len(piece) < 2 or set(bare) - set(string.printable) - {"Ġ"}:
            return False
        return bare in words if bare.isalpha() and bare.isascii() else True

    return sorted(piece for piece, count in counts.items() if count >= at_least and whole(piece))


def build(corpus: Iterable[str], *, at_least: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose whole words are the pieces seen `at_least` times in `corpus` (rendered dialogues)."""
    for marker in SPECIAL + MARKERS:
        corpus = [text.replace(marker, "\n") for text in corpus]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate(alphabet + _common_pieces(corpus, at_least))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _pieces()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKERS])
    options: dict[str, Any] = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 4096}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=TEMPLATE, clean_up_tokenization_spaces=False, **options
    )
