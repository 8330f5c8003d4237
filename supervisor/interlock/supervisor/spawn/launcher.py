"""The supervisor's side of the spawner: asks for workers, hears of deaths, survives its death.

One Launcher owns one spawner process at a time. A worker is known by name and generation.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from interlock.bus import procfs
from interlock.bus.errors import SpawnError, TooLargeError
from interlock.bus.records import Child
from interlock.bus.regular import regular
from interlock.supervisor.spawn import stopped, sweep
from interlock.supervisor.spawn.files import spawner_environment
from interlock.supervisor.spawn.link import Link
from interlock.supervisor.spawn.protocol import (
    MAX_BOOT,
    Exited,
    ImageReady,
    Reap,
    Rejected,
    Spawn,
    Spawned,
    SpawnFailed,
    Up,
    make_link,
)
from interlock.supervisor.spawn.request import SpawnRequest

Mode = Literal["fork", "exec"]
WARM_ENTRY: Final = "interlock.workers.mcp.warm:warm"
_READY: Final = 20.0
"""Seconds that a new spawner may take until it takes orders."""
_ANSWER: Final = 40.0
"""Seconds without an answer to an order until the spawner counts as hung; warming included."""
_LOOK: Final = 1.0
"""Seconds that something may be owed by the spawner until it is looked whether it was stopped, and
from there to the next look. Starting a worker takes a tenth of that."""
_CLOSE: Final = 5.0
"""Seconds that a spawner may take to end its workers and itself."""
_FAILED: Final = "spawner_failed"
_NOT_WARM: Final = "image_not_warm"
_STOPPED: Final = "spawner_stopped"
_AGAIN_FIRST: Final = 0.25
_AGAIN_MAX: Final = 30.0


class _Worker:
    """A worker that was asked for and whose end was not reported yet."""

    def __init__(self) -> None:
        self.pid = 0
        self.handle: int | None = None
        self.died = False
        self.deadline: asyncio.TimerHandle | None = None
        """Runs from the order to its answer, and from its death to the report of its end."""
        self.signals: list[int] = []

    def answered(self) -> None:
        """Stop the clock of the order."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


def _ignore(*_: object) -> None:
    return


