"""`cutover.yaml`: every key with its default; every refusal names file, line, key and what was expected."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from datetime import time
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from launch.errors import LaunchError
from launch.strict_yaml import Document, dotted, read

from .core.policy import Policy
from .core.window import DAYS, Schedule
from .durations import duration_s
from .errors import UsageError
from .notify.target import Targets

Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]


def _address(value: object) -> str:
    host, _, port = str(value).rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("expected host:port, for example 127.0.0.1:8000")
    return str(value)


def _loopback(value: object) -> str:
    text = _address(value)
    host = text.rpartition(":")[0].strip("[]")
    if host != "localhost" and not (_is_ip(host) and ipaddress.ip_address(host).is_loopback):
        raise ValueError(
            "expected an address of this machine alone, for example 127.0.0.1:8010: tokens must not travel in the "
            "clear; put a proxy with TLS in front of it, or use `ssh -L`"
        )
    return text


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _port_range(value: object) -> str:
    first, _, last = str(value).partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) < int(last) < 65536):
        raise ValueError("expected first-last, for example 18000-18999")
    return str(value)


def _absolute(value: object) -> str:
    if not str(value).startswith("/"):
        raise ValueError("expected an absolute path: the daemon and its users stand in different directories")
    return str(value)


def _duration(value: object) -> float:
    seconds = duration_s(value)
    if not 0 < seconds <= 1e7:
        raise ValueError("expected a duration above nothing, for example 4h, 90m or 1h30m")
    return seconds


def _sexagesimal(value: object) -> str:
    """YAML 1.1 reads an unquoted 02:30 as 150 and 12:30 as 750 (minutes): what people mean by it is a time."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60:
        return f"{value // 60:02d}:{value % 60:02d}"
    return str(value)


DAY_SETS = {"daily": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}
NIGHTLY = "nightly"
"""The window of `schedule`; others have names of their own in `schedules`."""

Address = Annotated[str, BeforeValidator(_address)]
Loopback = Annotated[str, BeforeValidator(_loopback)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpus(_Strict):
    """Where the inventory comes from: NVML, or a declared number of cards for boxes that have none."""

    kind: Literal["auto", "nvml", "none"] = "auto"
    count: Annotated[int, Field(ge=0, le=64)] = 0


class Bake(_Strict):
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)] = 600.0
    interval_s: Seconds = 5.0
    bad_in_row: Annotated[int, Field(ge=1)] = 2
    latency_factor: Annotated[float, Field(gt=1)] = 1.5
    latency_slack_s: Annotated[float, Field(ge=0)] = 0.25
    min_requests: Annotated[int, Field(ge=1)] = 20


class Swap(_Strict):
    """While a swap drains, everybody waits: it drains shorter, and cuts what is left or gives up."""

    drain_s: Seconds = 300.0
    at_drain_end: Literal["cut", "give up"] = "cut"


class Sleep(_Strict):
    """Who makes room sleeps, where its engine can: the way back is a wake then, and no start."""

    level: int = 1
    deadline_s: Seconds = 60.0
    leftover_mib: Annotated[int, Field(ge=0, le=1 << 20)] = 3072

    @field_validator("level")
    @classmethod
    def _level(cls, level: int) -> int:
        if level == 2:
            raise ValueError(
                "expected 1: at level 2 an engine discards its weights, and whether they are right again after a wake "
                "that loads them anew nobody has verified with this version"
            )
        if level != 1:
            raise ValueError("expected 1, or `sleep: off`")
        return level


def _sleep_or_off(value: object) -> object:
    if value is None or value is False or value == "off":
        return None
    if isinstance(value, Sleep | dict):
        return value
    raise ValueError("expected `off`, or a mapping such as `{level: 1, deadline_s: 60, leftover_mib: 3072}`")


def _auto_or_off(value: object) -> object:
    """YAML 1.1 reads an unquoted `off` as false."""
    return "off" if value is False else value


class Watch(_Strict):
    probe_fresh_s: Seconds = 15.0
    silent_s: Seconds = 60.0
    prefill_s: Seconds = 300.0
    restart_budget: Annotated[int, Field(ge=0, le=1000)] = 5
    restart_window_s: Seconds = 600.0
    restart_pause_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 5.0
    restart_pause_max_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 60.0
    when_live_keeps_dying: Literal["hold", "last-known-good"] = "hold"


