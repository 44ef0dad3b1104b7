"""One stage with everything on that has to do with security, shared by the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from own_ports import free_port

from controller.demo.stage import Stage


@dataclass
class Guarded:
    """A daemon that listens on TCP too."""

    stage: Stage
    port: int

    def tcp(self, secret: str | None = None, **headers: str) -> httpx.Client:
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, trust_env=False)

    def token(self, role: str, **fields: Any) -> tuple[str, str]:
        """Id and secret."""
        answer = self.stage.api.post("/v1/tokens", json={"name": "ci", "role": role, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]["id"], answer.json()["secret"]


@pytest.fixture(scope="session")
def guarded(tmp_path_factory) -> Iterator[Guarded]:
    port = free_port()
    settings = {"gpus": {"kind": "none", "count": 2}, "api": f"127.0.0.1:{port}", "approval_by_another": True}
    with Stage(Path(tmp_path_factory.mktemp("guarded")), settings) as stage:
        yield Guarded(stage, port)
