"""A throughput run: learn, warm up, and measure round by round over all cells, so that drift hits every cell alike."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gates.ledger.words import counted
from gates.load_client import ClientCost, LoadClient, processes_for
from gates.throughput.asking import Asker, ProbeFailedError, Question
from gates.throughput.cells import CellRun
from gates.throughput.device_side import Devices, open_devices
from gates.throughput.engine_side import EngineFacts, EngineWatch, Tally, facts_of_flags, look_at
from gates.throughput.interrupt import to_its_end, until_a_signal
from gates.throughput.ladder import ladder, resolved
from gates.throughput.measured import Enough, Listen, Measured, Progress, Subject
from gates.throughput.records import Run
from gates.throughput.sample import Reading, read
from gates.wire import parse_location

if TYPE_CHECKING:
    from gates.throughput.settings import ThroughputSettings
    from gates.throughput.workload import Workload

__all__ = ["Measured", "ProbeFailedError", "Progress", "Subject", "measure"]

_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_WARM_TOKENS: Final = 16
_STEADY_SHARE: Final = 0.2
_STEADY_S: Final = 0.005
"""Two warm-up rounds agree when their first tokens took as long, within a fifth or so many seconds."""
_CLOCK_STEP_S: Final = 1.0
_LENGTH_SHARE: Final = 0.05
_SPARE: Final = 1.3
"""A round is begun only when so many times what it is expected to take is left."""


def never(run: Run, rounds: int) -> str | None:
    """Measure until the last round that the settings name."""
    del run, rounds
    return None


async def measure(
    subject: Subject,
    settings: ThroughputSettings,
    *,
    ends_at_s: float,
    listen: Listen = lambda _: None,
    enough: Enough = never,
    also: Mapping[str, Collection[int]] | None = None,
    interruptible: bool = False,
) -> Measured:
    """Run the whole ladder; to be called inside `load_client.run`. `ends_at_s` is a monotonic time.

    `also`: workload → rungs beside the ladder's own, such as those that a baseline has. `interruptible`: Ctrl-C, `kill`
    and a closed terminal end the measuring, and what is there by then is returned; a second one ends the process.

    Raises `ProbeFailedError` when the endpoint does not even answer a short question; whatever goes wrong later is in
    the cells.
    """
    started_at, started_s = datetime.now(UTC), time.monotonic()
    wall_s = time.time()
    facts, pages = await asyncio.to_thread(_look_around, subject, settings, ends_at_s)
    servers = [parse_location(url)[0] for url in subject.metrics_urls]
    devices = await asyncio.to_thread(open_devices, subject.endpoint.target, servers=servers)
    hardware = devices.hardware()
    bench = _Bench(subject, settings, ends_at_s, listen, enough, facts, devices)
    bench.plan(pages, also or {})
    client = LoadClient(subject.endpoint, limit_bytes=_MAX_ANSWER_BYTES)
    try:
        with devices.watching():
            if not interruptible:
                await bench.run(client)
            elif await until_a_signal(bench.run(client), client.close):
                bench.interrupt()
    finally:
        client.close()
    bench.notes += clock_note(time.time() - wall_s, time.monotonic() - started_s)
    run = replace(bench.record(), started_at=started_at.isoformat(timespec="seconds"))
    run = replace(run, duration_s=round(time.monotonic() - started_s, 3))
    return Measured(run, bench.cells, hardware, bench.notes, bench.interrupted)


def clock_note(wall_s: float, monotonic_s: float) -> list[str]:
    """What to say when the wall clock went another way than the monotonic one, by which everything is timed."""
    step_s = wall_s - monotonic_s
    if abs(step_s) < _CLOCK_STEP_S:
        return []
    return [f"this machine's clock was set {step_s:+.1f} s during the run; nothing but the date is taken from it"]


def _look_around(
    subject: Subject, settings: ThroughputSettings, ends_at_s: float
) -> tuple[EngineFacts, tuple[str, ...]]:
    given = EngineFacts(
        name=subject.engine,
        limit=settings.limit or subject.capability.max_running,
        captures=tuple(settings.captures),
        context_tokens=subject.capability.max_context_tokens,
    )
    flags = facts_of_flags(subject.flags, instances=subject.instances)
    own, pages = look_at(subject.endpoint, subject.model, subject.metrics_urls, ends_at_s)
    # What an engine settled on counts more than what its flags asked for.
    return given.or_else(own).or_else(replace(flags, version=subject.engine_version or None)), pages


class _Bench:
    """One run's state."""

    def __init__(
        self,
        subject: Subject,
        settings: ThroughputSettings,
        ends_at_s: float,
        listen: Listen,
        enough: Enough,
        facts: EngineFacts,
        devices: Devices,
    ) -> None:
        self.settings = settings
        self.facts = facts
        self.notes: list[str] = []
        self._subject = subject
        self._ends_at_s = ends_at_s
        self._listen = listen
        self._enough = enough
        self._devices = devices
        self._asker = Asker(subject.model, subject.capability, facts.context_tokens)
        self._done = 0
        self._target = settings.rounds[0]
        self.cells: list[CellRun] = []
        self.interrupted: str | None = None
        self._met: set[str] = set()
        if devices.absent is not None:
            self.notes.append(f"no figures of GPUs: {devices.absent}")

    async def run(self, client: LoadClient) -> None:
        open_cells = [cell for cell in self.cells if cell.problem is None]
        if open_cells and await self._quiet(open_cells):
            workloads = list({cell.workload.name: cell.workload for cell in open_cells}.values())
            self._say("learning how long the prompts become")
            await self._asker.learn(client, workloads, self._soon)
            self._leave_out(self._asker.refused)
            for cell in open_cells:
                if not cell.over:
                    await self._warm_up(client, cell)
            await self._rounds(client)
            self.notes += [note for workload in workloads if (note := self._missed(workload, open_cells)) is not None]

    def interrupt(self) -> None:
        """Say how far the run came; the round that was under way counts for nothing."""
        possible = [cell for cell in self.cells if not cell.impossible]
        measured = sum(bool(cell.rounds) for cell in possible)
        self.interrupted = f"interrupted after {measured} of {counted(len(possible), 'cell')}{self._rounds_in_words()}"
        self._say(self.interrupted)
        for cell in possible:
            if not cell.requests:
                cell.problem = cell.problem or "not measured: interrupted"

    def _rounds_in_words(self) -> str:
        """How many rounds the measured cells have, where more were asked for than one."""
        seen = sorted({len(cell.rounds) for cell in self.cells if cell.rounds})
        if self._target == 1 or not seen:
            return ""
        return (
            f", {'–'.join(str(number) for number in dict.fromkeys((seen[0], seen[-1])))} of {self._target} rounds each"
        )

    def _leave_out(self, refused: Mapping[str, str]) -> None:
        """Workloads whose prompts the engine has just refused: nothing more is sent of them."""
        for cell in self.cells:
            sentence = refused.get(cell.workload.name)
            if sentence is not None and not cell.over:
                cell.impossible = cell.over = True
                cell.problem = f"its prompts do not fit into the context: {sentence}"

    async def _quiet(self, cells: Sequence[CellRun]) -> bool:
        """Is nobody being served? A ladder on top of users would hurt them, and measure nothing."""
        first = cells[0].watch
        await first.open(self._ends_at_s, abandoned=False)
        for cell in cells:
            cell.watch.blame(first.problem)
        return first.problem is None

    def record(self) -> Run:
        """Everything so far. The time it was started and took is the caller's to say."""
        return Run(
            started_at="",
            duration_s=0.0,
            model=self._subject.model,
            workloads={workload.name: self._plain(workload) for workload in self.settings.workloads},
            cells=[
                cell.finished(self.settings, self._asker.lengths.head, self._devices.figures(cell.spans))
                for cell in self.cells
            ],
            engine=self.facts.plain() | dict(self._subject.about),
        )

    def _plain(self, workload: Workload) -> dict[str, Any]:
        """All that two cells must share to be compared."""
        plain = self.settings.definition(workload)
        if workload.prompt_tokens == "limit":
            plain["limit_tokens"] = workload.prompt_length(0, self.facts.context_tokens)
        return plain

    def plan(self, pages: tuple[str, ...], also: Mapping[str, Collection[int]]) -> None:
        """Which cells there are. `pages`: the URLs of the engines' counters."""
        if not pages:
            self.notes.append("the endpoint has no metrics page that is known: counts are not reconciled")
        settings, limit = self.settings, self.facts.limit
        if limit is None and not settings.ladder:
            self.notes.append(
                f"how many sequences the engine runs at once nobody says, so the ladder ends at "
                f"{settings.max_concurrency}: give its limit to see what lies beyond"
            )
        auto = ladder(limit, most=settings.max_concurrency, captures=self.facts.captures)
        for workload in settings.workloads:
            asked = settings.rungs(workload)
            rungs, lost = resolved(asked, limit)
            self.notes += [f"{workload.name}: {sentence}" for sentence in dict.fromkeys(lost)]
            problem = workload.impossible(self.facts.context_tokens)
            for rung in sorted({*(rungs if asked else auto), *also.get(workload.name, ())}):
                watch = EngineWatch(pages, settings.quiet_s, self._subject.endpoint.api_key)
                cell = CellRun(workload, rung, watch, problem)
                cell.impossible = cell.over = problem is not None
                self.cells.append(cell)

    def _missed(self, workload: Workload, cells: Sequence[CellRun]) -> str | None:
        """What to say when prompts did not become as long as they should."""
        wanted = workload.prompt_length(0, self.facts.context_tokens)
        samples = [s for cell in cells if cell.workload.name == workload.name for s in cell.samples]
        if wanted is None or workload.prompt_tokens_max is not None or not samples:
            return None
        came = statistics.median(sample.prompt_tokens for sample in samples)
        if abs(came / wanted - 1) <= _LENGTH_SHARE:
            return None
        return f"{workload.name}: prompts of {came:.0f} tokens were sent where {wanted} were wanted"

    # --- warm-up ------------------------------------------------------------------------------------------------------

    async def _warm_up(self, client: LoadClient, cell: CellRun) -> None:
        """Short rounds until the first token takes as long as in the one before: what compiles has compiled then."""
        before_s: float | None = None
        for number in range(self.settings.warmups):
            if self._left_s() <= 0:
                return
            self._say(f"{cell.key}: warming up")
            asked = self._asker.questions(cell.workload, -2 - number, cell.concurrency)
            tokens = min(_WARM_TOKENS, cell.workload.answer_tokens)
            short = [replace(q, body=q.body | {"max_tokens": tokens}, wanted_tokens=None) for q in asked]
            readings = await self._wave(client, short)
            self._asker.correct(cell.workload, [question.chars for question in short], readings)
            samples = [reading.sample for reading in readings if reading.sample is not None]
            self._failed_warming(cell, readings)
            if not samples:
                return
            wait_s = statistics.median(sample.ttft_s for sample in samples)
            gap_s = statistics.median([gap for sample in samples for gap in sample.gaps_s] or [0.0])
            each = cell.workload.longest_answer * gap_s * len(samples[0].times_s) / samples[0].completion_tokens
            cell.chunks_per_s = cell.concurrency / gap_s if gap_s else 0.0
            cell.expected_s = (max(sample.ttft_s for sample in samples) + each) * self.settings.requests_per_stream
            if before_s is not None and abs(wait_s - before_s) <= max(_STEADY_S, _STEADY_SHARE * before_s):
                return
            before_s = wait_s

    def _failed_warming(self, cell: CellRun, readings: Sequence[Reading]) -> None:
        """Once for each kind: what a warm-up met explains what the rounds will."""
        if self._cut([readings]):
            # The run's own end says nothing about the engine.
            self.notes.append(f"{cell.key}: the time was up while it warmed up; a longer --deadline measures it")
            return
        for kind in dict.fromkeys(reading.failure for reading in readings if reading.failure is not None):
            failed = [reading for reading in readings if reading.failure == kind]
            if kind not in self._met:
                self._met.add(kind)
                counts = f"{len(failed)} of {len(readings)} requests failed while warming up"
                self.notes.append(f"{cell.key}: {counts} ({kind}): {failed[0].sentence}")

    # --- rounds -------------------------------------------------------------------------------------------------------

    async def _rounds(self, client: LoadClient) -> None:
        last = self.settings.rounds[-1]
        for number in range(1, last + 1):
            self._target = next(look for look in self.settings.rounds if look >= number)
            open_cells = [cell for cell in self.cells if not cell.over]
            if not open_cells:
                return
            if number > 1 and self._left_s() < _SPARE * sum(cell.expected_s for cell in open_cells):
                self.notes.append(f"{number - 1} of {counted(last, 'round')}: the time was up")
                return
            for cell in open_cells:
                await self._round(client, cell, number)
            looks = number in self.settings.rounds or any(cell.failures for cell in open_cells)
            if looks and self._enough(self.record(), number) is not None:
                return

    async def _round(self, client: LoadClient, cell: CellRun, number: int) -> None:
        if cell.over or self._left_s() <= _SPARE * cell.expected_s:
            return
        asked = self._asker.questions(cell.workload, number, cell.concurrency * self.settings.requests_per_stream)
        for first in range(0, len(asked) if cell.workload.prefix == "warm" else 0, cell.concurrency):
            once = asked[first : first + cell.concurrency]
            await self._wave(client, [replace(q, body=q.body | {"max_tokens": 1}, wanted_tokens=None) for q in once])
        self._say(f"{cell.key}: round {number} of {self._target}")
        await cell.watch.open(self._ends_at_s, abandoned=any(other.failures for other in self.cells))
        if cell.watch.problem is not None:
            cell.over = True
            return
        began_s, began_wall_s = time.monotonic(), time.time()
        client.processes = self.settings.client_processes or processes_for(cell.chunks_per_s, os.cpu_count() or 1)
        try:
            readings, cost = await self._measured(client, asked, cell)
        except (RuntimeError, OSError) as error:
            # The network raises nothing here: a process of the client is gone, and the cell's other rounds with it.
            # `ClientBrokeError` says so; uvloop has a RuntimeError of its own for a pipe that was closed just now.
            cell.over = True
            cell.watch.blame(f"the load client broke: {error}; look for what ends processes (memory?), and try again")
            return
        ended_s = time.monotonic()
        if self._cut(readings):
            self.notes.append(f"{cell.key}: round {number} was cut off by the end of the run and does not count")
            return
        cell.expected_s = ended_s - began_s
        tally = cell.take(readings, cost, (began_s, ended_s))
        # A round that counts is also held against the engine's own counts, whoever hurries.
        await to_its_end(self._reconciled(cell, tally, began_wall_s))
        self._done += 1
        if not tally.counted:
            cell.over = True
            await self._after_nothing(client, cell, readings[0][0])

    async def _reconciled(self, cell: CellRun, tally: Tally, began_wall_s: float) -> None:
        await cell.watch.close(tally)
        cell.watch.blame(await asyncio.to_thread(self._devices.foreign, began_wall_s))

    async def _measured(
        self, client: LoadClient, asked: Sequence[Question], cell: CellRun
    ) -> tuple[list[list[Reading]], ClientCost]:
        """One round: what every stream got, in order. Stream k has the questions k, k + streams, …"""
        streams = [asked[number :: cell.concurrency] for number in range(cell.concurrency)]
        load = await client.streams(
            [[question.body for question in stream] for stream in streams],
            deadline_s=self._ends_at_s,
            request_timeout_s=self.settings.request_timeout_s,
        )
        if load.unsent:
            self.notes.append(f"{cell.key}: {load.unsent} requests were not sent: {load.stopped or 'the time was up'}")
        readings = [
            [read(exchange, wanted_tokens=q.wanted_tokens) for exchange, q in zip(exchanges, stream, strict=False)]
            for exchanges, stream in zip(load.streams, streams, strict=True)
        ]
        return readings, load.cost

    async def _after_nothing(self, client: LoadClient, cell: CellRun, reading: Reading) -> None:
        """A round in which nothing counted ends its cell; where nobody listens any more, the run."""
        probe = await client.wave([self._asker.questions(cell.workload, -1, 1)[0].body | {"max_tokens": 1}],
                                  deadline_s=self._soon())  # fmt: skip
        gone = read(probe[0], wanted_tokens=None)
        if gone.failure != "no connection":
            return
        self.notes.append(f"{cell.key}: the endpoint died during the run: {reading.sentence}")
        for other in self.cells:
            if not other.over:
                other.over = True
                if not other.requests:
                    other.problem = f"not measured: the endpoint is gone ({gone.sentence})"

    # --- small things -------------------------------------------------------------------------------------------------

    async def _wave(self, client: LoadClient, asked: Sequence[Question]) -> list[Reading]:
        exchanges = await client.wave([question.body for question in asked], deadline_s=self._soon())
        return [
            read(exchange, wanted_tokens=question.wanted_tokens)
            for exchange, question in zip(exchanges, asked, strict=True)
        ]

    def _cut(self, readings: Sequence[Sequence[Reading]]) -> bool:
        """Did the run's own end cut this round short? That says nothing about the engine."""
        late = any(reading.failure == "timeout" for stream in readings for reading in stream)
        return late and self._left_s() <= 0

    def _soon(self) -> float:
        """The deadline of a request that is sent now."""
        return min(time.monotonic() + self.settings.request_timeout_s, self._ends_at_s)

    def _left_s(self) -> float:
        return self._ends_at_s - time.monotonic()

    def _say(self, sentence: str) -> None:
        going = [cell for cell in self.cells if not cell.over]
        left = sum(cell.expected_s * max(0, self._target - cell.rounds_seen) for cell in going)
        of = self._done + sum(max(0, self._target - cell.rounds_seen) for cell in going)
        self._listen(Progress(self._done, of, sentence, left or None))