class ScheduleConfig(_Strict):
    """When automation may act: from a local time of day, for so long."""

    start: str
    duration: Annotated[float, BeforeValidator(_duration)]
    timezone: str  # of the people it serves, not of the box: whoever reads 02:00 must not have to guess
    days: list[str] = list(DAYS)

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: object) -> str:
        text = _sexagesimal(value)
        if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text):
            raise ValueError('expected a time of day in quotes, for example "02:00"')
        return text

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            near = difflib.get_close_matches(name, available_timezones(), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"expected a name of the tz database, for example Asia/Taipei{hint}") from None
        return name

    @field_validator("days", mode="before")
    @classmethod
    def _days(cls, value: object) -> object:
        if isinstance(value, str):
            value = DAY_SETS.get(value, value)
        if not isinstance(value, list | tuple) or not value or not set(map(str, value)) <= set(DAYS):
            names = ", ".join(DAYS)
            raise ValueError(f"expected a list of {names}, or one of {', '.join(DAY_SETS)}")
        return list(value)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not 30 <= self.duration <= 86_400:
            raise ValueError(
                "expected a duration of 30 s to 24 h: in less nothing can be started, proved and undone, and in more "
                "it would overlap the next one"
            )
        return self

    def named(self, window: str) -> Schedule:
        hour, minute = self.start.split(":")
        return Schedule(
            window=window,
            start=time(int(hour), int(minute)),
            duration_s=self.duration,
            zone=ZoneInfo(self.timezone),
            zone_name=self.timezone,
            days=frozenset(DAYS.index(day) for day in self.days),
        )


class Quiet(_Strict):
    """What counts as a quiet moment: by night, production makes room or is measured only then."""

    requests_per_min: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 6.0
    in_flight: Annotated[int, Field(ge=0, le=100_000)] = 0
    patience: Annotated[float, BeforeValidator(_duration)] = 1800.0  # of the measurement of live


class Keep(_Strict):
    """What stays of the past; live, previous and open rollouts stay whatever these say."""

    days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] = 30.0
    runs_gib: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 20.0
    evidence_gib: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 10.0


