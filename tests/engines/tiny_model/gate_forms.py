"""How often the tiny model is right on the plainest questions about tools: fresh prompts, greedy decoding, bfloat16.

PYTHONPATH=../../.. python gate_forms.py MODEL_DIR [ROUNDS]     # 5 questions a round: 3 calls, 2 answers
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

from gates.acceptance import tools
from gates.text import folded, holds


@dataclass(frozen=True)
class Case:
    prompt: str
    tools: tuple[tools.Tool, ...]
    called: str
    expected: Mapping[str, Any]
    result: str = ""
    canary: str = ""


def weather(rng: Random, ref: str) -> Case:
    city, value = rng.choice(tools.CITIES), tools.temperature(rng)
    prompt = f"[ref {ref}] What is the weather in {city} right now? Use the tool, unit c."
    result = json.dumps({"temp_c": float(value), "sky": "dust haze"})
    return Case(prompt, (tools.WEATHER,), "get_weather", {"city": city}, result, value)


def record(rng: Random, ref: str) -> Case:
    record_id, value = tools.record_id(rng), tools.code(rng)
    prompt = f"[ref {ref}] Look up record {record_id} with the tool and tell me its code."
    offered = (tools.CLOCK, tools.WEATHER, tools.RECORD)
    result = json.dumps({"record": record_id, "code": int(value)})
    return Case(prompt, offered, "lookup_record", {"record_id": record_id}, result, value)


def clock(rng: Random, ref: str) -> Case:
    del rng
    return Case(f"[ref {ref}] What time is it on the server? Use the tool.", (tools.CLOCK,), "get_server_time", {})


CASES = {"weather": weather, "record": record, "clock": clock}


class Model:
    def __init__(self, directory: str) -> None:
        self.tok = PreTrainedTokenizerFast.from_pretrained(directory)
        self.net = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
        self.template = (Path(directory) / "chat_template.jinja").read_text()

    @torch.inference_mode()
    def write(self, messages: list[Any], tools: list[Any], *, thinking: bool) -> str:
        (text,), _ = render_jinja_template(
            [messages],
            tools=tools,
            chat_template=self.template,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        ids = self.tok(text, add_special_tokens=False, return_tensors="pt").input_ids
        mask = torch.ones_like(ids)
        out = self.net.generate(ids, attention_mask=mask, do_sample=False, top_k=None, max_new_tokens=80)
        return self.tok.decode(out[0, ids.shape[1] :])


def called(written: str, case: Case) -> dict[str, Any] | None:
    """The one call of the right tool with the asked arguments; None when it is anything else."""
    try:
        call = json.loads(written.split("<tool_call>")[1].split("</tool_call>", maxsplit=1)[0])
    except (IndexError, ValueError):
        return None
    right = all(folded(call["arguments"].get(k)) == folded(v) for k, v in case.expected.items())
    return call if right and call["name"] == case.called and written.count("<tool_call>") == 1 else None


def main() -> None:
    torch.set_num_threads(1)
    model, rounds = Model(sys.argv[1]), int((sys.argv[2:] or ["100"])[0])
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for number in range(rounds):
        for name, make in CASES.items():
            rng = Random(f"{number}/{name}")  # noqa: S311 - must be repeatable
            ref = f"{rng.randbytes(2).hex().upper()[:3]}-{rng.randbytes(2).hex().upper()[:3]}"
            case, thinking = make(rng, ref), number % 2 == 0
            messages: list[Any] = [{"role": "user", "content": case.prompt}]
            call = called(model.write(messages, list(case.tools), thinking=thinking), case)
            asked[name] += 1
            right[name] += call is not None
            if call is None or not case.canary:
                continue
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
                {"role": "tool", "content": case.result},
            ]
            said = model.write(messages, list(case.tools), thinking=thinking).split("</think>")[-1]
            asked[f"{name}, answer"] += 1
            right[f"{name}, answer"] += holds(said, case.canary) and "<tool_call>" not in said
    print({name: f"{right[name]} of {count}" for name, count in asked.items()})


if __name__ == "__main__":
    main()
