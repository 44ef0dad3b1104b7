"""Questions that beg for a tool, questions that need none, and small talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.acceptance.tools import CITIES, record_id

if TYPE_CHECKING:
    from random import Random

CHIT_CHAT: Final = (
    "Hi",
    "Hello, how are you?",
    "Thanks, that was kind of you.",
    "Good morning!",
    "You are funny.",
    "Okay.",
    "Nice to meet you.",
    "Goodbye, see you soon.",
)
GENERAL: Final = (
    "What is the capital of Portugal?",
    "What is the capital of Japan?",
    "What is 17 + 25?",
    "What is 6 * 7?",
    "Who wrote Romeo and Juliet?",
    "Name three primary colours.",
    "How many legs does a spider have?",
    "What is the opposite of cold?",
    "Explain in one sentence what a noun is.",
    "Write a short poem about autumn.",
    "Which planet is closest to the sun?",
    "Translate 'good night' into French.",
    "What do bees make?",
    "How many days are in a leap year?",
    "Give me a synonym for happy.",
    "What is photosynthesis, in two sentences?",
    "Who painted the Mona Lisa?",
    "Which ocean lies between Europe and America?",
    "What is the chemical formula of water?",
    "Tell me a short joke about cats.",
    "What is the plural of mouse?",
    "In which sport is a shuttlecock used?",
    "What is the square root of 81?",
    "Name a fruit that is yellow.",
    "What does a carpenter do?",
    "How many strings has a violin?",
    "Why is the sky blue? One sentence.",
    "What is the largest mammal?",
    "Give one reason to learn chess.",
    "Spell the word 'necessary'.",
    "What is the past tense of 'go'?",
    "Suggest a name for a grey kitten.",
)
"""No tool about weather, clocks or records helps with these."""


def tempting(rng: Random) -> tuple[str, str]:
    """The name of a tool (of `WEATHER`, `CLOCK`, `RECORD`) and a question that begs for it."""
    city = rng.choice(CITIES)
    return rng.choice(
        (
            ("get_weather", f"What is the weather in {city} right now? Use the tool."),
            ("get_weather", f"Please get the current weather of {city} for me, unit c."),
            ("get_server_time", "What is the exact server time at this moment? Use the tool."),
            ("get_server_time", "Call get_server_time and tell me the result."),
            ("lookup_record", f"Look up the record {record_id(rng)} with the tool."),
            ("lookup_record", f"Use lookup_record for {record_id(rng)}, please."),
        )
    )
