"""`cutover bench` without a command line: settings of a profile, one run in this process, and what came of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gates.cancel import INTERRUPTED
from gates.contract import Deployment, GateRequest, Verdict
from gates.endpoint import Endpoint, model_names
from gates.errors import GateUsageError
from gates.ledger.words import counted
from gates.profile import GateStep, load
from gates.program import settled
from gates.strict import read_model
from gates.throughput.bench import Subject
from gates.throughput.book import open_book
from gates.throughput.decide.rule import LOOKS
from gates.throughput.gate import judge
from gates.throughput.plain import read_run
from gates.throughput.settings import ThroughputSettings
from gates.trial import WrongModelError, needs_key, open_trial

if TYPE_CHECKING:
    from gates.throughput.records import Run
    from gates.trial import Trial
    from gates.wire import Exchange

SCHEMA: Final = 1
_GATE: Final = "throughput"
_HOUR_S: Final = 3600.0
_RUNGS: Final = "concurrency"
_SETTINGS: Final = "settings of the bench"


class NoAnswerError(GateUsageError):
    """Nobody answers where the bench was sent: the question was right, and the operation failed."""

    exit_code = 1


@dataclass(frozen=True)
class Plan:
    """What is asked for on the command line. `changes`: settings that differ from the profile's, and `concurrency`:
    rungs for every workload, in place of all that the profile names.
    """

    endpoint: str
    model: str | None = None
    profile: str | Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    capability: Mapping[str, Any] = field(default_factory=dict)
    api_key_env: str | None = None
    metrics_urls: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    instances: int = 1
    engine: str | None = None
    engine_version: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    serves: tuple[str, ...] = ()
    """The names that the topology serves, where one was given: numbers of another model must not stand under it."""
    baseline: Mapping[str, Any] | None = None
    deadline_s: float | None = None
    """None: an hour, or as long as the profile gives its gate where that is longer."""
    evidence_dir: Path = Path()
    ledger: Path | None = None
    """Where the spread between starts is looked up. Keeping the run is for whoever asked for it."""
    start: str = ""
    """Names the start of the engine, for whoever keeps the run."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    """The engine's cards and their driver, where somebody knows better than whoever looks from outside."""


@dataclass(frozen=True)
class Benched:
    """The verdict; the run and its hardware where anything was measured. `interrupted`: how far it came by then."""

    verdict: Verdict
    run: Run | None
    hardware: Mapping[str, Any]
    notes: Sequence[str]
    interrupted: str | None = None

    @property
    def exit_code(self) -> int:
        return INTERRUPTED if self.interrupted is not None else self.verdict.exit_code

    def document(self, *, evidence_kept: bool = True) -> dict[str, Any]:
        """The stable answer of `cutover bench --json`; `measurements` is what `--baseline` of a later run takes.

        Files that nobody keeps are not named.
        """
        document = {"schema": SCHEMA, **json.loads(self.verdict.to_json())}
        if not evidence_kept:
            document["checks"] = [{**check, "evidence": []} for check in document["checks"]]
        return document


