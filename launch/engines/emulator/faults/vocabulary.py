"""Every fault there is, in the order in which it is listed."""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType

from . import args, calls, choice, life, names, prompt, text, thinking, transport, variants
from .condition import CONDITIONS, COUNTING
from .entry import Fault, Group

_MODULES = (life, args, names, calls, choice, transport, prompt, thinking, text, variants)
FAULTS: tuple[Fault, ...] = tuple(chain.from_iterable(module.FAULTS for module in _MODULES))
BY_NAME: Mapping[str, Fault] = MappingProxyType(
    {name: fault for fault in FAULTS for name in (fault.name, *fault.aliases)}
)
_ANSWER_GROUPS = tuple(group for group in Group if group not in (Group.LIFE, Group.TIMING))


def vocabulary(*groups: Group) -> tuple[Fault, ...]:
    """The faults of these groups; without any, all that spoil answers, for tables that are driven by them."""
    wanted = groups or _ANSWER_GROUPS
    return tuple(fault for fault in FAULTS if fault.group in wanted)


def describe_faults() -> str:
    """The vocabulary as text, by group, for `--list-faults`."""
    width = max(len(fault.spelling) for fault in FAULTS)
    lines: list[str] = []
    for group in Group:
        lines += [f"{group}:", *(f"  {fault.spelling:<{width}}  {_said(fault)}" for fault in vocabulary(group)), ""]
    words = [f"{name}=N" if name in COUNTING else name for name in CONDITIONS]
    lines += ["NAME[=VALUE[:VALUE]][@FRACTION][+CONDITION[=N]]; conditions: " + ", ".join(words)]
    lines += ["Fractions and conditions choose single requests; faults of the engine's life take none."]
    return "\n".join(lines)


def _said(fault: Fault) -> str:
    notes = [fault.harm.value] if fault.healthy else []
    notes += [f"always +{condition}" for condition in fault.only]
    notes += [f"needs {', '.join(fault.needs)}"] if fault.needs else []
    notes += [f"also called {', '.join(fault.aliases)}"] if fault.aliases else []
    return fault.what + (f" ({'; '.join(notes)})" if notes else "")
