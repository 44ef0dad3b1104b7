"""The composition root: take the lock, open the journal, build the parts, run loop and API until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import signal
import socket
import threading
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from launch.attempts import Status, log_path, observe
from launch.compat import Box
from launch.engine_key import new_key

from .api.admission import Door
from .api.app import Windows, make_app
from .api.desk import Desk
from .api.peers import PeerProtocol, protocol_for
from .api.tokens import Failures, Tokens
from .catalogue import Catalogue
from .config import Config
from .effects.clock import Clock
from .effects.frontdoor.door import DoorSettings, FrontDoor
from .effects.gate_runner import GateRunner
from .effects.gpus import look_at_host, open_inventory
from .effects.nobodys import nobodys
from .effects.nobodys import told as nobodys_told
from .effects.prober import Prober
from .effects.processes import Processes
from .effects.sleeper import Sleeper
from .effects.world import RealWorld
from .errors import CutoverError, RefusedError, UsageError
from .housekeeper import Housekeeper
from .loop import Loop
from .notify.destination import destinations
from .notify.notifier import Notifier
from .report.document import to_document
from .report.keeper import ReportKeeper, Sources
from .store.ballast import Ballast
from .store.database import StateDirectoryLock
from .store.journal import Journal

log = structlog.get_logger("daemon")

# A systemd unit's variables are for the daemon alone; engines must not answer for it.
UNIT_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")
SOCKET_LOOK_S = 1.0
UNITS = "CUTOVER_UNITS"  # the directory of the sockets behind which a service manager starts shims, each in a unit


def notify(message: str) -> None:
    """sd_notify, when a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)


def open_socket(path: Path, group: str | None) -> socket.socket:
    """Bind the control socket ourselves, 0660: uvicorn would make it writable for everybody."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # the state directory's lock is ours, so this is a leftover
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o660)  # nobody gets in before it listens; a umask would be that of all threads
        if group is not None:
            _give_to(path, group)
    except KeyError:
        raise UsageError(f"socket_group: there is no group {group}; create it, or leave the key out") from None
    except OSError as error:
        raise CutoverError(f"the control socket {path} cannot be opened: {error}; set `socket`") from error
    listener.listen(64)
    return listener


def _give_to(path: Path, group: str) -> None:
    gid = grp.getgrnam(group).gr_gid
    try:
        os.chown(path, -1, gid)
        _let_through(path.parent, gid)
    except PermissionError:
        raise UsageError(
            f"socket_group: the daemon's user is not in the group {group} and may not give it the socket: "
            f"`usermod -aG {group} USER`, then start the daemon again"
        ) from None


def open_tcp(address: str) -> socket.socket:
    """The same API over TCP, for those who bring a token."""
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=_family(host), backlog=64)
    except OSError as error:
        raise CutoverError(f"api: {address} cannot be listened on: {error.strerror}; choose another port") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if host.startswith("[") else socket.AF_INET


def _let_through(directory: Path, gid: int) -> None:
    """A group that may use the socket has to reach it: a directory of ours that is closed to others becomes theirs."""
    found = directory.stat()
    closed_to_others = found.st_mode & 0o011 == 0o010
    if found.st_uid == os.geteuid() and closed_to_others and found.st_gid != gid:
        os.chown(directory, -1, gid)


def refuse_second_daemon(path: Path) -> None:
    """Two daemons with different state directories must not fight for one socket path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a queue that is full would be waited for, for ever when its daemon hangs
        try:
            probe.connect(str(path))
        except BlockingIOError:
            pass
        except OSError:
            return
    raise RefusedError(f"another daemon answers on {path}; stop it first, or set `socket` to another path")


def refuse_lost_journal(config: Config) -> None:
    """A new journal knows nothing of what runs: the front door would be told that nothing is live."""
    journal = config.state_dir / "journal.sqlite"
    if (journal.exists() and journal.stat().st_size > 0) or not config.runs_dir.is_dir():
        return
    alive = [d.name for d in sorted(config.runs_dir.iterdir()) if observe(d).status in {Status.RUNNING, Status.STRAYS}]
    if alive:
        raise CutoverError(
            f"the journal {journal} is missing while {', '.join(alive)} run; traffic is not touched: `cutover restore` "
            "puts a backup back, `cutover doctor --rebuild` makes a new one of what runs"
        )


