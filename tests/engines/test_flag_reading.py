"""Flags are read as the real vLLM and SGLang read them, and what preflight refuses the real vLLM refuses."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import launch
from launch.compat import check
from launch.release import freeze
from launch.told import Told
from launch.topology import parse

TINY = Path(launch.__file__).parent / "models" / "tiny"

VLLM_PARSER = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for line in sys.stdin:
    args = parser.parse_args(json.loads(line))
    compilation = args.compilation_config
    sizes = args.cudagraph_capture_sizes or getattr(compilation, "cudagraph_capture_sizes", None)
    print("READ" + json.dumps([args.tensor_parallel_size, args.max_num_seqs, args.max_model_len, args.enforce_eager,
        args.enable_sleep_mode, args.enable_auto_tool_choice, args.tool_call_parser, args.speculative_config or {},
        sizes, getattr(compilation, "max_cudagraph_capture_size", None)]))
"""
SGLANG_PARSER = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for line in sys.stdin:
    args = parser.parse_args(["--model-path", "x", *json.loads(line)])
    print("READ" + json.dumps([args.tp_size, args.pp_size, args.dp_size, args.attn_dp_size, args.context_length,
        args.cuda_graph_bs_decode, args.cuda_graph_max_bs_decode, args.speculative_algorithm,
        args.speculative_draft_model_path, args.enable_memory_saver, args.tool_call_parser, args.disable_cuda_graph]))
"""
VLLM_CONFIG = """
import json, sys
from vllm.engine.arg_utils import EngineArgs
for line in sys.stdin:
    try:
        EngineArgs(**json.loads(line)).create_engine_config()
        print("READ" + json.dumps(""))
    except ValueError as error:
        print("READ" + json.dumps(str(error)))
"""
VLLM_FLAGS = (
    ["--max_num_seqs=8", "-tp", "2"],
    ["-tp=2", "--max-model-len", "128k"],
    ["--tensor-par", "4", "--max_model_len=128K"],
    ["--max-num-seqs", "8", "--max-num-seqs", "9"],
    ["--cudagraph-capture-sizes", "1", "2", "4", "--enforce_eager"],
    ["--compilation-config.cudagraph_capture_sizes+", "1,2"],
    ["-cc", '{"cudagraph_capture_sizes": [1, 2, 8]}'],
    ["-cc.max_cudagraph_capture_size", "4"],
    ["--speculative_config", '{"num_speculative_tokens": 3, "method": "ngram"}'],
    ["--speculative-config.num_speculative_tokens", "3", "--speculative-config.method=ngram"],
    ["--enable-auto-tool", "--tool-call-parser=hermes"],
    ["--enable-sleep-mode", "--no-enable-sleep-mode"],
)
SGLANG_FLAGS = (
    ["--tp", "2", "--dp", "2"],
    ["--tensor-parallel-size=4", "--pp-size", "2", "--context-length", "128Ki"],
    ["--cuda-graph-bs-decode", "1", "8", "32", "--cuda-graph-max-bs-dec", "4"],
    ["--speculative-algo", "EAGLE", "--speculative-draft-model", "/m", "--attn-dp", "2"],
    ["--context-length", "1M"],
    ["--enable-memory", "--tool-call-p", "auto", "--disable-cuda-graph"],
)


def answers(python, program, lines):
    """What the engine's own interpreter says to each line."""
    done = subprocess.run(
        [str(python), "-c", program],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    read = [json.loads(line.removeprefix("READ")) for line in done.stdout.splitlines() if line.startswith("READ")]
    assert len(read) == len(lines), done.stderr[-2000:]
    return read


def sizes_of(words):
    return [int(word) for word in words] if words else None


def vllm_reading(flags):
    told = Told(flags)
    config = told.mapping("--compilation-config", "-cc")
    return [
        told.number("--tensor-parallel-size", "-tp") or 1,
        told.number("--max-num-seqs"),
        told.number("--max-model-len"),
        told.has("--enforce-eager"),
        told.has("--enable-sleep-mode"),
        told.has("--enable-auto-tool-choice"),
        told.value("--tool-call-parser"),
        told.mapping("--speculative-config", "-sc"),
        sizes_of(told.values("--cudagraph-capture-sizes") or config.get("cudagraph_capture_sizes")),
        config.get("max_cudagraph_capture_size"),
    ]


def sglang_reading(flags):
    told = Told(flags, capitals_are_binary=False)
    return [
        told.number("--tp-size", "--tensor-parallel-size") or 1,
        told.number("--pp-size", "--pipeline-parallel-size") or 1,
        told.number("--dp-size", "--data-parallel-size") or 1,
        told.number("--attn-dp-size", "--attention-data-parallel-size") or 1,
        told.number("--context-length"),
        sizes_of(told.values("--cuda-graph-bs-decode")),
        told.number("--cuda-graph-max-bs-decode"),
        told.value("--speculative-algorithm"),
        told.value("--speculative-draft-model-path", "--speculative-draft-model"),
        told.has("--enable-memory-saver"),
        told.value("--tool-call-parser"),
        told.has("--disable-cuda-graph"),
    ]


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_vllm_reads_flags_as_we_do(vllm_python):
    for flags, read in zip(VLLM_FLAGS, answers(vllm_python, VLLM_PARSER, VLLM_FLAGS), strict=True):
        assert vllm_reading(flags) == read, flags


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_sglang_reads_flags_as_we_do(sglang_python):
    for flags, read in zip(SGLANG_FLAGS, answers(sglang_python, SGLANG_PARSER, SGLANG_FLAGS), strict=True):
        assert sglang_reading(flags) == read, flags


# Changes to the tiny model (4 heads, 4096 tokens), flags, the rule; None where vLLM starts.
CONFIGS = (
    ({}, {}, None),
    ({}, {"max_model_len": 4097}, "vllm-max-model-len"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, {"max_model_len": 16384}, None),
    (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}},
        {"max_model_len": 16384},
        "vllm-max-model-len",
    ),
    ({}, {"tensor_parallel_size": 3}, "vllm-attention-heads"),
    ({}, {"max_model_len": 8, "max_num_batched_tokens": 8, "max_num_seqs": 9}, "vllm-batched-tokens"),
)


@pytest.mark.engines
@pytest.mark.timeout(900)
def test_vllm_refuses_what_preflight_refuses(vllm_python, tmp_path):
    asked = []
    for number, (changes, settings, rule) in enumerate(CONFIGS):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in TINY.iterdir():
            (folder / file.name).symlink_to(file)
        config = json.loads((TINY / "config.json").read_text()) | changes
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(config))
        flags = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]
        document = {
            "name": "tiny",
            "serves": ["tiny"],
            "engine": "vllm",
            "model": str(folder),
            "flags": flags,
            "instances": {"a": {"gpus": settings.get("tensor_parallel_size", 1)}},
        }
        report = check(freeze(parse(json.dumps(document), source="tiny.yaml"), check_paths=False))
        assert [finding.rule for finding in report.refused()][:1] == ([rule] if rule else []), settings
        asked.append({"model": str(folder), **settings})
    for (_, settings, rule), error in zip(CONFIGS, answers(vllm_python, VLLM_CONFIG, asked), strict=True):
        assert bool(error) is bool(rule), (settings, error)
