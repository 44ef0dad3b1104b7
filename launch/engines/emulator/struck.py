"""The faults at work on one request: what they make of it, of its answer and of its wire."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from . import mind
from .answer import Answer
from .faults import FaultSetting, Scene
from .faults.names import BAD_ID
from .request import Asked, BadRequest
from .settings import Settings, Thinking
from .spoiled_wire import SpoiledWire
from .wire import Wire

TAKES_TOO_LONG = frozenset({"wrong-kv", "abort-as-length"})
"""Faults by which the engine answers a prompt that is too long."""


class Struck:
    """Made once per request. `asked` is the request as the model gets to see it, and as its prompt is counted."""

    def __init__(
        self,
        faults: Mapping[str, FaultSetting],
        asked: Asked,
        settings: Settings,
        number: int,
        others: Callable[[], tuple[Asked, ...]],
    ) -> None:
        self._faults = faults
        self._settings = settings
        self._number = number
        self._others = others() if faults else ()
        self.asked = asked
        for setting in faults.values():
            if setting.fault.asks is not None:
                self.asked = setting.fault.asks(self._scene(setting))
            if setting.fault.reads is not None and asked.chat:
                self.asked = self.asked.reading(setting.fault.reads(self.asked.segments))

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __contains__(self, name: str) -> bool:
        return name in self._faults

    def get(self, name: str) -> FaultSetting | None:
        """The fault of this name with its values, if it struck."""
        return self._faults.get(name)

    def spoil(self, answer: Answer) -> Answer:
        """A good answer as the faults leave it."""
        for setting in self._faults.values():
            if setting.fault.spoils is not None:
                answer = setting.fault.spoils(answer, self._scene(setting))
        return answer

    def wire(self, wire: Wire) -> Wire:
        """What writes the answer: the wire as it is, unless a fault edits what is written."""
        edits = [s.fault.edits(self._scene(s)) for s in self._faults.values() if s.fault.edits is not None]
        return SpoiledWire(wire, edits) if edits else wire

    def _scene(self, setting: FaultSetting) -> Scene:
        settings = self._settings
        return Scene(
            asked=self.asked,
            rng=Random(f"{settings.seed}/{self._number}/{setting.fault.name}"),  # noqa: S311 - must be repeatable
            values=setting.values,
            others=self._others,
            thinks_by_habit=settings.thinking in (Thinking.ON, Thinking.ALWAYS),
            think=lambda asked: mind.answer(asked, settings, 0),
        )


def shortened(asked: Asked) -> Asked:
    """A prompt that is too long, as a server has it that takes it all the same: one token is left."""
    return replace(asked, prompt_tokens=1, max_tokens=min(asked.max_tokens, 512))


def refuse_bad_ids(asked: Asked) -> None:
    """Raise `BadRequest` if a call of the history has an id of the kind that this engine's template refuses."""
    for call in (call for message in asked.messages for call in message.calls):
        if BAD_ID.fullmatch(call.id):
            raise BadRequest(f"Tool call id was {call.id} but must be a-z, A-Z, 0-9, with a length of 9.", "messages")
