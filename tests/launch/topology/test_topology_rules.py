"""What fits an engine, what is ours, and what is a secret."""

import pytest

from launch.engines.base import engine, engines, running_at_once
from launch.errors import TopologyError
from launch.topology import parse

VLLM = """\
name: box
serves: [m]
engine: vllm
model: /models/m
instances: {{a: {{gpus: 2}}}}
flags: [{flags}]
"""


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--port, 8000", "flags[0]: --port is not accepted: the port is chosen per attempt; remove it"),
        ("--max-num-seqs, 8, --host=0.0.0.0", "flags[2]: --host is not accepted"),
        ("--served_model_name, x", "--served-model-name is not accepted: write the names into the key serves"),
        ("--por, 1", "--por (read as --port) is not accepted"),
        ("--served, x", "--served (read as --served-model-name) is not accepted"),
        ("--api-key, sk-1", "--api-key is not accepted: argv is readable by every user of the box"),
        ("--config, /x.yaml", "--config is not accepted: a file of flags would hide them"),
        ("65536", "flags[0]: '65536' is a value without a flag"),
        ("--max-num-seqs 8", "flags[0]: '--max-num-seqs 8' is one word for the engine; write two: --max-num-seqs, 8"),
        ("--tensor-parallel-size, 4", "instances.a.gpus: the flags ask for 4 GPUs, and the instance has 2"),
        ("-tp, 2, -pp, 2", "instances.a.gpus: the flags ask for 4 GPUs, and the instance has 2"),
    ],
)
def test_a_flag_that_fights_what_we_own_is_refused(flags, sentence):
    with pytest.raises(TopologyError) as refused:
        parse(VLLM.format(flags=flags), source="box.yaml")
    assert sentence in str(refused.value)
    assert "box.yaml:6" in str(refused.value) or "box.yaml:5" in str(refused.value)


@pytest.mark.parametrize(
    "flags",
    ["--reasoning-parser, qwen3", "--max-num-seqs, -1", "--tensor-parallel-size=2", "-tp, 2", "--port-of-call, x", ""],
)
def test_other_flags_are_the_engines_own(flags):
    topology = parse(VLLM.format(flags=flags), source="box.yaml")
    assert list(topology.flags) == [word for word in flags.split(", ") if word]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("env: {", "env: {CUDA_VISIBLE_DEVICES: 0, ", "the GPUs are chosen per attempt; say how many or which"),
        ("env: {", "env: {PORT: 1, ", "env.PORT: PORT is not accepted here: the port is chosen per attempt"),
        ("env: {", "env: {CUTOVER_RUN_DIR: 1, ", "names that start with CUTOVER_ belong to the attempt"),
        ("env: {", "env: {HF_TOKEN: x, ", "the name says secret, and a release is readable; put it into a file"),
        ("env: {", "env: {A-B: x, ", "'A-B' is not an environment name"),
        ("a: {gpus: 2}", "a: {gpus: 2, env: {HOST: x}}", "instances.a.env.HOST: HOST is not accepted here"),
        ("a: {gpus: 2}, b: {gpus: 2}", "a: {gpus: [0, 1]}, b: {gpus: [1, 2]}", "GPU 1 is taken by instance a already"),
        (
            "a: {gpus: 2}, b: {gpus: 2}",
            "a: {gpus: [0, one]}",
            "'one' is not a GPU; expected an index such as 0, or a UUID",
        ),
        ("b: {gpus: 2}", "router: {gpus: 2}", "'router' is the router's own name"),
        ("kind: smg", "kind: smgg", "'smgg' is not a router; expected smg; did you mean smg?"),
        (
            "[--policy,",
            "[--worker-urls, x, --policy,",
            "router.flags[0]: --worker-urls is not accepted: the workers are",
        ),
        ("serves: [qwen3.8-27b]", "serves: [a, b]", "engine sglang serves one name, and 2 are given"),
        ("serves: [qwen3.8-27b]", "serves: [two words]", "'two words' is not a model name"),
        ("model: /models/Qwen3.8-27B\n", "", "engine sglang needs a model: an absolute path, or org/name of a hub"),
        ("model: /models/Qwen3.8-27B", "model: ~/m", "'~/m' is neither an absolute path nor org/name of a hub"),
        ("command: [/opt/sglang/bin/python", "command: [venv/bin/python", "is a relative path; give the absolute one"),
        ("engine: sglang", "engine: script", "engine script needs the path of your start script"),
        ("engine: sglang", "engine: sglang\nscript: /x.sh", "engine sglang starts its own program; remove script"),
        ("engine: sglang", "engine: emulator", "the emulator loads no model and takes its name from serves"),
        ("name:", "capability: {thinking: maybe}\nname:", "'maybe' is not accepted; expected none | always | switch"),
        ("name:", "capability: {thinkin: none}\nname:", "is not a known capability; expected thinking"),
        ("name:", "capability: {tools: 1}\nname:", "capability.tools: 1 is not accepted; expected true or false"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, before, after, sentence):
    with pytest.raises(TopologyError) as refused:
        changed((before, after))
    assert sentence in str(refused.value)


