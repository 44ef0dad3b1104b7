from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from gate_kit import Engines, Judge

from gates import textrules
from gates.acceptance import answers, cross_talk, drift, engine_counters, filler, languages, long_text
from gates.acceptance.check import NONCE, Check, Sample, Skip, Tier
from gates.acceptance.mixed_load import Level
from gates.acceptance.register import checks, find
from gates.acceptance.tries import Try
from gates.capability import Capability
from gates.contract import Verdict
from gates.counters import Counters
from gates.wire import Exchange, Failure, Piece

FAST = ("--ttft-ms", "1", "--itl-ms", "0", "--slots", "256")
PLAIN = {"thinking": "none"}


def failed(verdict: Verdict) -> set[str]:
    return {check.id for check in verdict.checks if check.verdict == "fail"}


def sentence_of(verdict: Verdict, check_id: str) -> str:
    return next(check.sentence for check in verdict.checks if check.id == check_id)


# --- known answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (answers.number_of(391), "391"),
        (answers.number_of(391), "17 × 23 = **391**."),
        (answers.number_of(1081), "That makes 1,081."),
        (answers.number_of(1081), "1 081"),
        (answers.number_of(32), "16, 32"),
        ("Paris", "The capital of France is paris."),
        (answers.number_of(7), "There are 7 days, of course."),
    ],
)
def test_a_right_answer_is_right_however_it_is_written(pattern: str, text: str) -> None:
    assert answers.right(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (answers.number_of(391), "1391"),
        (answers.number_of(391), "3910"),
        (answers.number_of(391), "391.5"),
        (answers.number_of(391), "-391"),
        (answers.number_of(7), "17 days"),
        ("Paris", "Lyon"),
        ("Paris", ""),
    ],
)
def test_a_wrong_answer_is_wrong(pattern: str, text: str) -> None:
    assert not answers.right(pattern, text)


def test_the_largest_of_three_is_not_answered_by_repeating_all_three() -> None:
    largest = answers._alone([12, 45, 87])
    assert answers.right(largest, "87")
    assert answers.right(largest, "Of 12, 45 and 87 the largest is 87.")
    assert not answers.right(largest, "12, 45, 87")
    assert not answers.right(largest, "45")


