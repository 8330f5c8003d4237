"""The MCP server's process: the only module that signals it and ends its tree."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Final

from interlock.bus import procfs
from interlock.bus.records import Child
from interlock.workers.processes import start_program
from interlock.workers.programs import Command

SWEEP_ROUNDS: Final = 50
SWEEP_PAUSE: Final = 0.02


class ServerProcess:
    """One running server in a session of its own, tied to the life of this worker.

    `stdin`, `stdout` and `stderr` are this side's pipe ends; whoever takes them closes them.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        assert popen.stdin and popen.stdout and popen.stderr
        self.stdin = os.dup(popen.stdin.fileno())
        self.stdout = os.dup(popen.stdout.fileno())
        self.stderr = os.dup(popen.stderr.fileno())
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            pipe.close()
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Resolves with the wait status once the process has ended."""

    def note_exit(self, status: int) -> None:
        """Take the wait status from whoever reaps the children of this worker."""
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        if not self.exited.done():
            self.exited.set_result(status)

    async def end(self, close_input: Callable[[], None], grace: float) -> None:
        """End the server and everything that it started; takes at most about 3 x `grace`.

        Standard input is closed first, then the whole tree gets SIGTERM, then SIGKILL. As the
        worker is a subreaper, what the server left behind is below the worker and goes as well.
        """
        close_input()
        await self._wait(grace)
        if self._targets():
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # one that somebody stopped cannot end before it goes on
            await self._wait(grace, lambda: not self._targets())
        for _ in range(SWEEP_ROUNDS):
            if not self._targets():
                break
            self._signal(signal.SIGKILL)
            await asyncio.sleep(SWEEP_PAUSE)
        await self._wait(grace)

    async def _wait(self, seconds: float, also: Callable[[], bool] = lambda: True) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await asyncio.wait({self.exited}, timeout=seconds)
        for _ in range(round(seconds / SWEEP_PAUSE)):
            if also() or loop.time() >= until:
                break
            await asyncio.sleep(SWEEP_PAUSE)

    def _targets(self) -> list[Child]:
        return procfs.descendants(os.getpid())

    def _signal(self, signum: signal.Signals) -> None:
        for child in self._targets():
            procfs.kill(child, signum)


def standing_still() -> str:
    """Say which process below this worker is stopped, and how it goes on; "" if none is."""
    for child in procfs.descendants(os.getpid()):
        found = procfs.stat(child.pid)
        if found is not None and found.state in "Tt":
            return f"its process {child.pid} is stopped, `kill -CONT {child.pid}` lets it go on"
    return ""


def start_server(command: Command) -> ServerProcess:
    """Start the server. Raises WorkerError where the system refuses."""
    return ServerProcess(start_program(command))
