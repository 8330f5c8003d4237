"""What a new process does between its fork and the worker's main function."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Final, NoReturn

import setproctitle

from interlock.bus import procfs
from interlock.bus.errors import SpawnError
from interlock.bus.regular import regular
from interlock.supervisor.spawn.environment import scrub
from interlock.supervisor.spawn.files import limit_of_workers
from interlock.supervisor.spawn.protocol import Spawn
from interlock.supervisor.spawn.signals import ASK_TO_STOP, STRAY

_FAILED: Final = 127
_FILES: Final = limit_of_workers()
"""What workers get as long as they name nothing else; an image allows itself more."""
_CPU_GRACE: Final = 5
"""Seconds of CPU between SIGXCPU and SIGKILL."""


def run(order: Spawn, image: int, lifeline: int, status: int, *, executes: bool) -> NoReturn:
    """Become the worker that `order` describes; never returns.

    `image` is the pid of the parent. `status` is the write end of a pipe: trouble before the
    worker's own code is written there as code, NUL, message; it closes when that code begins.
    """
    try:
        _reset_signals()
        os.setsid()
        procfs.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != image:
            os._exit(_FAILED)
        procfs.become_subreaper()
        _prepare(order, lifeline, status)
        if executes:
            _execute(order, lifeline)
    except SpawnError as error:
        _refuse(status, error.code, error.message)
    except Exception as error:  # noqa: BLE001 - it must never go on as a second image
        _refuse(status, "spawn_failed", f"The process could not be prepared: {error!r}.")
    setproctitle.setproctitle(order.title)
    os.close(status)
    os._exit(_call(order.entry, lifeline))


def _refuse(status: int, code: str, message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(status, f"{code}\0{message}".encode()[:4096])
    os._exit(_FAILED)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *ASK_TO_STOP):
        signal.signal(number, signal.SIG_DFL)
    for stray in STRAY:
        if signal.getsignal(stray) is signal.SIG_IGN:  # it would outlast an exec
            signal.signal(stray, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _prepare(order: Spawn, lifeline: int, status: int) -> None:
    environ = scrub(os.environ, order.keep_env)
    os.environ.clear()
    os.environ.update(environ)
    _redirect(order.log)
    _close_others({0, 1, 2, lifeline, status})
    try:
        os.chdir(order.folder)
    except OSError:
        os.chdir("/")
    with _refusal("limit_refused", f"Limit nice = {order.nice} is not permitted"):
        os.nice(order.nice)
    resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)
    _limit("open_files", resource.RLIMIT_NOFILE, order.open_files)
    _limit("cpu_seconds", resource.RLIMIT_CPU, order.cpu_seconds, grace=_CPU_GRACE)
    _limit("address_space", resource.RLIMIT_AS, order.address_space)


@contextlib.contextmanager
def _refusal(code: str, text: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SpawnError(f"{text}: {reason}.", code=code) from error


def _limit(name: str, number: int, value: int | None, grace: int = 0) -> None:
    if value is None:
        return
    hard = resource.getrlimit(number)[1]
    limit = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    with _refusal("limit_refused", f"Limit {name} = {value} is not permitted (at most {hard})"):
        resource.setrlimit(number, (value, limit))


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        target = regular(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log else nothing
    except OSError:
        target = nothing  # a worker without its log is better than none; it says so itself
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


def _close_others(keep: set[int]) -> None:
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    for number in numbers:
        if number not in keep:
            with contextlib.suppress(OSError):  # The listing's own descriptor is closed already.
                os.close(number)


def _execute(order: Spawn, lifeline: int) -> NoReturn:
    os.set_inheritable(lifeline, True)
    module = order.entry.partition(":")[0]
    with _refusal("exec_failed", f"Python cannot be executed as {sys.executable}"):
        os.execv(sys.executable, [sys.executable, "-Pu", "-m", module, str(lifeline)])


def load(entry: str) -> object:
    """Import `module:name` and return what the name stands for."""
    module, _, name = entry.partition(":")
    loaded: object = getattr(importlib.import_module(module), name)
    return loaded


def _call(entry: str, lifeline: int) -> int:
    """Call the entry and return the exit code that Python would end with."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # A killed worker must not take lines along.
    try:
        main = load(entry)
        if not callable(main):
            raise SpawnError(f"{entry} cannot be called.")
        main(lifeline)
        code = 0
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of the process: it reports and exits
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code & 0xFF
