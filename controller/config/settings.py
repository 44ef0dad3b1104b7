"""The whole of `cutover.yaml`, and what the daemon's parts need of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo, field_validator

from ..core.policy import Policy
from ..core.window import Schedule
from ..notify.target import Targets
from .sections import Bake, Gpus, Keep, Quiet, ScheduleConfig, Sleep, SleepOrOff, Swap, Watch
from .values import STRICT, AbsolutePath, Address, AutoOrOff, Duration, Loopback, PortRange, Seconds

NIGHTLY = "nightly"
"""The window of `schedule`; others have names of their own in `schedules`."""


class Config(BaseModel):
    """The whole configuration. Without a file every default holds."""

    model_config = STRICT

    state_dir: AbsolutePath
    socket: AbsolutePath
    socket_group: str | None = None  # who may talk to the daemon besides its own user
    roles: dict[str, Literal["view", "propose", "approve", "admin"]] = {}  # users, `@group`, `*` for all others
    approval_by_another: bool = False  # whoever proposed may not approve
    api: Loopback | None = None  # the same API over TCP, with a token
    api_hosts: list[str] = []  # names by which a proxy in front of `api` calls it
    public: Address = "127.0.0.1:8000"
    preview: Address = "127.0.0.1:8009"
    instance_ports: PortRange = "18000-18999"
    slots: Annotated[int, Field(ge=2, le=256)] = 32
    gpus: Gpus = Gpus()
    haproxy: AbsolutePath | None = None
    lock_dir: AbsolutePath | None = None  # of the cards' locks; else /run/lock
    extra_paths: list[str] = []  # "POST /v1/audio/speech"
    tls_cert: AbsolutePath | None = None  # of the public address: certificate, chain and key in one PEM
    api_keys_file: AbsolutePath | None = None  # one key a line; the public address serves nobody without one
    engine_keys: AutoOrOff = "auto"  # those that can want one
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
    sleep: SleepOrOff = Sleep()
    bake: Bake = Bake()
    watch: Watch = Watch()
    keep: Keep = Keep()
    schedule: ScheduleConfig | None = None  # the window `nightly`
    schedules: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")], ScheduleConfig] = {}  # others
    quiet: Quiet = Quiet()
    expires: Duration = 7 * 86_400.0  # a proposal that was not begun by then
    approval_expires: Duration = 86_400.0
    notify: Targets = []  # who is told what happens
    ballast_mib: Annotated[int, Field(ge=0, le=1024)] = 8  # given away when the disk is full; 0: none
    _source: str = PrivateAttr("built-in defaults")

    @field_validator("schedules")
    @classmethod
    def _one_nightly(cls, schedules: dict[str, ScheduleConfig], known: ValidationInfo) -> dict[str, ScheduleConfig]:
        if known.data.get("schedule") is not None and NIGHTLY in schedules:
            raise ValueError("`schedule` and `schedules.nightly` are both the window nightly: keep one of them")
        return schedules

    @property
    def source(self) -> str:
        """The file that it was read from, or that there was none."""
        return self._source

    def read_from(self, source: str) -> Self:
        """The same, with where it came from."""
        known = self.model_copy()
        known._source = source  # noqa: SLF001 - it is this class
        return known

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
