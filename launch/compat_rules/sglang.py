"""What is known not to work in SGLang, or to be worse than it looks. Read in the source of 0.5.23."""

from __future__ import annotations

from launch.compat import Facts, Level, Rule, Versions
from launch.compat_rules import every, heads
from launch.engines.base import flag_name
from launch.told import whole_numbers

CHECKED = Versions(checked="0.5.23")
VALIDATION_HOOK = "sglang/srt/arg_groups/validation_hook.py"


def ranks(facts: Facts) -> int:
    """The tensor parallel size."""
    return facts.told.number("--tp-size", "--tensor-parallel-size") or 1


def stages(facts: Facts) -> int:
    """The pipeline parallel size."""
    return facts.told.number("--pp-size", "--pipeline-parallel-size") or 1


def attention_ranks(facts: Facts) -> int:
    """Ranks that share the heads: attention data parallelism divides the tensor parallel group."""
    told = facts.told
    groups = told.number("--attn-dp-size", "--attention-data-parallel-size") or 1
    if told.has("--enable-dp-attention"):
        groups = told.number("--dp-size", "--data-parallel-size") or groups
    return max(1, ranks(facts) // groups)


def undivided_heads(facts: Facts) -> str | None:
    """The model's attention heads do not divide by the ranks that share them."""
    ways = attention_ranks(facts)
    return heads.undivided_heads(facts.model, ways) if ways > 1 else None


def undivided_kv_heads(facts: Facts) -> str | None:
    """The model's KV heads neither divide by the ranks that share them nor they by the heads."""
    ways = attention_ranks(facts)
    return heads.undivided_kv_heads(facts.model, ways) if ways > 1 else None


def small_graphs(facts: Facts) -> str | None:
    """The largest decode batch with a CUDA graph that the flags name is smaller than --max-running-requests."""
    told = facts.told
    running = told.number("--max-running-requests")
    decode = told.mapping("--cuda-graph-config").get("decode")
    config = decode if isinstance(decode, dict) else {}
    off = told.has("--disable-cuda-graph", "--disable-decode-cuda-graph")
    if off or "disabled" in (told.value("--cuda-graph-backend-decode"), config.get("backend")):
        return None
    sizes = whole_numbers(config.get("bs") or told.values("--cuda-graph-bs-decode", "--cuda-graph-bs"))
    ceiling = config.get("max_bs") or told.number("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs")
    largest = max(sizes) if sizes else ceiling
    if running is None or not isinstance(largest, int) or largest >= running:
        return None
    return f"CUDA graphs are captured up to {largest} requests, and --max-running-requests is {running}"


def no_tools(facts: Facts) -> str | None:
    """The topology says that it can call tools, and --tool-call-parser is missing."""
    return "--tool-call-parser missing" if facts.says_tools and not facts.told.has("--tool-call-parser") else None


def no_tools_unsaid(facts: Facts) -> str | None:
    """--tool-call-parser is missing, and the topology does not say that it has no tools."""
    asked = facts.wants_tools and not facts.says_tools
    return "--tool-call-parser missing" if asked and not facts.told.has("--tool-call-parser") else None


def too_long(facts: Facts) -> str | None:
    """--context-length beyond the model's own length, and nothing stretches it."""
    asked = facts.told.number("--context-length")
    allowed = facts.told.switched_on("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
    if asked is None or allowed or facts.told.has("--json-model-override-args"):
        return None
    own = facts.model.context_tokens
    return f"--context-length {asked} of a model of {own} tokens" if own is not None and asked > own else None


def no_sleep(facts: Facts) -> str | None:
    """The policy wants the release before asleep, and --enable-memory-saver is missing."""
    awake = facts.box.wants_sleep and not facts.told.has("--enable-memory-saver")
    return "--enable-memory-saver missing" if awake else None


def forgotten_weights(facts: Facts) -> str | None:
    """The policy wants sleep, and --enable-weights-cpu-backup is missing."""
    sleeps = facts.box.wants_sleep and facts.told.has("--enable-memory-saver")
    forgets = sleeps and not facts.told.has("--enable-weights-cpu-backup")
    return "--enable-memory-saver without --enable-weights-cpu-backup" if forgets else None


def hierarchy_without_radix(facts: Facts) -> str | None:
    """--enable-hierarchical-cache with --disable-radix-cache."""
    both = facts.told.has("--enable-hierarchical-cache") and facts.told.has("--disable-radix-cache")
    return "--enable-hierarchical-cache with --disable-radix-cache" if both else None


def odd_chunks(facts: Facts) -> str | None:
    """--chunked-prefill-size that is no multiple of --page-size."""
    chunk, page = facts.told.number("--chunked-prefill-size"), facts.told.number("--page-size")
    if not chunk or not page or chunk % page == 0:
        return None
    return f"--chunked-prefill-size {chunk} with --page-size {page}"


def colon_in_name(facts: Facts) -> str | None:
    """A served name with a colon."""
    return next((f"serves: {name} has a colon" for name in facts.topology.serves if ":" in name), None)


def underscores(facts: Facts) -> str | None:
    """A flag written with underscores."""
    words = (word.split("=", 1)[0] for word in facts.told.flags if flag_name(word) is not None)
    return next((word for word in words if word.startswith("--") and "_" in word), None)


RULES = (
    Rule(
        id="sglang-attention-heads",
        engine="sglang",
        level=Level.REFUSE,
        condition=undivided_heads,
        message="the model does not load: every rank takes the same number of attention heads",
        remedy="choose a tensor parallel size that divides them",
        source=("sglang/srt/layers/linear.py, QKVParallelLinear: divide(total_num_heads, tp_size)",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-kv-heads",
        engine="sglang",
        level=Level.REFUSE,
        condition=undivided_kv_heads,
        message="the model does not load: KV heads are split over the ranks, or repeated on them, without a rest",
        remedy="choose a tensor parallel size that divides them or is a multiple of them",
        source=("sglang/srt/layers/linear.py, QKVParallelLinear: divide(kv_tp_size, total_num_kv_heads)",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-graph-sizes",
        engine="sglang",
        level=Level.WARN,
        condition=small_graphs,
        message="fuller batches run without a graph, and slow down by a multiple",
        remedy="name sizes up to it, or lower --max-running-requests",
        source=("sglang/srt/arg_groups/cuda_graph_hook.py, generate_decode_cuda_graph_batch_sizes", "field notes §1"),
    ),
    Rule(
        id="sglang-tools",
        engine="sglang",
        level=Level.REFUSE,
        condition=no_tools,
        message="calls come as text in the answer, and the topology says that it can call tools",
        remedy="add --tool-call-parser (auto, or the model's), or say tools: false in capability",
        source=(
            "sglang/srt/entrypoints/openai/serving_chat.py: “if not self.tool_call_parser”",
            "https://docs.sglang.io/docs/advanced_features/tool_parser.md",
        ),
    ),
    Rule(
        id="sglang-tools-unsaid",
        engine="sglang",
        level=Level.WARN,
        condition=no_tools_unsaid,
        message="calls come as text in the answer, and gates ask for tool calls where nothing is said",
        remedy="add --tool-call-parser (auto, or the model's), or say tools: false in capability",
        source=("https://docs.sglang.io/docs/advanced_features/tool_parser.md",),
    ),
    Rule(
        id="sglang-context-length",
        engine="sglang",
        level=Level.REFUSE,
        condition=too_long,
        message="the engine refuses to start: positions beyond the model's own give garbage or a crash",
        remedy="lower it, or stretch the model with rope parameters in --json-model-override-args",
        source=("sglang/srt/configs/model_config.py, _derive_context_length",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-memory-saver",
        engine="sglang",
        level=Level.WARN,
        condition=no_sleep,
        message="the release cannot give its memory back, and the way back to it would be a cold start",
        remedy="add --enable-memory-saver and --enable-weights-cpu-backup",
        source=("sglang/srt/arg_groups/fields/exec_.py: “release_memory_occupation and resume_memory_occupation”",),
    ),
    Rule(
        id="sglang-weights-backup",
        engine="sglang",
        level=Level.WARN,
        condition=forgotten_weights,
        message="the weights are given back too, and after waking the model answers with garbage",
        remedy="add --enable-weights-cpu-backup; it keeps them in host memory",
        source=(
            "https://github.com/sgl-project/sglang/pull/10873",
            "https://github.com/sgl-project/sglang/issues/6367",
        ),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-hicache-radix",
        engine="sglang",
        level=Level.REFUSE,
        condition=hierarchy_without_radix,
        message="the engine refuses to start: the one needs what the other takes away",
        remedy="keep one of the two",
        source=("sglang/srt/arg_groups/kv_cache_hook.py: “are mutually exclusive”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-chunk-page",
        engine="sglang",
        level=Level.REFUSE,
        condition=odd_chunks,
        message="the engine refuses to start: a chunk is made of whole pages",
        remedy="make the chunk a multiple of the page",
        source=(f"{VALIDATION_HOOK}: “chunked_prefill_size must be divisible by page_size”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-served-colon",
        engine="sglang",
        level=Level.REFUSE,
        condition=colon_in_name,
        message="the engine refuses to start: it reads model:adapter",
        remedy="serve another name",
        source=(f"{VALIDATION_HOOK}: “served_model_name cannot contain a colon”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-underscores",
        engine="sglang",
        level=Level.REFUSE,
        condition=underscores,
        message="the engine refuses to start: it knows its flags with dashes only",
        remedy="write it with dashes",
        source=("sglang/srt/arg_groups/arg_utils.py, _field_to_cli_name; “unrecognized arguments: --tp_size 2”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-fp8-cache",
        engine="sglang",
        level=Level.WARN,
        condition=every.fp8_cache_on_old_card,
        message="FlashInfer, the usual backend for it, needs sm_75",
        remedy="use --kv-cache-dtype auto",
        source=("https://github.com/flashinfer-ai/flashinfer", "https://github.com/sgl-project/sglang/issues/931"),
    ),
)
