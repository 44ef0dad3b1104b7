from __future__ import annotations

from pathlib import Path

import pytest

from gates import invariants, textrules
from gates.reply import Reply

PROSE = (
    "The harbour was quiet when the first boats came in, and nobody on the quay had slept much. An old man carried two "
    "baskets of herring up the steps while his daughter counted coins under the lamp. By the time the sun stood over "
    "the breakwater, most of the fish had been sold, and the gulls had settled on the roofs again to wait for evening. "
    "In the cafe at the corner they talked about the new crane, which was larger than the church and twice as loud."
)
CODE = "\n".join(
    f"    if value_{n} is not None and value_{n} > limit:\n        total += value_{n} * {n}" for n in range(9)
)


@pytest.mark.parametrize(
    "text", [PROSE, CODE, "Yes.", "| a | b |\n| --- | --- |\n| 1 | 2 |", "-" * 60, "╭" + "─" * 60 + "╮", "no no no"]
)
def test_healthy_text_raises_no_alarm(text: str) -> None:
    assert textrules.degeneration(text) is None
    assert textrules.encoding_damage(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "!" * 64,
        "The answer is!!!!!!!!!!!!!!!!!!!!!!!!!!",
        "AI AI AI AI AI AI",
        "I'm'm'm'm'm" + "'m" * 200,
        "This is a sentence that comes again. " * 12,
        PROSE[:150] * 6,
        "Hello" + "\n" * 60,
        " " * 300,
    ],
)
def test_degenerate_text_is_named(text: str) -> None:
    assert textrules.degeneration(text)


@pytest.mark.parametrize(
    "text",
    [
        "caf\ufffd",
        "cafÃ©",
        "itâ€™s",
        "snow<0xE4>",
        "half \ud83d of it",
        "море".encode().decode("latin-1"),
        "今天早上".encode().decode("latin-1"),
    ],
)
def test_damaged_encoding_is_named(text: str) -> None:
    assert textrules.encoding_damage(text)


def test_prose_is_prose_and_salad_is_not() -> None:
    assert textrules.prose_problem(PROSE, 80) is None
    salad = (
        "Kuchen zwanzig Regen fünf blau Tisch Hund laufen Berg " * 2
        + "otra casa verde mundo perro lejos siempre azul " * 3
    )
    assert "small English words" in (textrules.prose_problem(salad, 80) or "")
    assert "letters" in (textrules.prose_problem("{}[]<>|\\^~" * 30, 80) or "")
    assert "only 2 characters" in (textrules.prose_problem("Hm", 80) or "")


@pytest.mark.parametrize(
    "text", ["« café »", "«café»", "IRMÃ", "Ñandú", "ÐÞ", "naïve – “quoted” …", "日本語と中文", "море"]
)
def test_signs_that_look_like_damage_and_are_none(text: str) -> None:
    assert textrules.encoding_damage(text) is None


def test_a_sick_stretch_in_a_long_text_is_found_where_it_is() -> None:
    text = PROSE * 3 + "and then " * 100 + PROSE * 3
    assert (textrules.degenerate_window(text) or "").startswith("from character ")
    assert textrules.degenerate_window(PROSE) is None
    assert textrules.degenerate_window("") is None


@pytest.mark.parametrize(
    ("period", "noise", "found"), [(1, 0, True), (57, 0, True), (150, 0, True), (57, 3, True), (57, 80, False)]
)
def test_a_loop_is_a_loop_with_a_few_slips(period: int, noise: int, found: bool) -> None:
    signs = list((PROSE[:period] * 700)[:620])
    for n in range(noise):
        signs[20 + n * 7] = "#"
    assert (textrules.tail_period("".join(signs)) is not None) is found


@pytest.mark.parametrize(
    "question", ["Write a Python program.", "Draw a table of rivers", "Fix this:\n```\nx\n```", "some code"]
)
def test_questions_for_code_are_known(question: str) -> None:
    assert textrules.asks_for_code(question)


@pytest.mark.parametrize(
    "question", ["Reply with only the following code: A7", "Write about rivers.", "Tabletop games"]
)
def test_other_questions_are_none_for_code(question: str) -> None:
    assert not textrules.asks_for_code(question)


def test_code_needs_two_broken_rules_or_an_end_at_max_tokens() -> None:
    ruled = "# " + "=" * 130 + "\n" + Path(textrules.__file__).read_text(encoding="utf-8")[:700]
    program = {"model": "m", "messages": [{"role": "user", "content": "Write a Python program."}]}
    prose = {"model": "m", "messages": [{"role": "user", "content": "Write about rivers."}]}

    def broken(body: dict[str, object], text: str, finish: str = "stop") -> set[str]:
        reply = Reply(streamed=False, content=text, finish_reason=finish)
        return {breach.rule for breach in invariants.breaches(reply, body)} & {"O02"}

    assert broken(program, ruled) == set()
    assert broken(program, ruled, "length") == {"O02"}
    assert broken(prose, ruled) == {"O02"}
    assert broken(program, "x" * 900) == {"O02"}


SALAD = (
    "страница", "数据", "ので", "에서", "من", "zeichn", "การ", "_iter", "και", "ficient", "שד", "inqu", "है", "国立",
    "ования", "unst", "的一", "した", "wend",
)  # fmt: skip


def test_token_salad_of_many_scripts_is_degenerate() -> None:
    salad = " ".join(SALAD[n * n % len(SALAD)] for n in range(80))
    assert "letters stand side by side" in (textrules.degeneration(salad) or "")


@pytest.mark.parametrize(
    "text",
    [
        "Hello in many languages: 你好, привет, مرحبا, γειά, שלום, नमस्ते, こんにちは, 안녕하세요, สวัสดี",
        "- Russian: привет\n- Arabic: مرحبا\n- Greek: γειά\n- Hebrew: שלום\n- Hindi: नमस्ते\n- Thai: สวัสดี",
        "東京 タワー は 高い です と 日本語 で 言う 한국어 中文 ひらがな カタカナ 漢字 한글",
        "Слово «дом» по-английски house, по-гречески σπίτι.",
    ],
)
def test_languages_in_a_list_are_no_salad(text: str) -> None:
    assert textrules.mixed_scripts(text) is None


def test_endless_counting_ends_at_max_tokens() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "What is new?"}]}
    counting = "Well. " + "".join(f"{n}. " for n in range(1, 400))

    def broken(text: str, finish: str) -> set[str]:
        reply = Reply(streamed=False, content=text, finish_reason=finish)
        return {breach.rule for breach in invariants.breaches(reply, body)} & {"O02"}

    assert broken(counting, "length") == {"O02"}
    assert broken(counting, "stop") == set(), "somebody may have asked to count to 399"
    listed = "".join(f"{n}. {word}\n" for n, word in enumerate(PROSE.split(), 1))
    assert broken(listed, "length") == set()
