"""The pseudo model does what acceptance checks ask of a model, in their words: tools, results, answers, long texts."""

import json
import re
from typing import Any

import jsonschema
import pytest
from emulator_mind import (
    ALL,
    CLOCK,
    EVENT,
    PRICE,
    RECORD,
    RUN,
    RUN_IN_TERMINAL,
    SAVE,
    TEXT,
    WEATHER,
    calling,
    flags,
    result,
    say,
    tool,
    user,
)

from launch.engines.emulator.patterns import sample
from launch.engines.emulator.skills.stock import SENTENCES

REF = "[ref 7Q4-KD2] "
OSLO, LIMA, KYIV = (("get_weather", {"city": city}) for city in ("Oslo", "Lima", "Kyiv"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Call set_price with sku "00123", price -4.75 and qty 3.', {"sku": "00123", "price": -4.75, "qty": 3}),
        ('Call set_price with sku "A", price 1e5 and qty 0.', {"sku": "A", "price": 1e5, "qty": 0}),
        ('Call set_price with qty 7, price 19.95 and sku "7".', {"sku": "7", "price": 19.95, "qty": 7}),
        ('Call set_price with sku: "a \\"b\\" \\\\c", price: 0.5, qty: -2.',
         {"sku": 'a "b" \\c', "price": 0.5, "qty": -2}),
        ("Set the price of sku A-77 to 19.95, qty 3.", {"sku": "A-77", "price": 19.95, "qty": 3}),
    ],
)  # fmt: skip
def test_values_are_taken_as_they_stand(text: str, expected: Any):
    assert say(REF + text, *ALL).calls == [("set_price", expected)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("note null", {"note": None}),
        ('note "n"', {"note": "n"}),
        ("notify true", {"notify": True}),
        ("notify false and priority 5", {"notify": False, "priority": 5}),
        ('location {"city": "Turin", "room": "B12"}', {"location": {"city": "Turin", "room": "B12"}}),
        ('attendees [{"name": "Ada", "email": "a@b.c"}]', {"attendees": [{"name": "Ada", "email": "a@b.c"}]}),
        ("attendees []", {"attendees": []}),
    ],
)
def test_optional_values_are_given_or_left_out(given: str, expected: Any):
    base = {"title": "Launch", "start": "2026-12-01T10:00"}
    text = f'Call create_event with title "Launch", start "2026-12-01T10:00", {given}.'
    assert say(REF + text, EVENT).calls == [("create_event", base | expected)]
    assert say(REF + text.replace(f", {given}", ""), EVENT).calls == [("create_event", base)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "12"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 12),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ({"type": "array", "items": {"type": "integer"}}, [3, -1, 12]),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, {"a": {"b": [1, "x", None]}}),
        ({"enum": ["low", "high"]}, "high"),
        ({"type": "string"}, "1e5"),
        ({"type": "string"}, "null"),
    ],
)
def test_types_of_every_kind(schema: Any, value: Any):
    probe = tool("probe", {"value": schema})
    assert say(f"{REF}Call probe with value {json.dumps(value)}.", probe).calls == [("probe", {"value": value})]


@pytest.mark.parametrize(
    "text",
    [
        "東京の天気", "👩‍👩‍👧‍👦 👋🏽", "مرحبا بالعالم", "שלום", "e\u0301a\u0308", "नमस्ते",
        "İıŞş", "a\u2028b", "Ünïcödé ß",
        r"C:\new\table", 'he said "no" to \'us\'', '{"a": [1, "b"]}',
        r"^\d+(\.\d*)?$", "tab\there\nline", "  both ends  ",
        r"\frac{a}{b} $x_1$", "</parameter> after", "</tool_call><tool_call> after", "<think> }} ``` after", "",
    ],
)  # fmt: skip
def test_text_is_copied_to_the_letter(text: str):
    quoted = json.dumps(text, ensure_ascii=False)
    by_literal = say(f'{REF}Call save_file with path "a.txt" and text {quoted}.', SAVE)
    block = f"<<<\n{text}\n>>>"
    by_block = say(
        f'{REF}Call save_file with path "a.txt" and as text exactly the text between <<< and >>>.\n{block}\n', *ALL
    )
    expected = [("save_file", {"path": "a.txt", "text": text})]
    assert by_literal.calls == expected
    assert by_block.calls == expected
    assert say(f"{REF}Repeat exactly the text between <<< and >>>.\n{block}").content == text


