"""The loop of an image: forks workers, tells of their ends, reaps them, sweeps what they leave.

Every worker is a subreaper and an image's workers are registered, so a child that is not
registered is a leftover of a dead worker: it is killed with all below it at once.
The process has one thread and waits only in `poll`.
"""

from __future__ import annotations

import array
import os
import select
import signal
import socket
from collections import deque
from typing import Final

from interlock.bus import procfs
from interlock.bus.errors import MalformedError, SpawnError
from interlock.bus.records import Child
from interlock.supervisor.spawn import child, sweep
from interlock.supervisor.spawn.protocol import (
    BOOT_PREFIX,
    MAX_RECORD,
    Exited,
    ImageReady,
    Reap,
    Record,
    Rejected,
    Spawn,
    Spawned,
    SpawnFailed,
    decode_down,
    encode,
)
from interlock.supervisor.spawn.signals import ASK_TO_STOP, unused_strays

_IGNORED: Final = ASK_TO_STOP
"""An image ends with the supervisor and not before: a stop of the whole group must not cut short
the orderly stop of the workers."""
_SWEEP_PAUSE: Final = 10
"""Milliseconds between two looks while everything is being killed."""
_SWEEP_ROUNDS: Final = 3000


class _Worker:
    """A forked process until it is reaped."""

    def __init__(self, order: Spawn, pid: int, lifeline: int, status: int) -> None:
        self.name = order.name
        self.generation = order.generation
        self.pid = pid
        self.start = procfs.start_time(pid) or 0
        self.lifeline = lifeline
        self.status = status
        """Read end of the status pipe; -1 once it was read."""
        self.failure: tuple[str, str] | None = None
        self.dead = False


