"""What every worker process is: hello, ping, drain, stop, logs, and the watch over its parent.

Run by the spawner after a fork (`main`) or as a program: `python -P -m interlock.workers.host FD`.
FD is the lifeline: it brings the boot record, and its end means that the spawner is gone.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec
import setproctitle
import zmq

from interlock.bus import procfs
from interlock.bus.channel import ControlChannel, DataServer, IncomingCall
from interlock.bus.endpoints import obstacle
from interlock.bus.errors import MalformedError, ProcessLimitError
from interlock.bus.limits import NO_THREADS
from interlock.bus.messages import (
    Apply,
    Children,
    Configure,
    ControlDown,
    ControlUp,
    Drain,
    Drained,
    Hello,
    Notice,
    Ping,
    Pong,
    Ready,
    Revoke,
    Revoked,
    Stop,
    WorkerFailed,
)
from interlock.bus.records import Boot, Child
from interlock.bus.remedies import disk_remedy
from interlock.bus.socket import OwnContext
from interlock.workers.children import ChildWatch, end_descendants, kill_descendants_now
from interlock.workers.discreet import Discretion
from interlock.workers.failure import WorkerError
from interlock.workers.kind import Gauges, WorkerKind
from interlock.workers.logs import WorkerLog
from interlock.workers.pipes import read_now
from interlock.workers.secrets import Masks

KINDS: Final = {
    "mcp": "interlock.workers.mcp.worker:kind",
    "agent": "interlock.workers.agent.worker:kind",
    "core": "interlock.workers.core.worker:kind",
    "cli": "interlock.workers.cli.worker:kind",
}
"""Entry of each kind; imported in the worker that is of that kind, and nowhere else."""
BOOT_PREFIX: Final = 4
"""Bytes of the boot record's length, big-endian, before it on the lifeline."""
MAX_BOOT: Final = 60_000
STOP_TIME: Final = 5.5
"""Seconds that a kind's `stop` may take. All steps of the end together stay below 7.5 s: the
supervisor sends SIGKILL after 8."""
SWEEP_TIME: Final = 1.0
LINGER: Final = 0.5
"""Seconds that the last messages may take to leave."""
FAREWELL: Final = 0.2
"""Seconds that callers have to read their last answers: what they have not read when their
connection ends is thrown away by libzmq at their end. That is also why `drained` waits until all
was sent."""


