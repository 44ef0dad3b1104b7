"""What is known not to work in llama-server, or to be worse than it looks. Its builds have no version to go by."""

from __future__ import annotations

from launch.compat import Facts, Level, Rule
from launch.engines.base import flag_name
from launch.told import OFF, ON

_FLOATS = frozenset({"f32", "f16", "bf16"})
_WITH_KERNEL = frozenset({"f16", "f32", "bf16", "q4_0", "q8_0"})
_FLASH = ("-fa", "--flash-attn")


def _cache_types(facts: Facts) -> tuple[str, str]:
    keys = facts.told.value("-ctk", "--cache-type-k") or "f16"
    return keys, facts.told.value("-ctv", "--cache-type-v") or "f16"


def _flash(facts: Facts) -> bool | None:
    """Whether flash attention is on; None for ``auto``, and where nothing is said. A bare flag means on."""
    words = facts.told.values(*_FLASH)
    if words is None:
        return None
    word = words[0].lower() if words else "on"
    return True if word in ON else False if word in OFF else None


def joined_flag(facts: Facts) -> str | None:
    """A flag and its value in one word, --flag=value."""
    return next((word for word in facts.told.flags if flag_name(word) is not None and "=" in word), None)


def quantised_values_without_flash(facts: Facts) -> str | None:
    """A quantised V cache with flash attention off."""
    values = _cache_types(facts)[1]
    return f"-ctv {values} with flash attention off" if values not in _FLOATS and _flash(facts) is False else None


def quantised_values_unsure(facts: Facts) -> str | None:
    """A quantised V cache, and flash attention is not switched on."""
    values = _cache_types(facts)[1]
    return f"-ctv {values} without -fa on" if values not in _FLOATS and _flash(facts) is None else None


def mixed_cache(facts: Facts) -> str | None:
    """K and V caches of different types (other than q8_0 with q4_0) on GPUs."""
    keys, values = _cache_types(facts)
    if not facts.gpu_count or keys == values or (keys, values) == ("q8_0", "q4_0"):
        return None
    return f"-ctk {keys} with -ctv {values}"


def cache_without_kernel(facts: Facts) -> str | None:
    """A cache type for which a default CUDA build has no attention kernel (q4_1, q5_0, q5_1, iq4_nl)."""
    keys, values = _cache_types(facts)
    if not facts.gpu_count or keys != values or keys in _WITH_KERNEL:
        return None
    return f"-ctk {keys} with -ctv {values}"


def tools_without_template(facts: Facts) -> str | None:
    """--no-jinja, and the topology says that it can call tools."""
    return "--no-jinja" if facts.says_tools and facts.told.has("--no-jinja") else None


def split_by_tensor(facts: Facts) -> str | None:
    """--split-mode tensor."""
    mode = facts.told.value("-sm", "--split-mode")
    return "--split-mode tensor" if mode == "tensor" and facts.gpu_count > 1 else None


def miscounted_split(facts: Facts) -> str | None:
    """--tensor-split with another number of parts than the instance has GPUs."""
    parts = [part for part in (facts.told.value("-ts", "--tensor-split") or "").replace("/", ",").split(",") if part]
    if not parts or not facts.gpu_count or len(parts) == facts.gpu_count:
        return None
    return f"--tensor-split has {len(parts)} parts, and the instance has {facts.gpu_count} GPUs"


def small_slots(facts: Facts) -> str | None:
    """The context of one slot (-c divided by -np) is shorter than the topology's max_context_tokens."""
    told = facts.told
    context, slots = told.number("-c", "--ctx-size"), told.number("-np", "--parallel", "--n-parallel")
    promised = facts.topology.capability.get("max_context_tokens")
    if not context or not slots or told.has("-kvu", "--kv-unified") or type(promised) is not int:
        return None
    if context // slots >= promised:
        return None
    return f"-c {context} over -np {slots} slots is {context // slots} each, and capability says {promised}"