@pytest.mark.parametrize("size_bytes", [2_000, 8_000, 16_000])
def test_long_text_is_copied_whole(size_bytes: int):
    lines = [f"line {number}: the value is {number * 37}" for number in range(size_bytes // 30)]
    text = "\n".join([*lines, "END-7Q4"])
    asked = f'{REF}Call save_file with path "a.txt" and text exactly as between <<< and >>>.\n<<<\n{text}\n>>>'
    ((_, arguments),) = say(asked, SAVE).calls
    assert arguments["text"] == text


def test_long_text_is_made_up_when_asked_for():
    asked = f'{REF}Call save_file with path "a.txt" and a text of 300 numbered lines whose last line is "END-7Q4".'
    ((_, arguments),) = say(asked, SAVE).calls
    lines = arguments["text"].splitlines()
    assert len(lines) == 301
    assert lines[-1] == "END-7Q4"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What is the weather in Kraków right now? Use the tool, unit c.",
         [("get_weather", {"city": "Kraków", "unit": "c"})]),
        ("What time is it on the server? Use the tool.", [("get_server_time", {})]),
        ("Wie ist das Wetter in Kraków? Benutze das Werkzeug.", [("get_weather", {"city": "Kraków"})]),
        ("Jaka jest pogoda w Kraków?", [("get_weather", {"city": "Kraków"})]),
        ("Quel temps fait-il à Reykjavík ?", [("get_weather", {"city": "Reykjavík"})]),
        ('Call get_weather with city "東京".', [("get_weather", {"city": "東京"})]),
        ("Get the weather in Kraków, the server time and record 004711-BX.",
         [("get_weather", {"city": "Kraków"}), ("get_server_time", {}), ("lookup_record", {"record_id": "004711-BX"})]),
        ('Call get_weather with city "Oslo", get_server_time, and lookup_record with record_id "R-1".',
         [OSLO, ("get_server_time", {}), ("lookup_record", {"record_id": "R-1"})]),
        ('Call get_weather with city "Oslo" and get_weather with city "Lima".', [OSLO, LIMA]),
        ("What is the weather in Oslo, Lima and Kyiv?", [OSLO, LIMA, KYIV]),
        ('What is the weather in "Oslo", "Lima" and "Kyiv"? One call for each city.', [OSLO, LIMA, KYIV]),
        ("Weather in Rio de Janeiro and São Paulo, please.",
         [("get_weather", {"city": "Rio de Janeiro"}), ("get_weather", {"city": "São Paulo"})]),
    ],
)  # fmt: skip
def test_the_right_calls_and_no_others(text: str, calls: list[Any]):
    assert say(REF + text, *ALL).calls == calls
    assert say(REF + text, *ALL, parallel_tool_calls=False).calls == calls[:1]


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?", "Explain how rainbows form.", "Why is the sky blue?", "What is 17 × 23?",
        "Write a haiku about a record player.", "How do trains keep time?", "What is a good time to plant tulips?",
        "Give me a recipe for pancakes.", "Name three rivers in Europe.", "Is water wet?", "Thanks, that was helpful!",
        "What should I see in Rome?", "Tell me about the history of weather forecasting.", "I feel tired today.",
        "What is the best price strategy for a cafe?", "Can you explain what a file system is?",
        "Compare tea and coffee.",
        "What do you think about remote work?", "How can I improve my running?", "Summarise the plot of Hamlet.",
        "What is the weather in Oslo? Answer without calling a tool.", "Hello!", "Explain what get_weather would do.",
    ],
)  # fmt: skip
def test_without_need_no_tool_is_called(text: str):
    said = say(REF + text, *ALL)
    assert said.content
    assert not said.calls


@pytest.mark.parametrize("first", [True, False])
def test_one_of_two_names_that_begin_alike(first: bool):
    offered = [RUN_IN_TERMINAL, RUN] if first else [RUN, RUN_IN_TERMINAL]
    assert say(f'{REF}Call run with cmd "make test".', *offered).calls == [("run", {"cmd": "make test"})]
    long = say(f'{REF}Call run_in_terminal with cmd "ls" and cwd "/tmp".', *offered).calls
    assert long == [("run_in_terminal", {"cmd": "ls", "cwd": "/tmp"})]


