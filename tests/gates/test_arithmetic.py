from __future__ import annotations

import math
import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.arithmetic import ASKED, MAX_PROBLEMS, TEMPLATES, Problem, answer_in, problems

MANY = problems("a seed", 2800)


def numbers(problem: Problem) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", problem.text)]


def test_a_seed_makes_the_same_problems_and_another_seed_others() -> None:
    assert problems(7, 40)[:20] == problems(7, 20) == problems("7", 20)
    assert not set(problems(7, 200)) & set(problems(8, 200))
    assert problems(7, 0) == ()
    with pytest.raises(ValueError, match="up to 10000 problems"):
        problems(7, MAX_PROBLEMS + 1)


def test_problems_differ_and_say_how_to_answer() -> None:
    assert len({problem.text for problem in MANY}) == len(MANY)
    assert all(problem.text.endswith(ASKED) and "  " not in problem.text for problem in MANY)
    # Without names, things and numbers the templates remain, all of them in turn.
    skeletons = Counter(re.sub(r"\d+|[A-Z][a-z]+|\b[a-z]+s\b", "", problem.text) for problem in MANY)
    assert len(TEMPLATES) >= 12
    assert len(skeletons) >= len(TEMPLATES)


def test_nobody_guesses_the_answer() -> None:
    commonest = Counter(problem.answer for problem in MANY).most_common(1)[0][1]
    assert commonest / len(MANY) < 0.01
    assert min(problem.answer for problem in MANY) >= 100
    for problem in MANY:
        assert problem.answer not in numbers(problem)
        assert not answer_in(problem.text, problem.answer), "a server that echoes the question is wrong"
    for guess in (sum, max, math.prod, lambda given: given[0] * given[1], lambda given: given[0] + given[1]):
        right = sum(guess(numbers(problem)) == problem.answer for problem in MANY)
        assert right / len(MANY) < 0.02, "one rule for all must not do"


def solved(text: str) -> int:
    """The templates' answers once more, from their words alone."""
    n = [int(number) for number in re.findall(r"\d+", text)]
    rules = (
        ("gives", lambda: n[0] * n[1] - n[2]),
        ("shared equally", lambda: (n[0] - n[2]) // n[1]),
        ("bonus", lambda: n[0] * n[1] * n[2] + n[3]),
        ("train", lambda: n[0] * n[1] + n[2] * n[3]),
        ("hall", lambda: n[0] * n[1] - n[2] - n[3]),
        ("chairs", lambda: n[0] - n[1] * n[2] - n[3] * n[4]),
        ("percent", lambda: n[0] - n[0] * n[1] // 100 + n[2]),
        ("tank", lambda: n[0] + n[3] * (n[1] - n[2])),
        ("pages", lambda: n[0] * n[1] + n[2] * n[3]),
        ("fence", lambda: 2 * n[0] + 2 * n[1] - n[2]),
        ("pond", lambda: n[0] * n[1] - n[2] ** 2),
        ("church", lambda: n[0] * n[1] + n[2]),
        ("buses", lambda: n[0] * n[1] - n[2] + n[3]),
        ("doubles", lambda: n[0] * 2 ** n[1] + n[2]),
    )
    return next(rule() for word, rule in rules if word in text)


def test_the_answers_are_right() -> None:
    for template in TEMPLATES:
        random = Random("check")  # noqa: S311
        for _ in range(300):
            problem = template(random)
            assert solved(problem.text) == problem.answer, problem.text
            assert problem.answer > 0, problem.text


@pytest.mark.parametrize(
    "text",
    [
        "1234",
        "1234.",
        "The answer is **1,234**.",
        "12 * 100 = 1200, plus 34 makes 1 234 lemons",
        "1.234 Kilometer",
        "1'234",
        "1\u202f234 \u20ac",
        "1\u00a0234",
        "1_234",
        "\\boxed{1234}",
        "$1{,}234$ litres",
        "$1\\,234$",
        "$1,234.00",
        "1.234,00 Euro",
        "1 234,00 euros",
        "1234.0",
        "=1234km\u00b2",
        "1234 m2",
        "\uff11\uff12\uff13\uff14",
        "\u0661\u0662\u0663\u0664",
        "In step 3 it was 12; so: 1234\n",
        "700-1234",
        "- 1234",
        "(1234)",
        "they were 12 in step 9 1234",
    ],
)
def test_an_answer_however_it_is_written(text: str) -> None:
    assert answer_in(text, 1234)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lemons",
        "1235",
        "12345",
        "11234",
        "0.1234",
        "1234.5",
        "1,2,3,4",
        "12,34",
        "1234,567",
        "-1234",
        "\u22121234",
        "1234 of 5000",
        "x1234",
        "1234 = 12",
        "12:34",
        "1.234,567.8",
        "9" * 5000,
        "1" + ",234" * 5000,
        "1234 or so, at 10.11.2026",
    ],
)
def test_what_is_no_answer(text: str) -> None:
    assert not answer_in(text, 1234)


@given(
    answer=st.integers(0, 10**12), before=st.text(), words=st.sampled_from([".", " lemons", "**", "", " \u20ac", ")"])
)
def test_the_last_number_wins(answer: int, before: str, words: str) -> None:
    for written in (str(answer), f"{answer:,}", f"{answer:,}".replace(",", "."), f"{answer:,}".replace(",", " ")):
        assert answer_in(f"{before}\nResult: {written}{words}", answer)
        assert not answer_in(f"{before}\nResult: {written}{words}", answer + 1)
