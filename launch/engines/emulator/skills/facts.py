"""The few things this pseudo model knows: enough to pass for sane when asked simple questions."""

import re
from functools import lru_cache
from itertools import pairwise
from random import Random

from ..answer import Answer
from ..reading import read
from ..request import Asked
from ..tokens import split_tokens

_CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "japan": "Tokyo", "poland": "Warsaw",
    "portugal": "Lisbon", "norway": "Oslo", "sweden": "Stockholm", "finland": "Helsinki", "greece": "Athens",
    "austria": "Vienna", "egypt": "Cairo", "canada": "Ottawa", "china": "Beijing", "india": "New Delhi",
    "russia": "Moscow", "peru": "Lima", "kenya": "Nairobi", "hungary": "Budapest", "ireland": "Dublin",
    "england": "London", "the united kingdom": "London", "united kingdom": "London", "denmark": "Copenhagen",
    "belgium": "Brussels", "the netherlands": "Amsterdam", "netherlands": "Amsterdam", "switzerland": "Bern",
    "turkey": "Ankara", "ukraine": "Kyiv", "romania": "Bucharest", "bulgaria": "Sofia", "croatia": "Zagreb",
    "serbia": "Belgrade", "iceland": "Reykjavík", "mexico": "Mexico City", "brazil": "Brasília", "cuba": "Havana",
    "argentina": "Buenos Aires", "chile": "Santiago", "colombia": "Bogotá", "australia": "Canberra",
    "new zealand": "Wellington", "thailand": "Bangkok", "vietnam": "Hanoi", "south korea": "Seoul", "iran": "Tehran",
    "iraq": "Baghdad", "israel": "Jerusalem", "morocco": "Rabat", "ethiopia": "Addis Ababa", "estonia": "Tallinn",
    "latvia": "Riga", "lithuania": "Vilnius", "slovakia": "Bratislava", "slovenia": "Ljubljana",
    "the czech republic": "Prague", "czechia": "Prague", "indonesia": "Jakarta", "the philippines": "Manila",
    "the united states": "Washington, D.C.", "nepal": "Kathmandu", "mongolia": "Ulaanbaatar", "ecuador": "Quito",
}  # fmt: skip
_OPPOSITES = {
    "hot": "cold", "cold": "hot", "up": "down", "down": "up", "big": "small", "small": "big", "large": "small",
    "day": "night", "night": "day", "black": "white", "white": "black", "wet": "dry", "dry": "wet", "open": "closed",
    "closed": "open", "left": "right", "right": "left", "fast": "slow", "slow": "fast",
    "empty": "full", "full": "empty",
    "old": "new", "new": "old", "young": "old", "happy": "sad", "sad": "happy", "light": "dark", "dark": "light",
    "high": "low", "low": "high", "good": "bad", "bad": "good", "early": "late", "late": "early", "hard": "soft",
    "soft": "hard", "true": "false", "false": "true", "yes": "no", "near": "far", "far": "near", "tall": "short",
    "rich": "poor", "poor": "rich", "strong": "weak", "weak": "strong", "loud": "quiet", "heavy": "light", "in": "out",
    "begin": "end", "start": "stop", "love": "hate", "north": "south", "south": "north", "east": "west", "west": "east",
}  # fmt: skip
# Pattern of the question → the answer. The first that fits is taken.
_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), answer)
    for pattern, answer in (
        (r"how many days\b.*\bweek", "7"),
        (r"how many days\b.*\bleap year", "366"),
        (r"how many days\b.*\byear", "365"),
        (r"how many months\b.*\byear", "12"),
        (r"how many weeks\b.*\byear", "52"),
        (r"how many hours\b.*\bday", "24"),
        (r"how many minutes\b.*\bhour", "60"),
        (r"how many seconds\b.*\bminute", "60"),
        (r"how many (?:centimet\w+|cm)\b.*\bmet", "100"),
        (r"how many met\w+\b.*\bkilomet", "1000"),
        (r"how many grams\b.*\bkilo", "1000"),
        (r"how many letters\b.*\balphabet", "26"),
        (r"how many legs\b.*\bspider", "8"),
        (r"how many legs\b.*\b(?:insect|ant|bee)", "6"),
        (r"how many legs\b.*\b(?:dog|cat|horse|cow)", "4"),
        (r"how many wheels\b.*\b(?:bicycle|bike)", "2"),
        (r"how many wheels\b.*\bcar", "4"),
        (r"how many wheels\b.*\btricycle", "3"),
        (r"how many sides\b.*\btriangle", "3"),
        (r"how many sides\b.*\b(?:square|rectangle)", "4"),
        (r"how many sides\b.*\bpentagon", "5"),
        (r"how many sides\b.*\bhexagon", "6"),
        (r"how many sides\b.*\boctagon", "8"),
        (r"how many continents", "7"),
        (r"how many planets", "8"),
        (r"how many (?:strings|string)\b.*\bviolin", "4"),
        (r"how many players\b.*\b(?:football|soccer) team", "11"),
        (r"how many (?:eggs|items)?\b.*\bdozen", "12"),
        (r"how many fingers\b.*\bhand", "5"),
        (r"which planet do we live", "Earth"),
        (r"(?:largest|biggest) planet", "Jupiter"),
        (r"smallest planet|closest to the sun|nearest (?:to )?the sun", "Mercury"),
        (r"\bred planet", "Mars"),
        (r"(?:largest|biggest) ocean", "the Pacific Ocean"),
        (r"(?:highest|tallest) mountain", "Mount Everest"),
        (r"(?:chemical )?(?:formula|symbol)\b.*\bwater", "H2O"),
        (r"(?:formula)\b.*\bcarbon dioxide", "CO2"),
        (r"(?:formula)\b.*\btable salt", "NaCl"),
        (r"symbol\b.*\bgold\b", "Au"),
        (r"symbol\b.*\bsilver", "Ag"),
        (r"symbol\b.*\biron", "Fe"),
        (r"symbol\b.*\boxygen", "O"),
        (r"symbol\b.*\bhydrogen", "H"),
        (r"symbol\b.*\bsodium", "Na"),
        (r"water\b.*\b(?:freez\w+)|freezing point", "0 degrees Celsius"),
        (r"water\b.*\bboils?\b|boiling point", "100 degrees Celsius"),
        (r"\b(?:wrote|author of)\b.*\b(?:romeo and juliet|hamlet|macbeth)", "William Shakespeare"),
        (r"\b(?:painted|painter of)\b.*\bmona lisa", "Leonardo da Vinci"),
        (r"colou?r\b.*\b(?:mixing|mix)\b.*\bblue and yellow|blue and yellow\b.*\bcolou?r", "green"),
        (r"colou?r\b.*\b(?:mixing|mix)\b.*\bred and (?:yellow)|red and yellow\b.*\bcolou?r", "orange"),
        (r"colou?r\b.*\bclear sky|colou?r is the sky", "blue"),
        (r"colou?r\b.*\bgrass", "green"),
        (r"colou?r\b.*\bsnow", "white"),
        (r"colou?r\b.*\b(?:ripe )?banana", "yellow"),
        (r"day (?:comes |is )?after monday", "Tuesday"),
        (r"day (?:comes |is )?after tuesday", "Wednesday"),
        (r"day (?:comes |is )?after wednesday", "Thursday"),
        (r"day (?:comes |is )?after thursday", "Friday"),
        (r"day (?:comes |is )?after friday", "Saturday"),
        (r"day (?:comes |is )?after saturday", "Sunday"),
        (r"day (?:comes |is )?after sunday", "Monday"),
        (r"month (?:comes |is )?after (?:june)", "July"),
        (r"month (?:comes |is )?after (?:march)", "April"),
        (r"first month", "January"),
        (r"last month", "December"),
        (r"letter (?:comes |is )?after a\b", "B"),
        (r"plural of\W+mouse", "mice"),
        (r"plural of\W+child", "children"),
        (r"past tense of\W+go\b", "went"),
        (r"square root of 144", "12"),
        (r"square root of 81", "9"),
        (r"square root of 64", "8"),
        (r"animal\b.*\b(?:says|goes) (?:meow|miaow)|\b(?:meows?|purrs?)\b", "cat"),
        (r"animal\b.*\bbarks?", "dog"),
        (r"(?:baby|young) (?:dog|of a dog)", "puppy"),
        (r"french word for\W+cat|\bcat\b.*\bin french", "chat"),
        (r"spanish word for\W+house|\bhouse\b.*\bin spanish", "casa"),
        (r"german word for\W+house|\bhouse\b.*\bin german", "Haus"),
        (r"an apple a day", "keeps the doctor away"),
        (r"actions speak louder", "than words"),
        (r"better late than", "never"),
        (r"practice makes", "perfect"),
        (r"early bird (?:catches|gets)", "the worm"),
        (r"(?:a )?rolling stone gathers", "no moss"),
        (r"birds of a feather", "flock together"),
        (r"when in rome", "do as the Romans do"),
        (r"all that glitters", "is not gold"),
        (r"twinkle,? twinkle,? little", "star"),
        (r"to be,? or not to", "be"),
        (r"two wrongs don'?t make", "a right"),
        (r"the pen is mightier than", "the sword"),
        (r"a picture is worth", "a thousand words"),
    )
)
_OPERATORS = {
    "+": "+", "plus": "+", "-": "-", "\u2212": "-", "\u2013": "-", "minus": "-", "*": "*", "\u00d7": "*", "x": "*",
    "times": "*", "multiplied by": "*", "/": "/", "\u00f7": "/", "divided by": "/",
}  # fmt: skip
_ARITHMETIC = re.compile(
    r"(?<![\w.])(-?\d{1,9})\s*(\+|plus|-|\u2212|\u2013|minus|\*|\u00d7|x|times|multiplied by|/|\u00f7|divided by)"
    r"\s*(\d{1,9})(?!\w|\.\d)",
    re.IGNORECASE,
)
_CHAIN = re.compile(r"(?<![\w.])\(?\d{1,6}(?:\s*[+*/\u00d7\u2212-]\s*\(?\d{1,6}\)?){2,8}(?!\w|\.\d)")
_COMPUTE = re.compile(
    r"\b(?:what(?:'s| is| are| does)|how much|compute|calculate|evaluate|solve|result|work out|sum|product)\b|=",
    re.IGNORECASE,
)
_NO_SUM = re.compile(r"\b\d{4}-\d\d-\d\d\S*|\b0\d+-\d+")  # dates, and codes with leading zeros
_CAPITAL = re.compile(r"capital (?:city )?of ((?:the )?\w+(?: [A-Z]\w+)?)", re.IGNORECASE)
_OPPOSITE = re.compile(r"opposite of\W+(?:the word\W+)?(\w+)", re.IGNORECASE)
_BACKWARDS = re.compile(r"(?:spell|write|reverse)\b.*?[\"“'`]([^\"”'`]+)[\"”'`]", re.IGNORECASE)
_SERIES = re.compile(r"(-?\d+(?:\s*,\s*-?\d+){2,})")
# What a question has that one of the answers above could fit: a cheap look before a long one.
_ASKS = re.compile(
    r"[?=\u2026]|\b(?:what|which|who|how|name|compute|calculate|solve|evaluate|work out|complete|continue|finish"
    r"|proverb|saying)\b",
    re.IGNORECASE,
)
_LARGEST = re.compile(r"\b(largest|biggest|greatest|smallest|least|lowest|highest)\b", re.IGNORECASE)