class WorkerHost:
    """Runs one kind in one process; implements `interlock.workers.kind.Host`."""

    def __init__(self, boot: Boot, lifeline: int) -> None:
        self.boot = boot
        self.masks = Masks()
        self._discretion = Discretion(self.masks)
        self.log = WorkerLog(Path(boot.log), self.masks, self._log_trouble, redirect=True)
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = asyncio.Event()
        self._ending = asyncio.Event()
        self._exit_code = 0
        self._kind: WorkerKind | None = None
        self._configure: Configure | None = None
        self._data: DataServer | None = None
        self._ready = False
        self._socketless = False
        self._ctx: zmq.Context[zmq.Socket[bytes]] = OwnContext()
        self._control = ControlChannel(self._ctx, boot, self._message, self._bad_message)
        self._children = ChildWatch(self._children_changed)

    async def run(self) -> int:
        """Serve until told to stop or unable to go on; return the exit code."""
        self._loop.set_exception_handler(self._unexpected)
        self._loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        os.set_blocking(self._lifeline, False)
        self._loop.add_reader(self._lifeline, self._lifeline_event)
        # The hello comes first: what is said before it, such as that the log is full, is not heard.
        self.send(Hello(token=self.boot.token, pid=os.getpid()))
        boot = self.boot
        if boot.before:  # a process that is killed cannot say it itself
            self.log.line("INFO", f"The generation before {boot.generation} ended: {boot.before}.")
        self.log.line("INFO", f"Worker {boot.name} generation {boot.generation} started.")
        await self._ending.wait()
        await self._end()
        return self._exit_code

    # --- what kinds use ---

    def send(self, message: ControlUp, body: bytes | None = None) -> bool:
        """Send a control message; False if it could not be queued or cannot be written.

        What the worker says of itself leaves without the values that are masked.
        """
        try:
            return self._control.send(*self._discretion.said(message, body))
        except MalformedError as error:
            self.log.line("ERROR", f"{type(message).__name__}: {error.message}")
            return False

    def serve(
        self,
        handler: Callable[[IncomingCall], None],
        on_burst: Callable[[bool], None] | None = None,
    ) -> DataServer:
        """Bind this generation's data endpoint. Raises WorkerError where that is impossible."""
        configure = self._configure
        if configure is None or not configure.endpoint:
            raise WorkerError("internal", "this worker was given no data endpoint")
        try:
            self._data = DataServer(
                configure.endpoint,
                configure.key,
                self.boot.name,
                self.boot.generation,
                handler,
                on_burst=on_burst,
                on_full=self._callers_wait,
            )
        except OSError as error:
            raise WorkerError(
                "bind_failed",
                f"the data endpoint cannot be bound: {error.strerror or type(error).__name__}",
                fix=f"{self._socket_fix(error)}.",
            ) from None
        return self._data

    def notice(
        self, code: str, subject: str = "", message: str = "", fix: str = "", *, clear: bool = False
    ) -> None:
        """Add a row to needs attention, or with `clear` take it away."""
        self.send(Notice(code=code, subject=subject, message=message, fix=fix, clear=clear))

    def fail(self, code: str, reason: str, *, fix: str = "", permanent: bool = False) -> None:
        """Report that the worker cannot go on, and end it with exit code 1."""
        if self._exit_code or self._ending.is_set():
            return
        self._exit_code = 1
        self._ending.set()  # first: whatever the report meets, the worker ends
        self.log.line("ERROR", f"Failed ({code}): {reason}.")
        self.send(WorkerFailed(code=code, reason=reason, fix=fix, permanent=permanent))

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` until it ends or the worker does; if it raises, the worker fails."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def report_children(self) -> None:
        """Look soon at the processes below this one."""
        self._children.look_soon()

    def watch_child(self, pid: int, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit(wait status)` once the child process `pid` has ended and is reaped."""
        self._children.watch(pid, on_exit)

    # --- control plane ---

    def _message(self, message: ControlDown, body: bytes | None) -> None:
        match message:
            case Ping():
                self.send(self._pong(message.n))
                self._look_at_socket()
                self.log.look()
            case Configure():
                if self._configure is None:
                    self._configure = message
                    self.background(self._start(body or b"{}"), "start")
            case Apply():
                self.background(self._apply(body or b"{}"), "apply")
            case Revoke():
                if self._data is not None:
                    self._data.revoke(message)
                self.send(Revoked(n=message.n))
            case Drain():
                self.background(self._drain(message.seconds), "drain")
            case Stop():
                self._ending.set()
            case _:
                if self._kind is not None:
                    self._kind.on_control(message, body)

    def _bad_message(self, error: MalformedError) -> None:
        self.log.line("WARNING", f"A control message could not be read: {error.message}")

    def _pong(self, n: int) -> Pong:
        now = self._kind.gauges() if self._kind is not None else Gauges()
        dropped = now.dropped + self._control.dropped + (self._data.dropped if self._data else 0)
        return Pong(n=n, in_flight=now.in_flight, queue=now.queue, dropped=dropped)

    async def _start(self, body: bytes) -> None:
        assert self._configure is not None
        if is_imported(self.boot.kind):
            make = load_kind(self.boot.kind)
        else:
            # In a thread, since this takes longer than pings may wait. Where an image has imported
            # it already, a thread would only cost memory.
            make = await asyncio.to_thread(load_kind, self.boot.kind)
        self._kind = kind = make()
        self._loaded.set()
        ready: Ready = await kind.start(self, body)
        self._children.look()
        endpoint = self._configure.endpoint if self._data is not None else ""
        self.send(msgspec.structs.replace(ready, endpoint=endpoint))
        self._ready = True
        self.log.info("Ready.")

    async def _apply(self, body: bytes) -> None:
        await self._loaded.wait()
        assert self._kind is not None
        await self._kind.apply(body)
        self.log.info("New settings are in force.")

    async def _drain(self, seconds: float) -> None:
        if self._kind is not None and self._ready:
            try:
                async with asyncio.timeout(seconds):
                    await self._kind.drain(seconds)
                    if self._data is not None:
                        await self._data.flushed()
            except TimeoutError:
                return
        self.send(Drained())

    # --- the end ---

    async def _end(self) -> None:
        self.log.info("Stopping.")
        for task in self._tasks:
            task.cancel()
        if self._kind is not None:
            stopping = self._loop.create_task(self._kind.stop(), name="stop")
            done, _ = await asyncio.wait({stopping}, timeout=STOP_TIME)
            if not done:
                self.log.line("WARNING", f"The end took longer than {STOP_TIME:g} s.")
            elif not stopping.cancelled() and (problem := stopping.exception()) is not None:
                self.log.error(_trace(problem))
        if not await end_descendants(SWEEP_TIME):
            self.log.warning("Some processes could not be ended.")
        self._children.close()
        if self._data is not None:
            if self._data.edges:
                # What a caller has received and not read yet is lost when the connection ends.
                await asyncio.sleep(FAREWELL)
            self._data.close(LINGER)
        self._control.close(LINGER)
        self._ctx.term()
        self.log.info("Stopped.")
        self.log.close()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if isinstance(problem, WorkerError):
            if problem.details:
                self.log.info(problem.details)
            self.fail(problem.code, problem.reason, fix=problem.fix, permanent=problem.permanent)
        elif problem is not None:
            self.log.error(_trace(problem))
            self.fail("internal", f"an error inside the worker ({type(problem).__name__})")

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        self.log.error(_trace(problem) if problem else str(context.get("message")))

    def _lifeline_event(self) -> None:
        if read_now(self._lifeline, 1) == b"":
            kill_descendants_now()
            os._exit(1)

    # --- reports ---

    def _children_changed(self, children: tuple[Child, ...]) -> None:
        self.send(Children(children=children))

    def _callers_wait(self, full: bool) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        message = f"{limit} files may be open, and so many are: no further caller is let in"
        fix = f"Raise limits.open_files of {self.boot.name}, or close callers."
        self.notice("open_files", "", message, fix, clear=not full)

    def _look_at_socket(self) -> None:
        """Bind again if somebody removed the socket file, which nobody new can find then."""
        if self._data is None or self._ending.is_set():
            return
        try:
            if self._data.mend():
                self.log.warning("The socket file was removed; it is made again.")
        except OSError as error:
            self._socketless = True
            why = error.strerror or type(error).__name__
            message = f"its socket file was removed and cannot be made again: {why}"
            fix = f"{self._socket_fix(error)}; it is tried again, and who is connected stays so."
            self.notice("socket_removed", "", message, fix)
        else:
            if self._socketless:
                self._socketless = False
                self.notice("socket_removed", clear=True)

    def _socket_fix(self, error: OSError | zmq.ZMQError) -> str:
        """Return what to do about a socket file that cannot be made."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return f"Raise limits.open_files of {self.boot.name}, then restart it"
        endpoint = self._configure.endpoint if self._configure else ""
        folder = Path(endpoint.removeprefix("ipc://")).parent
        return disk_remedy(error.errno, obstacle(folder))

    def _log_trouble(self, reason: str, fix: str) -> None:
        todo = f"{fix}; the worker goes on without its log." if reason else ""
        self.notice("log_disk_full", "", reason, todo, clear=not reason)