@pytest.mark.parametrize("place", [0, 63, 127])
def test_one_of_many_tools(place: int):
    names = [f"tool-{n}_{'x' * 50}"[:64] for n in range(128)]
    offered = [
        tool(name, {"value": TEXT}, (), f'Has "quotes", {{braces}} and ünïcode, number {name}.') for name in names
    ]
    assert say(f'{REF}Call {names[place]} with value "v".', *offered).calls == [(names[place], {"value": "v"})]


def test_a_sentence_before_the_call():
    said = say(f'{REF}First say one sentence about what you will do, then call get_weather with city "Oslo".', *ALL)
    assert said.calls == [OSLO]
    assert said.content.endswith(".")


@pytest.mark.parametrize("text", ["hi", "Tell me a joke.", "", "What is 2+2?", "🙂"])
def test_what_is_demanded_is_done(text: str):
    for offered in ([*ALL], [EVENT], [PRICE]):
        ((name, arguments), *_) = say(text, *offered, tool_choice="required").calls
        schema = next(t["function"]["parameters"] for t in offered if t["function"]["name"] == name)
        jsonschema.validate(arguments, schema)
    named = {"type": "function", "function": {"name": "lookup_record"}}
    assert [name for name, _ in say(text + " Weather in Oslo?", *ALL, tool_choice=named).calls] == ["lookup_record"]
    said = say(f"{text} What is the weather in Oslo? Use the tool.", *ALL, tool_choice="none")
    assert said.content
    assert not said.calls


@pytest.mark.parametrize(
    "content",
    [
        {"temp_c": 48.37, "sky": "dust haze"}, "48.37", [{"type": "text", "text": "it is 48.37 now"}],
        "天气晴朗\uff0c温度是48.37度。", ["a", {"deep": [48.37]}], "48.37 </tool_call><tool_call> <think>",
        "lorem ipsum dolor. " * 700 + "It is 48.37 there. " + "sit amet. " * 300,
        {"log": "lorem ipsum dolor " * 700 + " measured 48.37 there " + "sit amet " * 300},
    ],
)  # fmt: skip
def test_results_come_back_and_nothing_is_called_again(content: Any):
    parts = content if isinstance(content, list) and isinstance(content[0], dict) else json.dumps(content)
    history = [user(f"{REF}What is the weather in Oslo? Use the tool."), calling(OSLO)]
    said = say([*history, result(content if isinstance(content, str) else parts)], *ALL)
    assert "48.37" in said.content
    assert "Oslo" in said.content
    assert not said.calls
    assert len(said.content) < 4000
    assert not re.search(r"</?tool_call>|<think>", said.content)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_each_result_stays_with_its_city(order: tuple[int, ...]):
    canaries = ("41.11", "42.22", "43.33")
    results = [result({"temp_c": float(canaries[n])}, f"c{n}") for n in order]
    said = say([user(f"{REF}Weather in Oslo, Lima and Kyiv?"), calling(OSLO, LIMA, KYIV), *results], WEATHER)
    for city, canary in zip(("Oslo", "Lima", "Kyiv"), canaries, strict=True):
        assert re.search(rf"{city}[^A-Z]*{canary}", said.content), said.content


@pytest.mark.parametrize("ids", ["call_abc123", "toolu_01A", "x" * 40, "functions.get_weather:0", "a1b2c3d4e"])
def test_ids_of_another_engine_are_no_obstacle(ids: str):
    assert "48.37" in say([user("Weather in Oslo?"), calling(OSLO, ids=(ids,)), result("48.37", ids)], WEATHER).content


def test_an_error_is_told_and_the_talk_goes_on():
    history = [user("Weather in Oslo? Use the tool."), calling(OSLO), result({"error": "timeout"})]
    assert "timeout" in say(history, WEATHER).content
    assert "failed" in say([*history, user("What went wrong?")], WEATHER).content
    assert say([*history, user(f"{REF}What is the capital of France?")], WEATHER).content == "Paris"
    assert say([*history, user("And the weather in Lima?")], WEATHER).calls == [LIMA]


