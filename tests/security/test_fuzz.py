"""What no person would write: to the control API, into a topology, by the front door. Never a 5xx or a crash."""

from __future__ import annotations

import json
import logging

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from controller.api.app import make_app
from controller.api.desk import Person
from controller.api.peers import SCOPE_KEY
from controller.config import parse_config
from controller.daemon import Daemon
from controller.effects.frontdoor import accesslog
from controller.effects.frontdoor.errors import DoorError
from controller.effects.frontdoor.snapshot import take_snapshot
from controller.errors import CutoverError
from gates.errors import GateUsageError
from launch import topology as topologies
from launch.errors import LaunchError

FEW, MANY = 2, 400
TOPOLOGY = "name: x\nserves: [emu]\nengine: emulator\ninstances: {a: {gpus: 1}}\n"
LONG = "/" + "a" * 5_000
KINDS = (
    "application/json",
    "text/plain",
    "application/xml",
    "",
    "multipart/form-data; boundary=x",
    "application/json;x",
)


def some(examples: int):
    """The same inputs on every run of the default suite; new ones in a campaign."""
    return settings(
        max_examples=examples,
        derandomize=examples <= 100,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The daemon's own application, without its loop and its front door; everybody is an admin here."""
    directory = tmp_path_factory.mktemp("fuzz")
    text = f"state_dir: {directory}/state\ngpus: {{kind: none, count: 2}}\n"
    daemon = Daemon(parse_config(text, "fuzz.yaml", {}))
    app = make_app(daemon.windows())

    async def as_admin(scope, receive, send):
        scope.setdefault("state", {})[SCOPE_KEY] = Person("fuzz", 0, "admin")
        await app(scope, receive, send)

    with TestClient(as_admin, raise_server_exceptions=False) as opened:
        logging.getLogger("httpx").setLevel(logging.WARNING)
        yield opened
    daemon.close()


def judge(answer, what):
    assert answer.status_code < 500, (what, answer.status_code, answer.text[:300])
    assert "Traceback" not in answer.text
    if answer.status_code >= 400:
        told = answer.json()
        assert set(told) == {"error", "exit_code"}, (what, told)
        assert isinstance(told["error"], str)
        assert told["error"]


def bodies():
    """Bodies that found something once, or could have."""
    yield from (
        b"[" * 200_000,
        b'{"why":' * 50_000,
        b'{"why": ' + b"1" * 10_000 + b"}",
        b'{"why": "\\ud800"}',
        b"\xff\xfe",
    )
    yield from (b"null", b"", b"[]", b'"x"', b"NaN", b'{"why": "a\\u0000b"}', b"\xef\xbb\xbf{}", b'{"why":1,"why":2}')
    fields = {
        "gates": ("/a\0b", LONG, "/" * 3000, "..", "/dev/zero", "/proc/self/mem", "a/b.yaml", "\u2028", ""),
        "source": ("/a\0b", LONG[:4000], "\n", ""),
        "topology": ("", "\0", TOPOLOGY * 2, f"{TOPOLOGY}gates: {LONG}\n", f"{TOPOLOGY}env_file: {LONG}\n"),
        "strategy": ("x", "", None, 3),
        "bake_s": (float("nan"), float("inf"), -1, 1e300, "1", True),
        "overruled": ({"x": "y"}, {"": ""}, {"cards": " "}, {"cards": "a\0"}),
        "note": ("\0", "\x1b[31m", "x" * 2001),
        "plan_digest": ("\0", "x" * 64),
    }
    for field, values in fields.items():
        for value in values:
            yield json.dumps({"topology": TOPOLOGY, "source": "x.yaml", field: value}).encode()
    for key in ("model", "script", "command", "env", "flags", "router", "capability"):
        for value in (LONG, f"[{LONG}]", "{a: b}", "[[]]", "-1", "'\0'", "{model: /dev/zero}"):
            for engine in ("emulator", "vllm", "script"):
                text = TOPOLOGY.replace("emulator", engine) + f"{key}: {value}\n"
                yield json.dumps({"topology": text}).encode()


def test_bodies_that_found_something_once(client):
    everything = list(bodies())
    for path in ("/v1/plan", "/v1/rollouts", "/v1/freeze", "/v1/tokens"):
        for body in everything if path == "/v1/plan" else everything[:14]:
            judge(client.post(path, content=body, headers={"content-type": "application/json"}), (path, body[:200]))
    for kind in KINDS:
        judge(client.post("/v1/freeze", content=b'{"why": "x"}', headers={"content-type": kind}), kind)
    for query in (
        "after=-1",
        "after=x",
        "after=" + "9" * 40,
        "rollout=%00",
        "rollout=%ff",
        "limit=0",
        "wait_s=nan",
        "wait_s=-1",
    ):
        judge(client.get(f"/v1/events?{query}"), query)
    for size in ("-1", "x", "1" * 30, "\u00b2".encode("latin-1"), ""):
        judge(client.post("/v1/stop", headers={"content-length": size}), size)


def _schemathesis(client, examples):
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @some(examples)
        @given(case=operation.as_strategy())
        def ask(case):
            nonlocal count
            count += 1
            request = case.as_transport_kwargs(base_url="http://testserver")
            if request["url"].endswith(("/v1/events", "/v1/nudge")):  # nobody comes here who would be waited for
                request["params"] = {**(request.get("params") or {}), "wait_s": 0}
            kept = {
                key: value for key, value in request.items() if key in {"method", "url", "params", "headers", "json"}
            }
            judge(client.request(**kept), kept)

        ask()
    return count


def test_what_its_own_description_allows(client):
    assert _schemathesis(client, FEW) >= 20


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_what_its_own_description_allows_at_length(client):
    assert _schemathesis(client, MANY) >= 2_000


# --- a topology ---

KEYS = "name serves engine model flags env instances router gates capability command gpus emulator vllm sglang script"
SIGNS = "llamacpp a 2 -1 ~ true no 1e999 0x1f 12:30:45 &a *a << [ ] { } : ' | > # % @ --tp-size [emu] org/x /models/x"
ODD = ("!!binary x", "- ", "\n", "\n  ", '"', "\0", "\u2028", "\ufeff", "[--host, x]", "{kind: smg}", "{a: {gpus: 2}}")
WORDS = st.sampled_from([*KEYS.split(), *SIGNS.split(), *ODD])


def near(text: str):
    """A text with a few places overwritten."""
    lines = text.splitlines()
    spot = st.tuples(st.integers(0, len(lines) - 1), st.text(st.characters(codec="utf-8"), max_size=20) | WORDS)

    def changed(spots):
        copy = list(lines)
        for index, words in spots:
            copy[index] = copy[index][: len(words)] + words
        return "\n".join(copy)

    return st.lists(spot, min_size=1, max_size=3).map(changed)


TEXTS = (
    near(
        TOPOLOGY
        + "model: /models/x\nflags: [--tp-size, 2]\nenv: {A: b}\nrouter: {kind: smg}\ncapability: {thinking: switch}\n"
    )
    | st.lists(WORDS, max_size=30).map(" ".join)
    | st.text(max_size=200)
)


def _topologies(examples):
    @some(examples)
    @given(TEXTS)
    def read(text):
        for parse in (
            lambda: topologies.parse(text, source="t.yaml"),
            lambda: parse_config(text, "c.yaml", {"state_dir": "/x", "socket": "/x/s"}),
        ):
            try:
                parse()
            except (LaunchError, CutoverError, GateUsageError) as refused:
                assert str(refused)  # noqa: PT017 - any of many texts may be refused, and each with a sentence

    read()


def test_texts_near_a_topology():
    _topologies(100)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_texts_near_a_topology_at_length():
    _topologies(20_000)


# --- what the front door says ---

INFO = "Name: HAProxy\nPid: 12"
STATE = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_port\n"
    "3 engines 1 s1 127.0.0.1 2 0 18000\n4 preview 1 s1 127.0.0.1 0 1 9"
)
STAT = (
    "# pxname,svname,scur,qcur,status,check_status,check_rise,check_fall,check_health,\n"
    "engines,s1,0,0,UP,L7OK,1,2,2,\npreview,s1,0,0,MAINT,,1,2,0,"
)
HELD = "held=0 oldest_s=0.0 released=1 timed_out=0 refused=0 full=0 left=0"
MAP = "0x55 mode open\n0x56 s1 a-1"


