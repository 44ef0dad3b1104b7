"""Preflight: every rule where it fires and where it does not, how flags are read, and what is not known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import launch
from launch import compat
from launch.compat import EVERY_ENGINE, Box, Level, Rule, Versions, check
from launch.compat_rules import RULES
from launch.release import freeze
from launch.told import Told, whole_number
from launch.topology import load, parse

SHIPPED = sorted((Path(launch.__file__).parent / "topologies").glob("*.yaml"))
ROOT = Path(__file__).parents[2]
V100, H200 = (7, 0), (9, 0)
TOOLS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
PARSER = ["--tool-call-parser", "qwen3_coder"]
MTP3 = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
GRAPHS8 = ["--compilation-config", '{"cudagraph_capture_sizes": [1, 2, 4, 8]}']


@pytest.fixture
def model(tmp_path):
    """A model folder with 24 attention heads, 4 KV heads and 40960 tokens; keys can be changed."""

    def make(**changes):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        config = {"num_attention_heads": 24, "num_key_value_heads": 4, "max_position_embeddings": 40960, **changes}
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


def release(engine, flags, *, model=None, gpus=4, rules=True, version=None, serves="qwen", **keys):
    """A frozen topology of this engine; `version` is what its provenance says."""
    kind = {"vllm": "/models/qwen", "sglang": "/models/qwen", "llamacpp": "/models/qwen.gguf"}
    document = {
        "name": "candidate",
        "serves": [serves],
        "engine": engine,
        "instances": {"a": {"gpus": gpus}},
        "flags": [str(word) for word in flags],
        **({"model": model or kind[engine]} if engine in kind else {}),
        **keys,
    }
    frozen = freeze(parse(json.dumps(document), source="box.yaml", rules=rules), check_paths=False)
    if version is None:
        return frozen
    identity = {**frozen.manifest["identity"], "engine": {"name": engine, "version": version}}
    return replace(frozen, manifest={**frozen.manifest, "identity": identity})


def fired(report):
    return {finding.rule for finding in report.findings}


SAYS_TOOLS = {"capability": {"parallel_calls": True}}
NO_TOOLS = {"capability": {"tools": False}}
DRAFT = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "/models/draft"]
SLEEPY = Box(wants_sleep=True)

# rule, engine, flags and keys where it fires, flags and keys where it does not
CASES = [
    ("vllm-attention-heads", "vllm", ["-tp", 5], {"gpus": 5}, ["-tp", 4], {}),
    ("vllm-kv-heads", "vllm", ["--tensor-parallel-size=3"], {}, ["-tp", 2], {}),
    ("vllm-kv-heads-repeated", "vllm", ["-tp", 8], {"gpus": 8}, ["-tp", 4], {}),
    ("vllm-graph-sizes", "vllm", ["--max-num-seqs", 32, *GRAPHS8], {}, ["--max-num-seqs", 8, *GRAPHS8], {}),
    ("vllm-graph-sizes", "vllm", ["--max_num_seqs=8", *GRAPHS8, *MTP3], {}, [*GRAPHS8, "--enforce-eager"], {}),
    (
        "vllm-graph-sizes",
        "vllm",
        ["--max-num-seqs", 9, "--cudagraph-capture-sizes", 1, 2, 4, 8],
        {},
        ["--max-num-seqs", 8, "--cudagraph-capture-sizes", 1, 2, 4, 8],
        {},
    ),
    (
        "vllm-graph-sizes",
        "vllm",
        ["--max-num-seqs", 8, "--compilation-config.max_cudagraph_capture_size", 4],
        {},
        ["--max-num-seqs", 8, "-cc", '{"cudagraph_mode": "NONE", "max_cudagraph_capture_size": 4}'],
        {},
    ),
    ("vllm-graph-default", "vllm", ["--max-num-seqs", 256, *MTP3], {}, ["--max-num-seqs", 128, *MTP3], {}),
    (
        "vllm-batched-tokens",
        "vllm",
        ["--max-num-batched-tokens", 64, "--max-num-seqs", 65],
        {},
        ["--max-num-batched-tokens", "2k", "--max-num-seqs", 65],
        {},
    ),
    ("vllm-tools", "vllm", [], SAYS_TOOLS, TOOLS, SAYS_TOOLS),
    ("vllm-tools-unsaid", "vllm", [], {}, [], NO_TOOLS),
    ("vllm-tool-parser", "vllm", ["--enable-auto-tool-choice"], {}, TOOLS, {}),
    ("vllm-max-model-len", "vllm", ["--max-model-len", "128k"], {}, ["--max-model-len", 40960], {}),
    (
        "vllm-max-model-len",
        "vllm",
        ["--max-model-len", 65536],
        {},
        ["--max-model-len", 65536, "--hf-overrides", '{"rope_parameters": {"rope_type": "yarn"}}'],
        {},
    ),
    (
        "vllm-max-model-len",
        "vllm",
        ["--max-model-len", 65536],
        {"env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}},
        ["--max-model-len", 65536],
        {"env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}},
    ),
    ("vllm-sleep-mode", "vllm", [], {"box": SLEEPY}, ["--enable-sleep-mode"], {"box": SLEEPY}),
    (
        "vllm-sleep-endpoints",
        "vllm",
        ["--enable-sleep-mode"],
        {"box": SLEEPY},
        ["--enable-sleep-mode"],
        {"box": SLEEPY, "env": {"VLLM_SERVER_DEV_MODE": "1"}},
    ),
    (
        "vllm-fp8-cache",
        "vllm",
        ["--kv-cache-dtype", "fp8_e5m2"],
        {"box": Box(V100)},
        ["--kv-cache-dtype", "fp8_e5m2"],
        {"box": Box(H200)},
    ),
    ("sglang-dflash-pipeline", "sglang", [*DRAFT, "--pp-size", 2], {}, DRAFT, {}),
    (
        "sglang-dspark-pipeline",
        "sglang",
        ["--speculative-algorithm", "dspark", "--pipeline-parallel-size", 2],
        {},
        ["--speculative-algorithm", "DSPARK", "--pp-size", 2, "--disaggregation-mode", "prefill"],
        {},
    ),
    (
        "sglang-uno-parallel",
        "sglang",
        ["--speculative-algorithm", "UNO", "--tp", 2],
        {},
        ["--speculative-algorithm", "UNO"],
        {},
    ),
    (
        "sglang-eagle-pipeline",
        "sglang",
        ["--speculative-algorithm", "NEXTN", "--pp-size", 2],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "0"}},
        ["--speculative-algorithm", "EAGLE", "--pp-size", 2],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
    ),
    (
        "sglang-eagle-pipeline-limits",
        "sglang",
        ["--speculative-algorithm", "EAGLE", "--pp-size", 2, "--tp-size", 2, "--attn-dp-size", 2],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "true"}},
        ["--speculative-algorithm", "EAGLE", "--pp-size", 2, "--tp-size", 2],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "true"}},
    ),
    (
        "sglang-eagle-pipeline-limits",
        "sglang",
        ["--speculative-algorithm", "EAGLE", "--pp-size", 2, "--speculative-adaptive"],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
        ["--speculative-algorithm", "EAGLE", "--speculative-adaptive"],
        {"env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
    ),
    (
        "sglang-speculation-pipeline",
        "sglang",
        ["--speculative-algorithm", "EAGLE3", "--pp-size", 2],
        {},
        ["--speculative-algorithm", "EAGLE3"],
        {},
    ),
    ("sglang-dflash-draft", "sglang", ["--speculative-algorithm", "DFLASH"], {}, DRAFT, {}),
    (
        "sglang-uno-adapter",
        "sglang",
        ["--speculative-algorithm", "UNO"],
        {},
        ["--speculative-algorithm", "UNO", "--uno-lora-path", "/models/uno"],
        {},
    ),
    (
        "sglang-all-reduce-pipeline",
        "sglang",
        ["--pp-size", 2, "--tp-size", 2],
        {},
        ["--pp-size", 2, "--tp-size", 2, "--disable-custom-all-reduce"],
        {},
    ),
    ("sglang-attention-heads", "sglang", ["--tp-size", 5], {"gpus": 5}, ["--tp-size", 4], {}),
    (
        "sglang-kv-heads",
        "sglang",
        ["--tp-size", 6],
        {"gpus": 6},
        ["--tp-size", 6, "--attn-dp-size", 3],
        {"gpus": 6},
    ),
    (
        "sglang-graph-sizes",
        "sglang",
        ["--cuda-graph-max-bs", 8, "--max-running-requests", 32],
        {},
        ["--cuda-graph-bs-decode", 1, 8, 32, "--max-running-requests", 32],
        {},
    ),
    (
        "sglang-graph-sizes",
        "sglang",
        ["--cuda-graph-config", '{"decode": {"max_bs": 16}}', "--max-running-requests", 32],
        {},
        ["--cuda-graph-max-bs-decode", 8, "--max-running-requests", 32, "--disable-cuda-graph"],
        {},
    ),
    ("sglang-tools", "sglang", [], SAYS_TOOLS, PARSER, SAYS_TOOLS),
    ("sglang-tools-unsaid", "sglang", [], {}, [], NO_TOOLS),
    ("sglang-context-length", "sglang", ["--context-length", 40961], {}, ["--context-length", 40960], {}),
    (
        "sglang-context-length",
        "sglang",
        ["--context-length", "262144"],
        {},
        ["--context-length", "262144", "--json-model-override-args", '{"rope_scaling": {"factor": 8}}'],
        {},
    ),
    ("sglang-memory-saver", "sglang", [], {"box": SLEEPY}, ["--enable-memory-saver"], {"box": SLEEPY}),
    (
        "sglang-weights-backup",
        "sglang",
        ["--enable-memory-saver"],
        {"box": SLEEPY},
        ["--enable-memory-saver", "--enable-weights-cpu-backup"],
        {"box": SLEEPY},
    ),
    (
        "sglang-hicache-radix",
        "sglang",
        ["--enable-hierarchical-cache", "--disable-radix-cache"],
        {},
        ["--enable-hierarchical-cache"],
        {},
    ),
    (
        "sglang-chunk-page",
        "sglang",
        ["--chunked-prefill-size", 2048, "--page-size", 96],
        {},
        ["--chunked-prefill-size", 2048, "--page-size", 64],
        {},
    ),
    ("sglang-served-colon", "sglang", [], {"serves": "qwen:27b"}, [], {"serves": "qwen-27b"}),
    ("sglang-underscores", "sglang", ["--tp_size", 2], {}, ["--tp-size", 2, "--dtype", "a_b"], {}),
    (
        "sglang-fp8-cache",
        "sglang",
        ["--kv-cache-dtype", "fp8_e5m2"],
        {"box": Box(V100)},
        ["--kv-cache-dtype", "fp8_e5m2"],
        {"box": Box((8, 6))},
    ),
    ("llamacpp-joined-flag", "llamacpp", ["--ctx-size=4096"], {}, ["-ot", "exps=CPU"], {}),
    ("llamacpp-quantised-values", "llamacpp", ["-ctv", "q8_0", "-fa", "off"], {}, ["-ctv", "q8_0", "-fa", "on"], {}),
    (
        "llamacpp-quantised-values",
        "llamacpp",
        ["--cache_type_v", "q4_0"],
        {"env": {"LLAMA_ARG_FLASH_ATTN": "off"}},
        ["--cache_type_v", "q4_0", "--flash-attn"],
        {"env": {"LLAMA_ARG_FLASH_ATTN": "off"}},
    ),
    ("llamacpp-quantised-values-auto", "llamacpp", ["-ctv", "q8_0"], {}, ["-ctv", "bf16"], {}),
    (
        "llamacpp-mixed-cache",
        "llamacpp",
        ["-ctk", "q8_0", "-fa", "on"],
        {},
        ["-ctk", "q8_0", "-ctv", "q4_0", "-fa", "on"],
        {},
    ),
    (
        "llamacpp-mixed-cache",
        "llamacpp",
        ["-fa", "on"],
        {"env": {"LLAMA_ARG_CACHE_TYPE_K": "q4_0"}},
        ["-ctk", "f16"],
        {"env": {"LLAMA_ARG_CACHE_TYPE_K": "q4_0"}},
    ),
    (
        "llamacpp-cache-kernel",
        "llamacpp",
        ["-ctk", "q5_1", "-ctv", "q5_1", "-fa", "on"],
        {},
        ["-ctk", "q5_1", "-ctv", "q5_1", "-fa", "on"],
        {"gpus": 0},
    ),
    ("llamacpp-tools", "llamacpp", ["--no-jinja"], SAYS_TOOLS, ["--jinja"], SAYS_TOOLS),
    ("llamacpp-split-tensor", "llamacpp", ["-sm", "tensor"], {}, ["-sm", "layer"], {}),
    ("llamacpp-tensor-split", "llamacpp", ["-ts", "1,1"], {}, ["-ts", "1,1,1,1"], {}),
    (
        "llamacpp-slot-context",
        "llamacpp",
        ["-c", 65536, "-np", 8],
        {"capability": {"max_context_tokens": 16384}},
        ["-c", 131072, "-np", 8],
        {"capability": {"max_context_tokens": 16384}},
    ),
    ("ours-flag", "vllm", ["--port", 8000], {"rules": False}, ["--max-model-len", 4096], {"rules": False}),
    ("ours-flag", "sglang", ["--served-model", "x"], {"rules": False}, ["--tp-size", 2], {"rules": False}),
    (
        "ours-env",
        "emulator",
        [],
        {"rules": False, "env": {"CUDA_VISIBLE_DEVICES": "0,1"}},
        [],
        {"rules": False, "env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
    ),
    ("gpus-short", "vllm", ["-tp", 4, "-pp", 2], {"rules": False}, ["-tp", 2, "-pp", 2], {"rules": False}),
    ("gpus-idle", "sglang", ["--tp-size", 2], {}, ["--tp-size", 2, "--dp-size", 2], {}),
]


def judged(engine, flags, keys, model_path):
    keys = dict(keys)
    box = keys.pop("box", Box())
    where = {"model": model_path} if engine in {"vllm", "sglang"} else {}
    return check(release(engine, flags, **where, **keys), box)


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case[0]}-{number}") for number, case in enumerate(CASES)])
def test_a_rule_fires_where_it_should_and_only_there(case, model):
    rule, engine, bad, bad_keys, good, good_keys = case
    assert rule in fired(judged(engine, bad, bad_keys, model()))
    assert rule not in fired(judged(engine, good, good_keys, model()))


def test_every_rule_has_a_case_and_says_all_there_is_to_say():
    assert {case[0] for case in CASES} == {rule.id for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.condition.__doc__
        assert rule.message
        assert rule.remedy
        assert rule.source


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_nothing_that_is_shipped_is_refused_or_warned_of(path):
    assert check(freeze(load(path), check_paths=False)).findings == ()


def test_a_refusal_says_what_why_and_what_to_do():
    report = check(release("sglang", [*DRAFT, "--pp-size", 2, "--tp-size", 2, *PARSER], version="0.5.23"))
    (refusal,) = report.refused()
    assert refusal.sentence == (
        "--speculative-algorithm DFLASH with --pp-size 2: the engine refuses to start: "
        "DFLASH works with one pipeline stage only; drop the speculation or the pipeline"
    )
    assert report.findings[0] is refusal  # refusals come first
    assert report.refused({"sglang-dflash-pipeline": "a patched build"}) == ()


def test_of_a_newer_engine_a_refusal_is_only_a_warning():
    found = check(release("sglang", [*DRAFT, "--pp-size", 2], version="0.6.1rc2")).findings
    finding = next(one for one in found if one.rule == "sglang-dflash-pipeline")
    assert finding.level is Level.WARN
    assert "so it was in 0.5.23; this is 0.6.1rc2" in finding.sentence


def test_an_unknown_version_is_said():
    found = check(release("sglang", [*DRAFT, "--pp-size", 2])).findings
    finding = next(one for one in found if one.rule == "sglang-dflash-pipeline")
    assert finding.level is Level.REFUSE
    assert "version is not known here" in finding.sentence


@pytest.mark.parametrize(
    ("version", "fires"), [("0.9.9", False), ("0.10.0", True), ("0.11.2+cu128", True), ("0.12", False), (None, True)]
)
def test_versions_are_a_range(version, fires):
    rule = Rule(
        id="of-a-range",
        engine=EVERY_ENGINE,
        level=Level.REFUSE,
        condition=lambda _: "flags",
        message="do not work",
        remedy="change them",
        source=("a test",),
        versions=Versions(since="0.10", until="0.12"),
    )
    assert bool(check(release("vllm", [], version=version), rules=[rule]).findings) is fires


def test_what_cannot_be_told_refuses_nothing_and_is_named():
    report = check(release("vllm", ["-tp", 3, "--kv-cache-dtype", "fp8", *TOOLS], model="org/model", gpus=3))
    assert report.findings == ()
    why = dict(report.untold)
    assert why["vllm-kv-heads"] == "org/model is a model of a hub, and not on this box"
    assert "compute capability" in why["vllm-fp8-cache"]


def test_a_damaged_model_configuration_is_not_a_refusal(model):
    folder = Path(model())
    for text in ("not json", "[1]", '{"num_attention_heads": "many", "num_key_value_heads": -4}'):
        (folder / "config.json").write_text(text)
        assert check(release("vllm", ["-tp", 3, *TOOLS], model=str(folder), gpus=3)).findings == ()


def test_latent_attention_has_no_kv_heads_to_divide(model):
    assert "vllm-kv-heads" not in fired(judged("vllm", ["-tp", 3], {"gpus": 3}, model(kv_lora_rank=512)))


def test_a_multimodal_model_keeps_its_heads_deeper(model):
    path = model(num_attention_heads=None, text_config={"num_attention_heads": 30, "num_key_value_heads": 2})
    assert "vllm-attention-heads" in fired(judged("vllm", ["-tp", 4], {}, path))


def test_rope_of_the_model_itself_stretches_it(model):
    path = model(rope_scaling={"rope_type": "linear", "factor": 4.0})
    assert "vllm-max-model-len" not in fired(judged("vllm", ["--max-model-len", 163840], {}, path))
    stretched = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10240}
    path = model(rope_scaling=stretched)  # its own length counts the stretch already
    assert "vllm-max-model-len" in fired(judged("vllm", ["--max-model-len", 163840], {}, path))


NONSENSE = ("{", "[]", "5", '"x"', "null", '{"a":' * 9000, "9" * 5000, "-", "", "\u0663", "1e99", '{"": {"": []}}')


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "emulator", "script"])
def test_no_flag_breaks_preflight(engine, model, tmp_path):
    """Whatever stands behind a flag, the engine may choke on it; preflight does not."""
    words = {word for rule in RULES for word in rule.condition.__code__.co_consts if isinstance(word, str)}
    flags = sorted({word for word in words if word.startswith("-")} | {"-cc", "-sc", "--compilation-config.x.y+"})
    script = {"script": str(tmp_path / "start.sh")} if engine == "script" else {}
    where = {"model": model()} if engine in {"vllm", "sglang"} else {}
    frozen = release(engine, [], rules=False, **script, **where)
    for flag in (*flags, "--compilation-config", "--speculative-config", "--cuda-graph-config", "--kv-cache-dtype"):
        for value in NONSENSE:
            for words in ((flag, value, *MTP3), (f"{flag}={value}", "--max-num-seqs", "4")):
                told = frozen.topology.model_copy(update={"flags": words})
                check(replace(frozen, topology=told), Box(V100, wants_sleep=True))


def test_deep_json_can_be_frozen_and_checked():
    assert check(release("vllm", ["-cc", '{"a":' * 9000, *TOOLS], gpus=1)).findings == ()


@pytest.mark.parametrize("inside", ["5", '"a"', "null", "[[1]]", "{}", "true", '["x", 1e400]'])
def test_no_json_breaks_preflight(inside, model):
    for flag, text in (
        ("--compilation-config", '{"cudagraph_capture_sizes": %s, "cudagraph_mode": %s}'),
        ("--compilation-config", '{"max_cudagraph_capture_size": %s, "x": %s}'),
        ("--speculative-config", '{"num_speculative_tokens": %s, "method": %s}'),
        ("--cuda-graph-config", '{"decode": %s, "prefill": %s}'),
        ("--cuda-graph-config", '{"decode": {"bs": %s, "backend": %s}}'),
        ("--cuda-graph-config", '{"decode": {"max_bs": %s, "x": %s}}'),
    ):
        flags = [flag, text % (inside, inside), "--max-num-seqs", "4", "--max-running-requests", "4"]
        for engine in ("vllm", "sglang"):
            judged(engine, flags, {}, model(text_config=json.loads(inside), rope_scaling=json.loads(inside)))


def test_instances_with_environments_of_their_own_are_told_apart(model):
    instances = {
        "a": {"gpus": 2, "env": {"SGLANG_ENABLE_PP_SPEC": "1"}},
        "b": {"gpus": 2},
    }
    flags = ["--speculative-algorithm", "EAGLE", "--pp-size", 2]
    found = judged("sglang", flags, {"instances": instances}, model()).findings
    finding = next(one for one in found if one.rule == "sglang-eagle-pipeline")
    assert finding.instances == ("b",)
    tools = next(one for one in found if one.rule == "sglang-tools-unsaid")
    assert tools.instances == ("a", "b")


def test_flags_are_read_as_the_engine_reads_them():
    told = Told(("--max_num_seqs=8", "-tp", "2", "--max-num-seqs", "9", "--tensor-paral", "4", "-x", "-1"))
    assert told.number("--max-num-seqs") == 9
    assert told.number("--tensor-parallel-size", "-tp") == 4
    assert told.number("-x") is None
    assert Told(("--tensor-paral", "4"), abbreviates=False).value("--tensor-parallel-size") is None
    assert not Told(("--enable-sleep-mode", "--no-enable-sleep-mode")).has("--enable-sleep-mode")
    assert Told(("--data-parallel-size", "4")).value("--data-parallel-size-local") is None


def test_pieces_of_a_json_option_make_one():
    flags = (
        "--speculative_config.num_speculative_tokens=3",
        "--speculative-config.method",
        "mtp",
        "--compilation-config.cudagraph_capture_sizes+=1,2,4",
        "--compilation-config.pass_config.fuse",
        "true",
    )
    told = Told(flags)
    assert told.mapping("--speculative-config") == {"num_speculative_tokens": 3, "method": "mtp"}
    assert told.mapping("--compilation-config") == {
        "cudagraph_capture_sizes": ["1", "2", "4"],
        "pass_config": {"fuse": True},
    }
    assert Told(("-cc", "{broken")).mapping("-cc") == {}
    assert Told(("-cc",)).mapping("-cc") == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [("131072", 131072), ("128k", 128_000), ("128K", 131_072), ("25.6k", 25_600), ("auto", None), ("-1", None)],
)
def test_numbers_people_write(text, number):
    assert whole_number(text) == number


def test_a_capital_means_another_number_in_sglang():
    assert (whole_number("1M"), whole_number("1M", capitals_are_binary=False)) == (1 << 20, 10**6)
    assert whole_number("128Ki", capitals_are_binary=False) == 131_072


def test_the_page_is_the_table():
    stale = "run `python -m launch.compat > docs/preflight.md`"
    assert (ROOT / "docs" / "preflight.md").read_text() == compat.markdown(), stale


def test_a_rule_that_is_misspelt_has_a_nearest():
    assert compat.unknown_rule("sglang-dflash-pipeline") is None
    assert "did you mean sglang-dflash-pipeline?" in (compat.unknown_rule("sglang-dflash-pipelin") or "")
    assert "docs/preflight.md" in (compat.unknown_rule("zzz") or "")
