"""/metrics: the names under which vLLM, SGLang (also behind smg) and llama.cpp count the same things."""

from .engine import Engine
from .settings import Dialect

_Sample = tuple[str, str, str, float]  # name, kind, extra labels, value


def render_metrics(engine: Engine) -> bytes:
    """The Prometheus text format."""
    model = engine.settings.models[0]
    if engine.settings.dialect.is_vllm:
        samples, base = _vllm(engine), f'engine="0",model_name="{model}"'
    elif engine.settings.dialect is Dialect.LLAMACPP:
        samples, base = _llamacpp(engine), ""
    else:
        rank = f'engine_type="unified",model_name="{model}",pp_rank="0",tp_rank="0"'
        samples, base = _sglang(engine), rank
    lines: list[str] = []
    announced: set[str] = set()
    for name, kind, labels, value in samples:
        if name not in announced:
            announced.add(name)
            lines += [f"# HELP {name} Emulated.", f"# TYPE {name} {kind}"]
        pairs = ",".join(filter(None, (base, labels)))
        text = f"{{{pairs}}}" if pairs else ""
        lines.append(f"{name}{text} {float(value)}")
    return ("\n".join(lines) + "\n").encode()


def _vllm(engine: Engine) -> list[_Sample]:
    counters = engine.counters
    computed = counters.prompt_tokens - counters.cached_tokens
    pool = f'block_size="16",num_gpu_blocks="{engine.settings.kv_tokens // 16}"'
    asleep = engine.sleep_level
    return [
        ("vllm:num_requests_running", "gauge", "", engine.running_count),
        ("vllm:num_requests_waiting", "gauge", "", engine.waiting_count),
        ("vllm:engine_sleep_state", "gauge", 'sleep_state="awake"', int(asleep == 0)),
        ("vllm:engine_sleep_state", "gauge", 'sleep_state="weights_offloaded"', int(asleep == 1)),
        ("vllm:engine_sleep_state", "gauge", 'sleep_state="discard_all"', int(asleep == 2)),
        ("vllm:kv_cache_usage_perc", "gauge", "", min(1.0, engine.kv_tokens_used / engine.settings.kv_tokens)),
        ("vllm:prefix_cache_queries_total", "counter", "", counters.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "counter", "", counters.cached_tokens),
        ("vllm:num_preemptions_total", "counter", "", 0),
        ("vllm:prompt_tokens_total", "counter", "", counters.prompt_tokens),
        ("vllm:prompt_tokens_by_source_total", "counter", 'source="local_compute"', computed),
        ("vllm:prompt_tokens_by_source_total", "counter", 'source="local_cache_hit"', counters.cached_tokens),
        ("vllm:prompt_tokens_cached_total", "counter", "", counters.cached_tokens),
        ("vllm:prompt_tokens_cached_by_source_total", "counter", 'source="device"', counters.cached_tokens),
        ("vllm:generation_tokens_total", "counter", "", counters.generation_tokens),
        *(
            ("vllm:request_success_total", "counter", f'finished_reason="{reason}"', counters.finished[reason])
            for reason in ("stop", "length", "abort", "error")
        ),
        ("vllm:time_to_first_token_seconds_count", "counter", "", counters.first_tokens),
        # A histogram in vLLM; its sum is what shows that work is done during a long prefill.
        ("vllm:iteration_tokens_total_sum", "counter", "", engine.computed_tokens()),
        ("vllm:cache_config_info", "gauge", pool, 1),
    ]


def _sglang(engine: Engine) -> list[_Sample]:
    counters = engine.counters
    prefilled = engine.computed_tokens() - counters.generation_tokens
    finished = sum(counters.finished.values())
    hits = counters.cached_tokens / counters.prompt_tokens if counters.prompt_tokens else 0.0
    return [
        ("sglang:num_running_reqs", "gauge", "", engine.running_count),
        ("sglang:num_queue_reqs", "gauge", "", engine.waiting_count),
        ("sglang:num_used_tokens", "gauge", "", engine.kv_tokens_used),
        ("sglang:token_usage", "gauge", "", min(1.0, engine.kv_tokens_used / engine.settings.kv_tokens)),
        ("sglang:max_total_num_tokens", "gauge", "", engine.settings.kv_tokens),
        ("sglang:cache_hit_rate", "gauge", "", hits),
        # SGLang counts these two when a request ends; the realtime counter moves in between.
        ("sglang:prompt_tokens_total", "counter", "", counters.ended_prompt_tokens),
        ("sglang:generation_tokens_total", "counter", "", counters.ended_generation_tokens),
        ("sglang:realtime_tokens_total", "counter", 'mode="prefill_compute"', prefilled),
        ("sglang:realtime_tokens_total", "counter", 'mode="prefill_cache"', counters.cached_tokens),
        ("sglang:realtime_tokens_total", "counter", 'mode="decode"', counters.generation_tokens),
        ("sglang:cached_tokens_total", "counter", 'cache_source="device"', counters.cached_tokens),
        ("sglang:num_requests_total", "counter", "", finished),
        ("sglang:num_aborted_requests_total", "counter", "", counters.finished["abort"]),
        ("sglang:num_retracted_reqs", "gauge", "", 0),
        ("sglang:num_retracted_requests_total", "counter", "", 0),
    ]


def _llamacpp(engine: Engine) -> list[_Sample]:
    counters = engine.counters
    return [
        ("llamacpp:requests_processing", "gauge", "", engine.running_count),
        ("llamacpp:requests_deferred", "gauge", "", engine.waiting_count),
        ("llamacpp:prompt_tokens_total", "counter", "", counters.prompt_tokens - counters.cached_tokens),
        ("llamacpp:tokens_predicted_total", "counter", "", counters.generation_tokens),
        # One decode computes one token of every running request; that of a single request is the bound we know.
        ("llamacpp:n_decode_total", "counter", "", engine.computed_tokens()),
        ("llamacpp:kv_cache_usage_ratio", "gauge", "", min(1.0, engine.kv_tokens_used / engine.settings.kv_tokens)),
    ]
