"""Control characters out of an answer are shown as what they are, on the page and on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_kit import DONE, FIRST, chunk
from markupsafe import Markup

from gates.contract import Check, Verdict, VerdictKind
from gates.evidence import Evidence, Redactor
from gates.page import render
from gates.report import RunReport, Step
from gates.visible import printable, visible
from gates.wire import Exchange, Piece

CONTROLS = "\x1b[31mred\x1b[0m \x07\x00\x9b2J\x7f \u202egnp\u202c"
SPELLED = r"\x1b[31mred\x1b[0m \x07\x00\x9b2J\x7f \u202egnp\u202c"


def test_what_would_act_is_spelled_out_and_the_rest_stays() -> None:
    assert printable(CONTROLS) == SPELLED
    assert (
        printable("a\tb\nc\r\nd\re ü 漢 \N{REPLACEMENT CHARACTER}") == "a\tb\nc\nd\\x0de ü 漢 \N{REPLACEMENT CHARACTER}"
    )
    assert visible(3) == 3
    assert visible(Markup("<b>\x1b</b>")) == Markup(r"<b>\x1b</b>")
    assert isinstance(visible(Markup("<b>")), Markup)


@pytest.fixture
def report(tmp_path: Path) -> RunReport:
    def asked(stream: bool, *pieces: bytes, status: int = 200) -> Exchange:
        body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": CONTROLS}]})
        headers = (("Content-Type", "text/event-stream" if stream else "text/plain"), ("X-Evil", CONTROLS))
        timed = tuple(Piece(number / 100, data) for number, data in enumerate(pieces))
        return Exchange("POST", "/v1/chat/completions", body.encode(), 0.0, 1.0, status, headers, timed)

    streamed = asked(True, FIRST, chunk({"content": CONTROLS}), b"data: " + CONTROLS.encode() + b"\n\n", DONE)
    whole = {"choices": [{"message": {"role": "assistant", "content": CONTROLS}}]}
    files = Evidence(tmp_path / "acceptance", Redactor(None)).write(
        "O04",
        CONTROLS,
        CONTROLS,
        [streamed, asked(False, json.dumps(whole).encode()), asked(False, CONTROLS.encode(), status=500)],
    )
    foreign = tmp_path / "acceptance" / "foreign.txt"
    foreign.write_text(CONTROLS)
    figures = {"reruns": [{"name": CONTROLS, "problem": CONTROLS}], "layer": CONTROLS, CONTROLS: CONTROLS}
    check = Check(
        id="O04", verdict=VerdictKind.FAIL, sentence=f"holds {CONTROLS!r}: {CONTROLS}", rule=CONTROLS,
        evidence=[*files, str(foreign), CONTROLS], measurements=figures,
    )  # fmt: skip
    waived = check.model_copy(update={"verdict": VerdictKind.PASS, "waived": CONTROLS})
    said = Verdict(gate="acceptance", verdict=VerdictKind.FAIL, sentence=CONTROLS, checks=[check, waived])
    steps = (Step("acceptance", False, said, ""), Step(CONTROLS, True, None, CONTROLS))
    return RunReport("http://h", CONTROLS, CONTROLS, VerdictKind.FAIL, steps, "2026-11-30", 3.0, str(tmp_path))


def acts(text: str) -> list[str]:
    return sorted({repr(sign) for sign in text if not sign.isprintable() and sign not in "\n\t"})


def test_the_page_holds_none_of_them(report: RunReport) -> None:
    html = render(report)
    assert acts(html) == []
    assert html.count(r"\x1b[31mred") > 10
    assert r"\u202egnp" in html


def test_the_terminal_gets_none_of_them(report: RunReport) -> None:
    text = report.text(120)
    assert acts(text) == []
    assert r"\x1b[31mred" in text