class Config(_Strict):
    """The whole configuration. Without a file every default holds."""

    state_dir: AbsolutePath
    socket: AbsolutePath
    socket_group: str | None = None  # who may talk to the daemon besides its own user
    roles: dict[str, Literal["view", "propose", "approve", "admin"]] = {}  # users, `@group`, `*` for all others
    approval_by_another: bool = False  # whoever proposed may not approve
    api: Loopback | None = None  # the same API over TCP, with a token
    api_hosts: list[str] = []  # names by which a proxy in front of `api` calls it
    public: Address = "127.0.0.1:8000"
    preview: Address = "127.0.0.1:8009"
    instance_ports: Annotated[str, BeforeValidator(_port_range)] = "18000-18999"
    slots: Annotated[int, Field(ge=2, le=256)] = 32
    gpus: Gpus = Gpus()
    haproxy: AbsolutePath | None = None
    lock_dir: AbsolutePath | None = None  # of the cards' locks; else /run/lock
    extra_paths: list[str] = []  # "POST /v1/audio/speech"
    tls_cert: AbsolutePath | None = None  # of the public address: certificate, chain and key in one PEM
    api_keys_file: AbsolutePath | None = None  # one key a line; the public address serves nobody without one
    engine_keys: Annotated[Literal["auto", "off"], BeforeValidator(_auto_or_off)] = "auto"  # those that can want one
    inner: Loopback = "127.0.0.1:8008"  # with either: the same door without them, for the daemon's own probes
    hold_s: Annotated[float, Field(gt=0, le=1800, allow_inf_nan=False)] = 60.0  # while nothing can serve
    hold_max: Annotated[int, Field(ge=0, le=4096)] = 256  # requests that wait; 0: nobody does
    retry_after_s: Annotated[int, Field(ge=1, le=60)] = 30
    drain_s: Seconds = 1800.0
    strategies: list[Literal["blue-green", "rolling", "swap"]] = ["blue-green", "rolling"]
    swap: Swap = Swap()
    start_s: Seconds = 1200.0
    max_concurrent_starts: Annotated[int, Field(ge=1)] = 1
    settle_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0  # between one start and the next
    keep_previous_warm: bool = True
    sleep: Annotated[Sleep | None, BeforeValidator(_sleep_or_off)] = Sleep()
    bake: Bake = Bake()
    watch: Watch = Watch()
    keep: Keep = Keep()
    schedule: ScheduleConfig | None = None  # the window `nightly`
    schedules: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")], ScheduleConfig] = {}  # others
    quiet: Quiet = Quiet()
    expires: Annotated[float, BeforeValidator(_duration)] = 7 * 86_400.0  # a proposal that was not begun by then
    approval_expires: Annotated[float, BeforeValidator(_duration)] = 86_400.0
    notify: Targets = []  # who is told what happens
    ballast_mib: Annotated[int, Field(ge=0, le=1024)] = 8  # given away when the disk is full; 0: none
    source: str = Field(default="built-in defaults", exclude=True)

    @model_validator(mode="after")
    def _one_nightly(self) -> Self:
        if self.schedule is not None and NIGHTLY in self.schedules:
            raise ValueError("`schedule` and `schedules.nightly` are both the window nightly: keep one of them")
        return self

    @property
    def policy(self) -> Policy:
        first, _, last = self.instance_ports.partition("-")
        return Policy(
            start_s=self.start_s,
            drain_s=self.drain_s,
            strategies=tuple(self.strategies),
            swap_drain_s=self.swap.drain_s,
            hold_s=self.hold_s,
            swap_drain_cuts=self.swap.at_drain_end == "cut",
            bake_s=self.bake.seconds,
            bake_interval_s=self.bake.interval_s,
            bake_bad_in_row=self.bake.bad_in_row,
            bake_latency_factor=self.bake.latency_factor,
            bake_latency_slack_s=self.bake.latency_slack_s,
            bake_min_requests=self.bake.min_requests,
            probe_fresh_s=self.watch.probe_fresh_s,
            silent_s=self.watch.silent_s,
            prefill_s=self.watch.prefill_s,
            restart_budget=self.watch.restart_budget,
            restart_window_s=self.watch.restart_window_s,
            restart_pause_s=self.watch.restart_pause_s,
            restart_pause_max_s=self.watch.restart_pause_max_s,
            when_live_keeps_dying=self.watch.when_live_keeps_dying,
            max_concurrent_starts=self.max_concurrent_starts,
            settle_s=self.settle_s,
            port_first=int(first),
            port_last=int(last),
            slots=self.slots,
            keep_previous_warm=self.keep_previous_warm,
            sleep=self.sleep is not None,
            sleep_deadline_s=(self.sleep or Sleep()).deadline_s,
            sleep_leftover_mib=(self.sleep or Sleep()).leftover_mib,
            retry_after_s=self.retry_after_s,
            schedules=self.windows,
            expires_s=self.expires,
            approval_s=self.approval_expires,
            quiet_per_min=self.quiet.requests_per_min,
            quiet_in_flight=self.quiet.in_flight,
            quiet_patience_s=self.quiet.patience,
        )

    @property
    def windows(self) -> dict[str, Schedule]:
        """By name."""
        nightly = {NIGHTLY: self.schedule} if self.schedule is not None else {}
        return {name: schedule.named(name) for name, schedule in (nightly | self.schedules).items()}

    @property
    def own_way_in(self) -> str:
        """Where the daemon itself asks the public address."""
        return self.inner if self.tls_cert or self.api_keys_file else self.public

    @property
    def wants_sleep(self) -> bool:
        """Somebody wrote it down. By default who can sleep does, and nobody is told to be able to."""
        return self.sleep is not None and "sleep" in self.model_fields_set

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal.sqlite"

    @property
    def releases_dir(self) -> Path:
        return self.state_dir / "releases"

    @property
    def runs_dir(self) -> Path:
        return self.state_dir / "runs"

    @property
    def gates_dir(self) -> Path:
        return self.state_dir / "gates"

    @property
    def told(self) -> Path:
        """What targets were told, and what still waits for them."""
        return self.state_dir / "notify.json"

    @property
    def reports_dir(self) -> Path:
        return self.state_dir / "reports"

    @property
    def locks_dir(self) -> Path:
        """Of the cards' locks: one place for all daemons on this box, or they would not meet."""
        return self.lock_dir or next((p for p in (Path("/run/lock"), Path("/var/lock")) if p.is_dir()), Path("/tmp"))  # noqa: S108 - only locked, never written

    @property
    def ledger(self) -> Path:
        """Gates write it, the daemon never does."""
        return self.state_dir / "ledger.sqlite"

    @property
    def door_dir(self) -> Path:
        return self.state_dir / "frontdoor"


