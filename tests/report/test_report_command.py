"""`cutover report` against a server that answers as the daemon does, with nights that the core has lived through."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from small_disk_kit import fill, small_disk

from controller.cli import main
from controller.report.document import to_document

NIGHT = "nightly@2026-11-30"
WINDOW = {"name": "nightly", "next_local": "Tue 2026-12-01 02:00", "timezone": "Asia/Taipei"}


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    answers: dict[str, Any]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.server.answers.get(unquote(self.path).partition("?")[0])  # type: ignore[attr-defined]
        body = json.dumps(found or {"error": f"there is no {self.path}", "exit_code": 3}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "somebody"

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(socket: Path, answers: dict[str, Any]) -> Iterator[None]:
    with Server(str(socket), Handler) as server:
        server.answers = answers
        thread = threading.Thread(target=lambda: server.serve_forever(0.02))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def night(name: str, state: str = "closed") -> dict[str, Any]:
    return {"id": name, "date": name.partition("@")[2], "state": state}


@pytest.fixture
def cutover(tmp_path, capsys) -> Callable[..., tuple[int, str, str]]:
    def run(*words: object) -> tuple[int, str, str]:
        code = main(["--socket", str(tmp_path / "s"), "report", *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def daemon(tmp_path, lived) -> Iterator[dict[str, Any]]:
    document = to_document(lived.report())
    other = {**document, "night": {**document["night"], "id": "early@2026-11-30", "window": "early"}}
    answers = {
        "/v1/nights": {"nights": [night("nightly@2026-11-29"), night(NIGHT), night("nightly@2026-12-01", "open")]},
        f"/v1/nights/{NIGHT}/report": document,
        "/v1/nights/nightly@2026-12-01/report": {**document, "headline": ["The window is open."]},
        "/v1/nights/early@2026-11-30/report": other,
        "/v1/queue": {"windows": [WINDOW]},
    }
    with serving(tmp_path / "s", answers):
        yield answers


def test_the_last_night_that_is_over(cutover, daemon):
    code, out, err = cutover()
    assert (code, err) == (0, "")
    assert out.startswith("Night of 2026-11-30: nightly\n")
    assert "leaky@00000000" in out
    assert (
        cutover("--night", "last") == cutover("--night", "2026-11-30") == cutover("--night", NIGHT) == (code, out, "")
    )
    assert "The window is open." in cutover("--open-night")[1]


def test_every_format_to_stdout_and_into_files(cutover, daemon, tmp_path):
    assert json.loads(cutover("--json")[1]) == daemon[f"/v1/nights/{NIGHT}/report"]
    assert cutover("--format", "markdown")[1].startswith("# Night of 2026-11-30")
    for name, begins in (("a.html", "<!doctype html>"), ("a.json", "{"), ("a.txt", "Night of")):
        code, out, _ = cutover("--out", tmp_path / name)
        assert (code, out) == (0, f"{tmp_path / name}\n")
        assert (tmp_path / name).read_text().lstrip().startswith(begins)
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "cutover-report/1"


def test_two_windows_in_one_night(cutover, daemon, tmp_path):
    daemon["/v1/nights"]["nights"].append(night("early@2026-11-30"))
    code, out, err = cutover("--night", "2026-11-30")
    assert code == 0
    assert err == f"2 windows opened on 2026-11-30: --night {NIGHT} or --night early@2026-11-30 shows one\n"
    assert out.index("Night of 2026-11-30: nightly") < out.index("Night of 2026-11-30: early")
    for words in (("--json",), ("--out", tmp_path / "x.txt")):
        code, out, err = cutover("--night", "2026-11-30", *words)
        told = out + err
        assert code == 2
        assert f"2 windows opened on 2026-11-30: --night {NIGHT} or --night early@2026-11-30 shows one" in told
    assert "Night of 2026-11-30: early" in cutover("--night", "early@2026-11-30")[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--night", "2020-01-01"), 3, "there is no night 2020-01-01; the last one is nightly@2026-12-01"),
        (("--night", "nightly@2020-01-01"), 3, "there is no /v1/nights/nightly@2020-01-01/report"),
        (("--night", "yesterday"), 2, "expected a date (2026-11-30), an id (nightly@2026-11-30) or last"),
        (("--json", "--format", "html"), 2, "two formats"),
        (("--open-night", "--night", NIGHT), 2, "name two nights"),
        (
            ("--out", "x.pdf"),
            2,
            "--out x.pdf: nothing is written as .pdf; expected a name that ends in one of .html, .htm",
        ),
        (("--out", "/nonexistent/report.html"), 1, "/report.html cannot be written: No such file or directory"),
        (("--out", "/"), 1, "/ cannot be written: Is a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_is_one_sentence(cutover, daemon, words, code, said):
    done, out, err = cutover(*words)
    assert done == code
    assert said in out + err
    assert "Traceback" not in out + err


def test_no_night_yet_says_how_to_get_one(cutover, daemon):
    daemon["/v1/nights"] = {"nights": []}
    code, out, err = cutover()
    assert (code, out) == (3, "")
    assert "there was no night yet: window nightly opens Tue 2026-12-01 02:00 (Asia/Taipei)" in err
    daemon["/v1/queue"] = {"windows": [], "x": 1}
    assert "no window is configured; set `schedule` in cutover.yaml" in cutover()[2]
    assert json.loads(cutover("--json")[1])["exit_code"] == 3


def test_nothing_is_open_now(cutover, daemon):
    daemon["/v1/nights"] = {"nights": [night(NIGHT)]}
    code, _, err = cutover("--open-night")
    assert code == 5
    assert "no window is open now: window nightly opens Tue 2026-12-01" in err


def test_a_daemon_of_another_version(cutover, daemon):
    daemon[f"/v1/nights/{NIGHT}/report"] = {"schema": "cutover-report/9"}
    code, _, err = cutover()
    assert code == 5
    assert "the daemon is of another version" in err
    assert json.loads(cutover("--json")[1]) == {"schema": "cutover-report/9"}


def test_a_full_disk_leaves_the_file_that_was_there(cutover, daemon, tmp_path):
    with small_disk(tmp_path, 1) as disk:
        page = disk / "night.html"
        page.write_text("the last one")
        fill(disk)
        code, out, err = cutover("--out", page)
        assert (code, out) == (1, "")
        assert err == f"cutover: {page} cannot be written: No space left on device\n"
        assert page.read_text() == "the last one"
        assert {path.name for path in disk.iterdir()} == {"night.html", "hog"}


def test_what_is_no_file_is_written_to_and_a_link_stays_one(cutover, daemon, tmp_path):
    (tmp_path / "link.md").symlink_to("page.md")
    assert cutover("--out", tmp_path / "link.md")[0] == 0
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "page.md").read_text().startswith("# Night of")
    assert cutover("--format", "markdown", "--out", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()
    code, _, err = cutover("--format", "html", "--out", tmp_path)
    assert (code, err) == (1, f"cutover: {tmp_path} cannot be written: Is a directory\n")
