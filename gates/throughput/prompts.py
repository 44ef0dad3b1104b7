"""Prompts nobody has sent before: natural language, since speculation lives off it, and a nonce in the first tokens.

The text of request 3 of round 2 is the same in every run, so that two releases are asked the same; only the nonce
differs, and with it every block of a prefix cache from the first on.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from gates.throughput.workload import PROMPTS_VERSION, Scene

_OPENINGS: Final = ("In the year", "Around", "Shortly after", "Long before", "Towards the end of")
_SUBJECTS: Final = (
    "the harbour master",
    "a travelling teacher",
    "the engineer of the mill",
    "an old printer",
    "the keeper of the archive",
    "a young surveyor",
    "the ferry company",
    "the town council",
)
_VERBS: Final = ("described", "rebuilt", "measured", "argued about", "drew a plan of", "paid for", "forgot", "sold")
_OBJECTS: Final = (
    "the stone bridge",
    "a new granary",
    "the northern canal",
    "three wooden cranes",
    "the observatory",
    "a set of maps",
    "the market hall",
    "the lighthouse",
)
_REASONS: Final = (
    "because the winter had been long",
    "although nobody had asked for it",
    "while the river was still high",
    "so that the grain could be kept dry",
    "before the railway reached the valley",
)
_PARTS: Final = ("scheduler", "write-ahead log", "block cache", "replica set", "lock manager", "query planner")
_DOES: Final = ("batches", "retries", "invalidates", "compacts", "pins", "reorders", "throttles")
_THINGS: Final = ("pending writes", "cold pages", "stale leases", "index nodes", "network packets", "snapshots")
_WHEN: Final = (
    "when the queue grows beyond its bound",
    "once a quorum has answered",
    "unless the checksum differs",
    "while readers hold an older version",
)
_CODE_NAMES: Final = ("parse", "merge", "rotate", "encode", "select", "split", "index", "flush")
_CODE_NOUNS: Final = ("records", "windows", "tokens", "ranges", "frames", "entries", "edges", "buckets")
_ZH_WHO: Final = ("老船长", "邻居家的姑娘", "县城的木匠", "刚毕业的工程师", "守灯塔的人", "集市上的掌柜")
_ZH_DID: Final = ("修好了", "画下了", "卖掉了", "量过了", "忘记了", "谈起了")
_ZH_WHAT: Final = ("那座石桥", "旧粮仓", "北边的运河", "三架木吊车", "一套地图", "山上的天文台")
_ZH_WHY: Final = ("因为冬天太长", "虽然没有人请他", "趁着河水还高", "为了让粮食不受潮", "在铁路通到山谷之前")
_ZH_SAYS: Final = ("你听说了吗", "我昨天才知道", "说来话长", "其实我也不信", "后来怎么样了")

Sentence = Callable[[random.Random], str]


def _chronicle(rng: random.Random) -> str:
    return (
        f"{rng.choice(_OPENINGS)} {rng.randrange(1600, 1900)} {rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} "
        f"{rng.choice(_OBJECTS)} {rng.choice(_REASONS)}. "
    )


def _technical(rng: random.Random) -> str:
    return f"The {rng.choice(_PARTS)} {rng.choice(_DOES)} {rng.choice(_THINGS)} {rng.choice(_WHEN)}. "


def _code(rng: random.Random) -> str:
    name, noun, size = rng.choice(_CODE_NAMES), rng.choice(_CODE_NOUNS), rng.randrange(2, 64)
    return (
        f"def {name}_{noun}_{rng.randrange(100)}({noun}: list[int], size: int = {size}) -> list[int]:\n"
        f"    return [{noun}[i] for i in range(0, len({noun}), size) if {noun}[i] % {rng.randrange(2, 9)}]\n\n"
    )


def _dialogue(rng: random.Random) -> str:
    speaker = rng.choice("甲乙")
    return f"{speaker}:{rng.choice(_ZH_SAYS)},{rng.choice(_ZH_WHO)}{rng.choice(_ZH_DID)}{rng.choice(_ZH_WHAT)}。\n"


def _prose(rng: random.Random) -> str:
    return (
        f"{rng.randrange(1600, 1900)}年,{rng.choice(_ZH_WHO)}{rng.choice(_ZH_WHY)},{rng.choice(_ZH_DID)}"
        f"{rng.choice(_ZH_WHAT)}。"
    )


@dataclass(frozen=True)
class _Text:
    opening: str
    sentence: Sentence
    task: str


_SCENES: Final[dict[Scene, _Text]] = {
    "chronicle": _Text(
        "Chronicle {nonce}. ", _chronicle, "\nContinue this chronicle in the same plain style, at length."
    ),
    "code": _Text(
        "# module {nonce}\n",
        _code,
        "\nWrite a complete Python module with an LRU cache that has a time limit per entry: type hints, docstrings, "
        "a command line and unit tests. Answer with code only.",
    ),
    "technical": _Text(
        "Reference {nonce}. ",
        _technical,
        "\nExplain in detail, in plain English, how a distributed database keeps replicas consistent: quorums, leases, "
        "write-ahead logs, snapshots, failure modes. Write continuous text with headings.",
    ),
    "dialogue_zh": _Text(
        "编号{nonce}。\n", _dialogue, "\n请继续写一段很长的对话:两位老朋友在茶馆里谈论家乡这些年的变化。"
    ),
    "prose_zh": _Text("编号{nonce}。", _prose, "\n请用朴素的文字写一篇长散文,题目是《秋天的河》,不要列提纲。"),
}


def prompt(scene: Scene, *, chars: int, round_number: int, position: int) -> str:
    """The scene's question behind at least `chars` characters of material (0: none), nonce first.

    Raises nothing; the same numbers give the same text but for the nonce.
    """
    text = _SCENES[scene]
    rng = random.Random(f"{PROMPTS_VERSION} {scene} {round_number} {position}")  # noqa: S311 - the same in every run
    parts = [text.opening.format(nonce=secrets.token_hex(6))]
    length = 0
    while length < chars:
        parts.append(text.sentence(rng))
        length += len(parts[-1])
    # Cut at the character: a sentence of code is twenty tokens, too coarse to meet a context's limit.
    material = "".join(parts)[: len(parts[0]) + chars] if chars else parts[0]
    return material + text.task


@dataclass
class Lengths:
    """How many characters of a scene make how many tokens, learned from what the server counts.

    `head`: what the chat template costs before the first character of ours.
    """

    head: int = 0
    _counts: dict[Scene, dict[int, list[float]]] = field(default_factory=dict)

    def learn(self, scene: Scene, chars: int, tokens: float) -> None:
        self._counts.setdefault(scene, {}).setdefault(chars, []).append(tokens)

    def longest(self, scene: Scene) -> float:
        """Tokens of the longest prompt that was counted."""
        return max((fmean(counts) for counts in self._counts.get(scene, {}).values()), default=0.0)

    def chars_for(self, scene: Scene, tokens: int | None) -> int:
        """Characters of material for a prompt of so many tokens; 0 for the bare question, or when too little is known.

        The rate is that of all counted prompts between half and twice as long, else that of the nearest: a tokenizer's
        rate is not quite the same for 200 and for 28,000 tokens, and a single short text is no average.
        """
        points = [(chars, each) for chars, counts in self._counts.get(scene, {}).items() for each in counts]
        bare = [each for chars, each in points if not chars]
        long = [(chars, each) for chars, each in points if chars]
        if tokens is None or not bare or not long:
            return 0
        nearest = min(long, key=lambda point: abs(point[1] - tokens))
        near = [point for point in long if tokens / 2 <= point[1] <= tokens * 2] or [nearest]
        base = fmean(bare)
        rate = max(0.01, sum(each - base for _, each in near) / sum(chars for chars, _ in near))
        return max(0, round((tokens - base) / rate))
