"""What a topology file may be, and what a person reads when it is not."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launch.errors import TopologyError
from launch.strict_yaml import MAX_BYTES
from launch.topology import load, parse
from launch.topology_yaml import word


def test_the_smallest_form_means_what_it_says(changed):
    topology = changed()
    assert topology.name == "qwen-tp2x2"
    assert topology.serves == ("qwen3.8-27b",)
    assert topology.flags == ("--tp-size", "2", "--context-length", "262144", "--mem-fraction-static", "0.90")
    assert topology.env == {"HF_HUB_OFFLINE": "1"}
    assert {name: one.gpu_count for name, one in topology.instances.items()} == {"a": 2, "b": 2}
    assert topology.router is not None
    assert topology.router.flags == ("--policy", "cache_aware")
    assert topology.gates == "standard"


def test_words_keep_the_spelling_they_were_written_in(changed):
    topology = changed(
        ("[--tp-size, 2,", "[--tp-size, 2, --a1, 0x10, --a2, 017, --a3, 1_000, --a4, 2026-11-29, --a5, 1e3,")
    )
    assert topology.flags[2:12] == ("--a1", "0x10", "--a2", "017", "--a3", "1_000", "--a4", "2026-11-29", "--a5", "1e3")


def test_explicit_gpus_are_indices_and_uuids(changed):
    topology = changed(("{a: {gpus: 2}, b: {gpus: 2}}", "{a: {gpus: [2, gpu-0]}, b: {gpus: [GPU-5a1b, MIG-7/1/0]}}"))
    assert topology.instances["a"].gpu_names == ("2", "0")
    assert topology.instances["b"].gpu_names == ("GPU-5a1b", "MIG-7/1/0")


def test_what_is_written_back_reads_the_same(changed):
    topology = changed(("262144", '"12:30", --word, "no", --json, \'{"a": [1, "x"]}\', --text, "two\\nlines"'))
    assert parse(topology.to_yaml(), source="again") == topology


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("engine: sglang", "engine: sglong", "box.yaml:3: engine: 'sglong' is not an engine; expected vllm | sglang"),
        ("engine: sglang", "engine: sglong", "did you mean sglang?"),
        ("gpus: 2}, b", "gpu: 2}, b", "box.yaml:8: unknown key instances.a.gpu; did you mean gpus?"),
        ("engine: sglang", "engine: sglang\ngate: x", "box.yaml:4: unknown key gate; did you mean gates?"),
        (
            "env: {HF_HUB_OFFLINE: 1}\ninstances: {a: {gpus: 2}",
            "gate: x\nenv: 5\ninstances: {a: {gpus: x}",
            "box.yaml:7: unknown key gate; did you mean gates? And 2 more problems: env, instances.a.gpus",
        ),
        (
            "env: {HF_HUB_OFFLINE: 1}\ninstances: {a: {gpus: 2}",
            "env: 5\ninstances: {a: {gpus: x}",
            "expected a mapping, e.g. {NAME: value}; and 1 more problem: instances.a.gpus",
        ),
        (
            "kind: smg",
            "kind: smg, policy: x",
            "unknown key router.policy; the router's own options go into router.flags",
        ),
        (
            "engine: sglang",
            "engine: sglang\nengine: vllm",
            "box.yaml:4: engine: the key is there twice (first on line 3)",
        ),
        ("name: qwen-tp2x2", "name: &n qwen-tp2x2\nnotes: *n", "box.yaml:2: the alias *n is not accepted"),
        ("262144", "no", 'box.yaml:6: flags[3]: YAML reads no as false; if you mean the word, quote it: "no"'),
        ("262144", "true", "flags[3]: YAML reads true as true"),
        ("262144", "12:30:45", "flags[3]: YAML reads 12:30:45 as the number 45045; if you mean the word, quote it"),
        ("262144", "~", "flags[3]: an empty value (~) is not a word"),
        ("OFFLINE: 1", "OFFLINE: yes", "env.HF_HUB_OFFLINE: YAML reads yes as true"),
        ("262144", "[1, 2]", "flags[3]: a list is not accepted; expected a word"),
        ("262144", "{a: 1}", "flags[3]: a mapping is not accepted; expected a word"),
        ("serves: [qwen3.8-27b]", "serves: qwen", "box.yaml:2: serves: 'qwen' is not accepted; expected a list"),
        ("serves: [qwen3.8-27b]", "serves: []", "box.yaml:2: serves: a list is not accepted; expected at least one"),
        ("serves: [qwen3.8-27b]\n", "", "serves is missing; list the model names that clients use"),
        ("engine: sglang\n", "", "engine is missing; say which engine"),
        ("{a: {gpus: 2}, b: {gpus: 2}}", "", "box.yaml:8: instances is empty; give it a value, or remove the key"),
        ("gpus: 2}, b", "gpus: two}, b", "instances.a.gpus: 'two' is not accepted; expected a count (0 to 64)"),
        ("gpus: 2}, b", "gpus: -1}, b", "instances.a.gpus: -1 is not accepted; expected a count (0 to 64)"),
        ("name: qwen-tp2x2", "name: Qwen TP2", "name: 'Qwen TP2' is not a name of lower-case letters"),
        ("name: qwen-tp2x2", "name: ../../etc", "name: '../../etc' is not a name of lower-case letters"),
        ("engine: sglang", "engine: sglang\nenv_file: ~/s", "env_file: '~/s' is not an absolute path"),
        (
            "engine: sglang",
            "engine: sglang\nstart_timeout_s: soon",
            "start_timeout_s: 'soon' is not accepted; expected",
        ),
        ("engine: sglang", "engine: !!python/name:os.system x", "the tag tag:yaml.org,2002:python/name:os.system"),
        ("engine: sglang", "? [a]\n: b", "a key must be a plain word"),
        ("env: {", "env: {<<: {A: 1}, ", "merge keys (<<) are not accepted"),
        ("engine: sglang", "engine: sglang: x", "box.yaml:3: not valid YAML"),
    ],
)
def test_a_refusal_names_the_line_the_key_and_the_remedy(changed, before, after, sentence):
    with pytest.raises(TopologyError) as refused:
        changed((before, after))
    assert sentence in str(refused.value)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_a_misspelt_key_is_one_problem(changed):
    with pytest.raises(TopologyError) as refused:
        changed(("name: qwen", "nam: qwen"))
    assert str(refused.value) == "box.yaml:1: unknown key nam; did you mean name?"


@pytest.mark.parametrize("text", ["", "just words", "[a, b]", "a: 1\n---\nb: 2\n", "\x00", "[" * 5000, "{a: " * 1000])
def test_what_is_no_topology_at_all_is_one_sentence(text):
    with pytest.raises(TopologyError, match=r"^box\.yaml"):
        parse(text, source="box.yaml")


def test_an_alias_bomb_is_refused_at_its_first_alias():
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(9)
    )
    with pytest.raises(TopologyError, match=r"box\.yaml:2: the alias \*a is not accepted"):
        parse(bomb, source="box.yaml")


def test_files_that_cannot_be_topologies(tmp_path, small):
    with pytest.raises(TopologyError, match="cannot be read: No such file"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
        load(tmp_path)
    big = tmp_path / "big.yaml"
    big.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(TopologyError, match="too large for a topology; the limit is 65536 bytes"):
        load(big)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(TopologyError, match=r"not UTF-8 text \(byte 6\)"):
        load(binary)
    good = tmp_path / "good.yaml"
    good.write_text(small)
    assert load(good).name == "qwen-tp2x2"


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
SURPRISES = """
1:2 12:30:45 a:b ~ null no 0.90 1e3 .5 2026-11-29 << a: #x @a - -- = *a &a !a | > %a `a ? {x} [x] ' " '"
"""
ODD = [*SURPRISES.split(), "a: b", "a #b", "a\nb", "\t", "\x7f", "\x85", "\u2028", ""]


@given(st.lists(WORDS, max_size=5))
@example(ODD)
@settings(max_examples=50, deadline=None)
def test_words_that_we_write_are_read_as_they_were(words):
    flags = ["--x", *words]
    listed = ", ".join(word(one, inside=True) for one in flags)
    text = "name: a\nserves: [m]\nengine: script\nscript: /x\ninstances: {a: {gpus: 1}}\n"
    text += f"notes: {word(flags[-1])}\nflags: [{listed}]\n"
    topology = parse(text, source="box.yaml")
    assert list(topology.flags) == flags
    assert topology.notes == flags[-1]
    assert parse(topology.to_yaml(), source="again") == topology