def test_names_that_only_look_like_secrets_are_free(changed):
    topology = changed(("env: {", 'env: {TOKENIZERS_PARALLELISM: "false", VLLM_MAX_TOKENS_PER_STEP: 8, MONKEYS: 1, '))
    assert topology.env["TOKENIZERS_PARALLELISM"] == "false"


def test_a_served_name_cannot_smuggle_a_flag_in(changed):
    with pytest.raises(TopologyError, match="'--trust-remote-code' is not a model name"):
        changed(("serves: [qwen3.8-27b]", "serves: [--trust-remote-code]"))


def test_arguments_of_a_script_are_its_own_affair():
    text = (
        "{name: own, serves: [m], engine: script, script: /x.sh, flags: [start, --port, 1], instances: {a: {gpus: 1}}}"
    )
    assert parse(text, source="box.yaml").flags == ("start", "--port", "1")


def test_cpu_instances_may_run_several_ranks(changed):
    topology = changed(("{a: {gpus: 2}, b: {gpus: 2}}", "{a: {gpus: 0}}"))
    assert topology.instances["a"].gpu_count == 0


def test_every_engine_names_its_counters_in_its_own_dialect():
    assert engine("vllm").metrics_for([]).running == "vllm:num_requests_running"
    assert engine("sglang").metrics_for([]).waiting == "sglang:num_queue_reqs"
    assert engine("llamacpp").metrics_for([]).generation_tokens_total == "llamacpp:tokens_predicted_total"
    for dialect, spoken in (("vllm", "vllm"), ("sglang", "sglang"), ("smg", "sglang"), ("llamacpp", "llamacpp")):
        assert engine("emulator").metrics_for(["--dialect", dialect]) == engine(spoken).metrics_for([])
    assert all(one.metrics_for([]).progress for one in engines().values())


@pytest.mark.parametrize(
    ("name", "line", "tokens"),
    [
        (
            "vllm",
            "INFO GPU KV cache size: 2,174,253 tokens, Maximum concurrency for 65,536 tokens: 33.18x",
            "2,174,253",
        ),
        ("vllm", "CPU KV cache size: 524,288 tokens, Maximum concurrency for 2,048 tokens per request", "524,288"),
        ("sglang", "max_total_num_tokens=270336, chunked_prefill_size=2048, max_running_requests=4", "270336"),
        ("llamacpp", "llama_context: n_ctx         = 65536", "65536"),
    ],
)
def test_the_kv_pool_is_read_from_the_log(name, line, tokens):
    match = engine(name).kv_pool_log.search(line)
    assert match is not None
    assert match["tokens"] == tokens


@pytest.mark.parametrize(
    ("flags", "running"),
    [
        ("[--tp-size, 2, --max-running-requests, 4]", 8),
        ("[--max-running-requests=16]", 32),
        ("[--max_running_requests, 16]", 32),
        ("[--tp-size, 2]", None),
        ("[--max-running-requests, 0]", None),
    ],
)
def test_how_many_requests_all_instances_run_at_once(changed, flags, running):
    before = "[--tp-size, 2, --context-length, 262144, --mem-fraction-static, 0.90]"
    assert running_at_once(changed((before, flags))) == running
