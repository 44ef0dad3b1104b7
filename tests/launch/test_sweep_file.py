"""A file with a matrix becomes arms, or is refused with file, line and key."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launch import topology
from launch.errors import TopologyError
from launch.sweep import ARMS_MAX, parse
from launch.sweep_axes import with_flag

BASE = """\
name: qwen27b
serves: [qwen]
engine: {engine}
model: /models/q.gguf
flags: [{flags}]
instances: {{a: {{gpus: 2}}}}
sweep:
{sweep}
"""


def arms(sweep, flags="--kv-cache-dtype, auto, --max-num-seqs, 8", engine="vllm"):
    indented = "\n".join(f"  {line}" for line in sweep.splitlines())
    return parse(BASE.format(sweep=indented, flags=flags, engine=engine), source="s.yaml").arms


def flags(sweep, **more):
    return [" ".join(arm.topology.flags) for arm in arms(sweep, **more)]


def refusal(sweep, **more):
    with pytest.raises(TopologyError) as refused:
        arms(sweep, **more)
    return str(refused.value)


def test_the_matrix_of_the_issue():
    found = arms("kv-cache-dtype: [auto, fp8]\nnum-speculative-tokens: [0,1,2,3]")
    assert len(found) == 8
    assert found[0].name == "kv-cache-dtype=auto,num-speculative-tokens=0"
    assert found[0].settings == {"kv-cache-dtype": "auto", "num-speculative-tokens": "0"}
    assert found[7].topology.flags == (
        *("--kv-cache-dtype", "fp8", "--max-num-seqs", "8", "--num-speculative-tokens", "3"),
    )
    names = [arm.topology.name for arm in found]
    assert names[1] == "qwen27b-kv-cache-dtype-auto-num-speculative-tokens-1"
    assert len(set(names)) == 8


def test_every_arm_is_a_topology_that_reads_back_as_itself():
    for arm in arms("kv-cache-dtype: [auto, fp8]\nenable-prefix-caching: [true, false]"):
        assert topology.parse(arm.topology.to_yaml(), source="arm") == arm.topology


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("max-num-seqs: [8, 32]", ["--max-num-seqs 8 --x", "--max-num-seqs 32 --x"]),
        ("max_num_seqs: [32]", ["--max_num_seqs 32 --x"]),
        ("x: [true, false]", ["--max-num-seqs 8 --x", "--max-num-seqs 8"]),
        ("x: [null]", ["--max-num-seqs 8"]),
        ("y: [null, 0.90]", ["--max-num-seqs 8 --x", "--max-num-seqs 8 --x --y 0.90"]),
        ("sizes: [[1, 2, 4], [1, 32]]", ["--max-num-seqs 8 --x --sizes 1 2 4", "--max-num-seqs 8 --x --sizes 1 32"]),
        ("-np: [-1]", ["--max-num-seqs 8 --x -np -1"]),
    ],
)
def test_a_flag_is_set_added_or_taken_away(axis, expected):
    assert flags(axis, flags="--max-num-seqs, 8, --x") == expected


def test_a_flag_that_is_there_twice_is_set_once():
    assert with_flag(["--lora=a", "--x", "--lora", "b"], "--lora", "c") == ["--lora", "c", "--x"]


def test_a_key_inside_a_json_flag():
    before = """--speculative-config, '{"method": "mtp", "num_speculative_tokens": 1}'"""
    axis = "speculative-config.num_speculative_tokens: [2, null]"
    found = [json.loads(arm.topology.flags[1]) for arm in arms(axis, flags=before)]
    assert found == [{"method": "mtp", "num_speculative_tokens": 2}, {"method": "mtp"}]
    assert flags("compilation-config.mode: [3]", flags="") == ["--compilation-config.mode 3"]
    assert flags("q.b.c: [[1, 2]]", flags="--q, '{}'", engine="llamacpp") == ['--q {"b": {"c": [1, 2]}}']
    assert flags("q.b: [null]", flags="""--q, '{"b": 1}'""") == [""]
    assert "flags have no --q with a JSON object in which b could be set" in refusal("q.b: [1]", engine="llamacpp")
    said = refusal("q.b.c: [1]", flags="""--q, '{"b": 1}'""")
    assert said == "s.yaml:8: sweep.q.b.c: b in the JSON of --q is no object, so b.c cannot be set in it"


def test_what_is_no_flag_and_varied_all_the_same():
    found = arms(
        "model: [/models/q4.gguf, /models/q8.gguf]\n"
        "instances: [{a: {gpus: 2}, b: {gpus: 2}}, {a: {gpus: 4}}]\n"
        "router: [null, {kind: smg}]\n"
        "command: [[/opt/one/bin/vllm, serve]]\n"
        "env.VLLM_KV_SPLITS: [null, 96]\n"
        "require:\n"
        "  - {model: /models/q4.gguf, instances: {a: {gpus: 4}}, router: null, env.VLLM_KV_SPLITS: 96}\n"
        "  - {model: /models/q8.gguf, instances: {a: {gpus: 2}, b: {gpus: 2}}, router: {kind: smg}}\n"
    )
    assert [arm.name for arm in found] == [
        "model=q4.gguf,instances=#2,router=off,command=vllm+serve,env.VLLM_KV_SPLITS=96",
        "model=q8.gguf,instances=#1,router=#2,command=vllm+serve,env.VLLM_KV_SPLITS=off",
        "model=q8.gguf,instances=#1,router=#2,command=vllm+serve,env.VLLM_KV_SPLITS=96",
    ]
    tp4, tp2x2 = found[0].topology, found[1].topology
    assert (tp4.model, tp4.router, tp4.env) == ("/models/q4.gguf", None, {"VLLM_KV_SPLITS": "96"})
    assert [tp4.instances["a"].gpus, len(tp2x2.instances)] == [4, 2]
    assert tp2x2.router is not None


def test_an_arm_is_not_called_what_a_terminal_would_act_on():
    names = [arm.name for arm in arms('qa: ["a\\nr0001 is live", "b\\u202Ec", d]')]
    assert names == ["qa=#1", "qa=#2", "qa=d"]


def test_constraints_choose():
    both = "qa: [1, 2]\nqb: [x, null]\n"
    assert len(arms(both)) == 4
    assert [arm.name for arm in arms(both + "exclude: [{qa: 2, qb: null}, {qa: 1, qb: x}]")] == [
        *("qa=1,qb=off", "qa=2,qb=x"),
    ]
    assert [arm.name for arm in arms(both + "require: [{qa: 1, qb: x}, {qb: null, qa: 2}]")] == [
        *("qa=1,qb=x", "qa=2,qb=off"),
    ]


def test_names_are_short_unique_and_the_same_every_time():
    long = "q-very-long-flag-of-some-engine-that-nobody-can-remember: [one, two]\nqb: [1, 2]"
    assert [arm.topology.name for arm in arms(long)] == [
        *("qwen27b-one-1", "qwen27b-one-2", "qwen27b-two-1", "qwen27b-two-2"),
    ]
    alike = [arm.topology.name for arm in arms("qa: ['0.9', 0-9]")]
    assert alike == [arm.topology.name for arm in arms("qa: ['0.9', 0-9]")]
    assert len(set(alike)) == 2


@pytest.mark.parametrize(
    ("sweep", "sentence"),
    [
        ("{}", "s.yaml:8: sweep: is empty; it is a mapping of axes"),
        ("max_arms: 4", "s.yaml:7: sweep: there is no axis; name a flag with its values"),
        ("a: []", "s.yaml:8: sweep.a: an axis is a list of values; write its values, e.g. a: [a, b]"),
        ("matrix: {a: [1]}", "s.yaml:8: sweep.matrix: an axis is a list of values"),
        ("max-arms: 5", "sweep.max-arms: an axis is a list of values; did you mean max_arms?"),
        ("a: [1]\nexcludes: [{a: 1}]", "s.yaml:9: sweep.excludes: an axis is a list of values; did you mean exclude?"),
        ("a: [1, 1]", "sweep.a: the value 1 is there twice; keep one"),
        ("a: [on, off]", 'sweep.a[0]: YAML reads on as true; if you mean the word, quote it: "on"'),
        ("a: [--b]", "sweep.a: '--b' would be read as another flag; give that one an axis of its own"),
        ("a: [[1, null]]", 'sweep.a: ["1", null] is not a list of words; true, false and null stand alone'),
        ("a: [[]]", "sweep.a: [] is not accepted; a value is a word, a list of words, true, false or null"),
        ("a b: [1]", "sweep.a b: 'a b' is no axis; an axis is a flag of the engine"),
        ("env.A: [true]", "sweep.env.A: true is not a word; null takes the variable away"),
        ("a_b: [1]\n--a-b: [2]", "s.yaml:9: sweep.--a-b: sets what a_b sets too; keep one of the two axes"),
        ("a: [1]\na.b: [2]", "s.yaml:9: sweep.a.b: sets what a sets too"),
        ("a: [1]\nexclude: {a: 1}", "s.yaml:9: sweep.exclude: is a list of combinations, e.g. exclude: [{a: 1}]"),
        ("abc: [1]\nexclude: [{abd: 1}]", "s.yaml:9: sweep.exclude[0].abd: there is no axis abd; did you mean abc?"),
        ("a: [1]\nrequire: [{zzz: 1}]", "sweep.require[0].zzz: there is no axis zzz; axes are a"),
        ("a: [1, 2]\nexclude: [{a: 3}]", "sweep.exclude[0].a: 3 is no value of a; it has 1, 2"),
        ("a: [1, 2]\nexclude: [{a: 1}]\nrequire: [{a: 1}]", "sweep: exclude and require leave none of 2 combinations"),
        ("a: [1]\nmax_arms: 500", "sweep.max_arms: 500 is not accepted; expected a number from 1 to 200"),
        ("a: [1]\nmax_arms: many", "sweep.max_arms: many is not accepted"),
        ("a: [1]\non_success: win", "sweep.on_success: win is not accepted; expected report | ask | switch"),
        ("a: [false, null]", "s.yaml:7: sweep: arms a=#1 and a=#2 are the same topology; exclude one of them"),
        ("port: [1, 2]", "s.yaml:7: sweep: arm port=1: flags[4]: --port is not accepted: the port is chosen per"),
        ("instances: [{a: {gpus: many}}]", "sweep: arm instances=#1: instances.a.gpus: 'many' is not accepted"),
        ("model: [null]", "sweep: arm model=off: model: engine vllm needs a model"),
        ("env.HF_TOKEN: [x]", "arm env.HF_TOKEN=x: env.HF_TOKEN: HF_TOKEN is not accepted here: the name says secret"),
    ],
)  # fmt: skip
def test_one_clear_sentence(sweep, sentence):
    if sweep == "{}":
        with pytest.raises(TopologyError) as refused:
            parse(BASE.replace("sweep:\n{sweep}", "\nsweep: {{}}").format(flags="", engine="vllm"), source="s.yaml")
        said = str(refused.value)
    else:
        said = refusal(sweep)
    assert said.startswith("s.yaml:")
    assert sentence in said


@pytest.mark.parametrize("axes", [1, 4, 400])
def test_too_many_arms(axes):
    """10 000 on one axis, as four axes of ten, and more combinations than anybody can count."""
    values = {1: 10_000, 4: 10, 400: 2}[axes]
    sweep = "\n".join(f"a{axis}: [{','.join(str(n) for n in range(values))}]" for axis in range(axes))
    said = refusal(sweep)
    assert f"{values**axes} combinations are too many: 32 arms are tried at most" in said
    assert said.endswith(f"or raise max_arms (to {ARMS_MAX} at most)")


def test_constraints_make_a_large_matrix_small():
    numbers = ",".join(str(n) for n in range(100))
    matrix = f"qa: [{numbers}]\nqb: [{numbers}]\n"
    assert len(arms(f"{matrix}require: [{{qa: 7, qb: 7}}, {{qa: 8, qb: 9}}]")) == 2
    assert "9900 combinations are too many" in refusal(f"{matrix}exclude: [{{qa: 7}}]")


def test_a_small_file_that_would_take_minutes_to_read_is_refused_at_once():
    """One of the 64 KiB that may be sent, in a daemon that has a night to look after."""
    axes = "\n".join(f"q{axis}: [{','.join(map(str, range(10)))}]" for axis in range(5))
    many = ", ".join(f"{{q0: {n % 10}, q1: {n // 10}, q2: 1}}" for n in range(40))
    said = refusal(f"{axes}\nexclude: [{many}]")
    assert "sweep: 100000 combinations against 40 constraints are too much to look through; leave values out" in said


def test_max_arms_is_a_limit_in_both_directions():
    numbers = ",".join(str(n) for n in range(60))
    assert len(arms(f"qa: [{numbers}]\nmax_arms: 60")) == 60
    assert "3 combinations are too many: 2 arms" in refusal("a: [1, 2, 3]\nmax_arms: 2")


def test_a_proposal_of_it_is_refused_and_a_sweep_of_a_plain_file_too():
    text = BASE.format(sweep="  a: [1, true, null]", flags="", engine="vllm")
    with pytest.raises(TopologyError, match=r"s\.yaml:7: sweep: .*`cutover sweep s\.yaml` tries them all"):
        topology.parse(text, source="s.yaml")
    with pytest.raises(TopologyError, match=r"there is no key sweep in this file: `cutover propose s\.yaml` proposes"):
        parse(text.partition("sweep:")[0], source="s.yaml")


def test_what_is_wrong_with_the_topology_itself_has_its_own_line():
    text = BASE.format(sweep="  a: [1]", flags="--port, 1", engine="vllm").replace("serves", "serve")
    with pytest.raises(TopologyError, match=r"s\.yaml:2: unknown key serve; did you mean serves\?"):
        parse(text, source="s.yaml")


WORDS = st.sampled_from(["a", "fp8", "1", "0.90", "--x", "-np", "a b", "", "é", "a.b", "env.A", "x" * 70, "{", "on"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
KEYS = WORDS | st.sampled_from(
    ["exclude", "require", "max_arms", "on_success", "model", "instances", "router", "command"]
)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYS, VALUES | st.lists(VALUES, min_size=1, max_size=4), max_size=4) | VALUES)
def test_whatever_stands_in_a_sweep_becomes_arms_or_one_sentence(sweep):
    text = BASE.partition("sweep:")[0].format(engine="vllm", flags='--a.b, 1, --q, "{}"')
    try:
        found = parse(f"{text}sweep: {json.dumps(sweep)}\n", source="s.yaml")
    except TopologyError as refused:
        said = str(refused)
        assert (said[:6], said.count("\n")) == ("s.yaml", 0)
    else:
        assert len({arm.topology.name for arm in found.arms}) == len(found.arms)
