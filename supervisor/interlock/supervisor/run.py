"""Runs a supervisor in this process: `python -m interlock.supervisor.run --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import resource
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import zmq

from interlock.bus.endpoints import Home, HomeLock, default_home
from interlock.bus.errors import ConfigError, InterlockError, UsageError
from interlock.bus.events import Event
from interlock.bus.remedies import disk_remedy, place_of
from interlock.bus.socket import shares_memory
from interlock.bus.threads import need_threads, start_threads
from interlock.supervisor.api.doors import open_files_needed
from interlock.supervisor.config.model import Loaded
from interlock.supervisor.config.read import load
from interlock.supervisor.config.reading import Reading
from interlock.supervisor.config.workspace import places
from interlock.supervisor.home.halfwritten import remove_half_written
from interlock.supervisor.home.runfolders import sweep_run_folders, undisturbed
from interlock.supervisor.reload import Loader
from interlock.supervisor.runtime import Supervisor
from interlock.supervisor.spawn.files import raise_limit
from interlock.supervisor.spawn.signals import take_signals
from interlock.supervisor.spawn.sweep import sweep_recorded

THREADS: Final = 4
"""Threads for what may take long: reading configuration, writing files."""
OWN_THREADS: Final = 16
"""Threads and processes of a supervisor without workers, about."""
OF_WORKER: Final = 4
"""The same of a worker: itself, its threads and its server."""
MOST_TRIED: Final = 400
"""Threads that are tried at most before the start."""
_PIPE = 4096
"""Bytes that a pipe takes at once."""


def run_supervisor(
    path: Path,
    *,
    config: Path | None = None,
    workspace: Path | None = None,
    on_ready: Callable[[], None] = lambda: None,
    on_event: Callable[[Event], None] = lambda event: None,
    on_failure: Callable[[str], None] = lambda reason: None,
) -> int:
    """Run a supervisor on that home until it is told to stop; returns the exit code of `up`.

    `on_ready` is called once the api answers, `on_event` with every event, and `on_failure` with
    one sentence where it cannot start or go on, or could not keep all that it should.
    """
    try:
        home = Home(Path(os.path.abspath(path)))
        home.make()
        with undisturbed(home):
            lock = HomeLock(home)
        with lock:
            loader = _loader(home, config, workspace)
            _check_places(home, workspace, config)
            loaded = loader(None)
            sweep_recorded(home.processes)
            home.clear_run()
            home.prepare()
            sweep_run_folders(home)
            remove_half_written(home)
            _set_title(home)
            raise_limit()
            workers = len(loaded.settings.workers())
            _check_open_files(workers)
            need_threads(min(OWN_THREADS + OF_WORKER * workers, MOST_TRIED))
            not_kept = asyncio.run(_run(home, lock, loader, loaded, on_ready, on_event))
    except InterlockError as error:
        on_failure(error.message)
        return 1
    except (OSError, zmq.ZMQError) as error:
        place = place_of(error, path) if isinstance(error, OSError) else str(path)
        on_failure(
            f"The supervisor cannot work in {path}: {place}: {error.strerror or error}. "
            f"{_remedy(error, place)}"
        )
        return 1
    if not_kept:
        on_failure(not_kept)
    return 0


async def _run(
    home: Home,
    lock: HomeLock,
    loader: Loader,
    loaded: Loaded,
    on_ready: Callable[[], None],
    on_event: Callable[[Event], None],
) -> str:
    _start_threads()
    supervisor = Supervisor(home, lock, loader, loaded)
    supervisor.sequencer.listen(on_event)
    await supervisor.run(on_ready)
    return supervisor.not_kept


def _start_threads() -> None:
    """Start now what else would start when it is first needed: later there may be a limit."""
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="supervisor")
    start_threads(pool, THREADS)
    asyncio.get_running_loop().set_default_executor(pool)
    shares_memory()


def _loader(home: Home, config: Path | None, workspace: Path | None) -> Loader:
    environ = dict(os.environ)

    def read(previous: Loaded | None) -> Loaded:
        return load(home.path, workspace, config, environ, previous)

    return read


def _check_places(home: Home, workspace: Path | None, config: Path | None) -> None:
    """Refuse folders of configuration that no message can carry: workers start in them."""
    recorded = Reading(home.path, None, False).recorded
    for candidate in places(workspace, config, os.environ, recorded).counting:
        try:
            str(candidate.path).encode()
        except UnicodeEncodeError:
            shown = os.fsencode(candidate.path.parent).decode(errors="backslashreplace")
            raise UsageError(
                f"The path of the folder {shown} is not UTF-8; rename it, or start Interlock with "
                "configuration in another one."
            ) from None


def _remedy(error: OSError | zmq.ZMQError, place: str) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{disk_remedy(error.errno, place)}."
    return f"{disk_remedy(error.errno, place)}, or choose another --home."


def _check_open_files(workers: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = open_files_needed(workers)
    if limit < needed:
        raise ConfigError(
            f"The supervisor may have {limit} files open and needs {needed} for {workers} workers; "
            "raise the hard limit (`ulimit -Hn`) and start again."
        )


def _set_title(home: Home) -> None:
    from setproctitle import setproctitle

    setproctitle(f"interlock: supervisor {home.path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    take_signals()
    parser = argparse.ArgumentParser(prog="python -m interlock.supervisor.run")
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--config", type=Path)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--announce", action="store_true", help="print `ready` when it is")
    parser.add_argument("--tell", type=int, help="descriptor for the reason if it cannot start")
    chosen = parser.parse_args(arguments)
    told = _Told(chosen.tell)

    def ready() -> None:
        told.close()
        if chosen.announce:
            sys.stdout.write("ready\n")
            sys.stdout.flush()

    try:
        return run_supervisor(
            chosen.home,
            config=chosen.config,
            workspace=chosen.workspace,
            on_ready=ready,
            on_failure=told.say,
        )
    except Exception as error:
        told.say(f"Interlock made a mistake ({type(error).__name__}: {error}); please report it.")
        raise


class _Told:
    """Says why the supervisor ends: on standard error, and to whoever waits for its start.

    Standard error may be a file on a disk that is full, and then only the other way is left.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_inheritable(descriptor, False)

    def say(self, reason: str) -> None:
        """Write one sentence."""
        with contextlib.suppress(OSError):
            if self._descriptor is not None:
                os.write(self._descriptor, reason.encode(errors="backslashreplace")[:_PIPE])
        with contextlib.suppress(OSError):
            os.write(2, f"{reason}\n".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Have nobody wait any more; twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


if __name__ == "__main__":
    sys.exit(main())
