"""The vocabulary of faults: what can go wrong with an engine, by name, and for which requests.

Written on the command line as `NAME[=VALUE[:VALUE]][@FRACTION][+CONDITION[=N]]...`, for example
`garbage@0.05`, `slow=4+after-s=8`, `think-in-content@0.5+stream+running=8`. A fault is one entry of its group's file
and one small function there; those that act elsewhere are asked for by name where they act.
"""

from .condition import CONDITIONS, Situation
from .edit import Edit, Event
from .entry import Fault, Group, Harm, Need, Parameter, Scene, Stage
from .setting import FaultError, FaultPlan, FaultSetting
from .vocabulary import BY_NAME, FAULTS, describe_faults, vocabulary

__all__ = [
    "BY_NAME", "CONDITIONS", "FAULTS", "Edit", "Event", "Fault", "FaultError", "FaultPlan", "FaultSetting", "Group",
    "Harm", "Need", "Parameter", "Scene", "Situation", "Stage", "describe_faults", "vocabulary",
]  # fmt: skip