def settings_of(profile: str | Path | None, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The throughput settings of a profile, or the defaults for None, with `changes`. Raises `GateUsageError`."""
    given: Mapping[str, Any] = {} if profile is None else _step_of(profile).settings
    if _RUNGS in changes:
        given = _at_rungs(given, changes[_RUNGS])
    settings = {**given, **{key: value for key, value in changes.items() if key != _RUNGS}}
    read_model(ThroughputSettings, settings, _SETTINGS)
    return settings


def _step_of(profile: str | Path) -> GateStep:
    chosen = load(profile)
    step = next((step for step in chosen.gates if step.name == _GATE), None)
    if step is None:
        named = ", ".join(step.name for step in chosen.gates)
        raise GateUsageError(f"Profile {chosen.name!r} has no gate throughput, only {named}; nothing to bench by.")
    return step


def deadline_of(plan: Plan) -> float:
    """In seconds. The deadline of a gate in a rollout is no reason to end a bench early that somebody waits for."""
    if plan.deadline_s is not None:
        return plan.deadline_s
    return _HOUR_S if plan.profile is None else max(_HOUR_S, _step_of(plan.profile).deadline_s)


def left_unjudged(profile: str | Path | None, changes: Mapping[str, Any]) -> list[str]:
    """Rungs with a floor or ceiling that the profile has and the rungs of `changes` leave out, as `c8`, `beyond`."""
    if profile is None or _RUNGS not in changes:
        return []
    before, after = (read_model(ThroughputSettings, settings_of(profile, c), _SETTINGS) for c in ({}, changes))
    gone = (rung for rung in before.ladder if rung.limits and rung not in after.ladder)
    return list(dict.fromkeys(str(rung) for rung in gone))


def _at_rungs(given: Mapping[str, Any], rungs: Sequence[int | str]) -> Mapping[str, Any]:
    """`given` with these rungs for every workload, and with the limits that its ladder has at them."""
    chosen = read_model(ThroughputSettings, given, _SETTINGS)
    kept = [rung for rung in chosen.ladder if rung.concurrency in rungs]
    return {
        **given,
        "ladder": [*({"concurrency": rung} for rung in rungs), *(rung.model_dump() for rung in kept)],
        "workloads": [workload.model_dump(exclude={"concurrency"}) for workload in chosen.workloads],
    }


def only_model(endpoint: str, api_key: str | None, variable: str | None = None) -> str:
    """The one model that the endpoint serves. `variable`: where the key came from.

    Raises `NoAnswerError` when nobody answers, `GateUsageError` when there is none, or a choice.
    """
    exchange = _models(Endpoint.at(endpoint, api_key))
    if exchange.failure is not None:
        raise NoAnswerError(f"{exchange.failure.sentence}; is the endpoint up?")
    if exchange.status in (401, 403):
        raise GateUsageError(f"{needs_key(exchange.status, variable, api_key)}.")
    names = model_names(exchange.body) if exchange.status == 200 else ()
    if len(names) == 1:
        return names[0]
    if names:
        raise GateUsageError(f"{endpoint} serves {', '.join(names[:10])}: say which with --model.")
    raise GateUsageError(f"{endpoint} does not say on /v1/models what it serves: name it with --model.")


def refuse_silence(endpoint: Endpoint) -> None:
    """Raises `NoAnswerError` where nobody listens; whatever else goes wrong the run itself finds out."""
    failure = _models(endpoint).failure
    if failure is not None and failure.layer == "port":
        raise NoAnswerError(f"{failure.sentence}; is the endpoint up?")


def _models(endpoint: Endpoint) -> Exchange:
    return endpoint.get("/v1/models", timeout_s=10.0, limit_bytes=4 * 1024 * 1024)


def refuse_another(plan: Plan, model: str, endpoint: Endpoint) -> None:
    """Raises `GateUsageError` where what is measured is not what the topology serves."""
    if not plan.serves:
        return
    named = f"the topology {plan.about.get('topology', '')} serves {', '.join(plan.serves)}"
    if model not in plan.serves:
        raise GateUsageError(f"{model} was to be measured, and {named}: give its own topology, or none.")
    names = endpoint.served_models(timeout_s=10.0)
    if names and model not in names:
        raise GateUsageError(f"{plan.endpoint} serves {', '.join(names[:10])}, and {named}: give its own, or none.")


def run_bench(plan: Plan, on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None) -> Benched:
    """Measure and judge. Blocks until it is over, at the latest until the plan's deadline.

    Ctrl-C, `kill` and a closed terminal end it with what was measured by then; a second one ends the process.
    `on_progress` gets the lines that a gate would write. Raises `GateUsageError` when the question itself is wrong.
    """
    settings = settings_of(plan.profile, plan.changes)
    chosen = read_model(ThroughputSettings, settings, _SETTINGS)
    earlier = _earlier(plan.baseline)
    refuse_too_few_rounds(chosen, earlier)
    plan = replace(plan, endpoint=base_of(plan.endpoint))
    lines = _Lines(on_progress)
    # The model comes later: which one is served only an endpoint can say, and that needs the key, which a trial reads.
    request = GateRequest(
        gate=_GATE,
        endpoint=plan.endpoint,
        model=plan.model or "",
        api_key_env=plan.api_key_env,
        profile=settings,
        capability=plan.capability,
        baseline=earlier,
        deadline_s=deadline_of(plan),
        evidence_dir=str(plan.evidence_dir),
        engine=plan.engine,
        ledger=str(plan.ledger) if plan.ledger is not None else None,
        candidate=Deployment(hardware=plan.hardware) if plan.hardware else None,
    )
    trial = open_trial(request, lines)
    if not plan.model:
        request = request.model_copy(
            update={"model": only_model(plan.endpoint, trial.endpoint.api_key, plan.api_key_env)}
        )
        trial = open_trial(request, lines)
    else:
        refuse_silence(trial.endpoint)
    refuse_another(plan, request.model, trial.endpoint)
    subject = Subject(
        trial.endpoint,
        request.model,
        trial.capability,
        plan.metrics_urls,
        plan.flags,
        plan.instances,
        plan.engine,
        plan.engine_version,
        {"endpoint": trial.endpoint.target.base, **plan.about},
    )
    book = open_book(request, keeping=False)
    wrong: list[str] = []

    def judged(trial: Trial) -> Verdict:
        try:
            return judge(trial, chosen, subject, book, thorough=True)
        except WrongModelError as error:
            # Of a gate that is the engine's fault; here somebody typed a name.
            wrong.append(str(error))
            raise

    verdict = settled(trial, judged, lines)
    if wrong:
        raise GateUsageError(f"{wrong[0]}; say which with --model.")
    document = verdict.measurements.get("run")
    run = read_run(document) if isinstance(document, Mapping) else None
    told = verdict.measurements
    return Benched(verdict, run, told.get("hardware", {}), tuple(told.get("notes", ())), told.get("interrupted"))


def base_of(url: str) -> str:
    """Where the API begins, also of the whole path that people copy out of a client: …/v1/chat/completions."""
    bare = url.rstrip("/")
    for tail in ("/chat/completions", "/completions", "/models"):
        if bare.endswith(f"/v1{tail}"):
            return bare.removesuffix(tail)
    return url


def refuse_too_few_rounds(settings: ThroughputSettings, earlier: Mapping[str, Any] | None) -> None:
    """Raises `GateUsageError` where no comparison can come of it: known before anything is sent."""
    if earlier is None:
        return
    cells = [cell for cell in read_run(earlier["measurements"]["run"]).cells if cell.problem is None]
    theirs = max((len(values) for cell in cells for values in cell.rounds.values()), default=0)
    for side, rounds, remedy in (
        ("this run", settings.rounds[-1], f"--rounds {LOOKS[0]}, or no --baseline"),
        ("the baseline", theirs, f"a baseline of `--rounds {LOOKS[0]}` or more"),
    ):
        if rounds < LOOKS[0]:
            raise GateUsageError(
                f"Nothing can be compared with {counted(rounds, 'round')} in {side}; {LOOKS[0]} on each side are "
                f"needed: {remedy}."
            )


def _earlier(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What was measured then. Of the report of a whole profile what its throughput gate measured.

    Raises `GateUsageError` where that is nothing: whoever names a baseline wants to be compared with it.
    """
    if document is None:
        return None
    measured = document.get("measurements")
    steps = document.get("steps")
    if isinstance(steps, list):
        verdicts = [step.get("verdict") for step in steps if isinstance(step, Mapping) and step.get("gate") == _GATE]
        measured = next((each.get("measurements") for each in verdicts if isinstance(each, Mapping)), None)
        if measured is None:
            raise GateUsageError("The report given as baseline holds no verdict of the gate throughput.")
    run = measured.get("run") if isinstance(measured, Mapping) else None
    if not isinstance(run, Mapping):
        raise GateUsageError(
            "In the report given as baseline nothing was measured; give one that has `measurements.run`."
        )
    try:
        rounds = any(cell.rounds for cell in read_run(run).cells)
    except ValueError as error:
        raise GateUsageError(f"The report given as baseline cannot be read: {error}.") from None
    if not rounds:
        raise GateUsageError(
            "The report given as baseline has no cell with a whole round; there is nothing to compare."
        )
    return {"measurements": measured}


class _Lines(io.StringIO):
    """Takes what a gate writes to stderr, and hands the lines that are JSON on."""

    def __init__(self, hear: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._hear = hear

    def write(self, text: str) -> int:
        for line in text.splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if isinstance(document, dict):
                self._hear(document)
        return len(text)
