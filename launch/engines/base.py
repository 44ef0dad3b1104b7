"""What an engine is to us: how to start it, what it must not be told, and what its counters are called.

One file per engine next to this one; everything here is data that a launch script, a probe or a plan reads. The
engine's own flags are the user's: passed verbatim and in order. We add what we own (address, model, served name,
internal ports) and refuse a flag that would fight it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from launch.engines.sleeping import Sleeping
    from launch.told import Told
    from launch.topology import Topology


@dataclass(frozen=True)
class Expand:
    """A word of a launch script that bash expands at run time, such as ``$PORT``; rendered in double quotes."""

    text: str


Word = str | Expand
Line = tuple[Word, ...]
"""A flag with its values: one line of the script's command."""

HOST = Expand("$HOST")
PORT = Expand("$PORT")
FIRST_INTERNAL_PORT = Expand("$internal_port")
"""The attempt's CUTOVER_PORT_FIRST, or one above PORT where that is PORT itself; the launch script sets it."""


@dataclass(frozen=True)
class MetricNames:
    """The engine's own Prometheus names; None where it does not count such a thing."""

    running: str
    """Gauge: requests being computed."""
    waiting: str
    """Gauge: requests queued in the engine."""
    generation_tokens_total: str
    prompt_tokens_total: str
    preemptions_total: str | None
    kv_usage_ratio: str | None
    """Gauge 0..1."""
    cached_tokens_total: str | None
    """Prompt tokens answered by the prefix cache."""
    progress: tuple[str, ...]
    """Counters of which at least one moves while the engine works, a long prefill included where it can be told."""


@dataclass(frozen=True)
class PoolMetric:
    """A metric that tells the size of the KV pool in tokens: as the product of these labels, else as its value."""

    name: str
    labels: tuple[str, ...] = ()


class Program(Protocol):
    """What an engine and a router have in common: flags of which some are ours."""

    owned_flags: ClassVar[Mapping[str, str]]
    """Flag → why it is refused and what to do instead."""
    admin_flags: ClassVar[Mapping[str, str]] = {}
    """Flag → what it opens; needs the admin role."""
    abbreviates: ClassVar[bool] = True
    """True where ``--por`` is read as ``--port``, as argparse does."""
    whole_flags: ClassVar[frozenset[str]] = frozenset()
    """Flags that begin like one of the above and are none of them."""


class Engine(Program, Protocol):
    """A kind of model server. Implementations are stateless; get one with :func:`engine`."""

    name: ClassVar[str]
    needs_model: ClassVar[bool] = True
    default_command: ClassVar[tuple[str, ...]]
    """Program and leading words; the program is resolved to an absolute path when a release is frozen."""
    known_commands: ClassVar[frozenset[tuple[str, ...]]] = frozenset()
    """Commands (program's base name without a version, then words) that start this engine and nothing else."""
    package: ClassVar[str | None] = None
    """The Python package whose version and files are the engine's identity; None for a binary."""
    served_names_max: ClassVar[int | None] = None
    """How many served names one server of this kind can carry; None where there is no limit."""
    health_path: ClassVar[str] = "/health"
    metrics: ClassVar[MetricNames | None] = None
    metrics_flag: ClassVar[str | None] = None
    """The flag without which the engine shows no counters; None when it always does."""
    kv_pool_log: ClassVar[re.Pattern[str] | None] = None
    """Finds the size of the KV pool in the engine's log; group ``tokens``, digits with or without commas."""
    kv_pool_metrics: ClassVar[tuple[PoolMetric, ...]] = ()
    """The same among its metrics, for a log that does not say; the first that is there counts."""
    running_flags: ClassVar[tuple[str, ...]] = ()
    """The flags that say how many requests one server computes at once."""
    owned_env: ClassVar[Mapping[str, str]] = {}
    """Environment name → why it is refused and what to do instead."""
    admin_env: ClassVar[Mapping[str, str]] = {}
    """Environment name → what it opens; needs the admin role. A name that ends in ``*`` is a prefix."""

    def sleeping(self, told: Told) -> Sleeping | None:  # noqa: ARG002
        """How a server that was told this gives its memory back and takes it again; None when it cannot."""
        return None

    def key_variables(self, flags: Sequence[str]) -> tuple[str, ...] | None:  # noqa: ARG002
        """The engine's own names for the key that it then wants of its clients; None where no environment tells it."""
        return None

    def port_count(self, flags: Sequence[str]) -> int:  # noqa: ARG002  # engines that open more look at the flags
        """Consecutive ports one instance may open: the main one and its internal ones."""
        return 10

    def gpus_wanted(self, flags: Sequence[str]) -> int | None:  # noqa: ARG002
        """GPUs that the flags ask for; None when they do not say."""
        return None

    def metrics_for(self, flags: Sequence[str]) -> MetricNames | None:  # noqa: ARG002
        """The counters of a server started with these flags; ask this rather than :attr:`metrics`."""
        return self.metrics

    def arguments(self, topology: Topology) -> tuple[Line, ...]:
        """What we add after the command and before the user's flags."""
        ...

    def environment(self, topology: Topology) -> Mapping[str, Word]:  # noqa: ARG002
        """Environment that we add; a name that the topology sets itself is left alone."""
        return {}