def test_48_tries_ask_24_questions_each_streamed_and_whole() -> None:
    check = find("O01")
    samples = [check.sample(number, "s", Capability()) for number in range(48)]
    kinds = [(sample.number + sample.number // 24) % 24 for sample in samples]
    asked = {(kind, sample.streamed) for kind, sample in zip(kinds, samples, strict=True)}
    assert len(asked) == 48
    assert len({answers.question(sample).text for sample in samples[:24]}) == 24


# --- languages --------------------------------------------------------------------------------------------------------

SPOKEN = {
    "German": "Das Meer ist an diesem Morgen ruhig, und die Boote liegen noch im Hafen. Ein alter Mann sitzt auf der "
    "Bank und wartet, bis es wieder heller wird.",
    "French": "La mer est calme ce matin et les bateaux sont encore dans le port. Un vieil homme est assis sur le banc "
    "et il attend que la lumière revienne.",
    "Spanish": "El mar está tranquilo esta mañana y los barcos siguen en el puerto. Un hombre viejo se sienta en el "
    "banco y espera a que vuelva la luz del día.",
    "Portuguese": "O mar está calmo esta manhã e os barcos ainda não saíram do porto. Um homem velho senta no banco "
    "e espera que a luz do dia volte para a praia.",
    "Polish": "Morze jest dziś rano spokojne, a łodzie nie wypłynęły jeszcze z portu. Stary człowiek siedzi na ławce "
    "i czeka, aż się znowu zrobi jasno.",
    "Russian": "Море сегодня утром спокойно, и лодки ещё стоят в порту. Старый человек сидит на скамейке "  # noqa: RUF001
    "и ждёт, пока снова станет светло.",
    "Arabic": "البحر هادئ هذا الصباح والقوارب لا تزال في الميناء. رجل عجوز يجلس على المقعد "
    "وينتظر حتى يعود الضوء من جديد.",
    "Chinese": "今天早上大海很平静，船还停在港口里。一位老人坐在长椅上，"  # noqa: RUF001
    "等着天再一次亮起来，海鸥在屋顶上休息，一切都很安静。",  # noqa: RUF001
    "Japanese": "今朝の海はとても静かで、船はまだ港に泊まっています。一人の老人がベンチに座り、"
    "また明るくなるのを待っています。",
    "Korean": "오늘 아침 바다는 아주 조용하고 배들은 아직 항구에 있습니다. "
    "한 노인이 벤치에 앉아 다시 밝아지기를 기다리고 있습니다.",
}
BY_NAME = {language.name: language for language in languages.LANGUAGES}


@pytest.mark.parametrize("name", BY_NAME)
def test_each_language_is_itself_and_no_other(name: str) -> None:
    assert languages.problem(SPOKEN[name], BY_NAME[name]) is None
    for other, text in SPOKEN.items():
        if other != name:
            assert languages.problem(text, BY_NAME[name]) is not None, other


def test_stray_letters_of_another_script_are_named() -> None:
    text = SPOKEN["Russian"] + " страница 数据処理 에서"
    assert "Cjk" in (languages.problem(text, BY_NAME["Russian"]) or "")
    assert languages.problem(SPOKEN["Japanese"] + " TP2", BY_NAME["Japanese"]) is None


def test_hardly_a_word_is_no_text() -> None:
    assert "only 4 characters" in (languages.problem("Nein", BY_NAME["German"]) or "")


# --- long texts -------------------------------------------------------------------------------------------------------

LISTED = "\n".join(f"{n}. {filler.sentence(Random(n))}" for n in range(1, 60))  # noqa: S311 - to be repeated
STORY = filler.filler(Random(5), 3_000)  # noqa: S311 - to be repeated


def test_numbering_goes_up_one_by_one() -> None:
    assert long_text.numbering_problem(LISTED) is None
    assert long_text.numbering_problem(LISTED.replace("\n20.", "\n21.", 1)) == "after number 19 comes number 21"
    assert long_text.numbering_problem("nothing of the kind") == "only 0 numbered lines came"


def test_a_long_text_has_its_last_line() -> None:
    assert long_text.problem(f"{LISTED}\nEND-1", "END-1", long_text._list) is None
    assert "without its last line" in (long_text.problem(LISTED, "END-1", long_text._list) or "")
    assert long_text.problem(LISTED, None, long_text._list) is None
    assert "characters came" in (long_text.problem(STORY[:300] + " END-1", "END-1", long_text._story) or "")


@pytest.mark.parametrize(
    "tail",
    [
        "!" * 200,
        " and then the same again" * 40,
        "".join(f"{n}. " for n in range(1, 900)),
        " Kuchen blau zwanzig fünf" * 40,
    ],
)
def test_a_story_that_ends_in_nonsense_is_seen(tail: str) -> None:
    assert long_text.problem(STORY, None, long_text._story) is None
    assert long_text.problem(STORY + tail, None, long_text._story)


def test_source_code_needs_two_broken_rules() -> None:
    source = Path(textrules.__file__).read_text(encoding="utf-8")
    ruler = "# " + "=" * 130 + "\n"
    assert long_text.sick_code(ruler + source) is None
    assert textrules.degenerate_window(ruler + source)
    assert long_text.sick_code(source + "x" * 900)


# --- load -------------------------------------------------------------------------------------------------------------


def level(concurrency: int, right: int, wrong: int) -> Level:
    sample = Sample("load", 0, "s", streamed=True, greedy=True)
    good, bad = Try(sample, None), Try(sample, "its own code is not in the answer")
    return Level(concurrency, tuple([("copy", good)] * right + [("copy", bad)] * wrong))


def test_load_is_judged_against_what_came_alone() -> None:
    fine = {1: level(1, 48, 0), 8: level(8, 47, 1), 32: level(32, 64, 0)}
    assert cross_talk.judge(fine, ["copy"]).verdict == "pass"
    sick = {**fine, 32: level(32, 40, 24)}
    judged = cross_talk.judge(sick, ["copy"])
    assert judged.verdict == "fail"
    assert judged.sentence == (
        "at concurrency 32 40 of 64 were right, alone 48 of 48: its own code is not in the answer"
    )


# --- counters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (Counters(drafted=1000, accepted=610), "pass"),
        (Counters(drafted=1000, accepted=3), "fail"),
        (Counters(drafted=0, accepted=0), "inconclusive"),
        (Counters(accept_length=2.4), "pass"),
        (Counters(accept_length=1.0), "fail"),
    ],
)
def test_speculation_must_be_exercised_and_accepted(now: Counters, verdict: str) -> None:
    assert engine_counters.judge_speculation(now).verdict == verdict


