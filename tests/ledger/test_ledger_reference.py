"""What is typed in from elsewhere: the three ways say the same, and every mistake is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gates.errors import GateUsageError
from gates.ledger.reference import KEYS, read_references
from gates.ledger.rows import END_TO_END, Configuration
from gates.throughput.records import Cell, CellKey, Figure

ROW = {
    "origin": "https://example.org/t/17",
    "date": "2026-09-14",
    "topology": "27b-tp4",
    "engine": "vllm",
    "engine_version": "0.10",
    "model": "27B-IQ4_XS",
    "kv_format": "turboquant_2bit_nc",
    "flags": "--max-model-len 65536 --compilation-config '{\"a\": 1}'",
    "gpus": "4x V100-SXM2-32GB",
    "driver": "550",
    "host": "box",
    "workload": "p8k",
    "prompt_tokens": "8000",
    "answer_tokens": "256",
    "prompts": "different",
    "prefix": "cold",
    "concurrency": "4",
    "n": "3",
    "ttft_cold_s": "4.19",
    "ttft_warm_s": "0.96",
    "decode_tok_per_s": "29.6",
    "end_to_end_tok_per_s": "20.1",
    "note": "table 2",
}


def as_csv(tmp_path: Path) -> list[str]:
    file = tmp_path / "forum.CSV"
    cells = ['"' + value.replace('"', '""') + '"' for value in ROW.values()]
    file.write_text("\ufeff" + ",".join(ROW) + "\r\n" + ",".join(cells) + "\r\n\r\n")
    return [str(file)]


def as_yaml(tmp_path: Path) -> list[str]:
    file = tmp_path / "forum.yaml"
    shared = ("origin", "date", "topology", "engine", "engine_version", "flags", "gpus")
    words = {**ROW, "gpus": "[" + ", ".join(["V100-SXM2-32GB"] * 4) + "]"}
    words["flags"] = "[--max-model-len, 65536, --compilation-config, '{\"a\": 1}']"
    head = "".join(f"{key}: {words[key]}\n" for key in shared)
    file.write_text(head + "rows:\n  - " + "\n    ".join(f"{k}: {words[k]}" for k in ROW if k not in shared) + "\n")
    return [str(file)]


def as_list_of_rows(tmp_path: Path) -> list[str]:
    file = tmp_path / "forum.yml"
    file.write_text("- " + "\n  ".join(f"{key}: {json.dumps(value)}" for key, value in ROW.items()) + "\n")
    return [str(file)]


def as_words(_: Path) -> list[str]:
    return [f"{key}={value}" for key, value in ROW.items()]


@pytest.mark.parametrize("way", [as_csv, as_yaml, as_list_of_rows, as_words])
def test_every_way_says_the_same(tmp_path, way):
    (reference,) = read_references(way(tmp_path))
    assert reference.configuration == Configuration(
        topology="27b-tp4",
        engine="vllm",
        engine_version="0.10",
        model="27B-IQ4_XS",
        kv_format="turboquant_2bit_nc",
        flags=("--max-model-len", "65536", "--compilation-config", '{"a": 1}'),
        hardware={"gpus": ["V100-SXM2-32GB"] * 4, "driver": "550", "host": "box"},
    )
    assert reference.definition == {
        "prompt_tokens": 8000,
        "answer_tokens": 256,
        "prompts": "different",
        "prefix": "cold",
    }
    assert reference.cell == Cell(
        CellKey("p8k", 4),
        requests=3,
        rounds={},
        figures={
            "ttft_cold_s": Figure(4.19, 3),
            "ttft_warm_s": Figure(0.96, 3),
            "decode_tok_per_s": Figure(29.6, 3),
            END_TO_END: Figure(20.1, 3),
        },
    )
    assert (reference.date, reference.note) == ("2026-09-14T00:00:00+00:00", "table 2")


def words(**changes: str | None) -> list[str]:
    return [f"{key}={value}" for key, value in {**ROW, **changes}.items() if value is not None]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"origin": None}, "the row: origin is missing; say where the numbers were taken from"),
        ({"date": ""}, "date is missing; say when"),
        ({"topology": None}, "topology is missing"),
        ({"workload": " "}, "workload is missing"),
        ({"concurrency": "0"}, "concurrency=0: expected a whole number from 1; got '0'"),
        ({"concurrency": "4.5"}, "expected a whole number"),
        ({"n": "-3"}, "n=-3: expected a whole number"),
        ({"decode_tok_per_s": "29,6"}, "expected a positive number with a decimal point, as 68.2; got '29,6'"),
        ({"decode_tok_per_s": "nan"}, "expected a positive number"),
        ({"ttft_cold_s": "-1"}, "expected a positive number"),
        ({"ttft_cold_s": "1e999"}, "expected a positive number"),
        ({"date": "14.9.2026"}, "date=14.9.2026: expected a date, as 2026-09-14"),
        ({"date": "0001-01-01T00:00+23:00"}, "expected a date"),
        ({"flags": "--a 'b"}, "expected flags as in a shell, quotes closed"),
        ({"gpus": "0x V100"}, "expected cards, as 4x V100-SXM2-32GB"),
        ({"gpus": "2x V100,"}, "expected cards"),
        ({"prefix": "hot"}, "prefix=hot: expected cold or warm; got 'hot'"),
        ({"decod_tok_per_s": "3"}, "the key 'decod_tok_per_s' is not known; did you mean 'decode_tok_per_s'?"),
        (dict.fromkeys(("ttft_cold_s", "ttft_warm_s", "decode_tok_per_s", "end_to_end_tok_per_s")), "no figure"),
    ],
)
def test_mistakes_are_named_with_their_place(changes, said):
    with pytest.raises(GateUsageError) as caught:
        read_references(words(**changes))
    assert said in str(caught.value)


def test_cards_of_several_kinds():
    (reference,) = read_references(words(gpus="2x RTX 3090, A100, 2 × T4"))
    assert reference.configuration.hardware["gpus"] == ["RTX 3090", "RTX 3090", "A100", "T4", "T4"]


HEAD = "origin,date,topology,workload,concurrency,decode_tok_per_s\n"
GOOD = "a,2026-09-14,t,chat,2,36.5\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: no header; expected column names, as origin,"),
        (HEAD, ": has a header and no row"),
        (HEAD.replace(",", ";"), ":1: the columns are separated by semicolons; expected commas"),
        (HEAD.replace("topology", "workload"), ":1: the column 'workload' is there twice (columns 3 and 4)"),
        (HEAD.replace("topology", ""), ":1: column 3 '' is not known"),
        (HEAD + GOOD + "\n" + GOOD.replace("36.5", "fast"),
         ":4: column decode_tok_per_s: expected a positive number with a decimal point, as 68.2; got 'fast'"),
        (HEAD + GOOD + "a,2026-09-14,,chat,2,3\n", ":3: topology is missing"),
        (HEAD + GOOD.replace("36.5", "36,5"), ":2: 7 values for 6 columns"),
        (HEAD + 'a,"2026', "is not CSV (unexpected end of data)"),
    ],
)  # fmt: skip
def test_a_wrong_csv_is_told_with_line_and_column(tmp_path, text, said):
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(GateUsageError) as caught:
        read_references([str(file)])
    assert str(caught.value).startswith(f"{file}")
    assert said in str(caught.value)


FINE = "origin: a\ndate: 2026-09-14\ntopology: t\nworkload: chat\nrows:\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: ]\n", "bad.yaml:2: "),
        ("- x\n", "rows: expected a mapping for each, got 'x'"),
        ("a: b\n", "bad.yaml: expected `rows:` with a list of mappings"),
        ("", "expected `rows:`"),
        ("rows: []\n", "expected `rows:`"),
        (FINE + "  - {concurrency: 1, decode_tok_per_s: 3}\n  - {concurrency: x, decode_tok_per_s: 3}\n",
         "bad.yaml:7: concurrency: expected a whole number from 1; got 'x'"),
        (FINE.replace("2026-09-14", "soon") + "  - {concurrency: 1, decode_tok_per_s: 3}\n",
         "bad.yaml:2: date: expected a date, as 2026-09-14; got 'soon'"),
        (FINE + "  - {concurrency: 1, concurrency: 2}\n", "bad.yaml:6: 'concurrency' is there twice"),
        (FINE + "  - {concurrency: &x 1, n: *x}\n", "bad.yaml:6: aliases are not allowed"),
        (FINE + "  - {concurrency: [1, 2]}\n", "bad.yaml:6: concurrency: expected a single value"),
        (FINE + "  - {concurrency: 1, flags: {a: 1}}\n", "flags: expected a text or a list of texts"),
        (FINE + "  - {concurrency: 1}\n", "bad.yaml:6: no figure; expected at least one of ttft_cold_s"),
        ("originn: a\n" + FINE + "  - {concurrency: 1, decode_tok_per_s: 3}\n", "the key 'originn' is not known"),
    ],
)  # fmt: skip
def test_a_wrong_yaml_is_told_with_its_line(tmp_path, text, said):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(GateUsageError) as caught:
        read_references([str(file)])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_and_no_key(tmp_path):
    with pytest.raises(GateUsageError, match="nothing was given to add; expected a YAML or CSV file") as caught:
        read_references([])
    assert all(key in str(caught.value) for key in KEYS)
    with pytest.raises(GateUsageError, match=r"none\.yaml: cannot be read \(No such file or directory\)"):
        read_references([str(tmp_path / "none.yaml")])
    with pytest.raises(GateUsageError, match="cannot be read"):
        read_references([str(tmp_path)])
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(GateUsageError, match="is not UTF-8 text"):
        read_references([str(tmp_path / "binary.csv")])
    (tmp_path / "large.csv").write_bytes(b"x" * (5 * 1024 * 1024))
    with pytest.raises(GateUsageError, match="at most 4194304 are read"):
        read_references([str(tmp_path / "large.csv")])
    with pytest.raises(GateUsageError, match="'chat': expected KEY=VALUE"):
        read_references(["n=3", "chat"])
    with pytest.raises(GateUsageError, match="n is given twice"):
        read_references(["n=3", "n=4"])
