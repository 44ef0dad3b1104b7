"""`notify` in the configuration: who is told, of what, and in which file their secret lies. Reads no file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from .address import webhook_trouble
from .kinds import CHOSEN, Kind, Severity

MOST_TARGETS = 16
_BELONGS_INTO_A_FILE = (
    "a URL that carries its secret does not belong into the configuration, which others may read: write it into a file "
    "of the daemon's user (chmod 0600), and name the file in"
)
_TOKEN = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_-]{20,}")
"""A part of a path that nobody would type: a URL that ends in one lets in whoever knows it (Slack, Teams, Discord)."""


def _absolute(value: object) -> str:
    text = str(value)
    if "://" in text:
        raise ValueError(f"expected the path of a file; {_BELONGS_INTO_A_FILE} this key")
    if not text.startswith("/"):
        raise ValueError("expected the absolute path of a file, for example /etc/cutover/ops.urls")
    return text


def _name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", value):
        raise ValueError("expected a short name of small letters, digits, - and _, for example ops")
    return value


def _open_webhook(value: object) -> str:
    """One that may stand in the configuration."""
    url = str(value)
    if trouble := webhook_trouble(url):
        raise ValueError(trouble)
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{_BELONGS_INTO_A_FILE} `webhook_file` (this one has a user, a query or a fragment)")
    if any(_TOKEN.fullmatch(part) for part in parts.path.split("/")):
        raise ValueError(f"{_BELONGS_INTO_A_FILE} `webhook_file` (a part of this one's path looks like a token)")
    return url


def _kinds(value: object) -> tuple[Kind, ...]:
    if value == "all":
        return CHOSEN
    words = value if isinstance(value, list | tuple) else [value]
    known = [kind.value for kind in CHOSEN]
    for word in words:
        if word not in known:
            near = difflib.get_close_matches(str(word), known, 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise ValueError(f"expected `all`, or a list of {', '.join(known)}{hint}")
    if not words:
        raise ValueError("an empty list is told nothing: remove the target, or write `all`")
    return tuple(kind for kind in CHOSEN if kind in words)


_File = Annotated[Path, BeforeValidator(_absolute)]


class Target(BaseModel):
    """Somebody who is told, by one of `apprise_file`, `webhook` and `webhook_file`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, BeforeValidator(_name)]
    apprise_file: _File | None = None  # one apprise URL a line
    webhook: Annotated[str, BeforeValidator(_open_webhook)] | None = None
    webhook_file: _File | None = None  # the URL, where it is a secret
    secret_file: _File | None = None  # what a webhook's messages are signed with
    on: Annotated[tuple[Kind, ...], BeforeValidator(_kinds)] = CHOSEN
    min_severity: Severity = Severity.INFO

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            if "://" in str(value):
                raise ValueError(f"{_BELONGS_INTO_A_FILE} `apprise_file`: {{name: ops, apprise_file: /path}}")
            raise ValueError(  # noqa: TRY004 - what pydantic collects
                "expected a mapping, for example {name: ops, apprise_file: /etc/cutover/ops.urls}"
            )
        for key, given in value.items():
            if key not in cls.model_fields and "://" in str(given):
                raise ValueError(f"`{key}`: {_BELONGS_INTO_A_FILE} `apprise_file`")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [way for way in (self.apprise_file, self.webhook, self.webhook_file) if way is not None]
        if len(ways) != 1:
            raise ValueError(
                f"{self.name} needs one of `apprise_file`, `webhook` and `webhook_file`, and has "
                + (f"{len(ways)} of them" if ways else "none")
            )
        if self.secret_file is not None and self.apprise_file is not None:
            raise ValueError(f"{self.name}: `secret_file` signs what a webhook is sent; apprise sends unsigned")
        return self

    def wants(self, kind: Kind, severity: Severity) -> bool:
        return kind in self.on and severity.rank >= self.min_severity.rank


def _list(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(  # noqa: TRY004 - what pydantic collects
            "expected a list of targets, for example [{name: ops, apprise_file: /etc/cutover/ops.urls}]"
        )
    return value


def _apart(targets: list[Target]) -> list[Target]:
    names = [target.name for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two targets are called {twice}: what is still to be told is kept by name")
    if len(targets) > MOST_TARGETS:
        raise ValueError(
            f"{len(targets)} targets are too many, {MOST_TARGETS} are the most: let one of them pass it on"
        )
    return targets


Targets = Annotated[list[Target], BeforeValidator(_list), AfterValidator(_apart)]
