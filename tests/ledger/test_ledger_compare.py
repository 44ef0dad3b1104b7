"""What is compared with what, how sure one can be, and how configurations differ."""

from __future__ import annotations

import re

import pytest
from ledger_kit import CHAT, HARDWARE, LONG, cell, run

from gates.ledger.columns import METRICS
from gates.ledger.compare import compare, side
from gates.ledger.compare_views import comparison_drawn, comparison_markdown
from gates.ledger.differences import differences, flags_by_name
from gates.ledger.errors import LedgerRefusedError, NoSuchRowError
from gates.ledger.reference import read_references
from gates.ledger.rows import Kind
from gates.ledger.selection import Selection
from gates.ledger.table import matrices
from gates.ledger.words import configuration_in_words
from gates.throughput.records import AGGREGATE, DECODE, TTFT

A, B = "qwen-tp2@1a2b3c4d", "qwen-tp4@5e6f7a8b"


def record(ledger, *words, hardware=HARDWARE, **named):
    kind = named.pop("kind", Kind.CELL)
    return ledger.record(run(*words, **named), who="ada", hardware=hardware, kind=kind)


def test_of_several_runs_the_newest_row_of_each_cell_counts(ledger):
    first = record(ledger, A, 100)
    second = record(ledger, A, at="2026-11-21T00:00:00Z", cells=[cell("chat", 4, 77)])
    found = side(ledger, "qwen-tp2")
    assert [row.id for row in found.rows] == [first.rows[0], *first.rows[2:], *second.rows]
    assert found.others == 0
    assert [row.id for row in side(ledger, first.run).rows] == list(first.rows), "a run by its id is that run"


def test_of_several_configurations_the_newest_is_taken_and_said(ledger):
    record(ledger, A, 100)
    record(ledger, "qwen-tp2@99999999", 120, at="2026-11-21T00:00:00Z", flags=["--tp-size", "2", "--x"])
    record(ledger, B, 90)
    found = compare(ledger, "qwen-tp4", "qwen-tp2")
    assert found.b.configuration.release == "qwen-tp2@99999999"
    assert any("qwen-tp2 was measured in 2 configurations; this is the newest" in said for said in found.warnings)
    assert not any("configurations" in said for said in compare(ledger, B, A).warnings)


def test_other_cards_of_the_same_kind_are_the_same_box(ledger):
    record(ledger, A, 100, hardware={**HARDWARE, "gpu_uuids": ["GPU-1", "GPU-2"]})
    record(ledger, A, 100, hardware={**HARDWARE, "gpu_uuids": ["GPU-3", "GPU-4"]}, at="2026-11-21T00:00:00Z")
    assert side(ledger, A).others == 0


def test_nothing_changed_cannot_be_told_apart(ledger):
    record(ledger, A, 100)
    record(ledger, B, 100.5)
    found = compare(ledger, A, B)
    assert {change.change.says(change.metric) for change in found.changes} == {"cannot tell them apart"}
    assert len(found.changes) == 4 * 6
    assert found.spread == "spread between starts assumed 1.0% (until 5 restarts have measured it)"


def test_better_and_worse_follow_the_metric(ledger):
    record(ledger, A, 100)
    record(ledger, B, 130)
    says = {change.metric: change.change.says(change.metric) for change in compare(ledger, A, B).changes}
    assert set(says.values()) == {"better"}, "more tokens, shorter waits"
    back = {change.metric: change.change.says(change.metric) for change in compare(ledger, B, A).changes}
    assert set(back.values()) == {"worse"}
    assert {DECODE, AGGREGATE, TTFT} < set(says)


def test_more_cells_make_surer_and_starts_set_the_limit(ledger):
    record(ledger, A, 100)
    record(ledger, B, 97)
    found = compare(ledger, A, B)
    one = next(change.change for change in found.changes if change.metric == DECODE)
    ladder = next(ladder.change for ladder in found.ladders if ladder.metric == DECODE)
    assert one.low is not None
    assert one.high is not None
    assert ladder.low is not None
    assert ladder.high is not None
    assert ladder.high - ladder.low < one.high - one.low
    assert ladder.high - ladder.low > 2 * 1.96 * 0.01, "two starts, 1 % each, whatever the rounds say"


def test_restarts_in_the_ledger_replace_what_is_assumed(ledger):
    for number, rate in enumerate((100, 104, 96, 103, 97)):
        record(ledger, "other@12345678", rate, kind=Kind.RESTART, at=f"2026-11-0{number + 1}T00:00:00Z")
    record(ledger, A, 100)
    record(ledger, B, 95)
    found = compare(ledger, A, B)
    assert "measured over 5 restarts" in found.spread
    change = next(change for change in found.changes if change.metric == DECODE)
    assert change.change.says(DECODE) == "cannot tell them apart", "starts of this engine differ by 3.5 %"


