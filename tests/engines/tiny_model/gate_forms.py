"""How often the tiny model is right on what the gate `toolcalls` asks: fresh prompts, greedy decoding, bfloat16.

PYTHONPATH=../../.. python gate_forms.py MODEL_DIR [ROUNDS]     # 5 questions a round: 3 calls, 2 answers
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

from gates.toolcalls import cases


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


def called(written: str, case: cases.Case) -> dict[str, Any] | None:
    """The one call of the right tool with the asked arguments; None when it is anything else."""
    try:
        call = json.loads(written.split("<tool_call>")[1].split("</tool_call>", maxsplit=1)[0])
    except (IndexError, ValueError):
        return None
    right = all(cases.folded(call["arguments"].get(k)) == cases.folded(v) for k, v in case.expected.items())
    return call if right and call["name"] == case.called and written.count("<tool_call>") == 1 else None


def main() -> None:
    torch.set_num_threads(1)
    model, rounds = Model(sys.argv[1]), int((sys.argv[2:] or ["100"])[0])
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for number in range(rounds):
        for name, make in cases.BUILT_IN.items():
            case, thinking = make(), number % 2 == 0
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
            right[f"{name}, answer"] += cases.holds(said, case.canary) and "<tool_call>" not in said
    print({name: f"{right[name]} of {count}" for name, count in asked.items()})


if __name__ == "__main__":
    main()
