"""What became of the cards, in the log: a line when it becomes so and one when it is over, none while it lasts."""

from __future__ import annotations

import structlog

from .card import Sheet

log = structlog.get_logger("gpus")

_SILENT = "silent"


class Changes:
    """What was told last. Used by one thread, with every look at the cards."""

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._distrusted: dict[str, str] = {}  # card → why

    def tell(self, sheet: Sheet, *, silent: bool) -> None:
        """`silent`: where the inventory as a whole is not known, that is because NVML says nothing."""
        # How long it is silent by now, and in which call, is no news.
        trouble = _SILENT if sheet.why and silent else sheet.why
        if trouble != self._trouble:
            self._tell_nvml(sheet)
            self._trouble = trouble
        if not sheet.why:  # else every card has the same reason, which has been told
            self._tell_cards(sheet)

    def _tell_nvml(self, sheet: Sheet) -> None:
        if sheet.source == "none":
            log.info("no NVML on this box", why=sheet.why)
        elif sheet.why:
            log.warning("NVML does not answer: no card is trusted", why=sheet.why)
        else:
            log.info("NVML answers", driver=sheet.driver, cards=len(sheet.cards))

    def _tell_cards(self, sheet: Sheet) -> None:
        distrusted = {card.id: card.why for card in sheet.cards if not card.trusted}
        for card in sheet.cards:
            before, now = self._distrusted.get(card.id), distrusted.get(card.id)
            if now is not None and now != before:
                log.warning("a card is not trusted", gpu=card.id, index=card.index, why=now)
            elif now is None and before is not None:
                log.info("a card is trusted again", gpu=card.id, index=card.index)
        self._distrusted = distrusted