def test_how_many_restarts_there_are_and_that_the_least_is_taken_is_said(ledger):
    record(ledger, A, 100)
    record(ledger, B, 95)
    for number in range(5):
        record(ledger, "other@12345678", 100, kind=Kind.RESTART, at=f"2026-11-0{number + 1}T00:00:00Z")
        if number == 1:
            assert "assumed 1.0% (until 5 restarts have measured it, 2 so far)" in compare(ledger, A, B).spread
    assert "0.5%, the least that is ever taken: 5 restarts lay closer together" in compare(ledger, A, B).spread


def test_a_workload_that_changed_under_its_name_is_compared_where_both_have_it(ledger):
    changed = {**CHAT, "answer_tokens": 512}
    record(ledger, A, 100)
    record(ledger, A, workloads={"chat": changed}, cells=[cell("chat", 4, 50)], at="2026-11-21T00:00:00Z")
    record(ledger, B, 90)
    found = compare(ledger, A, B)
    assert not found.unlike
    assert len([change for change in found.changes if change.metric == DECODE]) == 6


def test_like_cells_are_compared_and_unlike_ones_are_named(ledger):
    record(ledger, A, 100)
    record(ledger, B, 90, workloads={"chat": CHAT, "long": {**LONG, "answer_tokens": 512, "scene": "code"}})
    found = compare(ledger, A, B)
    assert {change.key.workload for change in found.changes} == {"chat"}
    (unlike,) = found.unlike
    assert unlike.sentence == "workload long is not the same on both sides: answer_tokens: 256 → 512; scene: – → code"
    assert found.warnings[0].endswith("its cells are not compared")


def test_no_cell_in_common_is_refused(ledger):
    record(ledger, A, cells=[cell("chat", 1, 50)])
    record(ledger, B, cells=[cell("chat", 2, 50)])
    with pytest.raises(LedgerRefusedError, match=f"have no cell in common: {A} has chat c1, {B} has chat c2"):
        compare(ledger, A, B)


def test_a_cell_that_is_no_measurement_is_not_compared(ledger):
    record(ledger, A, 100)
    cells = [cell("chat", 1, 90), cell("chat", 4, 60, problem="foreign load on GPU 0")]
    record(ledger, B, cells=cells)
    found = compare(ledger, A, B)
    assert {str(change.key) for change in found.changes} == {"chat c1"}
    assert "chat c4 (row 8 of qwen-tp4@5e6f7a8b: no measurement: foreign load on GPU 0)" in found.only_a


REFERENCE = ("origin=forum", "date=2026-11-20", "topology=elsewhere", "workload=chat", "concurrency=4",
             "decode_tok_per_s=80", "ttft_cold_s=0.3")  # fmt: skip


def test_a_reference_compares_by_what_it_says(ledger):
    record(ledger, A, 100)
    ledger.add_reference(read_references([*REFERENCE, "prompt_tokens=200"]), who="ada")
    found = compare(ledger, A, "elsewhere", reference=True)
    shares = {change.metric: change.change for change in found.changes}
    assert shares[DECODE].share == pytest.approx(80 / (100 / 1.4) - 1, abs=0.002)
    assert shares[TTFT].share == pytest.approx(0.3 / 0.28 - 1, abs=0.002)
    assert shares[DECODE].low is None
    assert shares[DECODE].says(DECODE) == "no rounds: cannot tell how sure"
    assert not found.crossovers
    assert found.spread == ""


def test_a_reference_that_says_otherwise_is_refused(ledger):
    record(ledger, A, 100)
    ledger.add_reference(read_references([*REFERENCE, "prompt_tokens=1000"]), who="ada")
    with pytest.raises(LedgerRefusedError, match="prompt_tokens: 200 → 1000"):
        compare(ledger, A, "elsewhere", reference=True)


def test_our_own_rows_go_before_a_reference_of_the_same_name(ledger):
    record(ledger, A, 100)
    named = ["topology=qwen-tp2" if word.startswith("topology") else word for word in REFERENCE]
    ledger.add_reference(read_references(named), who="ada")
    assert side(ledger, "qwen-tp2", reference=True).configuration.release == A


def test_names_that_nobody_has(ledger):
    with pytest.raises(NoSuchRowError, match="no run, release, topology or model x; nothing was measured here so far"):
        side(ledger, "x")
    record(ledger, A)
    with pytest.raises(NoSuchRowError, match="no run, release, topology or model 1; known: "):
        side(ledger, "1")


# --- differences ------------------------------------------------------------------------------------------------------


def test_flags_by_name():
    flags = ["serve", "--tp-size", "2", '--json={"a": 1}', "--seed", "-1", "--on", "--list", "1", "2", "--x=1", "--x=2"]
    assert flags_by_name(flags) == {
        "": "serve",
        "--tp-size": "2",
        "--json": '{"a": 1}',
        "--seed": "-1",
        "--on": "on",
        "--list": "1 2",
        "--x": "1 2",
    }


def test_differences_are_named_field_by_field():
    found = differences({"a": 1, "b": {"c": [1, 2], "d": 3}, "e": None}, {"a": 1, "b": {"c": [1], "d": 3}, "f": "x"})
    assert [difference.words for difference in found] == ["b.c: [1,2] → [1]", "f: – → x"]
    assert differences({"long": "x" * 500}, {"long": "y"})[0].a == "x" * 199 + "…"


