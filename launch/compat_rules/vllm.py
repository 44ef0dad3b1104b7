"""What is known not to work in vLLM, or to be worse than it looks. Read in the source of 0.32.0."""

from __future__ import annotations

from typing import Any

from launch.compat import Facts, Level, Rule, Versions
from launch.compat_rules import every, heads
from launch.told import whole_numbers

_CHECKED = Versions(checked="0.32.0")
_SIZES = ("--cudagraph-capture-sizes",)
_COMPILATION = ("--compilation-config", "-cc")
_DEFAULT_CEILING = 512  # tokens; 1024 on compute capability 10.x
_NO_GRAPHS = frozenset({"NONE", "0"})


def _ranks(facts: Facts) -> int:
    return facts.told.number("--tensor-parallel-size", "-tp") or 1


def undivided_heads(facts: Facts) -> str | None:
    """The model's attention heads do not divide by the tensor parallel size."""
    return heads.undivided_heads(facts.model, _ranks(facts)) if _ranks(facts) > 1 else None


def undivided_kv_heads(facts: Facts) -> str | None:
    """The model's KV heads neither divide by the tensor parallel size nor it by them."""
    return heads.undivided_kv_heads(facts.model, _ranks(facts)) if _ranks(facts) > 1 else None


def repeated_kv_heads(facts: Facts) -> str | None:
    """Tensor parallel over more cards than the model has KV heads."""
    return heads.repeated_kv_heads(facts.model, _ranks(facts)) if _ranks(facts) > 1 else None


def _draft_tokens(facts: Facts) -> int:
    told = facts.told.mapping("--speculative-config", "-sc").get("num_speculative_tokens")
    return facts.told.number("--spec-tokens") or (told if isinstance(told, int) else 0)


def _decode_tokens(facts: Facts) -> int | None:
    """Tokens of the fullest decode step: every sequence computes one, and verifies its draft."""
    running = facts.told.number("--max-num-seqs")
    return running * (1 + _draft_tokens(facts)) if running is not None else None


def _step(facts: Facts) -> str:
    draft = _draft_tokens(facts)
    return f"--max-num-seqs {facts.told.value('--max-num-seqs')}" + (f" with {draft} draft tokens" if draft else "")


def _graphs(facts: Facts) -> dict[str, Any] | None:
    """The compilation config; None where no CUDA graph is captured."""
    config = facts.told.mapping(*_COMPILATION)
    mode = str(config.get("cudagraph_mode", "")).upper()
    return None if facts.told.has("--enforce-eager") or mode in _NO_GRAPHS else config


def _largest_captured(facts: Facts, config: dict[str, Any]) -> int | None:
    """The largest size that the flags name; None where the engine chooses."""
    flag = facts.told.values(*_SIZES)
    named: Any = flag if flag is not None else config.get("cudagraph_capture_sizes")
    sizes = whole_numbers(named)
    largest = facts.told.number("--max-cudagraph-capture-size") or config.get("max_cudagraph_capture_size")
    return max(sizes, default=None) if sizes else largest if isinstance(largest, int) else None


def small_graphs(facts: Facts) -> str | None:
    """The largest CUDA graph that the flags name is smaller than max-num-seqs x (1 + draft tokens)."""
    config, wanted = _graphs(facts), _decode_tokens(facts)
    largest = _largest_captured(facts, config) if config is not None else None
    if largest is None or wanted is None or largest >= wanted:
        return None
    return f"CUDA graphs are captured up to {largest} tokens, and {_step(facts)} makes steps of {wanted}"


def graphs_beyond_default(facts: Facts) -> str | None:
    """No CUDA graph size is named, and max-num-seqs x (1 + draft tokens) exceeds what is captured by default."""
    config, wanted = _graphs(facts), _decode_tokens(facts)
    if config is None or wanted is None or wanted <= _DEFAULT_CEILING or _largest_captured(facts, config) is not None:
        return None
    return f"{_step(facts)} makes steps of {wanted} tokens, and by default graphs reach {_DEFAULT_CEILING}"


