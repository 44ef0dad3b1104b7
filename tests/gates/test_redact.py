"""The key in every spelling and in every piece that a cut may leave of it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from gate_kit import DONE, END, FIRST, chunk, streamed

from gates.evidence import Evidence
from gates.redact import BLACK, Redactor
from gates.reply import error_text
from gates.wire import Exchange, Failure

KEY = 'sk-not/to+be"told~4711=='
REDACTOR = Redactor(KEY)


def pieces_of(text: str, length: int = 8) -> list[str]:
    return [part for at in range(len(KEY) - length + 1) if (part := KEY[at : at + length]) in text]


@pytest.mark.parametrize(
    "spelt",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(json.dumps(KEY))[3:-3],
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        "".join(f"\\u{ord(character):04X}" for character in KEY),
        quote(KEY),
        quote(KEY, safe="").lower().replace("%2f", "%2F"),
        quote(quote(KEY, safe=""), safe=""),
        "".join(f"%{ord(character):02x}" for character in KEY),
        repr(KEY)[1:-1],
    ],
)
def test_any_spelling_goes(spelt: str) -> None:
    assert REDACTOR.text(f"bad key {spelt}, go away") == f"bad key {BLACK}, go away"
    assert REDACTOR.data(b"\xff{" + spelt.encode() + b"}") == b"\xff{" + BLACK.encode() + b"}"
    assert REDACTOR.plain({spelt: [spelt, (spelt, 1)]}) == {BLACK: [BLACK, [BLACK, 1]]}


@pytest.mark.parametrize("kept", range(4, len(KEY)))
@pytest.mark.parametrize("spell", [str, quote, lambda text: json.dumps(text)[1:-1], lambda text: repr(text)[1:-1]])
def test_what_a_cut_leaves_goes(kept: int, spell: object) -> None:
    assert callable(spell)
    head, tail = spell(KEY[:kept]), spell(KEY[-kept:])
    for said in (
        f"an event is not a JSON object: 'x {head}'",
        f"it said x {head}",
        f"x {head} …",
        f"the call f(x {head}) differs",
    ):
        assert REDACTOR.text(said) == said.replace(head, BLACK)
    for said in (f"the end is {tail}", f"'{tail} and more'", f"…{tail}…"):
        assert REDACTOR.text(said) == said.replace(tail, BLACK)


def test_an_excerpt_that_ends_within_the_key() -> None:
    for padding in range(255, 305):
        said = error_text(b'{"error": "' + b"x" * padding + json.dumps(KEY)[1:].encode() + b"}")
        assert not pieces_of(REDACTOR.text(said), 4)


def test_what_is_no_key_stays() -> None:
    for said in ("a task-force told 4711 of us", "", "not/to+b", "…sk…"):
        redacted = REDACTOR.text(said)
        assert redacted == said or pieces_of(said)
    assert Redactor("short").text("a shortage of sho") == "a [api key]age of sho"
    assert Redactor(None).text(KEY) == KEY


def written(exchange: Exchange, folder: Path) -> str:
    evidence = Evidence(folder, REDACTOR, "THE_KEY")
    [path] = evidence.write("P01", "a rule", f"it said {KEY}", [exchange])
    text = Path(path).read_text()
    assert KEY not in json.dumps(json.loads(text), ensure_ascii=False).replace("\\\\", "\\").replace('\\"', '"')
    return text


def test_evidence_holds_no_key_however_it_came(tmp_path: Path) -> None:
    whole = streamed(FIRST, chunk({"content": KEY}), END, piece_bytes=7)
    assert BLACK in written(whole, tmp_path)
    by_the_letter = streamed(FIRST, *(chunk({"content": character}) for character in KEY), END)
    assert "spells the API key over several events" in written(by_the_letter, tmp_path)
    broken_off = streamed(FIRST, chunk({"content": KEY})[:-30])
    assert not pieces_of(written(broken_off, tmp_path))
    failed = Exchange("POST", "/", b"", 0, 1, 200, failure=Failure("http", f"it broke at {KEY[:12]}"))
    assert not pieces_of(written(failed, tmp_path))
    healthy = streamed(FIRST, chunk({"content": "hello"}), END)
    assert json.loads(written(healthy, tmp_path))["exchanges"][0]["response"]["pieces"][-1]["text"].endswith(
        DONE.decode()
    )