def know(asked: Asked, rng: Random) -> Answer | None:
    """A short answer to a simple question."""
    del rng
    question = read(asked.user_text)
    known = None if question.blocks else known_answer(question.focus)
    return None if known is None else Answer(content=split_tokens(known))


@lru_cache(maxsize=256)
def known_answer(text: str) -> str | None:
    """The answer to a question that everybody can answer, or None."""
    if capital := _CAPITAL.search(text):
        country = capital[1].lower()
        return _CAPITALS.get(country) or _CAPITALS.get(country.split()[0])
    if opposite := _OPPOSITE.search(text):
        return _OPPOSITES.get(opposite[1].lower())
    if re.search(r"backward|revers", text, re.IGNORECASE) and (word := _BACKWARDS.search(text)):
        return word[1][::-1]
    if re.search(r"\b(?:next|continue|follows|comes after|complete|finish)\b", text, re.IGNORECASE):
        if "quick brown fox" in text.lower():
            return "dog" if "lazy" in text.lower() else "jumps over the lazy dog"
        if series := _SERIES.search(text):
            return _next_in([int(n) for n in series[1].split(",")])
    if len(text) > 300 or not _ASKS.search(text):
        return None
    if _LARGEST.search(text) and (series := _SERIES.search(text)):
        return _extreme(text, [int(n) for n in series[1].split(",")])
    known = next((answer for pattern, answer in _KNOWN if pattern.search(text)), None)
    return known or _computed(text)


