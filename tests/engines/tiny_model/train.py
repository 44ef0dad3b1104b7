"""Trains and judges the tiny Qwen3-architecture model that the real-engine tests and `demo --engine vllm` serve.

    python train.py --out DIR                # tokenizer, weights, configuration; hours on one core, minutes on many
    python train.py --out DIR --evaluate     # greedy decoding of fresh prompts
    python train.py --out DIR --export TO    # bfloat16 weights, as they are committed

Needs torch, transformers, tokenizers and safetensors: the engine's own venv has them. One thread by default.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import tokenizer as tiny_tokenizer
import torch
from dialogues import Dialogue, dialogue
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.chat_template_utils import render_jinja_template

LENGTHS = (48, 64, 96, 128, 192, 256, 384, 512, 704)
BATCH_TOKENS = 4096
EASY_SHARE = 0.12  # of the training goes by while the dialogues grow from short to the whole breadth
EMA = 0.998


def render(talk: Dialogue) -> str:
    return render_jinja_template(
        [talk.messages], tools=talk.tools or None, chat_template=tiny_tokenizer.TEMPLATE, enable_thinking=talk.thinking
    )[0][0]


@dataclass(frozen=True)
class Marks:
    """Token ids that frame an assistant's turn."""

    start: tuple[int, ...]  # <|im_start|>assistant\n
    no_thought: tuple[int, ...]  # the empty block that the template puts in
    end: int

    @classmethod
    def of(cls, tok: PreTrainedTokenizerFast) -> Marks:
        def ids(text: str) -> tuple[int, ...]:
            return tuple(tok(text, add_special_tokens=False).input_ids)

        return cls(ids("<|im_start|>assistant\n"), ids("<think>\n\n</think>\n\n"), ids("<|im_end|>")[0])

    def spans(self, ids: list[int]) -> Iterator[tuple[int, int]]:
        """[from, to) of what the model itself has to write in each assistant turn, end mark included."""
        n, k = len(self.start), len(self.no_thought)
        at = 0
        while at < len(ids):
            if tuple(ids[at : at + n]) == self.start:
                begin = at + n
                if tuple(ids[begin : begin + k]) == self.no_thought:
                    begin += k
                at = ids.index(self.end, begin) + 1
                yield begin, at
            else:
                at += 1


