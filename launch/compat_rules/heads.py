"""How attention heads are spread over cards; vLLM and SGLang do it alike (``QKVParallelLinear`` of both)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.model_facts import ModelFacts


def undivided_heads(model: ModelFacts, ways: int) -> str | None:
    """What is wrong with `model` on `ways` tensor parallel ranks; None where the query heads divide."""
    if model.heads is None or model.heads % ways == 0:
        return None
    return f"{model.heads} attention heads over {ways} tensor parallel ranks"


def undivided_kv_heads(model: ModelFacts, ways: int) -> str | None:
    """The same for KV heads: split where there are enough of them, else repeated; either way without a rest."""
    kv_heads = model.kv_heads
    if kv_heads is None or model.is_mla or kv_heads % ways == 0 or ways % kv_heads == 0:
        return None
    return f"{kv_heads} KV heads over {ways} tensor parallel ranks"


def repeated_kv_heads(model: ModelFacts, ways: int) -> str | None:
    """Where there are more ranks than KV heads, each head lies on several cards."""
    kv_heads = model.kv_heads
    if kv_heads is None or model.is_mla or kv_heads >= ways or ways % kv_heads:
        return None
    return f"{kv_heads} KV heads over {ways} tensor parallel ranks, each on {ways // kv_heads} cards"