def test_bounds_that_bound_nothing_are_said_in_words(ledger):
    wild = [cell("chat", 4, 100, rounds=2)]
    wild[0].rounds[DECODE][:] = [1000.0, 60.0]
    record(ledger, A, cells=wild)
    record(ledger, B, cells=wild)
    shown = comparison_markdown(compare(ledger, A, B))
    assert "| beyond ×3 | cannot tell them apart |" in shown
    assert "beyond ×3: rounds that differ so much, and so few of them, bound nothing" in shown


def bare(endpoint, rate, *, at="2026-11-20T02:00:00Z"):
    """As `cutover bench URL` leaves it: no release, no topology."""
    return run("", rate, at=at, endpoint=endpoint)


def test_what_has_no_name_is_found_by_its_model_and_told_apart_by_its_endpoint(ledger):
    ledger.record(bare("http://127.0.0.1:8001", 100), who="ada", hardware=HARDWARE)
    ledger.record(bare("http://127.0.0.1:8002", 50, at="2026-11-21T00:00:00Z"), who="ada", hardware=HARDWARE)
    record(ledger, A, 100)
    rows = ledger.rows(Selection(topology="qwen3.8*"))
    assert len(rows) == 12, "what has a name goes by that"
    assert configuration_in_words(rows[0].configuration).startswith(
        "qwen3.8-27b · sglang 0.5.2 · at http://127.0.0.1:8001 · "
    )
    assert {len(each.configurations) for each in matrices(rows, METRICS["decode"])} == {2}
    found = compare(ledger, A, "qwen3.8-27b")
    assert found.b.rows[0].configuration.endpoint == "http://127.0.0.1:8002"
    assert any("qwen3.8-27b was measured in 2 configurations" in said for said in found.warnings)
    with pytest.raises(NoSuchRowError, match=r"did you mean 'qwen3\.8-27b'"):
        compare(ledger, A, "qwen3.8-72b")


def test_two_workloads_of_one_name_are_compared_each_with_its_like(ledger):
    """The longer one was measured last on both sides, and at fewer rungs."""
    longer = {**CHAT, "prompt_tokens": 600, "answer_tokens": 100}
    short = [cell("chat", c, 100) for c in (1, 4, 8)]
    for at, release, speed in ((20, A, 100), (21, B, 100)):
        record(ledger, release, cells=short, at=f"2026-11-{at}T00:00:00Z")
        cells = [cell("chat", c, speed / 2 if release == A else 25) for c in (4, 8)]
        record(ledger, release, cells=cells, workloads={"chat": longer}, at=f"2026-11-{at}T01:00:00Z")
    record(ledger, A, cells=[cell("chat", 16, 9)], workloads={"chat": longer}, at="2026-11-20T02:00:00Z")
    found = compare(ledger, A, B)
    changed = {
        (change.definition["prompt_tokens"], change.key.concurrency): round(change.change.share, 2)
        for change in found.changes
        if change.metric == DECODE
    }
    assert changed == {(200, 1): 0, (200, 4): 0, (200, 8): 0, (600, 4): -0.5, (600, 8): -0.5}
    assert found.only_a == ("chat 600→100 c16",)
    assert {crossing.workload for crossing in found.crossovers} == {"chat 200→256", "chat 600→100"}


def test_a_reference_that_says_little_is_held_against_one_workload_alone(ledger):
    record(ledger, A, cells=[cell("chat", c, 100) for c in (1, 4)])
    longer = {**CHAT, "prompt_tokens": 600}
    record(ledger, A, cells=[cell("chat", 4, 10)], workloads={"chat": longer}, at="2026-11-21T00:00:00Z")
    words = [word for word in REFERENCE if not word.startswith("concurrency")]
    for concurrency in (1, 4):
        ledger.add_reference(read_references([*words, f"concurrency={concurrency}"]), who="ada")
    found = compare(ledger, A, "elsewhere", reference=True)
    assert {change.definition["prompt_tokens"] for change in found.changes if change.metric == DECODE} <= {200}
    assert found.only_a == ("chat 600→256 c4",)


def test_a_cliff_of_one_side_is_named_and_the_law_of_the_other(ledger):
    """Steps of 8 ms and 1 % per sequence; on B three times as long beyond 4."""
    rates = {c: 1000 / (8 * (1 + 0.01 * c)) for c in (1, 2, 4, 8, 16)}
    record(ledger, A, cells=[cell("chat", c, rate) for c, rate in rates.items()])
    record(ledger, B, cells=[cell("chat", c, rate / (3 if c > 4 else 1)) for c, rate in rates.items()])
    found = compare(ledger, A, B)
    assert [(shape.workload, shape.cliff) for shape in (*found.shapes_a, *found.shapes_b)] == [
        ("chat", False),
        ("chat", True),
    ]
    shown = "".join(text.plain + "\n" for text in comparison_drawn(found))
    assert re.search(r"^A  chat: .*step", shown, re.MULTILINE)
    assert re.search(r"^B  HARD chat c4 → c8: ", shown, re.MULTILINE)