def few_batched_tokens(facts: Facts) -> str | None:
    """--max-num-batched-tokens is smaller than --max-num-seqs."""
    tokens, running = facts.told.number("--max-num-batched-tokens"), facts.told.number("--max-num-seqs")
    if tokens is None or running is None or tokens >= running:
        return None
    return f"--max-num-batched-tokens {tokens} with --max-num-seqs {running}"


def _no_tools(facts: Facts) -> str | None:
    wanted = ("--enable-auto-tool-choice", "--tool-call-parser")
    missing = [flag for flag in wanted if not facts.told.has(flag)]
    return f"{' and '.join(missing)} missing" if "--enable-auto-tool-choice" in missing else None


def no_tools(facts: Facts) -> str | None:
    """The topology says that it can call tools, and --enable-auto-tool-choice is missing."""
    return _no_tools(facts) if facts.says_tools else None


def no_tools_unsaid(facts: Facts) -> str | None:
    """--enable-auto-tool-choice is missing, and the topology does not say that it has no tools."""
    return _no_tools(facts) if facts.wants_tools and not facts.says_tools else None


def tools_without_parser(facts: Facts) -> str | None:
    """--enable-auto-tool-choice without --tool-call-parser."""
    alone = facts.told.has("--enable-auto-tool-choice") and not facts.told.has("--tool-call-parser")
    return "--enable-auto-tool-choice without --tool-call-parser" if alone else None


def too_long(facts: Facts) -> str | None:
    """--max-model-len beyond the model's own length, and nothing stretches it."""
    asked = facts.told.number("--max-model-len")
    stretched = facts.told.has("--hf-overrides", "--rope-scaling", "--rope-theta")
    if asked is None or stretched or facts.told.switched_on("VLLM_ALLOW_LONG_MAX_MODEL_LEN"):
        return None
    own = facts.model.context_tokens
    return f"--max-model-len {asked} of a model of {own} tokens" if own is not None and asked > own else None


def no_sleep(facts: Facts) -> str | None:
    """The policy wants the release before asleep, and --enable-sleep-mode is missing."""
    return (
        "--enable-sleep-mode missing" if facts.box.wants_sleep and not facts.told.has("--enable-sleep-mode") else None
    )


def no_sleep_endpoints(facts: Facts) -> str | None:
    """The policy wants sleep, and without VLLM_SERVER_DEV_MODE=1 there is no /sleep."""
    deaf = facts.told.has("--enable-sleep-mode") and not facts.told.switched_on("VLLM_SERVER_DEV_MODE")
    return "VLLM_SERVER_DEV_MODE=1 missing in env" if facts.box.wants_sleep and deaf else None


