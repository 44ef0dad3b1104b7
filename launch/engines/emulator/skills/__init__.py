"""What the pseudo model can do: a list of skills, tried in order; the first that has something to say answers.

A skill is a function `(Asked, Random) -> Answer | None`. `Asked` holds what the model has read, nothing else; the
random numbers are the same for the same prompt and seed. To teach the model something, write such a function in a file
of its own and put it into the list, before those that would answer in its place.
"""

from collections.abc import Callable
from random import Random

from ..answer import Answer
from ..request import Asked
from .calling import call_tools
from .copying import copy
from .facts import know
from .far_values import call_from_afar
from .feedback import recall, use_results
from .languages import write_in_language
from .markup import explain_markup
from .needles import find_needle
from .noting import tell_noted
from .puzzles import solve
from .riddles import riddle
from .small_talk import greet
from .structured import answer_as_json
from .word_problems import reckon
from .writing import write

Skill = Callable[[Asked, Random], Answer | None]

SKILLS: tuple[Skill, ...] = (
    tell_noted,
    use_results,
    call_from_afar,
    call_tools,
    answer_as_json,
    recall,
    explain_markup,
    know,
    write_in_language,
    riddle,
    reckon,
    solve,
    copy,
    find_needle,
    greet,
    write,
)
