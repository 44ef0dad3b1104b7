"""What one emulated engine was told to be. Frozen: nothing changes these while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .faults import FaultSetting

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Dialect(StrEnum):
    """Whose wire format is spoken: vLLM 0.32, vLLM up to 0.11, SGLang 0.5.23, llama.cpp's server, smg's gRPC router."""

    VLLM = "vllm"
    VLLM_OLD = "vllm-old"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    SMG = "smg"

    @property
    def is_vllm(self) -> bool:
        return self in (Dialect.VLLM, Dialect.VLLM_OLD)


class Headers(StrEnum):
    """When a streamed answer's response headers leave: at once, or together with the first token."""

    EARLY = "early"
    LATE = "late"


class Thinking(StrEnum):
    """The model's habit when a request does not say: think, do not; or have no such switch at all."""

    ON = "on"
    OFF = "off"
    NEVER = "never"
    ALWAYS = "always"

    @property
    def has_switch(self) -> bool:
        return self in (Thinking.ON, Thinking.OFF)


THINKING_SWITCHES = ("enable_thinking", "thinking", "thinking_mode", "reasoning_effort")


@dataclass(frozen=True, slots=True)
class Timing:
    """When tokens are due. Times in milliseconds; `prefill_tok_per_s` 0 means that prompts cost nothing."""

    ttft_ms: float
    itl_ms: float
    prefill_tok_per_s: float = 0.0
    tokens_per_chunk: int = 1
    step_base_ms: float | None = None
    step_per_seq_ms: float = 0.0
    cliff_at: int = 0
    cliff_factor: float = 1.0

    @property
    def at_once(self) -> bool:
        """Whether all of an answer is due in the instant of its first token."""
        return self.step_base_ms is None and not self.itl_ms

    def first_token_ns(self, prefill_tokens: int) -> int:
        """Nanoseconds from admission to the first token, for so many prompt tokens not found in the prefix cache."""
        prefill_ns = prefill_tokens / self.prefill_tok_per_s * NS_PER_S if self.prefill_tok_per_s else 0.0
        return round(self.ttft_ms * NS_PER_MS + prefill_ns)

    def gap_ns(self, running: int, tokens: int) -> int:
        """Nanoseconds between two chunks while `running` streams run; `tokens` ride on the second one.

        Under the step law one step yields one chunk, however many tokens speculation put in it;
        without it every token costs the inter-token time.
        """
        if self.step_base_ms is None:
            gap_ms = self.itl_ms * tokens
        else:
            gap_ms = self.step_base_ms + self.step_per_seq_ms * running
        if self.cliff_at and running >= self.cliff_at:
            gap_ms *= self.cliff_factor
        return round(gap_ms * NS_PER_MS)


@dataclass(frozen=True, slots=True)
class Settings:
    host: str
    port: int
    models: tuple[str, ...]
    dialect: Dialect
    timing: Timing
    headers: Headers
    lockstep: bool
    thinking: Thinking
    thinking_switch: str  # the one spelling of the switch that the model knows; "any": all of `THINKING_SWITCHES`
    keeps_reasoning: bool
    right: Mapping[str, float]  # behaviour → how often the model is right; "" for all that are not named
    slots: int
    seed: int
    start_s: float
    listen_early: bool
    shutdown_timeout_s: float
    max_model_len: int
    kv_tokens: int
    answer_tokens: int
    tensor_parallel: int
    workers: int
    vram_mib: int
    cache_report: bool
    realtime: bool
    faults: tuple[FaultSetting, ...]
    port_file: Path | None
    truth_file: Path | None
    api_key: str | None
