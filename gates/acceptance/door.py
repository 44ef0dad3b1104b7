"""Before anything is judged: does a plain question get an answer at all? Where it does not, nothing else is asked."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gates.acceptance.check import Sample, Skip

if TYPE_CHECKING:
    from gates.acceptance.asker import Asker
    from gates.trial import Answer
    from gates.wire import Exchange, Target

KNOCKS: Final = 2
_MAX_TOKENS: Final = 16
_HANDSHAKE_S: Final = 2.0
_DECISIVE: Final = ("host", "port", "timeout")
"""Layers at which once is enough: connections were tried again already, and nobody waits twice for nothing."""


@dataclass(frozen=True)
class Shut:
    """Why nothing can be asked, in one sentence, and the bytes that show it."""

    sentence: str
    exchanges: list[Exchange]


async def knock(asker: Asker, seed: str) -> Shut | None:
    """None when the endpoint answers. Raises what every question raises: no key, no such model, no time left."""
    answers: list[Answer] = []
    while len(answers) < KNOCKS and not (answers and _decisive(answers[-1])):
        sample = Sample("door", len(answers), seed, streamed=False, greedy=True)
        asked = f"Reply with only the following code: {sample.nonce}"
        try:
            answer = await asker.chat(sample, asked, max_tokens=_MAX_TOKENS)
        except Skip:
            return None
        if answer.reply.answered:
            return None
        answers.append(answer)
    sentence = f"a plain question gets no answer: {answers[-1].first_problem}"
    if _may_be_tls(answers[-1].exchange) and await _speaks_tls(asker.trial.endpoint.target, asker.remaining_s()):
        sentence += "; the server speaks TLS: its address begins with https"
    return Shut(sentence, [answer.exchange for answer in answers])


def _may_be_tls(exchange: Exchange) -> bool:
    # Such servers say nothing in plain http: they hang up, or complain in bytes of TLS.
    return exchange.failure is not None and exchange.failure.layer == "http" and exchange.status is None


async def _speaks_tls(target: Target, remaining_s: float) -> bool:
    """A handshake, and nothing is sent after it: whose certificate it is does not matter."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    if target.scheme == "https":
        return False
    try:
        async with asyncio.timeout(min(_HANDSHAKE_S, max(0.0, remaining_s))):
            _, writer = await asyncio.open_connection(target.host, target.port, ssl=anybody)
    except (TimeoutError, OSError, ValueError):
        return False
    writer.transport.abort()
    return True


def _decisive(answer: Answer) -> bool:
    failure = answer.exchange.failure
    return failure is not None and failure.layer in _DECISIVE