def is_imported(kind: str) -> bool:
    """Whether the module of a kind's entry is there already."""
    return KINDS.get(kind, "").partition(":")[0] in sys.modules


def load_kind(kind: str) -> Callable[[], WorkerKind]:
    """Import a kind's entry, which makes its object. Raises WorkerError for an unknown kind."""
    entry = KINDS.get(kind)
    if entry is None:
        raise WorkerError("unknown_kind", f"there is no worker kind {kind!r}", permanent=True)
    module, _, name = entry.partition(":")
    make: Callable[[], WorkerKind] = getattr(importlib.import_module(module), name)
    return make


def read_boot(lifeline: int) -> Boot:
    """Read the boot record, which is on the lifeline before the process starts.

    Raises MalformedError if there is none.
    """
    size = int.from_bytes(_read_exactly(lifeline, BOOT_PREFIX), "big")
    if size > MAX_BOOT:
        raise MalformedError(f"A boot record of {size} bytes is too large.")
    try:
        return msgspec.msgpack.decode(_read_exactly(lifeline, size), type=Boot)
    except msgspec.MsgspecError as error:
        raise MalformedError(f"The boot record cannot be read: {error}.") from error


def main(lifeline: int) -> None:
    """Be the worker that the boot record describes; ends the process."""
    boot = read_boot(lifeline)
    setproctitle.setproctitle(f"interlock: {boot.name}")
    procfs.become_subreaper()
    runner = asyncio.Runner()
    try:
        code = runner.run(_serve(boot, lifeline))
    except ProcessLimitError as error:  # its log may be its standard error by now, or not yet
        os.write(2, f"{error.message}\n".encode())
        os._exit(NO_THREADS)
    # The runner stays open: closing it would wait for a thread that a locked keyring holds.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _serve(boot: Boot, lifeline: int) -> int:
    return await WorkerHost(boot, lifeline).run()


def _read_exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            raise MalformedError("The lifeline ended before the boot record.")
        data += part
    return data


def _trace(problem: BaseException) -> str:
    return "".join(traceback.format_exception(problem)).rstrip()


if __name__ == "__main__":
    main(int(sys.argv[1]))
