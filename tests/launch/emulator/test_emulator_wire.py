"""The wire: what real clients and raw readers see, in both dialects."""

import json

import openai
import pytest
from emulator_asking import WEATHER, Asking, assembled_calls, finish_of, joined

THINK = {"chat_template_kwargs": {"enable_thinking": True}}
REASONING = {"vllm": "reasoning", "sglang": "reasoning_content"}


def test_the_openai_client_reads_whole_and_streamed_answers_alike(either: Asking):
    asked = {"model": "emu", "messages": [{"role": "user", "content": "Tell me about harbours."}]}
    whole = either.openai.chat.completions.create(**asked)
    stream = list(either.openai.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))

    text = whole.choices[0].message.content
    assert text
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == text
    assert whole.choices[0].finish_reason == "stop"
    assert [c.choices[0].finish_reason for c in stream if c.choices][-1] == "stop"
    assert stream[-1].choices == []
    assert stream[-1].usage.model_dump() == whole.usage.model_dump()
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_a_stream_is_framed_as_the_protocol_says(either: Asking):
    events = either.events(stream_options={"include_usage": True})
    *chunks, usage, done = events
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert finish_of(events) == "stop"


def test_usage_is_streamed_only_when_asked_for(either: Asking):
    assert all(event == "[DONE]" or event["choices"] for event in either.events())


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_thinking_has_its_own_field_and_never_enters_the_content(dialect: str, request: pytest.FixtureRequest):
    engine: Asking = request.getfixturevalue(dialect)
    field = REASONING[dialect]
    whole = engine.message("Why do rivers bend?", **THINK)
    events = engine.events("Why do rivers bend?", **THINK)

    assert whole[field]
    assert joined(events, field) == whole[field]
    assert joined(events, "content") == whole["content"]
    assert "think>" not in whole["content"]
    kinds = ["r" if e["choices"][0]["delta"].get(field) else "c" for e in events[:-2]]
    assert "".join(kinds).strip("c").count("c") == 0, "reasoning comes in one piece before the content"


def test_without_thinking_there_is_no_reasoning(either: Asking):
    message = either.message(chat_template_kwargs={"enable_thinking": False})
    assert not message.get("reasoning")
    assert not message.get("reasoning_content")


def test_the_thinking_switch_changes_the_prompt(either: Asking):
    on = either.chat("Hi", **THINK)["usage"]["prompt_tokens"]
    off = either.chat("Hi")["usage"]["prompt_tokens"]
    assert off > on


def test_thinking_can_be_the_habit_or_impossible(start):
    assert start("--thinking", "on").message()["reasoning"]
    assert not start("--thinking", "never").message(**THINK)["reasoning"]


def test_calls_have_the_dialects_ids_and_fields(vllm: Asking, sglang: Asking):
    text = "What is the weather in Oslo?"
    ours = vllm.message(text, tools=[WEATHER])
    theirs = sglang.message(text, tools=[WEATHER])
    assert ours["content"] is None
    assert ours["tool_calls"][0]["id"].startswith("chatcmpl-tool-")
    assert theirs["content"] is None
    assert theirs["tool_calls"][0]["id"].startswith("call_")
    assert theirs["tool_calls"][0]["index"] == 0


def test_streamed_calls_assemble_to_the_same_calls(either: Asking):
    text = "Weather in Oslo, Lima and Kyiv, please."
    whole = either.message(text, tools=[WEATHER])["tool_calls"]
    events = either.events(text, tools=[WEATHER])
    calls = assembled_calls(events)
    assert [json.loads(call["arguments"])["city"] for call in calls] == ["Oslo", "Lima", "Kyiv"]
    assert [call["arguments"] for call in calls] == [call["function"]["arguments"] for call in whole]
    assert len({call["id"] for call in calls}) == 3
    assert finish_of(events) == "tool_calls"


def test_max_tokens_ends_an_answer_with_length(either: Asking):
    answer = either.chat(max_tokens=7)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7
    assert finish_of(either.events(max_tokens=7)) == "length"


def test_a_thought_that_is_cut_off_leaves_no_content(vllm: Asking):
    message = vllm.message("Why?", max_tokens=5, **THINK)
    assert message["reasoning"]
    assert message["content"] is None