class Launcher:
    """Starts workers through the spawner and reports each one's life, in this order.

    `on_spawned(name, generation, pid, start)` or `on_failed(name, generation, code, message)`;
    after `on_spawned` once `on_died(name, generation)`, as soon as the process is dead, and once
    `on_exited(name, generation, exit_code, signal)`; both None: unknown, its spawner died.
    `on_spawner_lost(reason)` comes after everything was swept and before these; the spawner
    then starts again by itself. `on_notice(code, message)` tells of trouble that stops nothing,
    with an empty message that it is over. What a callback raises goes to the exception handler of
    the event loop. A spawner that answers no order, or reports no end, for `patience` seconds is
    replaced; one that was only stopped (SIGSTOP) is continued within about a second.

    The process becomes a subreaper. After the death of a spawner every child is killed that was
    not there when `start` was called, so a supervisor must start nothing else.
    """

    def __init__(
        self,
        mode: Mode = "fork",
        *,
        on_spawned: Callable[[str, int, int, int], None],
        on_failed: Callable[[str, int, str, str], None],
        on_exited: Callable[[str, int, int | None, int | None], None],
        on_died: Callable[[str, int], None],
        on_spawner_lost: Callable[[str], None],
        on_notice: Callable[[str, str], None] = _ignore,
        records: sweep.Records | None = None,
        log: Path | None = None,
        warm: str = WARM_ENTRY,
        patience: float = _ANSWER,
    ) -> None:
        self._mode = mode
        self._on_spawned = on_spawned
        self._on_failed = on_failed
        self._on_exited = on_exited
        self._on_died = on_died
        self._on_spawner_lost = on_spawner_lost
        self._on_notice = on_notice
        self._records = records
        self._log = log
        self._warm = warm
        self._patience = patience
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._queued: list[SpawnRequest] = []
        self._links: dict[str, Link] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: int | None = None
        self._born = 0.0
        self._again = 0.0
        self._foreign: frozenset[tuple[int, int]] = frozenset()
        self._ready: asyncio.Future[None] | None = None
        self._cold: set[str] = set()
        """Images of the present spawner that said that they are not warm."""
        self._told: set[str] = set()
        self._losses: asyncio.Queue[str] = asyncio.Queue()
        self._keeper: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None
        """The next look whether the spawner was stopped; None while it owes nothing."""

    @property
    def pid(self) -> int | None:
        """Pid of the spawner, safe to signal; None while there is none or it is being replaced."""
        return self._process.pid if self._process and self._handle is not None else None

    async def start(self) -> None:
        """Start the spawner and wait until it takes orders. Raises SpawnError."""
        procfs.become_subreaper()
        self._foreign = sweep.known_children()
        await self._start()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def spawn(self, request: SpawnRequest) -> None:
        """Ask for a worker; the answer comes as `on_spawned` or `on_failed`, never at once.

        It takes the place of an earlier generation that still waits for a spawner, which is
        forgotten without an answer.
        """
        boot = request.boot
        for older in [one.boot for one in self._queued if one.boot.name == boot.name]:
            del self._workers[older.name, older.generation]
        self._queued = [one for one in self._queued if one.boot.name != boot.name]
        self._workers[boot.name, boot.generation] = _Worker()
        if self._links:
            self._send(request)
        else:
            self._queued.append(request)

    def signal(self, name: str, generation: int, number: int) -> bool:
        """Send a signal to a worker, never to another process; False if it is dead or unknown.

        Before `on_spawned` the signal is kept and sent as soon as the worker runs.
        """
        worker = self._workers.get((name, generation))
        if worker is None or worker.died:
            return False
        if not worker.pid:
            worker.signals.append(number)
            return True
        try:
            if worker.handle is not None:
                signal.pidfd_send_signal(worker.handle, number)
            else:
                # Without pidfd: the pid is still its own, a dead worker stays until `Reap`.
                os.kill(worker.pid, number)
        except ProcessLookupError:
            return False
        return True

    def record_children(
        self, name: str, generation: int, children: Sequence[Child]
    ) -> tuple[Child, ...]:
        """Take note of the processes below a worker, for the sweep at the next start; return them.

        What a worker only claims to be below it is left out: the sweep would kill it.
        """
        worker = self._workers.get((name, generation))
        if worker is None or not worker.pid:
            return ()
        proven = sweep.below(worker.pid, children)
        if self._records is not None:
            self._records.put(f"{name}#{generation} child", proven)
        return proven

    async def close(self) -> None:
        """End the spawner and whatever still runs below it; returns within about 12 s."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper], timeout=_CLOSE)
        await self._end_spawner(_CLOSE)
        if self._look is not None:
            self._look.cancel()
        self._queued.clear()
        self._bury_all()
        if self._records is not None:
            self._records.drop("spawner")

    async def _start(self) -> None:
        pairs: dict[str, tuple[socket.socket, socket.socket]] = {}
        try:
            for name in ("base", "mcp") if self._mode == "fork" else ("base",):
                pairs[name] = make_link()
            self._process = self._execute([pair[1].fileno() for pair in pairs.values()])
            self._handle = os.pidfd_open(self._process.pid)
        except OSError as error:
            for pair in pairs.values():
                pair[0].close()
            await self._end_spawner(0)
            raise SpawnError(
                f"The spawner cannot be started ({error.strerror}); "
                "check the limits on processes and open files."
            ) from error
        finally:
            for pair in pairs.values():
                pair[1].close()
        loop = asyncio.get_running_loop()
        self._cold.clear()
        self._ready = loop.create_future()
        self._born = loop.time()
        self._look_soon()
        loop.add_reader(self._handle, self._lose, "spawner died")
        for name, pair in pairs.items():
            self._links[name] = self._link(name, pair[0])
        if self._records is not None:
            self._records.put("spawner", [_child(self._process.pid)])
        queued, self._queued = self._queued, []
        for request in queued:
            self._send(request)
        await self._until_ready(self._ready)
        over = {_FAILED} if self._cold else {_FAILED, _NOT_WARM}
        for code in sorted(over & self._told):
            self._told.discard(code)
            self._call(self._on_notice, code, "")

    async def _until_ready(self, ready: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(_READY):
                await ready
        except TimeoutError:
            await self._end_spawner(0)
            raise SpawnError(
                "The spawner did not get ready in time; try again when the machine is less busy."
            ) from None
        except SpawnError:
            await self._end_spawner(0)
            raise

    def _execute(self, inherited: list[int]) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-P", "-m", "interlock.supervisor.spawn.spawner"]
        arguments += [str(number) for number in inherited]
        if self._mode == "fork":
            arguments.append(self._warm)
        with self._open_log() as errors:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=spawner_environment(),
                pass_fds=inherited,
                start_new_session=True,
            )

    def _open_log(self) -> BinaryIO:
        if self._log is not None:
            # A spawner without its log is better than none.
            with contextlib.suppress(OSError):
                return open(self._log, "ab", opener=regular)
        return open(os.devnull, "ab")

    def _link(self, name: str, end: socket.socket) -> Link:
        return Link(
            end,
            functools.partial(self._receive, name),
            lambda _: self._lose("spawner died" if name == "base" else f"{name} image died"),
            functools.partial(self._notice, "spawner_record"),
        )

    def _send(self, request: SpawnRequest) -> None:
        boot = request.boot
        link = self._links.get(boot.image) or self._links.get("base")
        if link is None:
            return  # The spawner was lost this moment; its keeper reports the worker as failed.
        worker = self._workers[boot.name, boot.generation]
        self._await_word(worker)
        try:
            link.send(_record(request))
        except TooLargeError as error:
            # Later, so that `spawn` never calls back into its caller.
            asyncio.get_running_loop().call_soon(
                self._fail, boot.name, boot.generation, error.code, error.message
            )

    def _receive(self, image: str, record: Up, handle: int | None) -> None:
        match record:
            case Spawned():
                self._run(record, handle)
            case SpawnFailed():
                self._fail(record.name, record.generation, record.code, record.message)
            case Exited():
                self._bury(record.name, record.generation, record.exit_code, record.signal)
                if link := self._links.get(image):
                    link.send(Reap(pid=record.pid))
            case ImageReady():
                if record.problem:
                    self._cold.add(image)
                    self._notice(_NOT_WARM, record.problem)
                if image == "base" and self._ready is not None and not self._ready.done():
                    self._ready.set_result(None)
            case Rejected():
                self._notice("spawner_record", record.message)

    def _run(self, record: Spawned, handle: int | None) -> None:
        worker = self._workers.setdefault((record.name, record.generation), _Worker())
        worker.answered()
        worker.pid, worker.handle = record.pid, handle
        if self._records is not None:
            child = Child(pid=record.pid, start=record.start)
            self._records.put(f"{record.name}#{record.generation}", [child])
        self._call(self._on_spawned, record.name, record.generation, record.pid, record.start)
        if handle is not None:
            asyncio.get_running_loop().add_reader(handle, self._die, record.name, record.generation)
        for number in worker.signals:
            self.signal(record.name, record.generation, number)

    def _die(self, name: str, generation: int) -> None:
        worker = self._workers[name, generation]
        worker.died = True
        # A spawner that hangs would leave the worker dead and its end unsettled for ever.
        self._await_word(worker)
        if worker.handle is not None:
            asyncio.get_running_loop().remove_reader(worker.handle)
            os.close(worker.handle)
            worker.handle = None
        self._call(self._on_died, name, generation)

    def _fail(self, name: str, generation: int, code: str, message: str) -> None:
        worker = self._workers.pop((name, generation), None)
        if worker is not None:
            worker.answered()
            self._call(self._on_failed, name, generation, code, message)

    def _bury(self, name: str, generation: int, code: int | None, number: int | None) -> None:
        worker = self._workers.get((name, generation))
        if worker is None:
            return
        if not worker.died:
            self._die(name, generation)
        del self._workers[name, generation]
        worker.answered()
        if self._records is not None:
            self._records.drop(f"{name}#{generation}")
            self._records.drop(f"{name}#{generation} child")
        self._call(self._on_exited, name, generation, code, number)

    def _bury_all(self) -> None:
        waiting = {(one.boot.name, one.boot.generation) for one in self._queued}
        for key, worker in list(self._workers.items()):
            if key in waiting:
                continue
            if worker.pid:
                self._bury(*key, None, None)
            else:
                self._fail(*key, "spawner_died", "The spawner died before it started the worker.")

    def _await_word(self, worker: _Worker) -> None:
        loop = asyncio.get_running_loop()
        worker.deadline = loop.call_later(self._patience, self._give_up)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_again)

    def _look_again(self) -> None:
        """Have a stopped spawner go on, and look again while it owes an answer."""
        self._look = None
        starting = self._ready is not None and not self._ready.done()
        if starting or any(worker.deadline for worker in self._workers.values()):
            self._go_on()
            self._look_soon()
        elif _STOPPED in self._told:
            self._told.discard(_STOPPED)
            self._call(self._on_notice, _STOPPED, "")

    def _go_on(self) -> None:
        pid = self.pid
        if pid is None:
            return
        running = {worker.pid for worker in self._workers.values()}
        for one in stopped.go_on(pid, running):
            what = "The spawner" if one == pid else "A process of the spawner"
            self._notice(_STOPPED, f"{what} (pid {one}) had been stopped; it was made to go on.")

    def _give_up(self) -> None:
        self._lose("spawner did not answer")

    def _lose(self, reason: str) -> None:
        if not self._links:
            return
        self._disconnect()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SpawnError(f"The spawner ended while it started: {reason}."))
        else:
            self._losses.put_nowait(reason)

    async def _keep(self) -> None:
        """Sweep after each spawner that died, and start the next one."""
        loop = asyncio.get_running_loop()
        while True:
            reason = await self._losses.get()
            if loop.time() - self._born > _AGAIN_MAX:
                self._again = 0.0
            await self._end_spawner(0)
            self._call(self._on_spawner_lost, reason)
            self._bury_all()
            while not self._links:
                await asyncio.sleep(self._again)
                self._again = min(max(2 * self._again, _AGAIN_FIRST), _AGAIN_MAX)
                try:
                    await self._start()
                except SpawnError as error:
                    self._notice(_FAILED, error.message)
                    # What it may have started has ended with it, and is to be blamed for nothing.
                    self._call(self._on_spawner_lost, reason)
                    self._bury_all()

    def _notice(self, code: str, message: str) -> None:
        self._told.add(code)
        self._call(self._on_notice, code, message)

    def _call(self, callback: Callable[..., None], *values: object) -> None:
        """Call back; what goes wrong there costs no worker its end, nor the spawner its keeper."""
        try:
            callback(*values)
        except Exception as error:  # noqa: BLE001 - the boundary to those who listen
            context = {"message": "a callback of the launcher failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _disconnect(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)

    async def _end_spawner(self, patience: float) -> None:
        """Let the spawner end by itself for `patience` seconds, kill it then, sweep the rest."""
        self._disconnect()
        process = self._process
        if process is None:
            return
        self._go_on()  # else it would not see that it is to end
        # Both stay in place until the end, so that `close` can take over from a cancelled keeper.
        if self._handle is None or not await _readable(self._handle, patience):
            process.kill()
        if self._handle is not None:
            await _readable(self._handle, _CLOSE)
            os.close(self._handle)
            self._handle = None
        if not await sweep.sweep_children(self._foreign):
            self._notice("sweep_incomplete", "Some processes did not end after SIGKILL.")
        process.poll()
        self._process = None


async def _readable(handle: int, seconds: float) -> bool:
    """Wait until the process behind a pidfd is dead; False if it is not after `seconds`."""
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(handle, dead.set)
    try:
        async with asyncio.timeout(seconds):
            await dead.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True


def _record(request: SpawnRequest) -> Spawn:
    boot = msgspec.msgpack.encode(request.boot)
    if len(boot) > MAX_BOOT:
        raise TooLargeError(len(boot), MAX_BOOT)
    return Spawn(
        name=request.boot.name,
        generation=request.boot.generation,
        boot=boot,
        entry=request.entry,
        title=f"interlock: {request.boot.name}",
        log=request.boot.log,
        folder=request.boot.home,
        keep_env=request.keep_env,
        nice=request.boot.nice,
        open_files=request.open_files,
        cpu_seconds=request.cpu_seconds,
        address_space=request.address_space,
    )


def _child(pid: int) -> Child:
    return Child(pid=pid, start=procfs.start_time(pid) or 0)
