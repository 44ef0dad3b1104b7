"""The HTML page of a run: whole, safe, and readable on a phone."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from gate_kit import DONE, FIRST, chunk

from gates.contract import Check, Verdict, VerdictKind
from gates.errors import GateUsageError
from gates.evidence import Evidence, Redactor
from gates.exhibit import read_exhibit
from gates.page import render, write_page
from gates.quotes import quotes_of
from gates.report import RunReport, Step, read_report
from gates.wire import Exchange, Failure, Piece

HOSTILE = "<script>parent.owned=1</script><img src=x onerror='parent.owned=1'>\"'&</pre></details>{{7*191}}{%x%}"


def asked(*pieces: bytes, stream: bool = True, status: int = 200, failure: Failure | None = None) -> Exchange:
    body = json.dumps({"model": HOSTILE, "stream": stream, "messages": [{"role": "user", "content": HOSTILE}]})
    kind = "text/event-stream" if stream else "application/json"
    timed = tuple(Piece(100 + number / 100, data) for number, data in enumerate(pieces))
    headers = (("Content-Type", kind), ("X-Evil", HOSTILE))
    return Exchange("POST", "/v1/chat/completions", body.encode(), 100.0, 101.0, status, headers, timed, failure)


def call(arguments: str, **more) -> bytes:
    return chunk({"tool_calls": [{"index": 0, **more, "function": {"arguments": arguments, **more.pop("f", {})}}]})


def evidence(directory: Path, *exchanges: Exchange, check: str = "J07") -> list[str]:
    return Evidence(directory / "acceptance", Redactor(None)).write(check, HOSTILE, HOSTILE, list(exchanges))


def report_of(directory: Path, *checks: Check, verdict: VerdictKind = VerdictKind.FAIL) -> RunReport:
    said = Verdict(
        gate="acceptance", verdict=verdict, sentence=HOSTILE, checks=list(checks), measurements={"x": HOSTILE}
    )
    steps = (Step("acceptance", False, said, ""), Step("throughput", True, None, HOSTILE))
    return RunReport("http://h", HOSTILE, HOSTILE, verdict, steps, "2026-01-01", 3.0, str(directory))


def failing(sentence: str, files: list[str], **more) -> Check:
    return Check(id="J07", verdict=VerdictKind.FAIL, sentence=sentence, evidence=files, rule=HOSTILE, **more)


RERUNS = [
    {"name": "the other mode", "problem": None, "why_not": None},
    {"name": "alone", "problem": HOSTILE},
    {"name": "on production", "problem": None, "why_not": HOSTILE},
    HOSTILE,
]


@pytest.fixture
def full(tmp_path: Path) -> RunReport:
    """A report with everything in it, all of it hostile."""
    stream = asked(FIRST, chunk({"content": HOSTILE}), call('{"a": "', id=HOSTILE), call(HOSTILE + "w" * 900), DONE)
    whole = asked(
        json.dumps({"choices": [{"message": {"role": "assistant", "content": HOSTILE}}]}).encode(), stream=False
    )
    refused = asked(HOSTILE.encode(), status=500, failure=Failure("http", HOSTILE))
    files = evidence(tmp_path, stream, whole, refused)
    figures = {
        "n": 12,
        "right": 3,
        "lower_bound": 0.1,
        "reruns": RERUNS,
        "layer": HOSTILE,
        "other": {HOSTILE: [HOSTILE]},
    }
    passed = [Check(id=f"P{i:02}", verdict=VerdictKind.PASS, sentence=HOSTILE) for i in range(30)]
    return report_of(
        tmp_path,
        *passed,
        failing(f"arguments: '{'w' * 100}'", files, measurements=figures),
        Check(id="J06", verdict=VerdictKind.PASS, sentence=HOSTILE, waived=HOSTILE),
        Check(id="T11", verdict=VerdictKind.PASS, sentence=HOSTILE, warn=True, evidence=["/etc/hostname"]),
        Check(id=HOSTILE, verdict=VerdictKind.INCONCLUSIVE, sentence=HOSTILE, skipped=True),
    )


class Page(HTMLParser):
    """Every tag and attribute of a page, its text, and what is marked in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.marks: list[str] = []
        self.text = ""
        self._marking = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._marking = tag == "mark"

    def handle_endtag(self, tag):
        self._marking = False

    def handle_data(self, data):
        self.text += data
        if self._marking:
            self.marks.append(data)