class Says:
    """A runtime socket with answers made up beforehand."""

    def __init__(self, answers):
        self._answers = answers

    def ask(self, command):
        return next(text for start, text in self._answers.items() if command.startswith(start))


def _answers(examples):
    def of(text):
        return st.just(text) | near(text) | st.text(max_size=60)

    answers = st.fixed_dictionaries(
        {
            "show info": of(INFO),
            "show servers": of(STATE),
            "show stat": of(STAT),
            "show map": of(MAP),
            "show held": of(HELD),
        }
    )

    @some(examples)
    @given(answers, st.binary(max_size=200) | near('{"end_ms":1,"door":"public"}').map(str.encode))
    def look(told, line):
        try:
            seen = take_snapshot(Says(told))
            assert seen.mode
        except DoorError as error:
            assert str(error)  # noqa: PT017 - some of the answers are good
        accesslog.parse(line)
        accesslog.parse(b'{"end_ms"' + line)

    look()


def test_the_answers_can_be_read_as_they_are():
    told = {"show info": INFO, "show servers": STATE, "show stat": STAT, "show map": MAP, "show held": HELD}
    seen = take_snapshot(Says(told))
    assert (seen.pid, len(seen.slots), seen.slots["engines", 1].up) == (12, 2, True)


def test_what_the_front_door_may_say():
    _answers(60)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_what_the_front_door_may_say_at_length():
    _answers(20_000)
