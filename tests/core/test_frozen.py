"""`replace` and `cached_property` of the core do what the standard library's do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from controller.core.frozen import cached_property, replace


@dataclass(frozen=True, slots=True)
class Pair:
    one: int
    other: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    times: list[int] = field(default_factory=list)

    @cached_property
    def answer(self) -> int:
        """What it says."""
        self.times.append(1)
        return len(self.times)


@pytest.mark.parametrize("changes", [{}, {"one": 2}, {"other": ("b",), "one": 3}])
def test_a_changed_copy_is_what_the_standard_library_makes(changes):
    pair = Pair(1, ("a",))
    assert replace(pair, **changes) == dataclasses.replace(pair, **changes)
    assert pair == Pair(1, ("a",))


def test_what_is_not_changed_is_the_same_object():
    names = ("a", "b")
    assert replace(Pair(1, names), one=2).other is names


def test_a_name_that_is_no_field_is_refused():
    with pytest.raises(KeyError, match="third"):
        replace(Pair(1), third=3)


def test_it_is_worked_out_once_for_each_record_and_knows_its_own_words():
    asked, another = Asked(), Asked()
    assert [asked.answer, asked.answer, another.answer] == [1, 1, 1]
    assert asked.times == another.times == [1]
    assert Asked.answer.__doc__ == "What it says."
