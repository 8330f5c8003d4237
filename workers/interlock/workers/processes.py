"""Starts the programs of entries: the only module that forks, sets limits and reads exits."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from typing import Final

from interlock.bus import procfs
from interlock.workers.failure import WorkerError
from interlock.workers.programs import Command

DEFAULT_NICE: Final = 5
_FOR_GOOD: Final = {
    errno.E2BIG: "Shorten `args` or `env` of the entry.",
    errno.ENAMETOOLONG: "Check `command` and `cwd` of the entry.",
    errno.ELOOP: "Check the links that `command` and `cwd` of the entry lead over.",
    errno.ENOTDIR: "Check `command` and `cwd` of the entry.",
}
"""What to do about reasons that no second attempt takes away."""


def start_program(command: Command, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own that ends with this worker; outputs are pipes.

    Raises WorkerError where the system refuses.
    """
    worker = os.getpid()
    nice = DEFAULT_NICE if command.limits.nice is None else command.limits.nice

    def before_exec() -> None:
        procfs.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != worker:
            os._exit(1)
        _apply_limits(command, nice)

    try:
        return subprocess.Popen(
            command.argv,
            stdin=stdin,
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
    except (OSError, subprocess.SubprocessError) as error:
        raise _why_not(error, command.argv[0]) from error


def _why_not(error: OSError | subprocess.SubprocessError, program: str) -> WorkerError:
    """Return why a program could not be started, in words and with what to do."""
    code, permanent = "start_failed", True
    match error:
        case FileNotFoundError():
            code, message = "command_not_found", f"command not found: {error.filename or program}"
            fix = "Check `command` and `cwd`, or the first line (#!) of the script."
        case PermissionError():
            code, message = "no_permission", f"no permission to run {error.filename or program}"
            fix = "Make it executable, and its folder readable."
        case OSError(errno=errno.ENOEXEC):
            code, message = "no_permission", f"{program} is no program that can be run"
            fix = "Scripts need a first line such as #!/bin/sh."
        case OSError() if error.errno in _FOR_GOOD:
            message = f"the program cannot be started: {error.strerror}"
            fix = _FOR_GOOD[error.errno]
        case _:
            permanent = False
            message = f"the program cannot be started: {error}"
            fix = "Check `command`, `cwd` and `limits` of the entry."
    return WorkerError(code, message, fix=fix, permanent=permanent)


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