def test_nothing_an_engine_says_becomes_markup(full):
    page = Page(render(full))
    assert not {"script", "img", "iframe", "object", "form", "base"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in page.text
    assert "1337" not in page.text, "what an engine says is no template"


def test_the_page_needs_nothing_else(full):
    page = Page(render(full))
    loaded = [(tag, name, value) for tag, name, value in page.attributes if name in ("src", "href", "srcset", "action")]
    assert loaded == [("link", "href", "data:,")]
    policies = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]
    assert "url(" not in render(full)
    assert "@import" not in render(full)


def test_a_failing_check_shows_its_story(full):
    text = Page(render(full)).text
    for part in (
        "must hold", "3 of 12 right, at least 10.0 %", "at fault", "the other moderight", "on production",
        "not asked: ", "POST /v1/chat/completions", "HTTP 200, text/event-stream", "HTTP 500",
        "0.010 s", "finish_reason", "waived", "vllm#38274", "Public bugs behind this check",
    ):  # fmt: skip
        assert part in text.replace("\n", ""), part


def test_what_the_sentence_quotes_is_marked_where_it_came(tmp_path):
    pieces = [call(c) for c in '{"city": "Par']
    files = evidence(
        tmp_path, asked(FIRST, *[chunk({"content": "."})] * 90, *pieces, *[chunk({"content": "."})] * 90, DONE)
    )
    html = render(report_of(tmp_path, failing("""arguments are not JSON: '{"city": "Par'""", files)))
    assert '{"city": "Par' in Page(html).marks
    assert html.count('class="offending"') == len(pieces), "the events that carried it, though each has one character"
    assert "more events" in html


def test_a_whole_answer_is_marked_too(tmp_path):
    answer = {"choices": [{"message": {"role": "assistant", "content": "so <think> it is"}, "finish_reason": "stop"}]}
    files = evidence(tmp_path, asked(json.dumps(answer).encode(), stream=False))
    page = Page(render(report_of(tmp_path, failing("content holds <think>: …so <think> it…", files))))
    assert {"so <think> it"} == set(page.marks)
    assert len(page.marks) == 2, "in the assembled answer and as received"


@pytest.mark.parametrize(
    ("sentence", "text", "found"),
    [
        ("holds 'a\\nb'", 'x a\nb "a\\nb"', ["a\nb", "a\\nb"]),
        ('says "Zürich"', '{"c": "Z\\u00fcrich"}', ["Z\\u00fcrich"]),
        ("cut at `</parameter>`", "a</parameter>b", ["</parameter>"]),
        ("the character '!' 40 times in a row", "oh! no!!!!!!!!!!!!", ["!!!!!!!!!!!!"]),
        ("it doesn't say what isn't there", "t say what isn", []),
        ("content holds U+FFFD", "a\ufffdb", ["\ufffd"]),
        ("the answer has 'x' in it", "xxx", []),
        ("nothing is quoted", "nothing is quoted", []),
        ("unbalanced ' and \" and ` and …", "unbalanced", []),
    ],
)
def test_what_a_sentence_quotes(sentence, text, found):
    assert [text[a:b] for a, b in quotes_of([sentence]).spans(text)] == found


def test_big_evidence_is_cut_with_a_note(tmp_path):
    stream = asked(FIRST, *[chunk({"content": "word " * 20})] * 3000, DONE)
    whole = asked(json.dumps({"choices": [{"message": {"content": "y" * 300_000}}]}).encode(), stream=False)
    files = evidence(tmp_path, *[stream] * 3, *[whole] * 5)
    html = render(report_of(tmp_path, failing("something", files)))
    assert len(html) < 1_500_000
    for note in ("characters left out", "2937 more events", "4 more exchanges in the file"):
        assert note in html


def test_a_page_of_many_failures_stays_one_that_a_phone_opens(tmp_path):
    whole = asked(b'"' + b"z" * 19_000 + b'"', stream=False, status=400)
    checks = [failing("something", evidence(tmp_path / str(i), *[whole] * 4, check=f"X{i}")) for i in range(150)]
    html = render(report_of(tmp_path, *checks))
    assert len(html) < 8_000_000
    assert "this page is long enough" in html


