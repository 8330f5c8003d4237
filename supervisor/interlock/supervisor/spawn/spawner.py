"""The spawner: the program that the supervisor executes, and its two images.

Run as `python -P -m interlock.supervisor.spawn.spawner FD_BASE [FD_MCP WARM_ENTRY]`. With one
descriptor there is one image and every worker is executed. With two, this process is the base
image and forks the mcp image, which calls WARM_ENTRY first. It ends when the supervisor or the
mcp image does, and then takes everything below it along.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

import setproctitle

from interlock.bus import procfs
from interlock.bus.codec import build_decoders
from interlock.bus.errors import SpawnError
from interlock.supervisor.spawn import child, image
from interlock.supervisor.spawn.gather import gather_code
from interlock.supervisor.spawn.holes import fill_holes
from interlock.supervisor.spawn.signals import take_signals

_BASE: Final = ("zmq", "msgspec", "interlock.bus", "interlock.workers.host")
"""What the base image imports, by name: this package must not know the workers."""
_WARM_SECONDS: Final = 30


def main(arguments: list[str]) -> None:
    """Run the spawner until the supervisor is gone."""
    # First of all: it also blanks the environment of the supervisor in /proc/PID/environ, which
    # every fork would otherwise show.
    setproctitle.setproctitle("interlock: spawner")
    take_signals()
    procfs.become_subreaper()
    # Without a free descriptor it could neither look at processes nor kill exactly.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    image.ignore_stop_signals()
    links = [socket.socket(fileno=int(word)) for word in arguments[:2]]
    for link in links:
        link.setblocking(False)
        link.set_inheritable(False)
    if len(links) == 1:
        image.Image(links[0], executes=True, adopts=True).serve()
    else:
        _serve_both(links[0], links[1], arguments[2])
    image.end_everything()


def _serve_both(base: socket.socket, mcp: socket.socket, warm: str) -> None:
    problem = _attempt("base", _import_base)
    os.chdir("/")
    _settle()
    hear, tell = os.pipe()
    os.set_blocking(hear, False)
    os.set_blocking(tell, False)
    spawner = os.getpid()
    executes = _threads() > 1
    pid = os.fork()
    if pid == 0:
        base.close()
        os.close(hear)
        _serve_mcp(mcp, warm, tell, spawner)
    mcp.close()
    os.close(tell)
    image.Image(base, executes=executes, adopts=True, hear=hear, sibling=pid).serve(problem)


def _serve_mcp(link: socket.socket, warm: str, tell: int, spawner: int) -> NoReturn:
    procfs.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != spawner:
        os._exit(0)
    setproctitle.setproctitle("interlock: image mcp")
    problem = _attempt("mcp", lambda: _warm(warm))
    if not problem and _threads() > 1:
        problem = f"Warming the mcp image left {_threads() - 1} threads; workers start slower."
    _settle()
    image.Image(link, executes=bool(problem), tell=tell).serve(problem)
    os._exit(0)


def _attempt(name: str, work: Callable[[], object]) -> str:
    """Do the work; if it fails, for whatever reason, return one sentence about it."""
    gc.disable()  # Imports make next to no garbage; looking for it takes a tenth of their time.
    try:
        with _time_limit(_WARM_SECONDS):
            work()
    except Exception as error:  # noqa: BLE001 - an image without warmth still starts workers
        traceback.print_exc()
        kind = type(error).__name__
        return f"The {name} image is not warm ({kind}: {error}); workers start slower."
    finally:
        gc.enable()
    return ""


def _import_base() -> None:
    for one in _BASE:
        importlib.import_module(one)
    build_decoders()


def _warm(entry: str) -> None:
    warm = child.load(entry)
    if not callable(warm):
        raise SpawnError(f"{entry} cannot be called.")
    warm()
    if _threads() == 1:  # else nothing will be forked
        gather_code(warm)


def _threads() -> int:
    """Threads of this process; a fork copies only one, so there must be no other."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not ready after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _settle() -> None:
    """Collect garbage and keep the rest out of later collections, so that forks share it."""
    gc.collect()
    gc.freeze()
    fill_holes()


if __name__ == "__main__":
    main(sys.argv[1:])
