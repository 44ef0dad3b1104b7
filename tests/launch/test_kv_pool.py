"""The size of a KV pool, from what engines say in their logs and among their metrics."""

from __future__ import annotations

import pytest

from launch.engines.base import engine
from launch.kv_pool import tokens_in_log, tokens_on_page

VLLM_PAGE = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",%snum_gpu_blocks="4096",sliding_window="None"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
"""


@pytest.fixture
def log(tmp_path):
    def write(**parts: str):
        for suffix, text in parts.items():
            (tmp_path / f"engine.log{'' if suffix == 'newest' else f'.{suffix}'}").write_text(text)
        return tmp_path

    return write


def test_the_log_is_read_to_its_beginning(log):
    head = "INFO GPU KV cache size: 2,174,253 tokens, Maximum concurrency for 65,536 tokens per request: 33.18x\n"
    run_dir = log(head=head, newest="INFO GET /health\n" * 50_000)
    assert tokens_in_log(run_dir, engine("vllm").kv_pool_log) == 2_174_253
    assert tokens_in_log(run_dir, engine("sglang").kv_pool_log) is None


def test_of_several_replicas_the_one_with_the_least_room_counts(log):
    run_dir = log(newest="DP0 max_total_num_tokens=270336, x\nDP1 max_total_num_tokens=190000, x\n")
    assert tokens_in_log(run_dir, engine("sglang").kv_pool_log) == 190_000


def test_a_pool_that_is_partly_on_the_host_is_a_pool(log):
    run_dir = log(newest="GPU + host KV cache size: 1,000 tokens, Maximum\n")
    assert tokens_in_log(run_dir, engine("vllm").kv_pool_log) == 1000


def test_without_a_log_nothing_is_known(tmp_path):
    assert tokens_in_log(tmp_path / "nowhere", engine("vllm").kv_pool_log) is None


@pytest.mark.parametrize(
    ("name", "page", "tokens"),
    [
        ("vllm", VLLM_PAGE % 'kv_cache_size_tokens="60000",', 60_000),
        ("vllm", VLLM_PAGE % 'kv_cache_size_tokens="None",', 65_536),
        ("vllm", VLLM_PAGE % "", 65_536),
        ("vllm", VLLM_PAGE.replace("4096", "None") % "", None),
        (
            "vllm",
            (VLLM_PAGE % "") + (VLLM_PAGE % "").replace('engine="0"', 'engine="1"').replace("4096", "4000"),
            64_000,
        ),
        ("sglang", 'sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 270336.0\n', 270_336),
        ("sglang", "sglang:max_total_num_tokens 0.0\n", None),
        ("emulator", 'sglang:max_total_num_tokens{model_name="m"} 1000.0\n', 1000),
        ("llamacpp", "llamacpp:requests_processing 0\n", None),
        ("vllm", "", None),
    ],
)
def test_the_metrics_tell_it_too(name, page, tokens):
    assert tokens_on_page(page, engine(name).kv_pool_metrics) == tokens
