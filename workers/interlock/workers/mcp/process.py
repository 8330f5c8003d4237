"""The MCP server's process: the only module that starts it, signals it and ends its tree."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from typing import Final

from interlock.bus import procfs
from interlock.bus.records import Child
from interlock.workers.failure import WorkerError
from interlock.workers.mcp.command import Command

DEFAULT_NICE: Final = 5
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


def start_server(command: Command) -> ServerProcess:
    """Start the server. Raises WorkerError where the system refuses."""
    worker = os.getpid()
    nice = DEFAULT_NICE if command.limits.nice is None else command.limits.nice

    def before_exec() -> None:
        procfs.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(1)
        _apply_limits(command, nice)

    try:
        popen = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(command.env),
            cwd=command.cwd,
            bufsize=0,
            start_new_session=True,
            # It takes no lock that another thread could hold at the fork: what `procfs` needs was
            # loaded when the worker became a subreaper.
            preexec_fn=before_exec,
        )
    except FileNotFoundError as error:
        missing = error.filename or command.argv[0]
        raise WorkerError(
            "command_not_found",
            f"command not found: {missing}",
            fix="Check `command` and `cwd`, or the first line (#!) of the script.",
            permanent=True,
        ) from error
    except PermissionError as error:
        raise WorkerError(
            "no_permission",
            f"no permission to run {error.filename or command.argv[0]}",
            fix="Make it executable, and its folder readable.",
            permanent=True,
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
            raise WorkerError(
                "no_permission",
                f"no permission to run {command.argv[0]}: it is not a program",
                fix="Scripts need a first line such as #!/bin/sh.",
                permanent=True,
            ) from error
        raise WorkerError(
            "start_failed",
            f"the server cannot be started: {error}",
            fix="Check `command`, `cwd` and `limits` of the entry.",
        ) from error
    return ServerProcess(popen)


def _apply_limits(command: Command, nice: int) -> None:
    limits = command.limits
    bounds = (
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, command.address_space),
    )
    for kind, value in bounds:
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        # Lowering niceness needs a right that the user may not have.
        return


def describe_exit(status: int) -> str:
    """Say in words how a process ended.

    >>> describe_exit(3 << 8), describe_exit(9)
    ('exited with status 3', 'was killed by SIGKILL')
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