def batches(rng: Random, tok: PreTrainedTokenizerFast, ease: list[float]) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of about BATCH_TOKENS tokens: ids and, at the positions that predict, the next id (else -100)."""
    marks = Marks.of(tok)
    waiting: dict[int, list[list[int]]] = defaultdict(list)
    while True:
        ids = tok(render(dialogue(rng, ease=ease[0])), add_special_tokens=False).input_ids
        length = next((n for n in LENGTHS if n >= len(ids)), None)
        if length is None:
            continue
        waiting[length].append(ids)
        if len(waiting[length]) * length < BATCH_TOKENS:
            continue
        rows = waiting.pop(length)
        x = torch.full((len(rows), length), tok.pad_token_id)
        y = torch.full((len(rows), length), -100)
        for row, each in enumerate(rows):
            x[row, : len(each)] = torch.tensor(each)
            for begin, end in marks.spans(each):
                y[row, begin - 1 : end - 1] = x[row, begin:end]
        yield x, y


def new_model(vocabulary: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=math.ceil(vocabulary / 64) * 64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    for name, parameter in model.named_parameters():
        # Queries and keys are normalised: at gain 1 no head could look sharply at one token of hundreds.
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            nn.init.constant_(parameter, 1.6)
    return model


def optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon turns the matrices (about twice as quick to learn as AdamW here), AdamW the embedding and the gains."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=5e-3, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate(progress: float) -> float:
    """Learning rate as a share of the highest: short warm-up, then a cosine down to a hundredth."""
    return min(1.0, progress / 0.02) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def save(model: Qwen3ForCausalLM, weights: dict[str, Tensor], tok: PreTrainedTokenizerFast, out: Path) -> None:
    """Configuration says bfloat16, which is what engines compute in; the weights keep their float32 to go on from."""
    model.config.dtype = "bfloat16"
    model.config.bos_token_id = None
    model.config.eos_token_id = tok.eos_token_id
    model.config.pad_token_id = tok.pad_token_id
    model.save_pretrained(out, state_dict={k: v.clone() for k, v in weights.items() if k != "lm_head.weight"})
    tok.save_pretrained(out)
    # top_k 1: whatever temperature a client asks for, the likeliest answer comes. No dice in a test instrument.
    generation = {"eos_token_id": tok.eos_token_id, "pad_token_id": tok.pad_token_id, "do_sample": True, "top_k": 1}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def train(out: Path, tokens: int, seed: int, *, resume: Path | None, compiled: bool) -> None:
    torch.manual_seed(seed)
    rng = Random(seed)  # noqa: S311 - the same dialogues for the same seed
    if resume:
        tok = PreTrainedTokenizerFast.from_pretrained(resume, chat_template=tiny_tokenizer.TEMPLATE)
        model = Qwen3ForCausalLM.from_pretrained(resume, dtype=torch.float32)
    else:
        tok = tiny_tokenizer.build([render(dialogue(rng)) for _ in range(12_000)], at_least=20)
        model = new_model(len(tok))
    print(f"{len(tok)} tokens in the vocabulary, {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    # One compilation for all shapes, a minute and a half; with bfloat16 products it then runs 1.6 times as fast.
    body = torch.compile(model.model, dynamic=True) if compiled else model.model
    turning = optimizers(model)
    top = [o.param_groups[0]["lr"] for o in turning]
    mean = {k: v.detach().clone() for k, v in model.state_dict().items()}
    seen, step, began, saved, recent = 0, 0, time.monotonic(), 0.0, [0.0, 0]
    ease = [0.0 if resume else 1.0]
    for x, y in batches(rng, tok, ease):
        progress = seen / tokens
        if progress >= 1:
            break
        ease[0] = 0.0 if resume else max(0.0, 1 - progress / EASY_SHARE)
        for optimizer, lr in zip(turning, top, strict=True):
            optimizer.param_groups[0]["lr"] = lr * rate(progress) * (0.5 if resume else 1.0)
        chosen = y != -100
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=compiled):
            logits = model.lm_head(body(input_ids=x).last_hidden_state[chosen])
        loss = functional.cross_entropy(logits.float(), y[chosen])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in turning:
            optimizer.step()
            optimizer.zero_grad()
        for key, value in model.state_dict().items():
            mean[key].lerp_(value, 1 - min(EMA, step / (step + 10)))
        seen, step = seen + x.numel(), step + 1
        recent = [recent[0] + loss.item(), recent[1] + 1]
        if step % 50 == 0:
            pace = seen / (time.monotonic() - began)
            print(f"step {step} {progress:.1%} loss {recent[0] / recent[1]:.4f} {pace:,.0f} tokens/s", flush=True)
            recent = [0.0, 0]
        if time.monotonic() - saved > 120:
            save(model, mean, tok, out)
            saved = time.monotonic()
    save(model, mean, tok, out)


def fresh_prompts(
    rng: Random, tok: PreTrainedTokenizerFast, count: int
) -> Iterator[tuple[str, Dialogue, list[int], list[int]]]:
    """(kind, dialogue, prompt ids, right ids): one assistant turn of each dialogue, everything before it is given."""
    marks = Marks.of(tok)
    given = 0
    while given < count:
        talk = dialogue(rng)
        ids = tok(render(talk), add_special_tokens=False).input_ids
        spans = list(marks.spans(ids))
        turns = [i for i, m in enumerate(talk.messages) if m["role"] == "assistant"]
        last_user = max(i for i, m in enumerate(talk.messages) if m["role"] == "user")
        pick = rng.randrange(len(spans))
        if talk.kind == "story" or (talk.thinking and turns[pick] < last_user):
            continue
        message, before = talk.messages[turns[pick]], talk.messages[turns[pick] - 1]
        kind = "answer" if before["role"] == "tool" else "plain or echo"
        if message.get("tool_calls"):
            named = message["tool_calls"][0]["function"]["name"] in before["content"]
            kind = (
                "call, one tool or named" if named or len(talk.tools) == 1 else "call, one of several by what it is for"
            )
        given += 1
        yield kind, talk, ids[: spans[pick][0]], ids[spans[pick][0] : spans[pick][1]]


@torch.inference_mode()
def evaluate(out: Path, count: int, seed: int, *, show: int, precision: torch.dtype) -> dict[str, float]:
    """Share of turns that greedy decoding writes exactly as they should be, by kind."""
    tok = PreTrainedTokenizerFast.from_pretrained(out)
    model = Qwen3ForCausalLM.from_pretrained(out, dtype=precision)
    model.eval()
    rng = Random(seed)  # noqa: S311 - the same prompts for the same seed
    items = sorted(fresh_prompts(rng, tok, count), key=lambda item: len(item[2]))
    right: dict[str, list[bool]] = defaultdict(list)
    for first in range(0, len(items), 32):
        group = items[first : first + 32]
        width = max(len(prompt) for _, _, prompt, _ in group)
        ids = torch.tensor([[tok.pad_token_id] * (width - len(p)) + p for _, _, p, _ in group])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for _, _, p, _ in group])
        written = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            top_k=None,
            max_new_tokens=max(len(wanted) for *_, wanted in group) + 1,
        )[:, width:].tolist()
        for (kind, _talk, prompt, wanted), got in zip(group, written, strict=True):
            right[kind].append(got[: len(wanted)] == wanted)
            if not right[kind][-1] and show > 0:
                show -= 1
                print(f"--- {kind}\n{tok.decode(prompt)[-500:]}\nwanted {tok.decode(wanted)}\ngot    {tok.decode(got)}")
    report = {kind: sum(hits) / len(hits) for kind, hits in sorted(right.items())}
    report["all"] = sum(map(sum, right.values())) / len(items)
    print(json.dumps({"prompts": len(items), **{k: len(v) for k, v in right.items()}}))
    print(json.dumps({k: round(v, 4) for k, v in report.items()}), flush=True)
    return report


def export(out: Path, target: Path) -> None:
    """What is committed: the weights in the precision that engines compute in, half the size."""
    tok = PreTrainedTokenizerFast.from_pretrained(out, chat_template=tiny_tokenizer.TEMPLATE)
    model = Qwen3ForCausalLM.from_pretrained(out, dtype=torch.bfloat16)
    save(model, model.state_dict(), tok, target)
    (target / "model.safetensors").chmod(0o644)
    print(hashlib.sha256((target / "model.safetensors").read_bytes()).hexdigest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="model directory")
    parser.add_argument("--tokens", type=float, default=40e6, help="how much to train on")
    parser.add_argument("--resume", type=Path, help="go on from this model directory, at a lower learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="needs a C++ compiler")
    parser.add_argument("--export", type=Path, metavar="DIR", help="write what is to be committed, and its sha256")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16", help="engines use bfloat16")
    parser.add_argument("--show", type=int, default=0, help="print so many wrong turns")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.export:
        export(given.out, given.export)
    elif given.evaluate:
        evaluate(
            given.out, given.prompts, 10_000 + given.seed, show=given.show, precision=getattr(torch, given.precision)
        )
    else:
        train(given.out, int(given.tokens), given.seed, resume=given.resume, compiled=given.compile)


if __name__ == "__main__":
    main()
