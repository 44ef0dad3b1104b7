"""What holds under every engine.

A topology file that breaks these is refused when it is read; a release that an earlier version accepted is found here.
"""

from __future__ import annotations

from launch.compat import EVERY_ENGINE, Facts, Level, Rule
from launch.engines import base
from launch.topology_rules import OWNED_ENV


def ours_as_flag(facts: Facts) -> str | None:
    """A flag that Cutover sets itself: address, port, model, served name, cards."""
    for _, name in base.flag_names(facts.told.flags):
        owned = base.meant_flag(facts.kind, name, facts.kind.owned_flags)
        if owned is not None:
            return f"{name}, {facts.kind.owned_flags[owned]}"
    return None


def ours_in_env(facts: Facts) -> str | None:
    """A variable that the attempt sets itself: CUDA_VISIBLE_DEVICES, HOST, PORT, CUTOVER_…"""
    owned = {**OWNED_ENV, **facts.kind.owned_env}
    found = (name for name in facts.told.env if name in owned or name.startswith("CUTOVER_"))
    return next((f"{name} in env" for name in found), None)


def too_few_gpus(facts: Facts) -> str | None:
    """Tensor x pipeline x data parallel ask for more GPUs than the instance has."""
    wanted = facts.kind.gpus_wanted(facts.topology.flags)
    if wanted is None or not facts.gpu_count or wanted <= facts.gpu_count:
        return None
    return f"the flags ask for {wanted} GPUs, and the instance has {facts.gpu_count}"


def idle_gpus(facts: Facts) -> str | None:
    """Tensor x pipeline x data parallel use fewer GPUs than the instance has."""
    wanted = facts.kind.gpus_wanted(facts.topology.flags)
    if wanted is None or wanted >= facts.gpu_count:
        return None
    return f"the flags use {wanted} of the {facts.gpu_count} GPUs of the instance"


def fp8_cache_on_old_card(facts: Facts) -> str | None:
    """An FP8 KV cache (fp8, fp8_e4m3, fp8_e5m2) on a card before sm_75, as a V100."""
    cache = facts.told.value("--kv-cache-dtype") or ""
    if not cache.startswith("fp8") or facts.compute_capability >= (7, 5):
        return None
    major, minor = facts.compute_capability
    return f"--kv-cache-dtype {cache} on a card of compute capability {major}.{minor}"


RULES = (
    Rule(
        id="ours-flag",
        engine=EVERY_ENGINE,
        level=Level.REFUSE,
        condition=ours_as_flag,
        message="the launch script sets it, and the last one would win",
        remedy="remove it",
        source=("docs/launch-contract.md",),
    ),
    Rule(
        id="ours-env",
        engine=EVERY_ENGINE,
        level=Level.REFUSE,
        condition=ours_in_env,
        message="the attempt sets it, per start",
        remedy="remove it; which cards an instance gets is said in instances.*.gpus",
        source=("docs/launch-contract.md",),
    ),
    Rule(
        id="gpus-short",
        engine=EVERY_ENGINE,
        level=Level.REFUSE,
        condition=too_few_gpus,
        message="the engine would not start on them",
        remedy="make them agree",
        source=("docs/topology.md",),
    ),
    Rule(
        id="gpus-idle",
        engine=EVERY_ENGINE,
        level=Level.WARN,
        condition=idle_gpus,
        message="the others are held and idle",
        remedy="make them agree",
        source=("docs/topology.md", "field notes §1: a topology must occupy the cards that it claims"),
    ),
)