def test_only_the_runs_own_files_are_read(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    other.mkdir()
    (other / "secret.json").write_text("TOP SECRET")
    (run / "link.json").symlink_to(other / "secret.json")
    names = [str(other / "secret.json"), "../other/secret.json", str(run / "link.json")]
    html = render(report_of(run, failing("x", names)))
    assert "TOP SECRET" not in html
    assert html.count("outside the run") == 3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"plain words", "plain words"),
        (b"\xff\xfe\x00", "3 bytes that are no text"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"exchanges": [7, {}, {"request": 3, "response": {"pieces": 5, "headers": 1, "status": "x"}}]}', "? ?"),
        (b'{"exchanges": [{"response": {"status": 200, "total_s": 1e999, "pieces": [{"base64": "%"}]}}]}', "HTTP 200"),
        (b'{"exchanges": [], "sentence": "\\ud800"}', "Evidence"),
        (b'{"exchanges": [{"request": {"body": ' + b"[" * 900 + b"]" * 900 + b"}}]}", "Evidence"),
        (b'{"exchanges": [{"response": {"total_s": 1' + b"0" * 400 + b"}}]}", "Evidence"),
        ('{"exchanges": [{"response": {"status": 200, "pieces": [{"text": "caf\u00e9 \\udcff"}]}}]}'.encode(), "café"),
    ],
)
def test_evidence_of_any_shape_makes_a_page(tmp_path, data, said):
    path = tmp_path / "e.json"
    if data is not None:
        path.write_bytes(data)
    report = report_of(tmp_path, failing("x", [str(path)]))
    write_page(report, tmp_path / "page.html")
    assert said in (tmp_path / "page.html").read_text()


def test_a_directory_in_place_of_a_file(tmp_path):
    assert read_exhibit(tmp_path, "d", quotes_of([])).problem == "this is no file"


def test_a_report_that_was_moved_with_its_evidence(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    report = report_of(before, failing("x", evidence(before, asked(b'"found it"', stream=False))))
    (before / "report.json").write_text(report.to_json())
    before.rename(after)
    moved = read_report(after / "report.json")
    assert "the directory of the evidence is not there" in render(moved)
    assert "found it" in render(moved, beside=after)


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GateUsageError, match=r"cannot be written to .*: "):
        write_page(report_of(tmp_path), tmp_path / "file" / "page.html")


def test_passed_checks_are_folded_away_unless_there_is_nothing_else(tmp_path, full):
    def checked(html: str) -> dict[str, bool]:
        found = re.findall(r'id="show-(\w+)"( checked)?', html)
        return {name: bool(on) for name, on in found}

    assert checked(render(full)) == {"fail": True, "waived": True, "warned": True, "passed": False, "skipped": False}
    good = report_of(tmp_path, Check(id="P01", verdict=VerdictKind.PASS, sentence="fine"), verdict=VerdictKind.PASS)
    assert checked(render(good)) == {"passed": True}


HARNESS = """<!doctype html><link rel="icon" href="data:,"><body>
<iframe id=f src="/page.html" width=360 height=800></iframe>
<script>
window.owned = 0;
document.getElementById("f").onload = () => {
  const page = document.getElementById("f").contentDocument;
  for (const one of page.querySelectorAll("details")) one.open = true;
  const root = page.documentElement;
  const hidden = () => [...page.querySelectorAll(".check.passed")].filter(e => e.offsetParent === null).length;
  const before = hidden();
  page.getElementById("show-passed").click();
  const wide = [...page.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > 360.5);
  document.body.dataset.seen = JSON.stringify({
    page: root.scrollWidth, view: root.clientWidth, owned: window.owned, before, after: hidden(),
    wide: wide.slice(0, 5).map(e => e.tagName + "." + e.className),
  });
};
</script>"""


def browser() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


@pytest.mark.skipif(browser() is None, reason="no Chromium on this machine: the page was not looked at in a browser")
def test_in_a_browser_on_a_phone(tmp_path, full):
    """360 px wide and everything unfolded: no sideways scrolling, no script, nothing on the console, filters filter."""
    site = tmp_path / "site"
    write_page(full, site / "page.html")
    (site / "index.html").write_text(HARNESS)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [
                browser() or "", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=5000",
                "--dump-dom", f"http://127.0.0.1:{server.server_port}/index.html",
            ],
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        server.shutdown()
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found, done.stderr
    seen = json.loads(found.group(1).replace("&quot;", '"'))
    assert seen == {"page": seen["view"], "view": seen["view"], "owned": 0, "before": 30, "after": 0, "wide": []}
    assert seen["view"] <= 360
    assert "CONSOLE" not in done.stderr
