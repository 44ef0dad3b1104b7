"""What tests ask of an emulated engine, and how they read its answers."""

import json
import socket
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from launch.engines.emulator.testing import RunningEmulator

FAST = ("--ttft-ms", "5", "--itl-ms", "1")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def until(what: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    give_up_at_s = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < give_up_at_s, f"not true within {timeout_s} s"
        time.sleep(0.02)
    return found


class Asking:
    """Everything a test asks of one engine."""

    def __init__(self, running: RunningEmulator) -> None:
        self.engine = running
        # No certificates to load for plain HTTP on the loopback: most of a client's start-up time.
        self.http = httpx.Client(base_url=running.url, timeout=60, verify=False, trust_env=False)  # noqa: S501

    @cached_property
    def openai(self) -> OpenAI:
        return OpenAI(base_url=f"{self.engine.url}/v1", api_key="none", max_retries=0, http_client=self.http)

    def body(self, text: str = "Tell me about rivers.", **fields: Any) -> dict[str, Any]:
        return {"model": "emu", "messages": [{"role": "user", "content": text}], **fields}

    def chat(self, text: str = "Tell me about rivers.", **fields: Any) -> dict[str, Any]:
        """The JSON of one answer that is not streamed."""
        answer = self.http.post("/v1/chat/completions", json=self.body(text, **fields))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def message(self, text: str = "Tell me about rivers.", **fields: Any) -> dict[str, Any]:
        return self.chat(text, **fields)["choices"][0]["message"]

    def events(self, text: str = "Tell me about rivers.", **fields: Any) -> list[Any]:
        """The JSON of every event of a stream, and the string "[DONE]" where it stood."""
        found: list[Any] = []
        with self.http.stream("POST", "/v1/chat/completions", json=self.body(text, stream=True, **fields)) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    found.append(data if data == "[DONE]" else json.loads(data))
        return found

    def metric(self, name: str) -> float:
        """The sum over all label sets."""
        lines = self.http.get("/metrics").text.splitlines()
        values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + "{", name + " "))]
        assert values, f"no metric {name}"
        return sum(values)

    def raw(self, data: bytes) -> socket.socket:
        """A connection on which these bytes were sent."""
        connection = socket.create_connection(("127.0.0.1", self.engine.port), timeout=60)
        connection.sendall(data)
        return connection

    def raw_chat(self, text: str = "Tell me about rivers.", **fields: Any) -> socket.socket:
        body = json.dumps(self.body(text, **fields)).encode()
        return self.raw(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )


def joined(events: list[Any], field: str) -> str:
    """What a stream said in one field of its deltas."""
    choices = [event["choices"][0] for event in events if event != "[DONE]" and event["choices"]]
    return "".join(choice["delta"].get(field) or "" for choice in choices)


def assembled_calls(events: list[Any]) -> list[dict[str, Any]]:
    """The calls of a stream, put together the way clients do it."""
    calls: list[dict[str, Any]] = []
    for event in events:
        if event == "[DONE]" or not event["choices"]:
            continue
        for delta in event["choices"][0]["delta"].get("tool_calls") or []:
            if delta["index"] == len(calls):
                calls.append({"id": delta["id"], "name": delta["function"]["name"], "arguments": ""})
            calls[delta["index"]]["arguments"] += delta["function"].get("arguments") or ""
    return calls


def finish_of(events: list[Any]) -> str:
    reasons = [e["choices"][0]["finish_reason"] for e in events if e != "[DONE]" and e["choices"]]
    (reason,) = [reason for reason in reasons if reason is not None]
    return reason


def truth_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The truth file's lines, by request; only of requests whose last line is there."""
    requests: dict[str, list[dict[str, Any]]] = {}
    whole, _, _ = path.read_text().rpartition("\n")  # the engine may be writing: what follows is half a line
    for line in whole.splitlines():
        entry = json.loads(line)
        requests.setdefault(entry["request"], []).append(entry)
    return {request: lines for request, lines in requests.items() if "finish" in lines[-1]}


def ask_and_read_truth(engine: Asking, path: Path, **fields: Any) -> list[dict[str, Any]]:
    request_id = engine.events(**fields)[0]["id"]
    return until(lambda: path.exists() and truth_of(path).get(request_id))
