"""`/v1/sweeps`: file, look at and withdraw sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from pydantic import Field

from ..core.night_records import OnSuccess, Sweep
from . import views, views_sweeps
from .app import Key, ProposeBody, Windows, _person
from .sweep_desk import SweepDesk, Wish


class SweepBody(ProposeBody):
    """What a proposal may ask for, of every arm, and what becomes of the best of them."""

    on_success: Literal["report", "ask", "switch"] | None = None
    skip_refused: bool = False
    priority: int = Field(default=-1, ge=-1000, le=1000)  # a proposal goes before many arms

    def wish(self) -> Wish:
        options = replace(self.options(), plan_digest=None)  # of one plan, and every arm has its own
        return Wish(options, OnSuccess(self.on_success) if self.on_success else None, self.skip_refused)


def add_sweeps(app: FastAPI, windows: Windows) -> None:
    desk = SweepDesk(windows.desk)

    def view(sweep: Sweep) -> dict[str, Any]:
        return views_sweeps.sweep(windows.journal.state, sweep, windows.seen(), windows.config.policy)

    @app.post("/v1/sweeps/look")
    def look(body: SweepBody, request: Request) -> dict[str, Any]:
        """What it would try, and what is refused; nothing is filed."""
        found = desk.look(_person(request), body.topology, body.source, body.wish())
        return {"schema": views.SCHEMA, "sheet": views_sweeps.sheet(found)}

    @app.post("/v1/sweeps", status_code=202)
    def file(body: SweepBody, request: Request, key: Key = None) -> dict[str, Any]:
        before, wish = windows.journal.state, body.wish()
        sweep, found = desk.file(_person(request), body.topology, body.source, wish, key)
        sentence = windows.desk.waits_for(before, wish.options)
        shown = {"sweep": view(sweep), "sheet": views_sweeps.sheet(found), "sentence": sentence}
        return {"schema": views.SCHEMA, **shown, "seq": windows.journal.last_seq()}

    @app.get("/v1/sweeps")
    def sweeps(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> dict[str, Any]:
        return views_sweeps.sweeps(windows.journal.state, limit)

    @app.get("/v1/sweeps/{sweep_id}")
    def sweep(sweep_id: str) -> dict[str, Any]:
        return view(desk.sweep(sweep_id))

    @app.post("/v1/sweeps/{sweep_id}/withdraw", status_code=202)
    def withdraw(sweep_id: str, request: Request, key: Key = None) -> dict[str, Any]:
        return view(desk.withdraw(_person(request), sweep_id, key))
