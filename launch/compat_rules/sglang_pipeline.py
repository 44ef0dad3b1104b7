"""What SGLang's speculation and its pipeline do not take together. Read in the source of 0.5.23."""

from __future__ import annotations

from launch.compat import Facts, Level, Rule
from launch.compat_rules.sglang import CHECKED, VALIDATION_HOOK, attention_ranks, ranks, stages

_PIPELINE_ABLE = frozenset({"EAGLE", "NEXTN"})  # NEXTN is EAGLE by another name
_OWN_RULE = frozenset({"DFLASH", "DSPARK", "UNO"})
_SPECULATIVE_HOOK = "sglang/srt/arg_groups/speculative_hook.py"


def _algorithm(facts: Facts) -> str:
    return (facts.told.value("--speculative-algorithm") or "").upper()


def _piped(facts: Facts, algorithm: str) -> str | None:
    """The words for an algorithm under a pipeline; a server that only prefills for another one is let through."""
    only_prefills = facts.told.value("--disaggregation-mode") == "prefill"
    if algorithm != _algorithm(facts) or stages(facts) == 1 or only_prefills:
        return None
    return f"--speculative-algorithm {algorithm} with --pp-size {stages(facts)}"


def dflash_piped(facts: Facts) -> str | None:
    """DFLASH speculation with more than one pipeline stage."""
    if _algorithm(facts) != "DFLASH" or stages(facts) == 1:
        return None
    return f"--speculative-algorithm DFLASH with --pp-size {stages(facts)}"


def dspark_piped(facts: Facts) -> str | None:
    """DSpark speculation with more than one pipeline stage, unless the server only prefills."""
    return _piped(facts, "DSPARK")


def uno_parallel(facts: Facts) -> str | None:
    """UNO speculation with more than one tensor parallel rank or pipeline stage."""
    if _algorithm(facts) != "UNO" or (ranks(facts), stages(facts)) == (1, 1):
        return None
    return f"--speculative-algorithm UNO with --tp-size {ranks(facts)} and --pp-size {stages(facts)}"


def eagle_piped(facts: Facts) -> str | None:
    """EAGLE (NEXTN, MTP) speculation with a pipeline, without SGLANG_ENABLE_PP_SPEC=1."""
    if facts.told.switched_on("SGLANG_ENABLE_PP_SPEC"):
        return None
    return next((words for name in sorted(_PIPELINE_ABLE) if (words := _piped(facts, name))), None)


def eagle_piped_with_more(facts: Facts) -> str | None:
    """SGLANG_ENABLE_PP_SPEC=1 together with attention data parallelism or adaptive speculation."""
    if not facts.told.switched_on("SGLANG_ENABLE_PP_SPEC") or stages(facts) == 1 or not _algorithm(facts):
        return None
    if facts.told.has("--speculative-adaptive"):
        return "SGLANG_ENABLE_PP_SPEC with --speculative-adaptive"
    return "SGLANG_ENABLE_PP_SPEC with attention data parallelism" if attention_ranks(facts) < ranks(facts) else None


def other_piped(facts: Facts) -> str | None:
    """Another speculation (EAGLE3, NGRAM, STANDALONE, …) with more than one pipeline stage."""
    algorithm = _algorithm(facts)
    if not algorithm or algorithm in _PIPELINE_ABLE or algorithm in _OWN_RULE or stages(facts) == 1:
        return None
    return f"--speculative-algorithm {algorithm} with --pp-size {stages(facts)}"


def dflash_without_draft(facts: Facts) -> str | None:
    """DFLASH without a draft model."""
    drafted = facts.told.has("--speculative-draft-model-path", "--speculative-draft-model")
    return "DFLASH without --speculative-draft-model-path" if _algorithm(facts) == "DFLASH" and not drafted else None


def uno_without_lora(facts: Facts) -> str | None:
    """UNO without its adapter, or with a draft model."""
    if _algorithm(facts) != "UNO":
        return None
    if facts.told.has("--speculative-draft-model-path", "--speculative-draft-model"):
        return "UNO with --speculative-draft-model-path"
    return None if facts.told.has("--uno-lora-path") else "UNO without --uno-lora-path"


def custom_all_reduce_piped(facts: Facts) -> str | None:
    """A pipeline of tensor parallel stages without --disable-custom-all-reduce."""
    fragile = stages(facts) > 1 and ranks(facts) > 1 and not facts.told.has("--disable-custom-all-reduce")
    return f"--pp-size {stages(facts)} without --disable-custom-all-reduce" if fragile else None


RULES = (
    Rule(
        id="sglang-dflash-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=dflash_piped,
        message="the engine refuses to start: DFLASH works with one pipeline stage only",
        remedy="drop the speculation or the pipeline",
        source=(f"{_SPECULATIVE_HOOK}: “DFLASH speculative decoding only supports pp_size == 1”", "field notes §3"),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-dspark-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=dspark_piped,
        message="the engine refuses to start: DSpark works with one pipeline stage only",
        remedy="drop the speculation or the pipeline",
        source=(f"{_SPECULATIVE_HOOK}: “DSpark pipeline parallelism requires PD prefill”", "field notes §3"),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-uno-parallel",
        engine="sglang",
        level=Level.REFUSE,
        condition=uno_parallel,
        message="the engine refuses to start: UNO works on one card only",
        remedy="one card per instance and a router in front, or another speculation",
        source=(f"{_SPECULATIVE_HOOK}: “UNO requires TP=PP=1”", "field notes §3"),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-eagle-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=eagle_piped,
        message="the engine refuses to start: speculation under a pipeline has to be allowed",
        remedy='set SGLANG_ENABLE_PP_SPEC: "1" in env, or drop the speculation or the pipeline',
        source=(f"{VALIDATION_HOOK}, check_pipeline_parallel_compat", "field notes §3"),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-eagle-pipeline-limits",
        engine="sglang",
        level=Level.REFUSE,
        condition=eagle_piped_with_more,
        message="the engine refuses to start: the stages must all see the same batch and the same draft length",
        remedy="drop one of the two",
        source=(f"{VALIDATION_HOOK}, check_pipeline_parallel_compat: “SGLANG_ENABLE_PP_SPEC is not compatible”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-speculation-pipeline",
        engine="sglang",
        level=Level.REFUSE,
        condition=other_piped,
        message="the engine refuses to start: under a pipeline only EAGLE speculates",
        remedy="drop the speculation or the pipeline",
        source=(f"{VALIDATION_HOOK}: “Pipeline parallelism currently only supports EAGLE”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-dflash-draft",
        engine="sglang",
        level=Level.REFUSE,
        condition=dflash_without_draft,
        message="the engine refuses to start",
        remedy="add --speculative-draft-model-path",
        source=(f"{_SPECULATIVE_HOOK}: “DFLASH speculative decoding requires setting --speculative-draft-model-path”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-uno-adapter",
        engine="sglang",
        level=Level.REFUSE,
        condition=uno_without_lora,
        message="the engine refuses to start: UNO drafts with the model itself and an adapter",
        remedy="give --uno-lora-path, and no draft model",
        source=(f"{_SPECULATIVE_HOOK}: “UNO requires --uno-lora-path”",),
        versions=CHECKED,
    ),
    Rule(
        id="sglang-all-reduce-pipeline",
        engine="sglang",
        level=Level.WARN,
        condition=custom_all_reduce_piped,
        message="custom all-reduce is fragile under a pipeline",
        remedy="add --disable-custom-all-reduce",
        source=("field notes §3",),
    ),
)
