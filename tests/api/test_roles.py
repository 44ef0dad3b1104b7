"""Who may ask for what (docs/security.md): every endpoint there is, one role below and with the role that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_world import FakeWorld
from fastapi import FastAPI
from fastapi.routing import APIRoute
from structlog.testing import capture_logs

from controller.api.admission import Door
from controller.api.app import Windows, make_app
from controller.api.desk import ROLES, Desk, Person
from controller.api.peers import SCOPE_KEY
from controller.api.tokens import Failures, Tokens
from controller.catalogue import Catalogue
from controller.config import Config
from controller.core.policy import Policy
from controller.errors import NotFoundError
from controller.store.journal import Journal

TOPOLOGY = {"topology": "name: x"}
NEEDS: dict[str, tuple[str, Any]] = {
    "/v1/plan": ("view", TOPOLOGY),
    "/v1/nudge": ("view", None),
    "/v1/rollouts": ("propose", TOPOLOGY),
    "/v1/rollback": ("propose", None),
    "/v1/rollouts/{rollout_id}/abort": ("propose", None),
    "/v1/rollouts/{rollout_id}/withdraw": ("propose", None),
    "/v1/rollouts/{rollout_id}/priority": ("propose", {"priority": 1}),
    "/v1/freeze": ("propose", {"why": "exam week"}),
    "/v1/unfreeze": ("propose", None),
    "/v1/sweeps/look": ("propose", TOPOLOGY),
    "/v1/sweeps": ("propose", TOPOLOGY),
    "/v1/sweeps/{sweep_id}/withdraw": ("propose", None),
    "/v1/rollouts/{rollout_id}/approve": ("approve", None),
    "/v1/restart": ("approve", None),
    "/v1/stop": ("approve", None),
    "/v1/gpus/{card}/cordon": ("approve", {"why": "a fan"}),
    "/v1/gpus/{card}/uncordon": ("approve", None),
    "/v1/tokens": ("admin", {"name": "ci"}),
    "/v1/tokens/{token_id}/revoke": ("admin", None),
}
"""Whatever changes something: its role, and a body that gets as far as that question."""


def _no_night(night: str) -> dict[str, Any]:
    raise NotFoundError(f"there is no night {night}")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    world, journal = FakeWorld(), Journal(tmp_path / "journal.sqlite")
    catalogue = Catalogue(tmp_path / "releases")
    tokens = Tokens(tmp_path / "tokens.json", lambda: world.now().wall_s)
    passes = iter(range(10_000))
    yield make_app(
        Windows(
            config=Config(state_dir=tmp_path, socket=tmp_path / "s"),
            journal=journal,
            desk=Desk(journal, catalogue, Policy(), world.now, tuple, lambda: None),
            catalogue=catalogue,
            seen=lambda: None,
            why=lambda: "idle",
            passes=lambda: next(passes),
            alarms=list,
            gate_report=lambda _: None,
            night_report=_no_night,
            inventory=dict,
            log_path=lambda attempt: tmp_path / attempt,
            version="1",
            tokens=tokens,
            door=Door(tokens, Failures(lambda: 0.0)),
        )
    )
    journal.close()


def ask(app: FastAPI, person: Person, method: str, path: str, body: Any = None, **params: Any) -> httpx.Response:
    """As somebody whom the socket or a token has told of already."""

    async def known(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {SCOPE_KEY: person}}, receive, send)

    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(known), base_url="http://cutover") as client:
            return await client.request(method, path.format(**dict.fromkeys(PLACES, "x1")), json=body, params=params)

    return asyncio.run(once())


PLACES = ("rollout_id", "sweep_id", "card", "token_id", "attempt_id", "night_id", "release_id", "one", "other")


def test_nothing_that_changes_something_is_missing_here(app):
    changing = {route.path for route in app.routes if isinstance(route, APIRoute) and route.methods != {"GET"}}
    assert changing == set(NEEDS)


@pytest.mark.parametrize("path", NEEDS)
def test_it_takes_its_role_and_no_other(app, path):
    role, body = NEEDS[path]
    for has in ROLES:
        answer = ask(app, Person(f"who {has}s", 1001, has), "POST", path, body)
        allowed = ROLES.index(has) >= ROLES.index(role)
        assert (answer.status_code != 403) is allowed, (has, answer.text)
        if not allowed:
            assert f"has the role {has}" in answer.json()["error"]
            assert f"needs {role}: ask an administrator" in answer.json()["error"]


def test_whoever_may_look_may_look_at_everything_but_the_tokens(app):
    looking = [route.path for route in app.routes if isinstance(route, APIRoute) and route.methods == {"GET"}]
    closed = [path for path in looking if ask(app, Person("guest", 1001, "view"), "GET", path).status_code == 403]
    assert closed == ["/v1/tokens"]


def test_a_nudge_without_patience_says_nothing_against_the_loop(app):
    """It would be a line of the log for everybody who may look, as often as they like."""
    with capture_logs() as said:
        answer = ask(app, Person("guest", 1001, "view"), "POST", "/v1/nudge", wait_s=0)
    assert answer.status_code == 422
    assert said == []


def test_what_people_write_is_one_line_and_says_something(app):
    alice = Person("alice", 1001, "propose")
    said = ask(app, alice, "POST", "/v1/freeze", {"why": "exam week\n\nnothing waits\r\tr0001 is live"})
    assert said.status_code == 200
    assert ask(app, alice, "GET", "/v1/queue").json()["freeze"]["why"] == "exam week nothing waits r0001 is live"
    blank = ask(app, alice, "POST", "/v1/freeze", {"why": " \n "})
    assert (blank.status_code, blank.json()["error"]) == (
        422,
        "body.why: a reason is needed: everybody who wonders is told it",
    )
