"""Workloads: what is asked, how long, how often the same; what two measurements must share to be compared."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from gates.strict import StrictModel

Scene = Literal["chronicle", "code", "technical", "dialogue_zh", "prose_zh"]
PROMPTS_VERSION: Final = 1
"""Speculation lives off the text: prompts of another version are another workload."""


class Workload(StrictModel):
    """One kind of request. Lengths in tokens as the server counts them (`usage`), chat template included."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,40}$")
    scene: Scene = "chronicle"
    prompt_tokens: int | Literal["limit"] | None = Field(default=200)
    """About so many, `limit`: as many as the context takes besides the answer; null: the scene's bare question."""
    prompt_tokens_max: int | None = Field(default=None, gt=0)
    """With it prompts are mixed: spread evenly from `prompt_tokens` to here."""
    answer_tokens: int = Field(default=256, ge=8)
    answer_tokens_max: int | None = Field(default=None, gt=0)
    """With it answers are mixed."""
    prompts: Literal["different", "same"] = "different"
    """`same`: all streams of a round ask the same, which is what a prefix cache can give at most."""
    prefix: Literal["cold", "warm"] = "cold"
    """`warm`: each prompt was answered once, just before."""
    ignore_eos: bool = True
    """Ask for answers of exactly the wanted length. False: the model ends when it likes, and that counts."""
    thinking_off: bool = False
    """Throw the switch also where the capability does not declare one."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    concurrency: tuple[int | Literal["limit", "beyond"], ...] = Field(default=(), strict=False)
    """Rungs of its own instead of the ladder's."""

    @model_validator(mode="after")
    def _ordered(self) -> Workload:
        if isinstance(self.prompt_tokens, int) and self.prompt_tokens < 1:
            raise ValueError("prompt_tokens is at least 1")
        if self.prompt_tokens_max is not None and not isinstance(self.prompt_tokens, int):
            raise ValueError("prompt_tokens_max needs prompt_tokens as a number")
        if isinstance(self.prompt_tokens, int) and self.prompt_tokens > (self.prompt_tokens_max or self.prompt_tokens):
            raise ValueError("prompt_tokens_max is below prompt_tokens")
        if self.answer_tokens > self.longest_answer:
            raise ValueError("answer_tokens_max is below answer_tokens")
        if any(isinstance(rung, int) and rung < 1 for rung in self.concurrency):
            raise ValueError("concurrency is at least 1")
        return self

    @property
    def longest_answer(self) -> int:
        return self.answer_tokens_max or self.answer_tokens

    def answer_length(self, position: int) -> int:
        """Tokens asked of request number `position` of a round: the same in every run, so that runs compare."""
        return _spread(self.answer_tokens, self.longest_answer, position)

    def prompt_length(self, position: int, context_tokens: int | None) -> int | None:
        """Prompt tokens of request number `position` of a round; None for the bare question."""
        if self.prompt_tokens == "limit":
            return room(context_tokens, self.longest_answer) if context_tokens else None
        if self.prompt_tokens is None or self.prompt_tokens_max is None:
            return self.prompt_tokens
        # Another phase than the answers': long prompts must not always get the long answers.
        return _spread(self.prompt_tokens, self.prompt_tokens_max, position + 3)

    def impossible(self, context_tokens: int | None) -> str | None:
        """Why no such request fits into the context; None when it does, or when nobody knows how long that is."""
        if self.prompt_tokens == "limit":
            if context_tokens is None:
                return "how long its context is the endpoint does not say: declare max_context_tokens"
            return None if room(context_tokens, self.longest_answer) > 0 else _too_long(0, self, context_tokens)
        longest = self.prompt_tokens_max or self.prompt_tokens or 0
        if context_tokens is not None and longest + self.longest_answer > context_tokens:
            return _too_long(longest, self, context_tokens)
        return None

    def plain(self) -> dict[str, Any]:
        """Everything that makes it what it is; its own rungs are no part of that."""
        plain = self.model_dump(mode="json", exclude={"name", "concurrency"}, exclude_none=True)
        return {**plain, "prompts_version": PROMPTS_VERSION}


def room(context_tokens: int, answer_tokens: int) -> int:
    """Prompt tokens that fit beside the answer. Texts of one length differ by a few percent, so four are left free."""
    return context_tokens - answer_tokens - max(16, context_tokens // 25)


def _too_long(prompt_tokens: int, workload: Workload, context_tokens: int) -> str:
    return (
        f"{prompt_tokens} tokens of prompt and {workload.longest_answer} of answer do not fit into the context "
        f"of {context_tokens}"
    )


def _spread(low: int, high: int, position: int) -> int:
    # Multiples of the golden ratio fill an interval evenly, however many of them are taken.
    return low + round((high - low) * (position * 0.618034 % 1.0))


CHAT: Final = Workload(name="chat")
"""The default: about 200 tokens in, 256 out, no prompt twice."""