def test_ignore_eos_fills_max_tokens(either: Asking):
    assert either.chat("Hi", max_tokens=333, ignore_eos=True)["usage"]["completion_tokens"] == 333


def test_the_same_prompt_gives_the_same_words_and_others_differ(vllm: Asking, start):
    assert vllm.message("Tell me of A.")["content"] == vllm.message("Tell me of A.")["content"]
    assert vllm.message("Tell me of A.")["content"] != vllm.message("Tell me of B.")["content"]
    assert vllm.message("Tell me of A.")["content"] != start("--seed", "7").message("Tell me of A.")["content"]


def test_text_completions(either: Asking):
    whole = either.openai.completions.create(model="emu", prompt="Once upon a time", max_tokens=30)
    stream = either.openai.completions.create(model="emu", prompt="Once upon a time", max_tokens=30, stream=True)
    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in stream)
    assert whole.usage.completion_tokens == 30
    assert whole.choices[0].finish_reason == "length"


def test_json_schema_answers_are_valid_json(either: Asking):
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    content = either.message("How many? Say 12.", response_format=wanted)["content"]
    assert json.loads(content) == {"count": 12}


def test_models_health_version(either: Asking):
    (card,) = either.http.get("/v1/models").json()["data"]
    assert card["id"] == "emu"
    assert card["max_model_len"] == 32768
    assert either.http.get("/health").status_code == 200
    assert either.http.head("/health").content == b""
    assert either.http.get("/version").json()["version"]


def test_a_wrong_model_is_not_found(either: Asking):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        either.openai.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{nonsense", "not JSON"),
        (b"[]", "object"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": [{"role": "alien", "content": ""}]}', "role"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}', "tools"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 0}', "n must be"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "x"}]}', "tools[0]"),
    ],
)
def test_a_bad_body_is_refused_with_a_sentence(vllm: Asking, body: bytes, says: str):
    answer = vllm.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_the_context_length_is_kept(start):
    engine = start("--max-model-len", "200")
    assert engine.chat("Hi")["usage"]["total_tokens"] <= 200
    for fields in ({"text": "x" * 2000}, {"text": "Hi", "max_tokens": 500}):
        answer = engine.http.post("/v1/chat/completions", json=engine.body(**fields))
        assert answer.status_code == 400
        assert "maximum context length is 200 tokens" in answer.json()["error"]["message"]


def test_sglang_writes_errors_flat(sglang: Asking):
    answer = sglang.http.post("/v1/chat/completions", content=b"{").json()
    assert answer["object"] == "error"
    assert answer["code"] == 400


def test_unknown_paths_and_methods(either: Asking):
    assert either.http.get("/nowhere").status_code == 404
    assert either.http.get("/v1/chat/completions").status_code == 405


def test_an_api_key_is_demanded_where_one_is_set(start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EMULATOR_TEST_KEY", "sesame")
    engine = start("--api-key-env", "EMULATOR_TEST_KEY")
    assert engine.http.get("/v1/models").status_code == 401
    assert engine.http.get("/v1/models", headers={"authorization": "Bearer sesame"}).status_code == 200
    assert engine.http.get("/health").status_code == 200


def test_one_connection_carries_many_requests_and_pipelined_ones(vllm: Asking):
    get = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with vllm.raw(get * 3 + last) as connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200 OK") == 4


def test_a_request_may_come_in_small_parts_and_wait_for_100_continue(vllm: Asking):
    body = json.dumps(vllm.body("Hi")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\n"
    with vllm.raw(head) as connection:
        connection.sendall(b"content-length: %d\r\n\r\n" % len(body))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 Continue")
        for byte in body:
            connection.sendall(bytes([byte]))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"I am ready to help" in answer


def test_what_is_no_http_is_refused(vllm: Asking):
    with vllm.raw(b"\x16\x03\x01 hello\r\n\r\n") as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def test_one_event_is_one_http_chunk(vllm: Asking):
    with vllm.raw_chat(stream=True, max_tokens=5) as connection:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(65536)
    head, _, rest = data.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        event, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        assert event == b"" or (event.startswith(b"data: ") and event.endswith(b"\n\n"))


def test_text_that_is_no_unicode_does_no_harm(vllm: Asking):
    body = b'{"messages": [{"role": "user", "content": "Repeat exactly: \\"a\\ud800b\\""}]}'
    answer = vllm.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"]