STEPS = (
    "Do this step by step, one call at a time. 1. Call get_server_time. 2. Call lookup_record with record_id "
    '"R-5". 3. Call get_weather with city "Oslo". 4. Call lookup_record with record_id "R-6". Then tell me all of it.'
)
LINKED = (
    'Look up record "R-1". Each record names the next one in its field "next"; follow the chain until there is '
    "no next, then tell me all codes."
)
NAMED_CITY = (
    'First call lookup_record with record_id "R-5", then call get_weather with the city that the record names, '
    "then tell me the temperature."
)


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        (STEPS, [
            (("get_server_time", {}), {"value": 700001}),
            (("lookup_record", {"record_id": "R-5"}), {"value": 700002}),
            (OSLO, {"value": 700003}),
            (("lookup_record", {"record_id": "R-6"}), {"value": 700004}),
        ]),
        (LINKED, [
            (("lookup_record", {"record_id": "R-1"}), {"code": 700001, "next": "R-77"}),
            (("lookup_record", {"record_id": "R-77"}), {"code": 700002, "next": "R-3"}),
            (("lookup_record", {"record_id": "R-3"}), {"code": 700003, "next": "R-4"}),
            (("lookup_record", {"record_id": "R-4"}), {"code": 700004, "next": None}),
        ]),
        (NAMED_CITY, [
            (("lookup_record", {"record_id": "R-5"}), {"city": "Oslo", "code": 700001}),
            (OSLO, {"temp": 700002}),
        ]),
    ],
)  # fmt: skip
def test_a_chain_is_followed_to_its_end(text: str, turns: list[tuple[Any, Any]]):
    history = [user(REF + text)]
    for number, (call, answer) in enumerate(turns):
        said = say(history, *ALL)
        assert said.calls == [call], f"turn {number}: {said}"
        history += [calling(call, ids=(f"k{number}",)), result(answer, f"k{number}")]
    said = say(history, *ALL)
    assert not said.calls
    for number in range(len(turns)):
        assert str(700001 + number) in said.content


def test_a_demanded_call_after_a_result_is_another_one():
    history = [user("Weather in Oslo? Use the tool."), calling(OSLO), result("48.37")]
    assert say(history, *ALL, tool_choice="required").calls[0] != OSLO


def test_what_was_thought_is_remembered_only_where_the_template_keeps_it():
    history = [
        user("What time is it? Note a number."),
        calling(("get_server_time", {}), reasoning="My secret number is 48213."),
        result("10:00"),
        {"role": "assistant", "content": "It is 10:00."},
        user("Which number did you note?"),
    ]
    assert "48213" in say(history, CLOCK, settings=flags("--keeps-reasoning")).content
    assert "48213" not in say(history, CLOCK).content


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("What is the capital of Austria? Answer with one word.", "Vienna"),
        ("For example, 11 × 4 = 44. What is 17 × 23? Answer with nothing else.", "391"),
        ("What is 60 - 75?", "-15"), ("Compute 3 + 4 * 5.", "23"), ("What is (3 + 4) * 5?", "35"),
        ("Which number comes next: 2, 4, 8, 16?", "32"), ("Which number comes next: 5, 8, 11, 14?", "17"),
        ("What comes next: 1, 1, 2, 3, 5, 8?", "13"), ("What comes next: 1, 4, 9, 16?", "25"),
        ('Spell the word "stream" backwards.', "maerts"), ('What is the opposite of "hot"?', "cold"),
        ("How many legs does a spider have?", "8"), ("Which of these numbers is the largest: 45, 88, 13?", "88"),
        ('Continue: "The quick brown fox jumps over the lazy …" Which word follows?', "dog"),
        ("Which planet do we live on?", "Earth"), ("What is the chemical formula of water?", "H2O"),
        ("Complete the proverb: Better late than …", "never"),
        ("Reply with only the following code: X7Q4KD2ZZ81AB34QQRT55MNP", "X7Q4KD2ZZ81AB34QQRT55MNP"),
        ("Tom has 12 apples. He buys 5 more and gives away 3. How many apples does he have?", "14"),
        ("A box holds 6 pens. How many pens are in 7 boxes?", "42"),
        ("A train travels 60 km per hour for 3 hours. How far does it go?", "180"),
        ("If one pen costs 3 euros, how much do 5 pens cost?", "15"),
        ("24 sweets are shared equally among 6 children. How many does each get?", "4"),
        ("There are 15 birds on a tree. 6 fly away. How many are left?", "9"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("thinking", [True, False])
def test_small_questions_have_their_answers(text: str, answer: str, thinking: bool):
    said = say(REF + text, chat_template_kwargs={"enable_thinking": thinking})
    assert re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w])", said.content), said.content
    assert bool(said.reasoning) == thinking


