"""Strings that belong to a model's template and never to what a user reads."""

from __future__ import annotations

import re
from typing import Final

# DeepSeek writes its control tokens with full-width bars and small blocks; named here, so that nobody confuses them.
_BAR: Final = "\uff5c"
_GAP: Final = "\u2581"

THINKING: Final = (
    "<think>",
    "</think>",
    "<mm:think>",
    "</mm:think>",
    "<|think|>",
    "[THINK]",
    "[/THINK]",
    "<|channel|>",
    "<|channel>",
    "<channel|>",
)
TOOLS: Final = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<invoke name=",
    "<function_calls>",
    "<start_function_call>",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "<|python_tag|>",
    "<|python_start|>",
    "to=functions.",
    "<|open|>call tool=",
    f"<{_BAR}tool{_GAP}call",
    f"<{_BAR}DSML{_BAR}",
    "<|tool_call",
    "<|tool_response",
    "<tool_call|>",
    '<|"|>',
    "<minimax:tool_call>",
)
CONTROL: Final = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_middle|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|system|>",
    "[INST]",
    "[/INST]",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<turn|>",
    "<|observation|>",
    "<|assistant|>",
    "<|user|>",
    "<|start|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
    "<|open|>",
    "<|close|>",
    "<|sep|>",
    f"<{_BAR}begin{_GAP}of{_GAP}sentence{_BAR}>",
    f"<{_BAR}end{_GAP}of{_GAP}sentence{_BAR}>",
    f"<{_BAR}Assistant{_BAR}>",
    f"<{_BAR}User{_BAR}>",
)
AT_AN_EDGE: Final = (
    "</s>",
    "<s>",
    "<eos>",
    "<bos>",
    "<pad>",
    "<unk>",
    "[EOS]",
    "[BOS]",
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
)
"""Tokens that begin, end or fill a text. Some are HTML or plain words too: they count only at its beginning and end."""
ALL: Final = THINKING + TOOLS + CONTROL
_TOKEN: Final = re.compile(r"<\|[A-Za-z][A-Za-z0-9_]{1,30}\|>")
"""How nearly every model spells its control tokens, those of the table and others: no text or program holds that."""
OPENING: Final = re.compile(r"[<\[]|to=")
"""How every marker begins: a text without it holds none."""


def found(text: str, markers: tuple[str, ...] = ALL) -> str | None:
    """The first marker of the table that `text` holds."""
    if OPENING.search(text) is None:
        return None
    return next((marker for marker in markers if marker in text), None)


def unlisted(text: str) -> list[str]:
    """What looks like a control token, as `<|eot|>`, wherever it stands, and tokens of beginning and end at the edges.

    `<s>struck out</s>` is HTML and none.
    """
    if OPENING.search(text) is None:
        return []
    found = _TOKEN.findall(text)
    bare = text.strip()
    found += [token for token in AT_AN_EDGE if bare.endswith(token) and not _closes(token, bare)]
    return found + [token for token in AT_AN_EDGE if bare.startswith(token) and not _is_closed(token, bare)]


def _closes(token: str, text: str) -> bool:
    return token.startswith("</") and token.replace("/", "") in text


def _is_closed(token: str, text: str) -> bool:
    return token.replace("<", "</", 1) in text
