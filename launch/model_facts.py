"""What a model says of itself in its ``config.json``, as far as preflight rules ask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_BYTES = 4 * 1024 * 1024
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Where both engines look for the context length: vLLM takes the smallest, SGLang the first that it finds."""


@dataclass(frozen=True)
class ModelFacts:
    """Heads and length of a model; None where its configuration does not say."""

    heads: int | None
    kv_heads: int | None
    is_mla: bool
    """Multi-head latent attention: one shared latent per token, no KV heads to divide."""
    context_tokens: int | None


def read(model: str | None) -> ModelFacts | str:
    """The facts of a model folder, or the reason why they cannot be told."""
    if model is None:
        return "the topology names no model"
    if not model.startswith("/"):
        return f"{model} is a model of a hub, and not on this box"
    if model.endswith(".gguf"):
        return f"{model} is a GGUF file, and its header is not read"
    path = Path(model) / "config.json"
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        return f"{path} is not JSON"
    return facts(document) if isinstance(document, dict) else f"{path} is no JSON object"


def facts(config: Mapping[str, Any]) -> ModelFacts:
    """From the parsed ``config.json``; a multimodal model keeps its language part under ``text_config``."""
    nested: Mapping[str, Any] = next(
        (config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), dict)), {}
    )
    text = {**config, **nested}
    heads = _count(text, "num_attention_heads", "n_head")
    kv_heads = _count(text, "num_key_value_heads", "n_head_kv")
    return ModelFacts(
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        is_mla="kv_lora_rank" in text,
        context_tokens=_context(text),
    )


def _count(config: Mapping[str, Any], *keys: str) -> int | None:
    found = (config.get(key) for key in keys)
    return next((value for value in found if type(value) is int and value > 0), None)


def _context(config: Mapping[str, Any]) -> int | None:
    """The longest of what the keys say, stretched by rope: a rule that refuses must err on the model's side."""
    lengths = [length for key in _LENGTHS if (length := _count(config, key)) is not None]
    return int(max(lengths) * _stretch(config)) if lengths else None


def _stretch(config: Mapping[str, Any]) -> float:
    """What both engines read as stretched already is 1: with its original length beside it, and Llama 3's."""
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(rope, dict) or "original_max_position_embeddings" in rope or rope.get("rope_type") == "llama3":
        return 1.0
    factor = rope.get("factor")
    return float(factor) if isinstance(factor, (int, float)) and factor > 1 else 1.0