def _computed(text: str) -> str | None:
    if not _COMPUTE.search(text):
        return None
    text = _NO_SUM.sub(" ", text)
    if chained := list(_CHAIN.finditer(text)):
        return _chain(chained[-1].group())
    sums = list(_ARITHMETIC.finditer(text))
    if not sums:
        return None
    left, sign, right = sums[-1].groups()
    a, b = int(left), int(right)
    match _OPERATORS[sign.lower()]:
        case "+":
            return str(a + b)
        case "-":
            return str(a - b)
        case "*":
            return str(a * b)
        case _:
            return None if b == 0 else str(a // b) if a % b == 0 else str(round(a / b, 4))


def _chain(text: str) -> str | None:
    """The value of several operations in a row, multiplications first, parentheses as they stand."""
    terms = re.findall(r"\d+|[()+*/-]", text.replace("\u00d7", "*").replace("\u2212", "-"))
    try:
        value, rest = _sum(terms)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if rest else str(int(value)) if value == int(value) else str(round(value, 4))


def _sum(terms: list[str]) -> tuple[float, list[str]]:
    value, terms = _product(terms)
    while terms and terms[0] in "+-":
        sign = terms[0]
        term, terms = _product(terms[1:])
        value = value + term if sign == "+" else value - term
    return value, terms


def _product(terms: list[str]) -> tuple[float, list[str]]:
    value, terms = _factor(terms)
    while terms and terms[0] in "*/":
        sign = terms[0]
        factor, terms = _factor(terms[1:])
        value = value * factor if sign == "*" else value / factor
    return value, terms


def _factor(terms: list[str]) -> tuple[float, list[str]]:
    if terms[0] == "(":
        value, rest = _sum(terms[1:])
        if rest[0] != ")":
            raise ValueError(terms)
        return value, rest[1:]
    return float(terms[0]), terms[1:]


def _extreme(text: str, numbers: list[int]) -> str:
    smallest = re.search(r"\b(?:smallest|least|lowest)\b", text, re.IGNORECASE)
    return str(min(numbers) if smallest else max(numbers))


def _next_in(series: list[int]) -> str | None:
    steps = {b - a for a, b in pairwise(series)}
    if len(steps) == 1:
        return str(series[-1] + steps.pop())
    if 0 not in series and len({b / a for a, b in pairwise(series)}) == 1:
        return str(series[-1] * series[1] // series[0])
    if len(series) > 3 and all(a + b == c for a, b, c in zip(series, series[1:], series[2:], strict=False)):
        return str(series[-1] + series[-2])
    roots = [round(abs(n) ** 0.5) for n in series]
    if all(r * r == n for r, n in zip(roots, series, strict=True)) and len({b - a for a, b in pairwise(roots)}) == 1:
        return str((2 * roots[-1] - roots[-2]) ** 2)
    return None