class Daemon:
    """One controller on one state directory. `run` returns when SIGTERM or SIGINT came; engines and door stay."""

    def __init__(self, config: Config) -> None:
        self.config = config
        policy = config.policy
        for name in UNIT_VARIABLES:
            if name != "NOTIFY_SOCKET":
                os.environ.pop(name, None)
        units = Path(named) if (named := os.environ.pop(UNITS, "")) else None
        attempt_units = units and units / "attempt.sock"
        told = destinations(config.notify)  # refused before anything is touched
        self.lock = StateDirectoryLock(config.state_dir)
        refuse_second_daemon(config.socket)
        refuse_lost_journal(config)
        self.ballast = Ballast(config.state_dir / "ballast", config.ballast_mib << 20)
        self.journal = Journal(config.journal, self.ballast)
        self._nobodys = nobodys(config.runs_dir, {attempt.id for attempt in self.journal.state.held})
        clock = Clock()
        self.processes = Processes(
            config.runs_dir,
            config.releases_dir,
            policy.port_block,
            config.locks_dir,
            attempt_units,
            lambda: self.door.engine_key if config.engine_keys == "auto" else None,
        )
        self.door = FrontDoor(
            DoorSettings(
                directory=config.door_dir,
                public=config.public,
                preview=config.preview,
                slots=config.slots,
                hold_s=config.hold_s,
                hold_max=config.hold_max,
                retry_after_s=config.retry_after_s,
                binary=config.haproxy,
                tls_cert=config.tls_cert,
                api_keys_file=config.api_keys_file,
                inner=config.inner,
                extra_paths=tuple(_method_and_path(text) for text in config.extra_paths),
            ),
            units and units / "frontdoor.sock",
            self._choose_key,
        )
        self.inventory = open_inventory(config.gpus, in_a_hurry=True)
        self.gates = GateRunner(config.gates_dir, manager=attempt_units, disk_is_full=lambda: self.ballast.is_needed)
        self.prober = Prober(config.own_way_in, config.preview, self._pids_of, self._nudge, key_of=self._key_of)
        self.world = RealWorld(
            config,
            clock=clock,
            processes=self.processes,
            door=self.door,
            gates=self.gates,
            gpus=self.inventory,
            prober=self.prober,
            sleeper=Sleeper(
                config.releases_dir,
                lambda attempt_id: config.runs_dir / attempt_id,
                self._pids_of,
                policy.sleep_deadline_s,
                lambda: look_at_host(config.state_dir).ram_available_bytes,
                self._nudge,
            ),
        )
        self.loop = Loop(self.journal, self.world, policy)
        self.housekeeper = Housekeeper(config, self.journal, self.ballast, clock.now)
        self.reports = ReportKeeper(
            config,
            self.journal,
            Sources(clock.now, lambda: self.loop.seen, self._alarms, self.gates.report, self.door.log),
        )
        self.notifier = Notifier(told, self.journal, config.told, self._alarms, clock.now)
        self.catalogue = Catalogue(config.releases_dir)
        self.tokens = Tokens(config.state_dir / "tokens.json", lambda: clock.now().wall_s)
        box = Box(wants_sleep=config.wants_sleep)
        self.desk = Desk(
            self.journal,
            self.catalogue,
            policy,
            clock.now,
            self.inventory.again,
            self.loop.nudge,
            lambda: box,
            config.approval_by_another,
        )

    def _pids_of(self, attempt_id: str) -> tuple[int, ...]:
        return self.world.pids_of(attempt_id)

    def _choose_key(self) -> str | None:
        """For a front door that is started: engines outlive it, and go on wanting the key that they were told."""
        return self.processes.living_key() or (new_key() if self.config.engine_keys == "auto" else None)

    def _key_of(self, attempt_id: str | None) -> str | None:
        if attempt_id is None or not (self.config.runs_dir / attempt_id).is_dir():
            return self.door.engine_key  # all engines have one; where their own copy is gone it is still in the door's
        return self.processes.key_of(attempt_id)

    def _inventory(self) -> dict[str, Any]:
        self.inventory.nudge()  # who looks once will look again
        return {**asdict(self.inventory.sheet()), "host": asdict(look_at_host(self.config.state_dir))}

    def _alarms(self) -> list[str]:
        trouble = [self.loop.trouble] if self.loop.trouble else []
        homeless = self.processes.alarms(self.loop.seen.processes if self.loop.seen else ())
        nobodys_own = nobodys_told(self.config.runs_dir, self._nobodys)
        rounds = [*self.housekeeper.alarms, *self.notifier.alarms, *self.reports.alarms]
        return [*trouble, *homeless, *nobodys_own, *self.door.alarms(), *rounds, *self.loop.alarms]

    def _nudge(self) -> None:
        self.loop.nudge()

    def run(self) -> None:
        try:
            listeners = [open_socket(self.config.socket, self.config.socket_group)]
            if self.config.api is not None:
                listeners.append(open_tcp(self.config.api))
            self.world.door.ensure()
            if self.config.engine_keys == "auto" and self.door.engine_key is None:
                log.warning("engines get no key", why="the front door runs without one; it has to be started anew")
            asyncio.run(self._serve(listeners))
        finally:
            self.close()

    def close(self) -> None:
        self.housekeeper.stop()
        self.notifier.stop()
        self.reports.stop()
        self.prober.close()
        self.world.kv_pools.close()
        self.inventory.close()
        self.journal.close()
        self.lock.release()

    def windows(self) -> Windows:
        """What the API looks through."""
        return Windows(
            config=self.config,
            journal=self.journal,
            desk=self.desk,
            catalogue=self.catalogue,
            seen=lambda: self.loop.seen,
            why=lambda: self.loop.why,
            passes=lambda: self.loop.passes,
            alarms=self._alarms,
            gate_report=self.gates.report,
            night_report=lambda night: to_document(self.reports.report(night)),
            inventory=self._inventory,
            log_path=lambda attempt_id: log_path(self.config.runs_dir / attempt_id),
            version=version("cutover"),
            tokens=self.tokens,
            door=Door(self.tokens, Failures(Clock.boot_s), self.config.api_hosts),
        )

    async def _serve(self, listeners: list[socket.socket]) -> None:
        protocol = protocol_for(self.config.roles)
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(self.windows()),
                http=protocol,
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=self._loop, args=(server,), name="loop")
        thread.start()
        self.housekeeper.start()
        self.notifier.start()
        self.reports.start()
        running = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, self._stop, server)
        log.info("ready", socket=str(self.config.socket), public=self.config.public, configuration=self.config.source)
        notify("READY=1")
        keeping = asyncio.create_task(self._keep_socket(server, protocol))
        await server.serve(sockets=listeners)
        keeping.cancel()
        self.loop.stop()
        await asyncio.to_thread(thread.join)

    async def _keep_socket(self, server: uvicorn.Server, protocol: type[PeerProtocol]) -> None:
        """Bind the control socket anew when somebody has removed it: the way back leads through it."""
        told = ""
        while True:
            await asyncio.sleep(SOCKET_LOOK_S)
            try:
                listener = self._socket_anew()
            except CutoverError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("the control socket is gone", why=told)
                continue
            if listener is None:
                continue
            made = partial(protocol, server.config, server.server_state, server.lifespan.state)
            server.servers.append(await asyncio.get_running_loop().create_server(made, sock=listener))
            log.warning("the control socket was removed and is there again", socket=str(self.config.socket))

    def _socket_anew(self) -> socket.socket | None:
        """None where there is one, be it another daemon's."""
        path = self.config.socket
        return None if os.path.lexists(path) else open_socket(path, self.config.socket_group)

    def _stop(self, server: uvicorn.Server) -> None:
        server.should_exit = True

    def _loop(self, server: uvicorn.Server) -> None:
        try:
            self.loop.run(lambda: notify("WATCHDOG=1"))
        except Exception:
            # A loop that breaks must not leave an API that answers for it: the service manager starts us again.
            log.exception("the loop broke")
            server.should_exit = True
            self.broken = True

    broken = False


def _method_and_path(text: str) -> tuple[str, str]:
    method, _, path = text.partition(" ")
    if not method or not path.startswith("/"):
        raise UsageError(f"extra_paths: `{text}` is not a method and a path, for example `POST /v1/audio/speech`")
    return method, path
