from __future__ import annotations

import pytest

from gates import sanity, textrules

PROSE = (
    "The harbour was quiet when the first boats came in, and nobody on the quay had slept much. An old man carried two "
    "baskets of herring up the steps while his daughter counted coins under the lamp. By the time the sun stood over "
    "the breakwater, most of the fish had been sold, and the gulls had settled on the roofs again to wait for evening. "
    "In the cafe at the corner they talked about the new crane, which was larger than the church and twice as loud."
)
CODE = "\n".join(
    f"    if value_{n} is not None and value_{n} > limit:\n        total += value_{n} * {n}" for n in range(9)
)


@pytest.mark.parametrize("text", [PROSE, CODE, "Yes.", "| a | b |\n| --- | --- |\n| 1 | 2 |", "-" * 60, "no no no"])
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


@pytest.mark.parametrize("text", ["caf\ufffd", "cafÃ©", "itâ€™s", "snow<0xE4>", "half \ud83d of it"])
def test_damaged_encoding_is_named(text: str) -> None:
    assert textrules.encoding_damage(text)


def test_prose_is_prose_and_salad_is_not() -> None:
    assert sanity.prose_problem(PROSE, 80) is None
    salad = (
        "Kuchen zwanzig Regen fünf blau Tisch Hund laufen Berg " * 2
        + "otra casa verde mundo perro lejos siempre azul " * 3
    )
    assert "small English words" in (sanity.prose_problem(salad, 80) or "")
    assert "letters" in (sanity.prose_problem("{}[]<>|\\^~" * 30, 80) or "")
    assert "only 2 characters" in (sanity.prose_problem("Hm", 80) or "")