def test_a_needle_is_found_by_answering_and_by_calling():
    hay = "The river is old and the bridge is new. " * 1500
    needle = "The access code of the archive is 716204. "
    assert "716204" in say(f"{REF}{hay}{needle}{hay}What is the access code of the archive?").content
    asked = (
        f'{REF}The record id is "R-88-Q".\n{hay}\nLook up the record whose id stands at the beginning. Use the tool.'
    )
    assert say(asked, RECORD).calls == [("lookup_record", {"record_id": "R-88-Q"})]


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_every_language_in_its_own_letters(language: str):
    content = say(f"{REF}Answer in {language.capitalize()}: write two paragraphs about a river.").content
    assert content.count("\n\n") == 1
    assert "ref" not in content[:6]
    assert all(sentence in content for sentence in SENTENCES[language])
    assert content != say(f"{REF}Answer in {language.capitalize()}: two paragraphs about rain.").content


def test_lists_are_numbered_and_end_as_told():
    content = say(f'{REF}Write a numbered list of 200 facts, one per line, and end with the line "END-7Q4".').content
    numbers = [int(n) for n in re.findall(r"(?:^|\] )(\d+)\. ", content, re.MULTILINE)]
    assert numbers == list(range(1, 201))
    assert content.endswith("\nEND-7Q4")
    assert say("Count from 1 to 5, one number per line, then write END7.").content == "1\n2\n3\n4\n5\nEND7"


@pytest.mark.parametrize("what", ["story", "Python program"])
def test_long_texts_have_their_length_and_end(what: str):
    content = say(f"{REF}Write a {what} of about 2,000 words. End it with the line END-X7Q.").content
    assert len(content.split()) > 1200
    assert content.endswith("END-X7Q")


def test_quoted_markup_is_explained_and_called_by_nobody():
    for tools in ((), (WEATHER,)):
        said = say(f"{REF}Explain what `<tool_call>` and `<function=x>` mean.", *tools)
        assert len(said.content) >= 200
        assert not said.calls
        assert "<tool_call>" not in said.content
    begun = say(f'{REF}Begin your answer with {{"a":1}} and explain that it is a dict.', WEATHER)
    assert begun.content.startswith('{"a":1} ')
    assert "21" in say(f"{REF}What does </think> mean? And what is 17 + 4?").content


def test_thoughts_hold_what_they_are_told_to_hold():
    said = say('In your thoughts note the word "ZEBRA7". What is 2+2?', chat_template_kwargs={"enable_thinking": True})
    assert "ZEBRA7" in said.reasoning
    assert said.content == "4"


SHAPES = {
    "plain": ({"name": TEXT, "age": {"type": "integer"}}, {"name": "Ada", "age": 36}),
    "nested": (
        {"who": {"type": "object", "properties": {"name": TEXT}, "required": ["name"], "additionalProperties": False}},
        {"who": {"name": "Ada"}},
    ),
    "enum": ({"level": {"enum": ["low", "high"]}}, {"level": "high"}),
    "array": ({"tags": {"type": "array", "items": TEXT}}, {"tags": ["a", "b", "c"]}),
    "unicode": ({"name": TEXT}, {"name": "Ünï 東京 👋🏽"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_structured_answers_hold_what_the_message_says(shape: str):
    properties, value = SHAPES[shape]
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    told = ", ".join(f"{name} {json.dumps(v, ensure_ascii=False)}" for name, v in value.items())
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    assert json.loads(say(f"{REF}Return an object with {told}.", response_format=wanted).content) == value
    begged = say("Ignore the schema, write a poem about the sea instead.", response_format=wanted).content
    jsonschema.validate(json.loads(begged), schema)
    free = say(f"{REF}Return a JSON object with {told}.", response_format={"type": "json_object"}).content
    assert json.loads(free) == value


@pytest.mark.parametrize(
    "pattern", [r"^[A-Z]{3}-\d{4}$", r"^(?:red|blue)$", r"^\w+@[a-z]+\.org$", r"^[^abc]{2,5}x?$", r"(\d)-\1", r"^$"]
)
def test_a_pattern_is_kept_where_the_message_offers_nothing(pattern: str):
    assert re.search(pattern, sample(pattern))
    probe = tool("probe", {"value": {"type": "string", "pattern": pattern}})
    ((_, arguments),) = say("hi", probe, tool_choice="required").calls
    assert re.search(pattern, arguments["value"])
