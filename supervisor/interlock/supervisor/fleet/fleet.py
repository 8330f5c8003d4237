"""All workers: the only place that feeds their lifecycles and does what these command."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from interlock.bus.endpoints import Home, endpoint, unlink_endpoint
from interlock.bus.errors import NotFoundError
from interlock.bus.messages import Configure, ControlDown, Drain, Stop
from interlock.bus.names import workers_meant
from interlock.bus.nearest import no_worker
from interlock.bus.records import CallReport
from interlock.bus.settings import AgentSettings, PolicySettings, Timing
from interlock.bus.wording import spoken
from interlock.supervisor.attempts import attempt
from interlock.supervisor.attention import MAX_TEXT, STATE, Attention, Row
from interlock.supervisor.config.model import Entry, Settings
from interlock.supervisor.control.plane import ControlPlane
from interlock.supervisor.events.ports import WorkerView
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.fleet.boot import (
    boot_record,
    configure_body,
    init_budget,
    kind_of,
    spawn_request,
)
from interlock.supervisor.fleet.member import SETTLED, Member, Predicate
from interlock.supervisor.lifecycle import commands, inputs
from interlock.supervisor.lifecycle.states import (
    UP,
    After,
    Process,
    State,
    Timer,
    Worker,
)
from interlock.supervisor.lifecycle.step import step
from interlock.supervisor.spawn.launcher import Launcher

DISABLED: Final = "disabled in the configuration"
JITTER: Final = 0.2
LAST_WORDS: Final = 0.05
"""Seconds that a message may still take after the death of its sender."""
TOOLS: Final = "tool_schema"
"""Code of rows about tools; they stay until the next process has reported its own."""
PERMANENT: Final = frozenset({"command_not_found", "no_permission", "too_large"})
"""Codes of failed starts that trying again soon cannot help."""


class Listener(Protocol):
    """Who has to know of every change before it is announced."""

    def worker_changed(self, worker: str) -> None:
        """The worker has a new state or reason."""

    def worker_gone(self, worker: str, generation: int, reason: str) -> tuple[CallReport, ...]:
        """A generation has ended; returns how the calls that it had under way ended."""

    def worker_forgotten(self, worker: str) -> None:
        """The worker is in no configuration any more and has ended."""


class Fleet:
    """Workers by name, in the order of their configuration.

    `connect` must be called before anything is fed; it is apart from construction because the
    parts need each other. Everything runs in the event loop and nothing waits.
    """

    control: ControlPlane
    launcher: Launcher
    listener: Listener

    def __init__(
        self, home: Home, settings: Settings, sequencer: Sequencer, attention: Attention
    ) -> None:
        self.home = home
        self.settings = settings
        self.members: dict[str, Member] = {}
        self._last_generations: dict[str, int] = {}
        """Of workers that left: callers must not take a later one of that name for the old one."""
        self._sequencer = sequencer
        self._attention = attention
        self._random = random.Random()

    def connect(self, control: ControlPlane, launcher: Launcher, listener: Listener) -> None:
        """Name the parts that carry out commands."""
        self.control, self.launcher, self.listener = control, launcher, listener

    @property
    def timing(self) -> Timing:
        """The times in force."""
        return self.settings.supervisor.timing

    # --- the members ---

    def add(self, name: str, entry: Entry) -> Member:
        """Take a worker in, STOPPED; or give one that is still on its way out its new entry."""
        member = self.members.get(name)
        if member is None:
            worker = Worker(name, kind_of(entry), since=time.monotonic())
            worker.reason = "" if entry.settings.enabled else DISABLED
            worker.generation = self._last_generations.pop(name, 0)
            member = Member(worker, entry)
            self.members[name] = member
        self.configure(member, entry)
        return member

    def arrange(self, names: Iterable[str]) -> None:
        """Bring the workers into that order; those that are on their way out come last."""
        order = dict.fromkeys((*names, *self.members))
        self.members = {name: self.members[name] for name in order}

    def configure(self, member: Member, entry: Entry) -> None:
        """Give a worker its entry; what runs already keeps what it was started with."""
        member.entry = entry
        member.worker.timing = self.timing
        member.worker.init_budget = init_budget(entry)

    def find(self, name: str) -> Member:
        """The worker with that name, or with that name after a kind if only one has it.

        Raises NotFoundError.
        """
        found = workers_meant(name, self.members)
        if len(found) == 1:
            return self.members[found[0]]
        if found:
            raise NotFoundError(f"{name} may be {' or '.join(found)}; say which one you mean.")
        left_out = self._attention.entries()
        raise NotFoundError(self.unused(name) or no_worker(name, self.members, left_out))

    def unused(self, name: str) -> str:
        """Why the entry with that name has no worker, and what to do; empty if there is none."""
        return self._attention.unused(name)

    def up(self) -> Iterator[Member]:
        """The workers whose process has said hello and is not being stopped."""
        return (member for member in self.members.values() if member.worker.state in UP)

    def pids(self) -> dict[str, int]:
        """Pids of the processes that run now, by name."""
        return {
            name: member.worker.pid for name, member in self.members.items() if member.worker.pid
        }

    async def reached(self, member: Member, wish: Predicate, seconds: float) -> bool:
        """Wait until the worker is as wished; False if it is not after `seconds`."""
        if wish(member.worker):
            return True
        future = asyncio.get_running_loop().create_future()
        member.waiters.append((wish, future))
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        return True

    # --- inputs ---

    def feed(self, name: str, event: inputs.Input) -> None:
        """Apply one input to a worker's lifecycle and do what it commands."""
        member = self.members.get(name)
        if member is None:
            return
        worker = member.worker
        before = (worker.state, worker.reason, worker.generation)
        todo = step(worker, event)
        # First what keeps the worker going, then everybody who decides learns of it, and only then
        # it is announced: who acts on an event finds what it says.
        for command in todo:
            attempt(self._execute, member, command)
        for command in todo:
            if isinstance(command, commands.Fence):
                attempt(self._tell_gone, member, command.generation, command.reason)
        if (worker.state, worker.reason, worker.generation) != before:
            attempt(self.listener.worker_changed, name)
        if commands.Forget() in todo:
            attempt(self.listener.worker_forgotten, name)
        for command in todo:
            if isinstance(command, commands.Publish):
                attempt(self._sequencer.publish, command.event)
        attempt(self._attend, member)
        member.wake()

    def feed_all(self, make: type[inputs.Start]) -> None:
        """Apply the same wish to all workers whose entry is enabled, in parallel."""
        for name, member in list(self.members.items()):
            if member.entry.settings.enabled:
                self.feed(name, make(now=time.monotonic()))

    def spawned(self, name: str, generation: int, pid: int, start: int) -> None:
        """The spawner started a process."""
        self.feed(name, inputs.Spawned(now=time.monotonic(), generation=generation, pid=pid))

    def spawn_failed(self, name: str, generation: int, code: str, message: str) -> None:
        """The spawner could not start a process."""
        self.feed(
            name,
            inputs.SpawnFailed(
                now=time.monotonic(),
                generation=generation,
                code=code,
                message=message,
                permanent=code in PERMANENT,
                jitter=self._jitter(),
            ),
        )

    def died(self, name: str, generation: int) -> None:
        """A process is dead; how it ended comes with `exited`."""
        member = self.members.get(name)
        if member is not None and member.worker.generation == generation:
            ending = member.worker.state is State.STOPPING
            self._tell_gone(
                member, generation, member.worker.reason if ending else "its process died"
            )

    def exited(
        self, name: str, generation: int, exit_code: int | None, signal_number: int | None
    ) -> None:
        """A process is dead and how it ended is known.

        What exits by itself may have said why, and that may still be on its way.
        """
        member = self.members.get(name)
        event = inputs.Exited(
            now=time.monotonic(),
            generation=generation,
            exit_code=exit_code,
            signal=signal_number,
            jitter=self._jitter(),
        )
        if exit_code is None or member is None or member.worker.state is State.STOPPING:
            self.feed(name, event)
        else:
            asyncio.get_running_loop().call_later(LAST_WORDS, self.feed, name, event)

    def spawner_lost(self, reason: str) -> None:
        """The spawner died and everything below it has been swept."""
        for name in list(self.members):
            self.feed(
                name,
                inputs.SpawnerLost(now=time.monotonic(), reason=reason, jitter=self._jitter()),
            )

    # --- what the turn service needs ---

    def view(self, worker: str) -> WorkerView | None:
        """The worker with that name, or None if none is configured."""
        member = self.members.get(worker)
        if member is None:
            return None
        record = member.worker
        ending = record.state is State.STOPPING
        return WorkerView(
            name=record.name,
            kind=record.kind,
            state=str(State.BACKOFF if _comes_back(member) else record.state),
            reason=record.reason,
            generation=record.generation,
            stopped_for=record.reason if ending and record.after is not After.FAIL else "",
        )

    def agents(self) -> Mapping[str, AgentSettings]:
        """Enabled agents by name, without `agent:`."""
        return {
            name: entry.settings
            for name, entry in self.settings.agents.items()
            if entry.settings.enabled
        }

    def default_agent(self) -> str:
        """Name of the agent that a turn without one goes to."""
        return self.settings.supervisor.default_agent

    def policy(self) -> PolicySettings:
        """The policy in force."""
        return self.settings.policy

    def send(
        self, worker: str, generation: int, message: ControlDown, body: bytes | None = None
    ) -> bool:
        """Send on control to exactly that generation; False: gone or full."""
        return self.control.send(worker, generation, message, body)

    # --- commands ---

    def _execute(self, member: Member, command: commands.Command) -> None:
        name = member.worker.name
        match command:
            case commands.Spawn(generation):
                self._spawn(member, generation)
            case commands.SendConfigure(generation):
                body = configure_body(self.home, name, member.entry, self.timing)
                configure = Configure(key=member.key, endpoint=member.endpoint)
                self.control.send(name, generation, configure, body)
            case commands.SendDrain(generation, seconds):
                self.control.send(name, generation, Drain(seconds=seconds))
                self.launcher.signal(name, generation, signal.SIGCONT)
            case commands.SendStop(generation):
                self.control.send(name, generation, Stop())
            case commands.Signal(generation, kill):
                number = signal.SIGKILL if kill else signal.SIGTERM
                self.launcher.signal(name, generation, number)
                if not kill:
                    # One that somebody stopped can neither read nor end before it goes on.
                    self.launcher.signal(name, generation, signal.SIGCONT)
            case commands.SetTimer(generation, timer, delay):
                self._cancel_timer(member)
                loop = asyncio.get_running_loop()
                fired = (name, generation, timer)
                member.timer = loop.call_later(delay, self._fire, *fired)
            case commands.CancelTimer():
                self._cancel_timer(member)
            case commands.Fence(generation):
                self._fence(member, generation)
            case commands.Forget():
                self._cancel_timer(member)
                self._last_generations[name] = member.worker.generation
                del self.members[name]
            case commands.Publish():
                pass  # last of all, see `feed`

    def _spawn(self, member: Member, generation: int) -> None:
        name = member.worker.name
        nonce, token = secrets.token_hex(8), secrets.token_hex(16)
        boot = boot_record(self.home, name, member.entry, generation, nonce, token)
        if generation > 1 and member.worker.reason:
            boot = msgspec.structs.replace(boot, before=member.worker.reason[:MAX_TEXT])
        member.forget_generation()
        if member.worker.kind != "agent":  # agents call and are not called
            member.key = secrets.token_bytes(32)
            member.endpoint = endpoint(self.home, "data", name, generation)
        self.control.expect(boot)
        self.launcher.spawn(spawn_request(boot, member.entry))

    def _fence(self, member: Member, generation: int) -> None:
        """Hear nothing more in the name of a dead generation; its socket file goes with it."""
        if generation <= member.fenced:
            return
        member.fenced = generation
        self.control.forget(member.worker.name, generation)
        if member.endpoint:
            unlink_endpoint(member.endpoint)
        member.forget_generation()
        self._forget_rows(member.worker.name, lambda row: row.code != TOOLS)

    def _tell_gone(self, member: Member, generation: int, reason: str) -> None:
        """Tell who may be calling that generation, once."""
        if generation > member.told_gone:
            member.told_gone = generation
            lost = self.listener.worker_gone(member.worker.name, generation, reason)
            member.metrics.add(lost)

    def _fire(self, name: str, generation: int, timer: Timer) -> None:
        self.members[name].timer = None
        self.feed(name, inputs.TimerFired(now=time.monotonic(), generation=generation, timer=timer))

    def _cancel_timer(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _jitter(self) -> float:
        return self._random.uniform(1 - JITTER, 1 + JITTER)

    def _attend(self, member: Member) -> None:
        """Keep the worker's own row under needs attention true: there while it is in trouble."""
        worker = member.worker
        if worker.name not in self.members or worker.state is State.STOPPED:
            self._forget_rows(worker.name, lambda row: True)
        if worker.state not in SETTLED:
            return  # no outcome yet: a row would come and go with every attempt
        trouble = _trouble(member)
        rows = () if trouble is None else (trouble,)
        self._attention.replace(rows, lambda row: row.name != worker.name or row.subject != STATE)

    def _forget_rows(self, name: str, gone: Callable[[Row], bool]) -> None:
        """Take away what a process of that worker was the source of, as far as `gone`."""
        self._attention.replace(
            (), lambda row: row.name != name or not row.from_process or not gone(row)
        )


def _comes_back(member: Member) -> bool:
    """Whether the present process is of no use any more and another one follows by itself."""
    worker = member.worker
    if worker.state is State.STOPPING:
        return worker.after in (After.START, After.FAIL)
    return worker.process is Process.ALIVE and member.told_gone >= worker.generation


def _trouble(member: Member) -> Row | None:
    worker = member.worker
    failure = worker.failure
    by_hand = f"interlock logs {worker.name}"
    if worker.state is State.DEGRADED:
        code = member.degraded_code or "degraded"
        fix = f"{by_hand}; interlock restart {worker.name}"
        return Row(name=worker.name, code=code, message=worker.reason, fix=fix, subject=STATE)
    # A first failure may pass, but who was waited for in vain has cost a minute already.
    again = worker.attempt > 1 or (failure is not None and failure.code == "init_timeout")
    failing = worker.state is State.FAILED or (worker.state is State.BACKOFF and again)
    if failing and failure is not None:
        fix = failure.fix or f"{by_hand}; interlock restart {worker.name}"
        if worker.state is State.FAILED:
            wait = spoken(worker.timing.failed_retry)
            fix = f"{fix.rstrip('.')}. It is tried again {wait} s after it failed."
        return Row(
            name=worker.name, code=failure.code, message=worker.reason, fix=fix, subject=STATE
        )
    return None
