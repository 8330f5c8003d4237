"""One run of a program: its output, its time, and the end of everything that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Collection
from typing import Final

from interlock.bus import procfs
from interlock.bus.records import Child
from interlock.workers.pipes import read_now
from interlock.workers.processes import start_program
from interlock.workers.programs import Command

MAX_KEPT: Final = 32 << 20
"""Bytes of output that are kept; more is read and thrown away, so that the program can go on."""
READ: Final = 64 << 10
LAST_OUTPUT: Final = 0.5
"""Seconds that output may still take after the end: something else may hold the pipe open."""
GRACE: Final = 0.5
"""Seconds from SIGTERM to SIGKILL."""
SWEEPS: Final = 50
SWEEP_PAUSE: Final = 0.02


class Output:
    """What comes out of one pipe, up to a bound."""

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        """Bytes that were thrown away."""
        self.ended = asyncio.get_running_loop().create_future()
        self._parts: list[bytes] = []
        self._size = 0
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    @property
    def text(self) -> str:
        """All of it that was kept."""
        return b"".join(self._parts).decode(errors="replace")

    def close(self) -> None:
        """Read nothing more."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def _read(self) -> None:
        data = read_now(self._descriptor, READ)
        if data is None:
            return
        if not data:
            self.close()
            return
        kept = data[: max(0, MAX_KEPT - self._size)]
        self._size += len(kept)
        self.lost += len(data) - len(kept)
        if kept:
            self._parts.append(kept)


class ProgramRun:
    """A started program. `wait` for its end, then `end` whatever is left; each once.

    Raises WorkerError where it cannot be started.
    """

    def __init__(
        self, command: Command, watch: Callable[[int, Callable[[int], None]], None]
    ) -> None:
        self._popen = start_program(command, subprocess.DEVNULL)
        self.pid = self._popen.pid
        self._start = procfs.start_time(self.pid) or 0
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The wait status, once it has ended."""
        assert self._popen.stdout and self._popen.stderr
        self.stdout = Output(os.dup(self._popen.stdout.fileno()))
        self.stderr = Output(os.dup(self._popen.stderr.fileno()))
        self._popen.stdout.close()
        self._popen.stderr.close()
        watch(self.pid, self._exited)

    async def wait(self, seconds: float) -> bool:
        """Wait until it has ended and its output is read; False if that takes longer."""
        await asyncio.wait({self.status}, timeout=max(seconds, 0.0))
        if not self.status.done():
            return False
        await asyncio.wait({self.stdout.ended, self.stderr.ended}, timeout=LAST_OUTPUT)
        return True

    async def end(self, others: Collection[ProgramRun]) -> None:
        """Kill what still runs of it: SIGTERM, then SIGKILL.

        `others` are the runs that go on. It is looked at again and again, so that it may gain and
        lose runs meanwhile.
        """
        if self._left(others):
            self._signal(others, signal.SIGTERM)
            self._signal(others, signal.SIGCONT)  # one that is stopped cannot end before it goes on
            await self._gone(others, GRACE)
        for _ in range(SWEEPS):
            if not self._left(others):
                break
            self._signal(others, signal.SIGKILL)
            await asyncio.sleep(SWEEP_PAUSE)
        await asyncio.wait({self.status}, timeout=GRACE)
        self.stdout.close()
        self.stderr.close()

    def _exited(self, status: int) -> None:
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        if not self.status.done():
            self.status.set_result(status)

    async def _gone(self, others: Collection[ProgramRun], seconds: float) -> None:
        for _ in range(round(seconds / SWEEP_PAUSE)):
            if not self._left(others):
                return
            await asyncio.sleep(SWEEP_PAUSE)

    def _left(self, others: Collection[ProgramRun]) -> list[Child]:
        """What runs of this call: below it, in its session, or, if it is alone, below the worker.

        The worker adopts orphans, so what left both the tree and the session is found once no other
        call could own it.
        """
        everything = procfs.descendants(os.getpid())
        if not others:
            return everything
        below = {child.pid for child in procfs.descendants(self.pid)}
        return [
            child
            for child in everything
            if child.pid == self.pid or child.pid in below or _session(child.pid) == self.pid
        ]

    def _signal(self, others: Collection[ProgramRun], number: signal.Signals) -> None:
        for child in self._left(others):
            procfs.kill(child, number)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