ADMIN_ENV: Mapping[str, str] = {
    "LD_*": "chooses the code that the dynamic loader brings in",
    "PYTHON*": "chooses the Python code that is imported",
    "PATH": "chooses the programs that are found",
    "BASH_ENV": "is run by every bash",
    "ENV": "is run by every sh",
}
"""Environment that opens the box under every engine."""

IN_ARGV = "argv is readable by every user of the box"
SECRET_IN_ARGV = f"{IN_ARGV}; put the secret into env_file instead"
KEY_IN_ARGV = f"{IN_ARGV}; leave it out: the engine gets a key, which the front door brings to it"

_HARMLESS_ENV = frozenset({"PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER"})
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")
_SECRET_PARTS = frozenset({"TOKEN", "KEY", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"})


def engine(name: str) -> Engine:
    """The engine called `name`; KeyError when there is none (a topology is checked before)."""
    return engines()[name]


def engines() -> Mapping[str, Engine]:
    """Every engine by name."""
    from launch.engines.emulated import Emulated
    from launch.engines.llamacpp import LlamaCpp
    from launch.engines.script import Script
    from launch.engines.sglang import Sglang
    from launch.engines.vllm import Vllm

    known: tuple[Engine, ...] = (Vllm(), Sglang(), LlamaCpp(), Script(), Emulated())
    return {one.name: one for one in known}


def flag_name(word: str) -> str | None:
    """``--max_num_seqs=8`` → ``--max-num-seqs``; None for a word that is a value."""
    if not word.startswith("-") or word in {"-", "--"} or _NEGATIVE_NUMBER.match(word):
        return None
    name = word.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


def flag_names(flags: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Position and normalised name of every flag among `flags`."""
    for position, word in enumerate(flags):
        name = flag_name(word)
        if name is not None:
            yield position, name


def has_flag(flags: Sequence[str], *names: str) -> bool:
    """True when one of `names` is among the flags, in any spelling."""
    return any(found in names for _, found in flag_names(flags))


def flag_value(flags: Sequence[str], *names: str) -> str | None:
    """The last value given to one of `names`: ``--flag value`` or ``--flag=value``."""
    value = None
    for position, found in flag_names(flags):
        if found not in names:
            continue
        if "=" in flags[position]:
            value = flags[position].split("=", 1)[1]
        elif position + 1 < len(flags):
            value = flags[position + 1]
    return value


def flag_number(flags: Sequence[str], default: int, *names: str) -> int | None:
    """A whole number given to one of `names`; `default` without one, None when it is not a number."""
    value = flag_value(flags, *names)
    if value is None:
        return default
    return int(value) if value.isdecimal() else None


def running_at_once(topology: Topology) -> int | None:
    """How many requests its instances compute at once, all together, as the flags say; None when they do not."""
    value = flag_value(topology.flags, *engine(topology.engine).running_flags)
    return int(value) * len(topology.instances) if value is not None and value.isdecimal() and int(value) else None


def product_of(factors: Sequence[int | None]) -> int | None:
    """The product; None as soon as one factor is not known."""
    product = 1
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def meant_flag(program: Program, name: str, among: Mapping[str, str]) -> str | None:
    """The flag `among` these that `name` is or abbreviates; None when it is another one."""
    if name in among:
        return name
    if not program.abbreviates or not name.startswith("--") or name in program.whole_flags:
        return None
    if name in program.owned_flags or name in program.admin_flags:
        return None
    return next((flag for flag in among if flag.startswith(name)), None)


def secret_name(name: str) -> bool:
    """True for names that usually hold a secret: HF_TOKEN, VLLM_API_KEY, …; not TOKENIZERS_PARALLELISM."""
    return not _SECRET_PARTS.isdisjoint(name.upper().split("_"))


def admin_env_reason(program: Engine, name: str) -> str | None:
    """Why setting environment `name` needs the admin role; None when it does not."""
    if name in _HARMLESS_ENV:
        return None
    for known, why in {**ADMIN_ENV, **program.admin_env}.items():
        if name == known or (known.endswith("*") and name.startswith(known[:-1])):
            return why
    return None
