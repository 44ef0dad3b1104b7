"""What a real vLLM shows while it prefills: no token and no step is counted, and the use of its KV pool moves."""

import threading

import pytest

from gates.counters import Counters, read_counters
from gates.endpoint import Endpoint

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]


def test_while_a_prompt_is_prefilled_only_the_pool_moves(serve):
    """The premise of `core.silence`; chunks of 16 tokens make a prompt of 3,000 long enough to be looked at."""
    server = serve("prefill", "--max-num-batched-tokens", "16")
    seen: list[Counters] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            page = read_counters(f"{server.url}/metrics", timeout_s=5.0)
            if page is not None:
                seen.append(page)

    watcher = threading.Thread(target=look)
    watcher.start()
    body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "a word and another " * 700}]}
    try:
        answer = Endpoint.at(server.url).chat(body, timeout_s=300.0)
    finally:
        done.set()
        watcher.join()
    assert answer.status == 200, answer.body
    busy = [page for page in seen if page.running and page.progress == seen[0].progress]
    pools = [page.kv_usage for page in busy]
    print(f"{len(seen)} looks, {len(busy)} before the first token; pool {min(pools):.4f} to {max(pools):.4f}")
    assert len(set(pools)) > 3
    assert pools == sorted(pools)
