"""What is known not to work in SGLang, or to be worse than it looks. Read in the source of 0.5.23."""

from __future__ import annotations

from launch.compat import Facts, Level, Rule, Versions
from launch.compat_rules import heads
from launch.engines.base import flag_name
from launch.told import whole_numbers

_CHECKED = Versions(checked="0.5.23")
_PIPELINE_ABLE = frozenset({"EAGLE", "NEXTN"})  # NEXTN is EAGLE by another name
_OWN_RULE = frozenset({"DFLASH", "DSPARK", "UNO"})
_SPECULATIVE_HOOK = "sglang/srt/arg_groups/speculative_hook.py"
_VALIDATION_HOOK = "sglang/srt/arg_groups/validation_hook.py"


def _ranks(facts: Facts) -> int:
    return facts.told.number("--tp-size", "--tensor-parallel-size") or 1


def _stages(facts: Facts) -> int:
    return facts.told.number("--pp-size", "--pipeline-parallel-size") or 1


def _attention_ranks(facts: Facts) -> int:
    """Ranks that share the heads: attention data parallelism divides the tensor parallel group."""
    told = facts.told
    groups = told.number("--attn-dp-size", "--attention-data-parallel-size") or 1
    if told.has("--enable-dp-attention"):
        groups = told.number("--dp-size", "--data-parallel-size") or groups
    return max(1, _ranks(facts) // groups)


def _algorithm(facts: Facts) -> str:
    return (facts.told.value("--speculative-algorithm") or "").upper()


def _piped(facts: Facts, algorithm: str) -> str | None:
    """The words for an algorithm under a pipeline; a server that only prefills for another one is let through."""
    only_prefills = facts.told.value("--disaggregation-mode") == "prefill"
    if algorithm != _algorithm(facts) or _stages(facts) == 1 or only_prefills:
        return None
    return f"--speculative-algorithm {algorithm} with --pp-size {_stages(facts)}"


def dflash_piped(facts: Facts) -> str | None:
    """DFLASH speculation with more than one pipeline stage."""
    if _algorithm(facts) != "DFLASH" or _stages(facts) == 1:
        return None
    return f"--speculative-algorithm DFLASH with --pp-size {_stages(facts)}"


def dspark_piped(facts: Facts) -> str | None:
    """DSpark speculation with more than one pipeline stage, unless the server only prefills."""
    return _piped(facts, "DSPARK")


def uno_parallel(facts: Facts) -> str | None:
    """UNO speculation with more than one tensor parallel rank or pipeline stage."""
    if _algorithm(facts) != "UNO" or (_ranks(facts), _stages(facts)) == (1, 1):
        return None
    return f"--speculative-algorithm UNO with --tp-size {_ranks(facts)} and --pp-size {_stages(facts)}"


def eagle_piped(facts: Facts) -> str | None:
    """EAGLE (NEXTN, MTP) speculation with a pipeline, without SGLANG_ENABLE_PP_SPEC=1."""
    if facts.told.switched_on("SGLANG_ENABLE_PP_SPEC"):
        return None
    return next((words for name in sorted(_PIPELINE_ABLE) if (words := _piped(facts, name))), None)


def eagle_piped_with_more(facts: Facts) -> str | None:
    """SGLANG_ENABLE_PP_SPEC=1 together with attention data parallelism or adaptive speculation."""
    if not facts.told.switched_on("SGLANG_ENABLE_PP_SPEC") or _stages(facts) == 1 or not _algorithm(facts):
        return None
    if facts.told.has("--speculative-adaptive"):
        return "SGLANG_ENABLE_PP_SPEC with --speculative-adaptive"
    return "SGLANG_ENABLE_PP_SPEC with attention data parallelism" if _attention_ranks(facts) < _ranks(facts) else None


def other_piped(facts: Facts) -> str | None:
    """Another speculation (EAGLE3, NGRAM, STANDALONE, …) with more than one pipeline stage."""
    algorithm = _algorithm(facts)
    if not algorithm or algorithm in _PIPELINE_ABLE or algorithm in _OWN_RULE or _stages(facts) == 1:
        return None
    return f"--speculative-algorithm {algorithm} with --pp-size {_stages(facts)}"


def dflash_without_draft(facts: Facts) -> str | None:
    """DFLASH without a draft model."""
    drafted = facts.told.has("--speculative-draft-model-path", "--speculative-draft-model")
    return "DFLASH without --speculative-draft-model-path" if _algorithm(facts) == "DFLASH" and not drafted else None


def uno_without_lora(facts: Facts) -> str | None:
    """UNO without its adapter, or with a draft model."""
    if _algorithm(facts) != "UNO":
        return None
    if facts.told.has("--speculative-draft-model-path", "--speculative-draft-model"):
        return "UNO with --speculative-draft-model-path"
    return None if facts.told.has("--uno-lora-path") else "UNO without --uno-lora-path"


def custom_all_reduce_piped(facts: Facts) -> str | None:
    """A pipeline of tensor parallel stages without --disable-custom-all-reduce."""
    fragile = _stages(facts) > 1 and _ranks(facts) > 1 and not facts.told.has("--disable-custom-all-reduce")
    return f"--pp-size {_stages(facts)} without --disable-custom-all-reduce" if fragile else None


def undivided_heads(facts: Facts) -> str | None:
    """The model's attention heads do not divide by the ranks that share them."""
    ways = _attention_ranks(facts)
    return heads.undivided_heads(facts.model, ways) if ways > 1 else None


def undivided_kv_heads(facts: Facts) -> str | None:
    """The model's KV heads neither divide by the ranks that share them nor they by the heads."""
    ways = _attention_ranks(facts)
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


def fp8_cache_on_old_card(facts: Facts) -> str | None:
    """An FP8 KV cache on a card before sm_75, as a V100."""
    cache = facts.told.value("--kv-cache-dtype") or ""
    if not cache.startswith("fp8") or facts.compute_capability >= (7, 5):
        return None
    major, minor = facts.compute_capability
    return f"--kv-cache-dtype {cache} on a card of compute capability {major}.{minor}"


RULES = (
    Rule(
        id="sglang-dflash-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=dflash_piped,
        message="the engine refuses to start: DFLASH works with one pipeline stage only",
        remedy="drop the speculation or the pipeline",
        source=(f"{_SPECULATIVE_HOOK}: “DFLASH speculative decoding only supports pp_size == 1”", "field notes §3"),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-dspark-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=dspark_piped,
        message="the engine refuses to start: DSpark works with one pipeline stage only",
        remedy="drop the speculation or the pipeline",
        source=(f"{_SPECULATIVE_HOOK}: “DSpark pipeline parallelism requires PD prefill”", "field notes §3"),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-uno-parallel",
        engine="sglang",
        level=Level.REFUSE,
        condition=uno_parallel,
        message="the engine refuses to start: UNO works on one card only",
        remedy="one card per instance and a router in front, or another speculation",
        source=(f"{_SPECULATIVE_HOOK}: “UNO requires TP=PP=1”", "field notes §3"),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-eagle-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=eagle_piped,
        message="the engine refuses to start: speculation under a pipeline has to be allowed",
        remedy='set SGLANG_ENABLE_PP_SPEC: "1" in env, or drop the speculation or the pipeline',
        source=(f"{_VALIDATION_HOOK}, check_pipeline_parallel_compat", "field notes §3"),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-eagle-pipeline-limits",
        engine="sglang",
        level=Level.REFUSE,
        condition=eagle_piped_with_more,
        message="the engine refuses to start: the stages must all see the same batch and the same draft length",
        remedy="drop one of the two",
        source=(f"{_VALIDATION_HOOK}, check_pipeline_parallel_compat: “SGLANG_ENABLE_PP_SPEC is not compatible”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-speculation-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=other_piped,
        message="the engine refuses to start: under a pipeline only EAGLE speculates",
        remedy="drop the speculation or the pipeline",
        source=(f"{_VALIDATION_HOOK}: “Pipeline parallelism currently only supports EAGLE”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-dflash-draft",
        engine="sglang",
        level=Level.REFUSE,
        condition=dflash_without_draft,
        message="the engine refuses to start",
        remedy="add --speculative-draft-model-path",
        source=(f"{_SPECULATIVE_HOOK}: “DFLASH speculative decoding requires setting --speculative-draft-model-path”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-uno-adapter",
        engine="sglang",
        level=Level.REFUSE,
        condition=uno_without_lora,
        message="the engine refuses to start: UNO drafts with the model itself and an adapter",
        remedy="give --uno-lora-path, and no draft model",
        source=(f"{_SPECULATIVE_HOOK}: “UNO requires --uno-lora-path”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-all-reduce-pipeline",
        engine="sglang",
        level=Level.WARN,
        condition=custom_all_reduce_piped,
        message="custom all-reduce is fragile under a pipeline",
        remedy="add --disable-custom-all-reduce",
        source=("field notes §3",),
    ),
    Rule(
        id="sglang-attention-heads",
        engine="sglang",
        level=Level.REFUSE,
        condition=undivided_heads,
        message="the model does not load: every rank takes the same number of attention heads",
        remedy="choose a tensor parallel size that divides them",
        source=("sglang/srt/layers/linear.py, QKVParallelLinear: divide(total_num_heads, tp_size)",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-kv-heads",
        engine="sglang",
        level=Level.REFUSE,
        condition=undivided_kv_heads,
        message="the model does not load: KV heads are split over the ranks, or repeated on them, without a rest",
        remedy="choose a tensor parallel size that divides them or is a multiple of them",
        source=("sglang/srt/layers/linear.py, QKVParallelLinear: divide(kv_tp_size, total_num_kv_heads)",),
        versions=_CHECKED,
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
        versions=_CHECKED,
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
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-hicache-radix",
        engine="sglang",
        level=Level.REFUSE,
        condition=hierarchy_without_radix,
        message="the engine refuses to start: the one needs what the other takes away",
        remedy="keep one of the two",
        source=("sglang/srt/arg_groups/kv_cache_hook.py: “are mutually exclusive”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-chunk-page",
        engine="sglang",
        level=Level.REFUSE,
        condition=odd_chunks,
        message="the engine refuses to start: a chunk is made of whole pages",
        remedy="make the chunk a multiple of the page",
        source=(f"{_VALIDATION_HOOK}: “chunked_prefill_size must be divisible by page_size”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-served-colon",
        engine="sglang",
        level=Level.REFUSE,
        condition=colon_in_name,
        message="the engine refuses to start: it reads model:adapter",
        remedy="serve another name",
        source=(f"{_VALIDATION_HOOK}: “served_model_name cannot contain a colon”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-underscores",
        engine="sglang",
        level=Level.REFUSE,
        condition=underscores,
        message="the engine refuses to start: it knows its flags with dashes only",
        remedy="write it with dashes",
        source=("sglang/srt/arg_groups/arg_utils.py, _field_to_cli_name; “unrecognized arguments: --tp_size 2”",),
        versions=_CHECKED,
    ),
    Rule(
        id="sglang-fp8-cache",
        engine="sglang",
        level=Level.WARN,
        condition=fp8_cache_on_old_card,
        message="FlashInfer, the usual backend for it, needs sm_75",
        remedy="use --kv-cache-dtype auto",
        source=("https://pypi.org/project/flashinfer-python/", "https://github.com/sgl-project/sglang/issues/931"),
    ),
)