SYSTEM_STATE, SYSTEM_SOCKET = Path("/var/lib/cutover"), Path("/run/cutover/cutover.sock")


def is_of_the_system(state_dir: Path = SYSTEM_STATE) -> bool:
    """Whether this user's daemon is the box's: root, or whom the system's state directory was made for."""
    try:
        return os.geteuid() in {0, state_dir.stat().st_uid}
    except OSError:
        return False


def default_paths(environment: Mapping[str, str], *, system: bool) -> tuple[Path, Path]:
    """State directory and socket when the configuration names none."""
    if system:
        return SYSTEM_STATE, SYSTEM_SOCKET
    home = Path(environment.get("HOME", "/"))
    state = Path(environment.get("XDG_STATE_HOME") or home / ".local/state")
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or state)
    return state / "cutover", runtime / "cutover" / "cutover.sock"


def search_path(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "/"))
    return [
        Path("/etc/cutover/cutover.yaml"),
        Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "cutover" / "cutover.yaml",
    ]


def load_config(
    path: Path | None = None, environment: Mapping[str, str] | None = None, *, system: bool | None = None
) -> Config:
    """Read the configuration: `path`, else `$CUTOVER_CONFIG`, else the first that exists of the usual places.

    `system`: whether it is that of the box's daemon; None: as this user is. Raises `UsageError` (exit code 2) with
    file, line and key.
    """
    environment = os.environ if environment is None else environment
    named = path or (Path(environment["CUTOVER_CONFIG"]) if environment.get("CUTOVER_CONFIG") else None)
    file = named or next((p for p in search_path(environment) if p.is_file()), None)
    state_dir, socket = default_paths(environment, system=is_of_the_system() if system is None else system)
    defaults: dict[str, Any] = {"state_dir": state_dir, "socket": socket}
    if file is None:
        return Config(**defaults)
    if file.exists() and not file.is_file():
        raise UsageError(f"the configuration {file} is not a file; name one, or leave it out")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration {file} cannot be read: {error}") from error
    if not text.strip():
        return Config(**defaults, source=str(file))
    return parse_config(text, str(file), defaults)


def parse_config(text: str, source: str, defaults: Mapping[str, Any]) -> Config:
    try:
        document = read(text, source=source, typed=lambda _: True)
    except LaunchError as error:
        raise UsageError(str(error)) from error
    if "source" in document.value:
        raise UsageError(f"{document.where(('source',))}: unknown key `source`")
    given = dict(document.value)
    if "state_dir" in given and "socket" not in given:
        # A state directory of one's own means a daemon of one's own: it gets a socket of its own.
        given["socket"] = str(Path(str(given["state_dir"])) / "cutover.sock")
    try:
        return Config(**{**defaults, **given}, source=source)
    except ValidationError as error:
        raise UsageError(_sentence(error, document)) from error


def _sentence(error: ValidationError, document: Document) -> str:
    problem = error.errors()[0]
    path = tuple(problem["loc"])
    where = document.where(path)
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _known(path[:-1]), 1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; known here: {', '.join(_known(path[:-1]))}"
        return f"{where}: unknown key `{dotted(path)}`{hint}"
    said = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        said = "this key is needed here"
    secret = path[:1] == ("notify",)  # what was written there by mistake must not come out in a log
    got = "" if secret or isinstance(problem["input"], Mapping) else f" (got {problem['input']!r})"
    return f"{where}: `{dotted(path)}`: {said}{got}" if path else f"{where}: {said}"


def _known(path: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        if (field := model.model_fields.get(str(part))) is None:
            continue  # the place in a list, or a name that somebody chose
        annotation = field.annotation
        chosen = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type)), None)
        if chosen is None or not issubclass(chosen, BaseModel):
            return []
        model = chosen
    return [name for name in model.model_fields if name != "source"]