@pytest.mark.parametrize("now", [Counters(), Counters(accept_length=0.0)])
def test_without_speculation_there_is_nothing_to_judge(now: Counters) -> None:
    with pytest.raises(Skip):
        engine_counters.judge_speculation(now)


# --- drift ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "there", "verdict", "warn"),
    [(2.1, 2.11, "pass", False), (2.1, 2.2, "pass", True), (2.1, 3.4, "fail", False), (2.1, None, "pass", False)],
)
def test_drift_is_judged_in_nats(here: float, there: float | None, verdict: str, warn: bool) -> None:
    judged = drift.judge(here, there)
    assert (judged.verdict, judged.warn) == (verdict, warn)


def exchange(status: int, body: bytes) -> Exchange:
    return Exchange("POST", "/", b"{}", 0.0, 0.1, status, (), (Piece(0.1, body),))


def test_log_probabilities_are_read_in_each_spelling() -> None:
    prompt = [None, *({"7": {"logprob": -1.5}} for _ in range(60))]
    vllm = json.dumps({"choices": [{"prompt_logprobs": prompt}]}).encode()
    sglang = json.dumps({"meta_info": {"input_token_logprobs": [[None, 1, None], *[[-1.5, 7, None]] * 60]}}).encode()
    echo = json.dumps({"choices": [{"logprobs": {"token_logprobs": [None, *[-1.5] * 60, -9.0]}}]}).encode()
    readers = [way.read for way in drift._WAYS]
    assert [
        drift.read_nll(exchange(200, body), read) for body, read in zip((vllm, sglang, echo), readers, strict=True)
    ] == [
        1.5,
        1.5,
        1.5,
    ]


def test_what_tells_nothing_says_why() -> None:
    read = drift._WAYS[0].read
    assert drift.read_nll(exchange(404, b'{"detail": "Not Found"}'), read) == "HTTP 404: Not Found"
    assert drift.read_nll(exchange(200, b"[]"), read) == "the answer holds no log-probabilities"
    broken = replace(exchange(200, b""), failure=Failure("http", "the connection broke"))
    assert drift.read_nll(broken, read) == "the connection broke"


