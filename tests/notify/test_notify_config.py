"""`notify` in the configuration, and the files that it names: every mistake has a sentence without a secret in it."""

from __future__ import annotations

import os
import sys

import pytest

from controller.config import parse_config
from controller.errors import ExitCode, UsageError
from controller.notify.destination import destinations
from controller.notify.kinds import CHOSEN, Kind, Severity
from controller.notify.target import MOST_TARGETS, Target

DEFAULTS = {"state_dir": "/nowhere", "socket": "/nowhere/s"}
SECRET = "hunter2hunter2hunter2"


def targets(text: str) -> list[Target]:
    return parse_config(text, "cutover.yaml", DEFAULTS).notify


def test_what_is_left_out():
    assert targets("public: 127.0.0.1:1\n") == []
    (hook,) = targets("notify:\n  - {name: hook, webhook: 'https://example.org/told'}\n")
    assert (hook.on, hook.min_severity) == (CHOSEN, Severity.INFO)
    (ops,) = targets(
        "notify:\n  - {name: ops, apprise_file: /etc/cutover/ops.urls, on: [report, failed], min_severity: warning}\n"
    )
    assert ops.on == (Kind.FAILED, Kind.REPORT)
    assert ops.wants(Kind.FAILED, Severity.CRITICAL)
    assert not ops.wants(Kind.REPORT, Severity.INFO)
    assert not ops.wants(Kind.ALARM, Severity.CRITICAL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"notify: slack://{SECRET}", r"cutover.yaml:1: `notify`: expected a list of targets"),
        (f"notify: [slack://{SECRET}]", r"`notify\[0\]`: a URL that carries its secret does not belong"),
        ("notify: [ops]", r"`notify\[0\]`: expected a mapping, for example {name: ops, apprise_file"),
        (
            f"notify:\n  - name: ops\n    apprise: slack://{SECRET}",
            r":2: `notify\[0\]`: `apprise`: a URL that carries its secret .* name the file in `apprise_file`",
        ),
        (
            f"notify: [{{name: ops, apprise_file: slack://{SECRET}}}]",
            r"`notify\[0\].apprise_file`: expected the path of a file; a URL that carries its secret",
        ),
        ("notify: [{name: ops, apprise_file: ops.urls}]", r"expected the absolute path of a file"),
        (
            f"notify: [{{name: ops, webhook: 'https://me:{SECRET}@example.org/'}}]",
            r"`notify\[0\].webhook`: a URL that carries its secret .* `webhook_file` \(this one has a user",
        ),
        (f"notify: [{{name: ops, webhook: 'https://example.org/?key={SECRET}'}}]", "a user, a query or a fragment"),
        (f"notify: [{{name: ops, webhook: 'https://example.org/in/{SECRET}'}}]", "path looks like a token"),
        ("notify: [{name: ops, webhook: 'http://example.org/'}]", r"http only to this machine"),
        ("notify: [{name: ops, webhook: 'ftp://example.org/'}]", r"this is no URL: expected https://host/path"),
        ("notify: [{name: ops, webhook: 'https://example.org:99999/'}]", r"this is no URL"),
        ("notify: [{name: ops, webhook: 'https://exa mple.org/'}]", r"this is no URL"),
        ("notify: [{name: ops, webhook: 'https://example..org/'}]", r"this is no URL"),
        (f"notify: [{{name: ops, webhook: 'https://{'a' * 64}.org/'}}]", r"this is no URL"),
        ("notify: [{name: ops}]", r"ops needs one of `apprise_file`, `webhook` and `webhook_file`, and has none"),
        ("notify: [{name: ops, apprise_file: /a, webhook_file: /b}]", "and has 2 of them"),
        ("notify: [{name: ops, apprise_file: /a, secret_file: /b}]", "apprise sends unsigned"),
        ("notify: [{webhook: 'https://example.org/'}]", r"`notify\[0\].name`: this key is needed here"),
        ("notify: [{name: The Ops, apprise_file: /a}]", "expected a short name of small letters"),
        ("notify: [{name: a, apprise_file: /a}, {name: a, apprise_file: /b}]", "two targets are called a"),
        ("notify: [{name: a, apprise_file: /a, onn: all}]", r"unknown key `notify\[0\].onn`; did you mean `on`\?"),
        ("notify: [{name: a, apprise_file: /a, on: [faild]}]", r"expected `all`, or a list of failed, .*`failed`\?"),
        ("notify: [{name: a, apprise_file: /a, on: test}]", r"expected `all`, or a list of"),
        ("notify: [{name: a, apprise_file: /a, on: []}]", r"an empty list is told nothing"),
        ("notify: [{name: a, apprise_file: /a, min_severity: high}]", r"'info', 'warning' or 'critical'"),
        (
            "notify: [" + ", ".join(f"{{name: a{n}, apprise_file: /a}}" for n in range(MOST_TARGETS + 1)) + "]",
            "17 targets are too many",
        ),
    ],
)
def test_refusals(text, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        targets(text)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        (None, 0o600, r"notify: ops: /.*/file cannot be read: No such file or directory"),
        (f"json://{SECRET}\n", 0o604, r"everybody may open /.*/file, and it holds a secret: `chmod 0640 /.*/file`"),
        (f"json://{SECRET}\n", 0o620 | 0o002, "everybody may open"),
        ("# nobody yet\n\n", 0o600, "is empty: one URL a line is expected"),
        (f"json://ok\n{SECRET}\n", 0o600, r"file: URL 2 is none: expected service://"),
        ("json://ok\n" * 17, 0o600, "holds 17 URLs, 16 are the most"),
        (b"\xff\xfe\x00", 0o600, "is not text in UTF-8"),
        ("x" * 70_000, 0o600, "is larger than 64 KiB"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, mode, expected):
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)
    with pytest.raises(UsageError, match=expected) as caught:
        destinations([Target(name="ops", apprise_file=file)])
    assert SECRET not in str(caught.value)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is not a file"):
            destinations([Target(name="ops", webhook_file=path)])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("https://a.example/\nhttps://b.example/\n", "holds 2 lines: a webhook is one URL"),
        (f"http://a.example/{SECRET}\n", "http only to this machine"),
        (f"{SECRET}\n", "this is no URL"),
    ],
)
def test_webhook_files(tmp_path, content, expected):
    file = tmp_path / "file"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(UsageError, match=expected) as caught:
        destinations([Target(name="ops", webhook_file=file)])
    assert SECRET not in str(caught.value)


def test_a_secret_that_is_guessed_in_a_minute(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    file.chmod(0o600)
    with pytest.raises(UsageError, match="holds fewer than 16 characters: `openssl rand -hex 32 > "):
        destinations([Target(name="hook", webhook="https://example.org/", secret_file=file)])


def test_every_line_is_somebody_of_its_own(tmp_path):
    file = tmp_path / "urls"
    file.write_text("# chat\nslack://a/b/c\n\nmailto://d\n")
    file.chmod(0o640)
    assert [d.name for d in destinations([Target(name="ops", apprise_file=file)])] == ["ops", "ops:2"]


def test_without_apprise(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)  # as Python marks what cannot be imported
    file = tmp_path / "urls"
    file.write_text("json://localhost\n")
    file.chmod(0o600)
    with pytest.raises(
        UsageError,
        match=r"needs apprise, which is not installed: it is the extra `notify`, `.*pip install '\.\[notify\]'`",
    ):
        destinations([Target(name="ops", apprise_file=file)])
    assert destinations([Target(name="hook", webhook="https://example.org/")])
