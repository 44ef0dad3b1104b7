"""All renderings say the same; nothing that people, engines or gates wrote acts on whoever reads it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from fake_world import make_release

from controller.cli.draw_report import draw_report
from controller.cli.terminal import plain_text
from controller.core.route import Counted
from controller.report.charts import dots, timeline
from controller.report.document import from_document, from_json, to_document, to_json
from controller.report.markdown import to_markdown
from controller.report.page import to_html
from controller.report.words import change

HOSTILE = "<script>parent.owned=1</script>\x1b[31m|`*x*`{{7*191}}\n# heading"
COUNTED = {"nightly@2026-11-30": Counted(1204, 12, 11, 0, 1, longest_wait_s=14.2)}


class Page(HTMLParser):
    """Tags with their attributes, and the text that is seen."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="session")
def report(lived):
    return lived.report(counted=COUNTED, alarms=("gpu-3 is quarantined",))


def squeezed(markdown: str) -> str:
    return " ".join(re.sub(r"\\([\\`*_|<>~\[\]])", r"\1", markdown).replace("*", "").split())


def test_they_agree_on_verdicts_figures_and_sentences(report):
    page, markdown, text = Page(to_html(report)).text, squeezed(to_markdown(report)), plain_text(draw_report(report))
    drawn = " ".join(text.split())
    facts = [
        *report.headline,
        *(one.why for one in report.rollouts),
        *(one.outcome for one in report.rollouts),
        *(change(ratio) for one in report.rollouts for ratio in one.compared),
        *(gate.sentence for one in report.rollouts for gate in one.gates if gate.verdict != "pass"),
        *(gate.evidence for one in report.rollouts for gate in one.gates if gate.verdict != "pass"),
        *(f"{one.why}" for one in report.not_begun),
        "12 requests waited at the door, 14 s at the longest: 11 served then, 1 gave up",
        "of 1,204 requests at the public address none was lost",
        "gpu-3 is quarantined",
        report.present.live_why,
        report.present.queue[0].waits_for,
        "baseline: what first@00000000 showed in this night",
        "Tue 2026-12-01 02:00",
    ]
    for rendering in (page, markdown, drawn):
        assert [fact for fact in facts if " ".join(fact.split()) not in rendering] == []


def test_json_is_whole_and_comes_back_as_it_was(report):
    document = json.loads(to_json(report))
    assert document["schema"] == "cutover-report/1"
    assert document == to_document(report)
    assert from_document(document) == report
    assert from_json(to_json(report)) == report
    assert document["night"]["opens"] == "2026-11-30T02:00:00+08:00"
    assert document["rollouts"][3]["compared"][0]["ratio"] == 1.2


@pytest.mark.parametrize("junk", [None, [], {}, {"schema": 1}, {"schema": "cutover-report/2"}])
def test_what_is_no_report_is_refused_in_a_sentence(junk):
    with pytest.raises(ValueError, match="no report of schema cutover-report/1"):
        from_document(junk)


def test_a_report_with_a_hole_names_the_place(report):
    document = to_document(report)
    del document["night"]["opens"]
    with pytest.raises(ValueError, match=r"night\.opens"):
        from_document(document)


def test_nothing_hostile_gets_through(box):
    box.finish(box.propose(make_release("<script>parent.owned=1</script>")))
    box.propose(make_release("<img src=x onerror=alert(1)>"), window="nightly", note=HOSTILE)
    box.world.verdicts = {"toolcalls": ["fail"]}
    box.until_wall(2, 30)
    report = box.report(alarms=(HOSTILE,))
    gates = tuple(
        replace(one, name=HOSTILE, sentence=HOSTILE, verdict=HOSTILE, run=HOSTILE, evidence=HOSTILE)
        for one in report.rollouts[0].gates
    )
    bad = replace(
        report,
        headline=(HOSTILE, *report.headline),
        night=replace(report.night, why=HOSTILE, said=(HOSTILE,), window=HOSTILE, timezone=HOSTILE),
        rollouts=(replace(report.rollouts[0], why=HOSTILE, asked_by=HOSTILE, bake=HOSTILE, gates=gates),),
        present=replace(report.present, live_why=HOSTILE, frozen=HOSTILE, active=HOSTILE),
    )
    page = Page(to_html(bad))
    assert {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "form", "base"} == set()
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert "parent.owned=1" in page.text
    assert "7*191" in page.text
    markdown = to_markdown(bad)
    assert "<script" not in re.sub(r"`` .* ``", "", markdown).replace("\\<script", "")
    assert "\n# heading" not in markdown
    for rendering in (to_html(bad), markdown, plain_text(draw_report(bad))):
        assert "\x1b" not in rendering


def test_the_page_needs_nothing_else(report):
    html = to_html(report)
    page = Page(html)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    outside = [a.get("href") or a.get("src") for _, a in page.tags if "href" in a or "src" in a]
    assert [one for one in outside if not str(one).startswith(("../gates/", "data:"))] == []
    assert "url(" not in html
    assert "prefers-color-scheme: dark" in html


def test_charts_put_better_on_its_side(report):
    chart = dots([(one.id, one.compared) for one in report.rollouts])[0]
    live = next(tick.at for tick in chart.ticks if tick.bold)
    places = {row.says: (row.low, row.dot, row.high) for row in chart.rows}
    assert all(place > live for place in places["better"])
    assert all(place < live for place in places["worse"])
    assert all(0 <= place <= 100 for three in places.values() for place in three)
    labels = sorted(tick.at for tick in chart.ticks)
    assert all(b - a >= 11 for a, b in pairwise(labels))


def test_the_timeline_has_hours_of_the_window_and_every_rollout(report):
    drawn = timeline(report)
    assert drawn is not None
    assert [tick.label for tick in drawn.ticks] == ["02:00", "03:00", "04:00", "05:00", "06:00"]
    assert [row.label.split()[0] for row in drawn.rows] == [one.id for one in report.rollouts]
    kinds = [bar.kind for row in drawn.rows for bar in row.bars]
    assert kinds == ["good", "bad", "bad", "good", "watched"]
    assert timeline(replace(report, rollouts=())) is None


def test_the_arms_of_a_sweep_are_one_row_of_the_timeline(report):
    arms = tuple(replace(report.rollouts[0], id=f"r{n}", trial=True, sweep="s0001") for n in range(100, 400))
    drawn = timeline(replace(report, rollouts=(*report.rollouts, *arms)))
    alone = timeline(report)
    assert drawn is not None
    assert alone is not None
    assert drawn.rows[:-1] == alone.rows
    assert drawn.rows[-1].label == "sweep s0001: 300 arms"
    assert drawn.rows[-1].bars[0].words == f"r100, {alone.rows[0].bars[0].words}"
    assert len(drawn.rows[-1].bars) == 300 * len(alone.rows[0].bars)