RULES = (
    Rule(
        id="llamacpp-joined-flag",
        engine="llamacpp",
        level=Level.REFUSE,
        condition=joined_flag,
        message="llama-server refuses to start: it knows no --flag=value",
        remedy="write flag and value as two words",
        source=("llama.cpp common/arg.cpp: every word is looked up whole, “error: invalid argument”",),
    ),
    Rule(
        id="llamacpp-quantised-values",
        engine="llamacpp",
        level=Level.REFUSE,
        condition=quantised_values_without_flash,
        message="llama-server ends at start: a quantised V cache needs flash attention",
        remedy="add -fa on, or leave V at f16",
        source=(
            "llama.cpp src/llama-context.cpp: “quantized V cache was requested, but this requires Flash Attention”",
            "https://github.com/ggml-org/llama.cpp/issues/28524",
        ),
    ),
    Rule(
        id="llamacpp-quantised-values-auto",
        engine="llamacpp",
        level=Level.WARN,
        condition=quantised_values_unsure,
        message="llama-server ends at start where flash attention turns out not to be available",
        remedy="add -fa on",
        source=(
            "https://github.com/ggml-org/llama.cpp/issues/28524",
            "https://github.com/ggml-org/llama.cpp/pull/21586",
        ),
    ),
    Rule(
        id="llamacpp-mixed-cache",
        engine="llamacpp",
        level=Level.WARN,
        condition=mixed_cache,
        message="a CUDA build without GGML_CUDA_FA_ALL_QUANTS silently moves attention to the CPU, 25-45 times slower",
        remedy="use one type for both, or build with -DGGML_CUDA_FA_ALL_QUANTS=ON",
        source=(
            "llama.cpp ggml/src/ggml-cuda/fattn.cu, ggml_cuda_get_best_fattn_kernel: K->type != V->type",
            "https://github.com/ggml-org/llama.cpp/issues/24485",
            "https://github.com/ggml-org/llama.cpp/issues/27109",
        ),
    ),
    Rule(
        id="llamacpp-cache-kernel",
        engine="llamacpp",
        level=Level.WARN,
        condition=cache_without_kernel,
        message="a CUDA build without GGML_CUDA_FA_ALL_QUANTS has no kernel for it and moves attention to the CPU",
        remedy="use q8_0 or q4_0, or build with -DGGML_CUDA_FA_ALL_QUANTS=ON",
        source=(
            "llama.cpp ggml/src/ggml-cuda/fattn.cu, ggml_cuda_fattn_kv_type_supported",
            "https://github.com/ggml-org/llama.cpp/issues/28455",
        ),
    ),
    Rule(
        id="llamacpp-tools",
        engine="llamacpp",
        level=Level.REFUSE,
        condition=tools_without_template,
        message="requests with tools get an error, and the topology says that it can call tools",
        remedy="remove it, or say tools: false in capability",
        source=("https://github.com/ggml-org/llama.cpp/pull/17524",),
    ),
    Rule(
        id="llamacpp-split-tensor",
        engine="llamacpp",
        level=Level.WARN,
        condition=split_by_tensor,
        message="it was seen to start, to be healthy, and to produce no content",
        remedy="use --split-mode layer unless its gates have passed",
        source=("field notes §1",),
    ),
    Rule(
        id="llamacpp-tensor-split",
        engine="llamacpp",
        level=Level.WARN,
        condition=miscounted_split,
        message="cards without a part stay empty",
        remedy="give one part per GPU",
        source=("llama.cpp tools/server/README.md, --tensor-split", "field notes §1: four arms on one card"),
    ),
    Rule(
        id="llamacpp-slot-context",
        engine="llamacpp",
        level=Level.WARN,
        condition=small_slots,
        message="longer requests are refused or cut",
        remedy="raise -c, lower -np, or say less in capability",
        source=("llama.cpp src/llama-context.cpp: n_ctx_seq is n_ctx / n_seq_max where the KV cache is not unified",),
    ),
)
