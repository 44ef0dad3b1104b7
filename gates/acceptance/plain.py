"""What checks of the protocol share: questions asked without thought, and answers judged by the wire alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gates import invariants
from gates.reply import read_reply
from gates.trial import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gates.acceptance.asker import Asker
    from gates.acceptance.check import Sample
    from gates.wire import Exchange


def unthinking(asker: Asker, sample: Sample) -> Sample:
    """The same question with thinking off where there is a switch: thoughts would only cost time here."""
    return sample.asked(thinking=False if asker.capability.thinking == "switch" else None)


def judged(asker: Asker, body: Mapping[str, Any], exchange: Exchange) -> Answer:
    """An answer to `Asker.raw` with the rules it breaks; it does not count among the answers of the run."""
    reply = read_reply(exchange, streamed=bool(body.get("stream")))
    return Answer(body, exchange, reply, invariants.breaches(reply, body, asker.capability))


def refused(exchange: Exchange) -> bool:
    """Was the request refused in an orderly way?"""
    return exchange.status is not None and 400 <= exchange.status < 500 and exchange.failure is None


def any_problem(answer: Answer) -> str | None:
    """The first broken rule, whoever can break it; transport comes first."""
    return answer.first_problem or next((breach.sentence for breach in answer.breaches), None)