RULES = (
    Rule(
        id="vllm-attention-heads",
        engine="vllm",
        level=Level.REFUSE,
        condition=undivided_heads,
        message="the engine refuses to start: every rank takes the same number of attention heads",
        remedy="choose a tensor parallel size that divides them",
        source=("vllm/config/model.py, verify_with_parallel_config: “must be divisible by tensor parallel size”",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-kv-heads",
        engine="vllm",
        level=Level.REFUSE,
        condition=undivided_kv_heads,
        message="the model does not load: KV heads are split over the ranks, or repeated on them, without a rest",
        remedy="choose a tensor parallel size that divides them or is a multiple of them",
        source=("vllm/model_executor/layers/linear.py, QKVParallelLinear: divide(tp_size, total_num_kv_heads)",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-kv-heads-repeated",
        engine="vllm",
        level=Level.WARN,
        condition=repeated_kv_heads,
        message="KV heads are repeated, and the KV pool gains less than the cards cost",
        remedy="two smaller instances behind a router may serve more",
        source=(
            "vllm/config/model.py, get_num_kv_heads: “replicate the KV heads”",
            "field notes §3: “KV heads limit useful TP”",
        ),
    ),
    Rule(
        id="vllm-graph-sizes",
        engine="vllm",
        level=Level.WARN,
        condition=small_graphs,
        message="larger steps run without a graph; 76 tok/s for each user became 14.5 on one box",
        remedy="name capture sizes up to it in cudagraph_capture_sizes, or lower --max-num-seqs",
        source=(
            "field notes §1: captures [1,2,4,8] with max-num-seqs 32",
            "vllm/config/vllm.py, _set_cudagraph_sizes: “cudagraph will not be used”",
        ),
    ),
    Rule(
        id="vllm-graph-default",
        engine="vllm",
        level=Level.WARN,
        condition=graphs_beyond_default,
        message="larger steps run without a graph (Blackwell: beyond 1024)",
        remedy="give --max-cudagraph-capture-size, or lower --max-num-seqs",
        source=("vllm/config/vllm.py, _set_cudagraph_sizes: min(max_num_seqs * decode_query_len * 2, 512)",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-batched-tokens",
        engine="vllm",
        level=Level.REFUSE,
        condition=few_batched_tokens,
        message="the engine refuses to start: a step must have room for one token of every sequence",
        remedy="raise the first or lower the second",
        source=("vllm/config/scheduler.py: “must be greater than or equal to max_num_seqs”",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-tools",
        engine="vllm",
        level=Level.REFUSE,
        condition=no_tools,
        message="requests with tools get an error 400, and the topology says that it can call tools",
        remedy="add --enable-auto-tool-choice and --tool-call-parser, or say tools: false in capability",
        source=(
            "vllm/renderers/online_renderer.py: “requires --enable-auto-tool-choice and --tool-call-parser to be set”",
            "https://docs.vllm.ai/en/latest/features/tool_calling/",
        ),
    ),
    Rule(
        id="vllm-tools-unsaid",
        engine="vllm",
        level=Level.WARN,
        condition=no_tools_unsaid,
        message="requests with tools get an error 400, and gates ask for tool calls where nothing is said",
        remedy="add --enable-auto-tool-choice and --tool-call-parser, or say tools: false in capability",
        source=("https://docs.vllm.ai/en/latest/features/tool_calling/",),
    ),
    Rule(
        id="vllm-tool-parser",
        engine="vllm",
        level=Level.REFUSE,
        condition=tools_without_parser,
        message="the engine refuses to start",
        remedy="add --tool-call-parser, such as hermes for Qwen",
        source=("vllm/entrypoints/launchers/cli_args.py: “--enable-auto-tool-choice requires --tool-call-parser”",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-max-model-len",
        engine="vllm",
        level=Level.REFUSE,
        condition=too_long,
        message="the engine refuses to start: positions beyond the model's own give garbage or a crash",
        remedy="lower it, or stretch the model with rope parameters in --hf-overrides",
        source=("vllm/config/model.py, _get_and_verify_max_len: “is greater than the derived max_model_len”",),
        versions=_CHECKED,
    ),
    Rule(
        id="vllm-sleep-mode",
        engine="vllm",
        level=Level.WARN,
        condition=no_sleep,
        message="the release cannot sleep, and the way back to it would be a cold start",
        remedy="add --enable-sleep-mode",
        source=("https://docs.vllm.ai/en/latest/features/sleep_mode/",),
    ),
    Rule(
        id="vllm-sleep-endpoints",
        engine="vllm",
        level=Level.WARN,
        condition=no_sleep_endpoints,
        message="there is no /sleep, and the way back to the release would be a cold start",
        remedy="add it (it needs the admin role, and the front door passes none of these paths)",
        source=(
            "vllm/entrypoints/launchers/api_server/routers.py: register_vllm_dev_api_routers",
            "https://docs.vllm.ai/en/latest/features/sleep_mode/",
        ),
    ),
    Rule(
        id="vllm-fp8-cache",
        engine="vllm",
        level=Level.REFUSE,
        condition=every.fp8_cache_on_old_card,
        message="only Triton attention is left on such a card, and it has no FP8 KV cache below sm_89",
        remedy="use --kv-cache-dtype auto",
        source=(
            "vllm/v1/attention/backends/triton_attn.py: “native FP8 (fp8e4nv) requires SM89+”",
            "https://github.com/vllm-project/vllm/pull/35720",
            "https://github.com/vllm-project/vllm/issues/26431",
        ),
        versions=_CHECKED,
    ),
)
