"""Faults of the engine's life and of its timing."""

from .entry import Fault, Group, Parameter, Stage

FAULTS = (
    Fault("never-ready", Group.LIFE, Stage.START, "listens, but answers 503 on /health and everything else for ever"),
    Fault("never-listens", Group.LIFE, Stage.START, "the process lives, but never opens its port"),
    Fault("dies-loading", Group.LIFE, Stage.START, "exits with code 1 and a traceback half way through the start"),
    Fault("ignores-term", Group.LIFE, Stage.PROCESS, "SIGTERM does nothing; only SIGKILL ends it"),
    Fault(
        "dies-under-load",
        Group.LIFE,
        Stage.PROCESS,
        "the process is gone, without a word, when so many requests run at once",
        (Parameter("running", 4),),
    ),
    Fault(
        "dies-after-requests",
        Group.LIFE,
        Stage.PROCESS,
        "the process is gone, without a word, at its Nth request",
        (Parameter("requests"),),
    ),
    Fault("exits-zero-on-crash", Group.LIFE, Stage.PROCESS, "a crash (dies-…) leaves exit code 0, as if all were well"),
    Fault(
        "sleeps-but-keeps-memory",
        Group.LIFE,
        Stage.LIFECYCLE,
        "/sleep answers 200 and /is_sleeping says true, but the memory is not given back",
    ),
    Fault("silent", Group.TIMING, Stage.TIMING, "accepts the request and sends headers, but no token ever comes"),
    Fault(
        "slow",
        Group.TIMING,
        Stage.TIMING,
        "first token and gaps take FACTOR times as long",
        (Parameter("factor", 3),),
    ),
    Fault(
        "slow-after-s",
        Group.TIMING,
        Stage.TIMING,
        "as good as asked for SECONDS after ready, then slow by FACTOR",
        (Parameter("seconds"), Parameter("factor", 3)),
    ),
    Fault(
        "slow-after-requests",
        Group.TIMING,
        Stage.TIMING,
        "as good as asked for so many REQUESTS, then slow by FACTOR",
        (Parameter("requests"), Parameter("factor", 3)),
    ),
)