class Image:
    """Serves one link to the supervisor. `serve` returns when its work has come to an end.

    `executes`: workers start as fresh Python processes. `adopts`: orphans come to this process.
    `tell`: a descriptor to write to when a worker died; `hear`: the other end of another image's.
    `sibling`: pid of an image whose end is the end of this one.
    """

    def __init__(
        self,
        link: socket.socket,
        *,
        executes: bool = False,
        adopts: bool = False,
        tell: int = -1,
        hear: int = -1,
        sibling: int = 0,
    ) -> None:
        self._link = link
        self._executes = executes
        self._adopts = adopts
        self._tell = tell
        self._hear = hear
        self._sibling = sibling
        self._ended = False
        self._workers: dict[int, _Worker] = {}
        self._by_status: dict[int, _Worker] = {}
        self._outgoing: deque[tuple[bytes, int]] = deque()
        self._poll = select.poll()

    def serve(self, problem: str = "") -> None:
        """Take orders until the supervisor or the sibling is gone. `problem`: see ImageReady."""
        wake = _watch_children()
        for descriptor in (wake, self._hear, self._link.fileno()):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)
        pid = os.getpid()
        self._send(ImageReady(pid=pid, start=procfs.start_time(pid) or 0, problem=problem))
        self._look_at_children()
        while not self._ended:
            for descriptor, events in self._poll.poll():
                if descriptor == self._link.fileno():
                    if events & select.POLLOUT:
                        self._flush()
                    if events & ~select.POLLOUT:
                        self._receive()
                elif descriptor in self._by_status:
                    self._read_status(self._by_status[descriptor])
                elif descriptor in (wake, self._hear):
                    _drain(descriptor)
                    self._look_at_children()

    def _receive(self) -> None:
        while not self._ended:
            try:
                data, _, flags, _ = self._link.recvmsg(MAX_RECORD)
            except BlockingIOError:
                return
            except OSError:
                data, flags = b"", 0
            if not data:
                self._ended = True
                return
            try:
                if flags & socket.MSG_TRUNC:
                    raise MalformedError("A record to the spawner is too large.")
                order = decode_down(data)
            except MalformedError as error:
                self._send(Rejected(message=error.message))
                continue
            if isinstance(order, Reap):
                self._reap(order.pid)
            else:
                self._spawn(order)

    def _spawn(self, order: Spawn) -> None:
        opened: list[int] = []
        image = os.getpid()
        try:
            opened += os.pipe()
            opened += os.pipe()
            lifeline, boot, status, report = opened
            os.set_blocking(boot, False)
            os.set_blocking(status, False)
            # Before the fork: a worker may end without having read it, and that is no failure here.
            _write_boot(boot, order.boot)
            pid = os.fork()
        except (OSError, SpawnError) as error:
            for descriptor in opened:
                os.close(descriptor)
            code, message = _why_not(error)
            self._fail(order.name, order.generation, code, message)
            return
        if pid == 0:
            child.run(order, image, lifeline, report, executes=self._executes)
        os.close(lifeline)
        os.close(report)
        worker = _Worker(order, pid, boot, status)
        self._workers[pid] = self._by_status[status] = worker
        self._poll.register(status, select.POLLIN)

    def _read_status(self, worker: _Worker) -> None:
        try:
            text = os.read(worker.status, 8192).decode("utf-8", "replace")
        except BlockingIOError:
            return
        self._poll.unregister(worker.status)
        del self._by_status[worker.status]
        os.close(worker.status)
        worker.status = -1
        if text:
            code, _, message = text.partition("\0")
            worker.failure = (code, message)
        if worker.failure is None:
            record = Spawned(
                name=worker.name,
                generation=worker.generation,
                pid=worker.pid,
                start=worker.start,
            )
            self._send(record, _pidfd(worker.pid))

    def _look_at_children(self) -> None:
        """Report workers that ended, and kill and reap every child that nobody registered."""
        ended = False
        for worker in list(self._workers.values()):
            if worker.dead:
                continue
            options = os.WEXITED | os.WNOWAIT | os.WNOHANG
            state = os.waitid(os.P_PID, worker.pid, options)
            if state is not None:
                ended = worker.dead = True
                self._end(worker, state.si_code == os.CLD_EXITED, state.si_status)
        if ended and self._tell >= 0:
            _write(self._tell)
        if self._sibling:
            options = os.WEXITED | os.WNOWAIT | os.WNOHANG
            self._ended |= os.waitid(os.P_PID, self._sibling, options) is not None
        if self._adopts:
            for pid in procfs.children(os.getpid()):
                if pid not in self._workers and pid != self._sibling:
                    sweep.end_tree(Child(pid=pid, start=procfs.start_time(pid) or 0))

    def _end(self, worker: _Worker, by_exit: bool, number: int) -> None:
        os.close(worker.lifeline)
        if worker.status >= 0:
            self._read_status(worker)
        if worker.failure is not None:
            self._reap(worker.pid)
            self._fail(worker.name, worker.generation, *worker.failure)
            return
        record = Exited(
            name=worker.name,
            generation=worker.generation,
            pid=worker.pid,
            start=worker.start,
            exit_code=number if by_exit else None,
            signal=None if by_exit else number,
        )
        self._send(record)

    def _reap(self, pid: int) -> None:
        worker = self._workers.get(pid)
        if worker is not None and worker.dead:
            os.waitpid(pid, 0)
            del self._workers[pid]

    def _fail(self, name: str, generation: int, code: str, message: str) -> None:
        self._send(SpawnFailed(name=name, generation=generation, code=code, message=message))

    def _send(self, record: Record, handle: int = -1) -> None:
        self._outgoing.append((encode(record), handle))
        if len(self._outgoing) == 1:
            self._flush()

    def _flush(self) -> None:
        """Send what the supervisor takes; a supervisor that is slow stops nothing here."""
        wanted = select.POLLIN
        while self._outgoing:
            data, handle = self._outgoing[0]
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))
            try:
                self._link.sendmsg([data], [rights] if handle >= 0 else [])
            except BlockingIOError:
                wanted |= select.POLLOUT
                break
            except OSError:
                self._ended = True
                return
            self._outgoing.popleft()
            if handle >= 0:
                os.close(handle)
        self._poll.modify(self._link.fileno(), wanted)


def _write_boot(pipe: int, boot: bytes) -> None:
    """Put a boot record into an empty pipe. Raises OSError, or SpawnError if it does not fit."""
    record = len(boot).to_bytes(BOOT_PREFIX, "big") + boot
    if os.write(pipe, record) != len(record):
        raise SpawnError(
            "The worker's boot record does not fit into a pipe; this user has too many pipes open.",
            code="boot_failed",
        )


def _why_not(error: OSError | SpawnError) -> tuple[str, str]:
    if isinstance(error, SpawnError):
        return error.code, error.message
    reason = error.strerror
    return "fork_failed", f"No process can be forked: {reason}; check the limits of this user."


def ignore_stop_signals() -> None:
    """Take no signal that asks to stop or means nothing, see _IGNORED."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for stray in unused_strays():
        signal.signal(stray, signal.SIG_IGN)


def _watch_children() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def end_everything() -> None:
    """Kill and reap all that is below this process, until nothing is left (at most 30 s)."""
    pause = select.poll()
    for _ in range(_SWEEP_ROUNDS):
        if not sweep.sweep_pass():
            return
        pause.poll(_SWEEP_PAUSE)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1  # No descriptor left; the supervisor can do without.


def _drain(descriptor: int) -> None:
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            continue
    except BlockingIOError:
        return


def _write(descriptor: int) -> None:
    try:
        os.write(descriptor, b"\0")
    except OSError:
        return  # Full: the other end has enough to wake up for. Closed: it is about to end.