# --- a server of our own for what the emulated engine cannot do -------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Callable[[Callable[[str, bytes], tuple[int, bytes]]], str]]:
    """Starts HTTP servers that answer as a function of path and body says."""
    running: list[ThreadingHTTPServer] = []

    def start(respond: Callable[[str, bytes], tuple[int, bytes]]) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, body: bytes) -> None:
                status, answer = respond(self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


def likely(nats: float) -> Callable[[str, bytes], tuple[int, bytes]]:
    def respond(path: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        if "messages" in asked:
            message = {"role": "assistant", "content": "Here I am."}
            usage = {"prompt_tokens": 9, "completion_tokens": 3}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            head = {"id": "c", "object": "chat.completion", "created": 1, "model": asked["model"]}
            return 200, json.dumps({**head, "choices": [choice], "usage": usage}).encode()
        words = len(asked["prompt"].split())
        prompt = [None, *({"7": {"logprob": -nats}} for _ in range(words))]
        return 200, json.dumps({"choices": [{"prompt_logprobs": prompt}]}).encode()

    return respond


def test_drift_compares_with_production(judge: Judge, server: Callable[..., str]) -> None:
    here, there = server(likely(2.0)), server(likely(3.1))
    settings = {"checks": ["O13"], "seed": "x"}
    moved = judge("acceptance", here, profile=settings, live_endpoint=there)
    assert "moved by -1.100" in sentence_of(moved, "O13")
    assert failed(moved) == {"O13"}
    assert judge("acceptance", here, profile=settings, live_endpoint=here).verdict == "pass"


def test_a_full_kv_cache_is_met_and_survived(judge: Judge, engines: Engines, server: Callable[..., str]) -> None:
    readings = iter(range(100))
    metrics = server(lambda path, body: (200, b"vllm:num_preemptions_total %d\n" % next(readings)))
    settings = {"checks": ["O15"], "seed": "x", "tier": "extended"}
    fine = {"capability": {**PLAIN, "json_schema": True}, "metrics_url": f"{metrics}/metrics"}
    verdict = judge("acceptance", engines(*FAST), profile=settings, **fine)
    assert verdict.verdict == "pass", verdict.sentence
    assert "over 1 preemptions" in sentence_of(verdict, "O15")
    spliced = judge("acceptance", engines(*FAST, "--fault", "splice"), profile=settings, **fine)
    assert "O15" in failed(spliced)


# --- against engines --------------------------------------------------------------------------------------------------

FAULTS = [
    ("wrong-answers", "O01", {"O01"}),
    ("salad", "O02p", {"O02p"}),
    ("count-loop", "O02p", {"O02p"}),
    ("salad", "O03", {"O03"}),
    ("lang-drift", "O03", {"O03"}),
    ("bad-on-cache-hit", "O07", {"O07"}),
    ("sampled-only", "O09", {"O09"}),
    ("token-loop", "O08", {"O08"}),
    ("wrong-kv", "O16", {"O16"}),
    ("abort-as-length", "O16", {"O16"}),
    ("wrong-kv", "O10", {"O10"}),
    # So few at once, and so long, that a slow client keeps them running together too.
    ("bang+running=3 --ttft-ms 60", "O06", {"O06"}),
    ("swap-requests", "O06", {"O06"}),
    ("mojibake", "O05", {"O04.model"}),
]


def test_a_healthy_engine_passes_every_check(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--max-model-len", "9000", "--cache-report")
    verdict = judge(
        "acceptance",
        url,
        profile={"checks": ["O"], "without": ["O15"], "seed": "x", "tier": "extended", "concurrency": 16},
        capability={**PLAIN, "tools": False, "json_schema": True, "prefix_caching": True},
        metrics_url=f"{url}/metrics",
    )
    assert verdict.verdict == "pass", verdict.sentence
    skipped = {check.id for check in verdict.checks if check.skipped}
    assert skipped == {"O11", "O13", "O14"}
    assert "the cache was hit" in sentence_of(verdict, "O07")


@pytest.mark.parametrize(("fault", "check", "blocking"), FAULTS)
def test_a_wrong_engine_is_blocked_by_the_check_that_looks_for_it(
    judge: Judge, engines: Engines, fault: str, check: str, blocking: set[str]
) -> None:
    url = engines(*FAST, "--max-model-len", "8192", "--fault", *fault.split())
    settings = {"checks": [check], "seed": "x", "tier": "extended", "concurrency": 16, "timeout_s": 10}
    verdict = judge("acceptance", url, profile=settings, capability={**PLAIN, "tools": False})
    assert blocking <= failed(verdict), verdict.sentence


def test_a_thinking_model_is_asked_with_room_to_think(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--thinking", "on")
    verdict = judge("acceptance", url, profile={"checks": ["O01"], "seed": "x"}, capability={"thinking": "switch"})
    assert verdict.verdict == "pass", verdict.sentence


def test_an_undeclared_limit_is_read_from_the_model_list(judge: Judge, engines: Engines) -> None:
    url = engines(*FAST, "--max-model-len", "4096")
    verdict = judge("acceptance", url, profile={"checks": ["O16"], "seed": "x"}, capability=PLAIN)
    assert verdict.verdict == "pass", verdict.sentence
    assert sentence_of(verdict, "O16").startswith("limit 4096 tokens; one token less than the limit: answered")


def test_the_smoke_tier_asks_five_known_answers(judge: Judge, engines: Engines) -> None:
    settings = {"checks": ["O01"], "seed": "x", "tier": "smoke"}
    verdict = judge("acceptance", engines(*FAST), profile=settings, capability=PLAIN)
    assert verdict.verdict == "pass", verdict.sentence
    assert verdict.measurements["checks"]["O01"]["n"] == 5


def mine() -> list[Check]:
    return [check for check in checks() if check.group in "OA"]


def test_every_check_says_what_it_is_for() -> None:
    assert {check.id for check in mine()} == {
        "O01", "O02p", "O03", "O05", "O06", "O07", "O08", "O09", "O10", "O11", "O13", "O14", "O15", "O16",
        "A01", "A02", "A03",
    }  # fmt: skip
    for check in mine():
        assert check.asks
        assert check.holds
        assert check.catches
        assert (check.attempt is None) is not (check.survey is None)
    assert [check.id for check in mine() if check.tier is Tier.SMOKE] == ["O01"]


def test_no_filler_looks_like_a_reference() -> None:
    assert not NONCE.search(filler.filler(Random(1), 20_000))  # noqa: S311 - to be repeated
