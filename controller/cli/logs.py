"""`cutover logs`: what engines say, fit for a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotFoundError, UsageError
from .options import Json
from .session import session_of

if TYPE_CHECKING:
    from .client import Client

POLL_S = 0.4
_LOOK_BACK_BYTES = 256 * 1024
_LONGEST_LINE = 64 * 1024

Document = Mapping[str, Any]


def logs(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="live | candidate | previous, an attempt's id, or an instance's name. Default: live."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the attempts have ended.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines to begin with.")] = 50,
    as_json: Json = False,
) -> None:
    """Show what engines say: one attempt, or all of a release."""
    session = session_of(ctx, as_json=as_json)
    if follow and as_json:
        raise UsageError("--json gives one document and --follow never ends: leave one of them out")
    client = session.client()
    chosen = _choose(client, name)
    width = max(len(a["id"]) for a in chosen) if len(chosen) > 1 else 0
    tails = [_Tail(client, a["id"], f"{a['id']:<{width}} | " if width else "") for a in chosen]
    if as_json:
        session.emit({"schema": 1, "logs": [{"attempt": t.attempt, "text": t.last(lines)} for t in tails]})
        return
    for tail in tails:
        tail.write(tail.last(lines, keep_rest=follow))
    if follow:
        _follow(client, tails)


def _choose(client: Client, name: str | None) -> Sequence[Document]:
    """The attempts that `name` means."""
    status = client.get("/v1/status")
    everything: list[Document] = client.get("/v1/attempts")["attempts"]
    rollout = status["rollout"]
    places: dict[str, Sequence[Document]] = {
        "live": (status["live"] or {}).get("attempts", ()),
        "candidate": rollout["attempts"] if rollout else (),
        "previous": (status["previous"] or {}).get("attempts", ()),
    }
    if name is None:
        name = "candidate" if places["candidate"] and not places["live"] else "live"
    if name in places:
        if not places[name]:
            nothing = "nothing is live now" if name == "live" else f"there is no {name} now"
            raise NotFoundError(f"{nothing}; `cutover show ID` has the last words of attempts that failed")
        return places[name]
    exact = [a for a in everything if a["id"] == name]
    if exact:
        return exact
    of_place = [a for place in places.values() for a in place if a["instance"] == name]
    found = of_place[:1] or [a for a in everything if a["instance"] == name][-1:]
    if found:
        return found
    known = ", ".join(a["id"] for a in everything[-6:]) or "none yet"
    raise NotFoundError(
        f"there is no attempt and no instance {name}; say live, candidate, previous, or one of the newest: {known}"
    )


class _Tail:
    """One attempt's log, read on from where the last reading ended."""

    def __init__(self, client: Client, attempt: str, prefix: str) -> None:
        self._client = client
        self.attempt = attempt
        self._prefix = prefix
        self._next = -_LOOK_BACK_BYTES
        self._rest = ""

    def read(self) -> str:
        answer = self._client.get(f"/v1/attempts/{self.attempt}/log", offset=self._next)
        self._next = int(answer["next"])
        return str(answer["text"])

    def last(self, lines: int, *, keep_rest: bool = False) -> str:
        """The last whole lines; what is not ended yet is kept for later, or ended here."""
        text = self._whole_lines(self.read())
        if not keep_rest:
            text += self.rest()
        kept = text.splitlines(keepends=True)
        return "".join(kept[len(kept) - lines :] if lines < len(kept) else kept)

    def more(self) -> str:
        return self._whole_lines(self.read())

    def rest(self) -> str:
        rest, self._rest = self._rest, ""
        return f"{rest}\n" if rest else ""

    def _whole_lines(self, text: str) -> str:
        # A line is shown when it is whole: two attempts must not share one.
        text = self._rest + text
        whole, newline, self._rest = text.rpartition("\n")
        if len(self._rest) > _LONGEST_LINE:
            whole, newline, self._rest = text, "\n", ""
        return whole + newline

    def write(self, text: str) -> None:
        for line in text.splitlines():
            sys.stdout.write(f"{self._prefix}{line}\n")
        sys.stdout.flush()


def _follow(client: Client, tails: Sequence[_Tail]) -> None:
    """Until every attempt has stopped and its log is read to the end."""
    client.patient, client.say = True, _note
    open_tails = list(tails)
    while open_tails:
        # Asked before the last reading, so that nothing is missed of an attempt that ends in between.
        ended = {a["id"] for a in client.get("/v1/attempts")["attempts"] if a["state"] == "stopped"}
        quiet = True
        for tail in list(open_tails):
            text = tail.more()
            quiet = quiet and not text
            tail.write(text)
            if tail.attempt in ended and not text:
                tail.write(tail.rest())
                open_tails.remove(tail)
                _note(f"{tail.attempt} has ended")
        if open_tails and quiet:
            time.sleep(POLL_S)


def _note(text: str) -> None:
    sys.stderr.write(f"cutover: {text}\n")
