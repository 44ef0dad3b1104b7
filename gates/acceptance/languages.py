"""Group O, languages: the right script, and the small words of the language that was asked for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gates import textrules
from gates.acceptance.check import Check, Relative
from gates.acceptance.words import said, shown, unanswered
from gates.textrules import script

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample

MIN_OWN_SCRIPT: Final = 0.80
MAX_STRAY: Final = 0.02
MIN_STOP_WORDS: Final = 0.08
PROMPTS: Final = 4
_LATIN: Final = "LATIN"
_WORD: Final = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Language:
    """`scripts` as Unicode names them; `stop_words` where the script is shared with other languages."""

    name: str
    scripts: tuple[str, ...]
    min_chars: int = 100
    stop_words: frozenset[str] = frozenset()


def _latin(name: str, stop_words: str) -> Language:
    return Language(name, (_LATIN,), stop_words=frozenset(stop_words.split()))


LANGUAGES: Final = (
    _latin(
        "German",
        "der die das den dem des ein eine einen einem einer und oder aber nicht ist sind war waren hat haben wird "
        "werden mit von zu zum zur im in am an auf für als auch sich es er sie wir man wie bei nach aus dass so um nur",
    ),
    _latin(
        "French",
        "le la les un une des de du et ou mais ne pas est sont était être a ont avec pour par sur dans en au aux ce "
        "cette ces qui que où se sa son ses il elle on nous leur plus comme l d s n qu c",
    ),
    _latin(
        "Spanish",
        "el la los las un una unos unas de del y o pero no es son era fue ha han con por para en al se su sus que como "
        "más lo le les este esta cuando donde muy sin sobre entre hay",
    ),
    _latin(
        "Portuguese",
        "o a os as um uma de do da dos das e ou mas não é são era foi tem com por para em no na nos nas ao se seu sua "
        "que como mais ele ela quando onde muito sem sobre entre há",
    ),
    _latin(
        "Polish",
        "i w z na do nie się jest są był była było to że o po od za jak ale czy dla przez ze ich jego jej ten ta te "
        "tym który która które tak już także oraz gdy przy pod nad co a u",
    ),
    Language("Russian", ("CYRILLIC",)),
    Language("Arabic", ("ARABIC",), min_chars=80),
    Language("Chinese", ("CJK",), min_chars=40),
    Language("Japanese", ("CJK", "HIRAGANA", "KATAKANA"), min_chars=40),
    Language("Korean", ("HANGUL",), min_chars=40),
)
_ENGLISH: Final = Language("English", (_LATIN,), stop_words=textrules.STOP_WORDS)
TOPICS: Final = (
    "the sea", "bread", "a train journey", "winter", "music", "a small garden", "the night sky", "a city market",
    "learning to swim", "rain",
)  # fmt: skip


def problem(text: str, language: Language) -> str | None:
    """Why `text` is not written in `language`, or None."""
    if len(text) < language.min_chars:
        return f"only {len(text)} characters of {language.name} came: {shown(text)}"
    scripts = Counter(filter(None, map(script, text)))
    letters = sum(scripts.values())
    own = sum(scripts[name] for name in language.scripts) / letters if letters else 0.0
    if own < MIN_OWN_SCRIPT:
        return f"only {own:.0%} of the letters are those of {language.name}: {shown(text)}"
    # Names and brands come in Latin letters everywhere; any other script is a stray.
    strays = {name: count for name, count in scripts.items() if name not in (*language.scripts, _LATIN)}
    if letters and sum(strays.values()) / letters > MAX_STRAY:
        found = ", ".join(f"{name.title()} ({count})" for name, count in strays.items())
        return f"letters of other scripts stand in the {language.name}: {found}: {shown(text)}"
    return _words_problem(text, language)


def _words_problem(text: str, language: Language) -> str | None:
    if not language.stop_words:
        # Japanese without kana is Chinese.
        kana = not {"HIRAGANA", "KATAKANA"} & set(language.scripts) or any(script(sign) == "HIRAGANA" for sign in text)
        return None if kana else f"no kana stands in the {language.name}: {shown(text)}"
    words = _WORD.findall(text.lower())
    shares = {other.name: _share(words, other) for other in (*LANGUAGES, _ENGLISH) if other.stop_words}
    share = shares[language.name]
    if share < MIN_STOP_WORDS:
        return f"small words of {language.name} make {share:.0%} of it, expected {MIN_STOP_WORDS:.0%}: {shown(text)}"
    # Neighbours share many of them, so the text must be nearest to its own.
    nearest = max(shares, key=lambda name: (shares[name], name == language.name))
    return None if nearest == language.name else f"it is {nearest} rather than {language.name}: {shown(text)}"


def _share(words: list[str], language: Language) -> float:
    return sum(word in language.stop_words for word in words) / len(words) if words else 0.0


async def _write(asker: Asker, sample: Sample) -> str | None:
    language = LANGUAGES[(sample.number + sample.number // len(LANGUAGES)) % len(LANGUAGES)]
    topic = sample.rng().choice(TOPICS)
    asked = f"Answer in {language.name}: write two short paragraphs about {topic}."
    answer = await asker.chat(sample, asked)
    return unanswered(answer) or problem(said(answer), language)


CHECKS: Final = (
    Check(
        id="O03",
        name="languages",
        asks=f"Two paragraphs in each of {', '.join(language.name for language in LANGUAGES)}, four times.",
        holds="the letters are of the right script, hardly any of another, and the small words are the language's own",
        catches="a damaged vocabulary or shard that English hides: token salad, drift into another language, cut UTF-8",
        rule=Relative(PROMPTS * len(LANGUAGES), margin=0.15, floor=0.875),
        attempt=_write,
    ),
)
