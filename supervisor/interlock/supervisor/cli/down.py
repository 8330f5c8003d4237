"""`interlock down`: the supervisor's end, also of one that is hard to find or was killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Final

import click

from interlock.bus import procfs
from interlock.bus.client import Client
from interlock.bus.endpoints import Home, HomeLock, lock_holder, read_connection
from interlock.bus.errors import (
    AlreadyRunningError,
    ConnectionLostError,
    InterlockError,
    NoSupervisorError,
    RequestTimeoutError,
)
from interlock.bus.line import find_supervisor, stands_still, unreachable
from interlock.bus.messages import Shutdown
from interlock.bus.records import Child
from interlock.supervisor.cli.exits import DONE
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import document, note, options, write
from interlock.supervisor.cli.session import running

STOP: Final = 40.0
"""Seconds until a supervisor has to be gone; its own bound for everything is 20 s by default."""
_LOOK: Final = 0.02
_GRACE: Final = 0.5
"""Seconds in which its spawner, which knows more, may end that itself."""
_SWEEP: Final = 10.0
"""Seconds until what a killed supervisor left has to be gone."""


@click.command
@json_document
def down(as_json: bool) -> int:
    """Stop everything in order and wait until nothing is left."""
    home = options().place
    pid = lock_holder(home)
    proven = bool(pid)
    if not proven:
        clean_up(home)
        pid = find_supervisor(home).pid
    began = procfs.start_time(pid)
    below = procfs.descendants(pid) if proven else []
    until = time.monotonic() + STOP
    bus = _ask_to_stop(home, pid, proven)
    try:
        not_kept = _what_is_lost(bus)
        _await_end(home, pid, began, proven, until)
        ended = _left_nothing(home, below)
    except KeyboardInterrupt:
        note(f"The supervisor (pid {pid}) goes on stopping; `interlock status` says when it ended.")
        raise
    if not_kept:
        note(not_kept)
    if as_json:
        document({"stopped": True, "pid": pid, "not_kept": not_kept})
    elif ended is None:
        write("Stopped; nothing is left running.")
    else:
        what = f" ({', '.join(ended)})" if ended else ""
        write(
            f"The supervisor (pid {pid}) was killed before it had stopped everything; what it left"
            f"{what} was ended. Nothing is left running."
        )
    return DONE


def _left_nothing(home: Home, below: Sequence[Child]) -> list[str] | None:
    """See to it that nothing is left of a supervisor that is gone; `below`: what it had before.

    None if it ended in order, else the names of what it left and is ended now. Its spawner may be
    at that, too. Raises InterlockError if something cannot be ended.
    """
    if not (home.connection_file.is_file() or home.processes.is_file()):
        return None
    from interlock.supervisor.spawn.sweep import sweep_recorded

    try:
        with HomeLock(home):
            names = set(sweep_recorded(home.processes))
            begun = time.monotonic()
            while left := [one for one in below if procfs.alive(one.pid, one.start)]:
                if time.monotonic() > begun + _SWEEP:
                    pids = ", ".join(str(one.pid) for one in left)
                    raise InterlockError(
                        f"The supervisor was killed, and what it left cannot be ended: {pids}; "
                        "look at these processes, then `interlock down` again.",
                        code="failed",
                    )
                if time.monotonic() > begun + _GRACE:
                    for one in left:
                        for victim in (one, *procfs.descendants(one.pid)):
                            procfs.kill(victim)
                time.sleep(_LOOK)
            _remove_files(home)
    except AlreadyRunningError:
        return None  # the next one is there already, and swept before it began
    except OSError as error:
        if any(procfs.alive(one.pid, one.start) for one in below):
            raise
        _cannot_tidy(error)
        return None
    return sorted({name.partition("#")[0] for name in names})


def _what_is_lost(bus: Client | None) -> str:
    """Wait until all has stopped; returns a sentence about what the journal could not keep."""
    if bus is None:
        return ""
    try:
        return str(bus.request(Shutdown, timeout=STOP, wait=True)["not_kept"])
    except InterlockError:  # it is killed or takes too long, which the wait for its end tells
        return ""
    finally:
        bus.close()  # it waits for that


def _await_end(home: Home, pid: int, began: int | None, proven: bool, until: float) -> None:
    """Return when the process is gone. Raises InterlockError if it is not by `until`."""
    kill = f" if it stays so, `kill -9 {pid}`: nothing of it will be left." if proven else ""
    while began is not None and procfs.alive(pid, began):
        if time.monotonic() > until:
            raise InterlockError(
                f"The supervisor (pid {pid}) is still stopping after {STOP:.0f} s; "
                f"see {home.logs / 'supervisor.log'}{';' + kill if kill else '.'}",
                code="timeout",
            )
        time.sleep(_LOOK)


def _ask_to_stop(home: Home, pid: int, proven: bool) -> Client | None:
    """Begin the end of the supervisor; `proven`: it is `pid` for sure, whatever the files say.

    Returns the connection over which it was asked, if there was one.
    """
    bus: Client | None = None
    try:
        if proven and not stands_still(pid):
            info = read_connection(home)
            if info.pid != pid:
                raise NoSupervisorError("The connection file is not this supervisor's.")
            if why := unreachable(home, info):
                raise NoSupervisorError(why)
        bus = running(home.path)
        bus.shutdown()
        return bus
    except ConnectionLostError:
        pass  # It ended before its answer was sent; who waits for its end sees that.
    except RequestTimeoutError:
        if stands_still(pid):
            raise
        if not proven:
            raise RequestTimeoutError(
                f"The supervisor (pid {pid}) does not answer; look what that process is before you "
                "do anything about it."
            ) from None
        _signal(pid)
    except InterlockError:
        if not proven:
            raise
        _signal(pid)
    if bus is not None:
        bus.close()
    return None


def _signal(pid: int) -> None:
    """Tell a supervisor to stop that no request reaches: a signal needs no file, no socket."""
    procfs.kill(Child(pid=pid, start=procfs.start_time(pid) or 0), signal.SIGTERM)


def clean_up(home: Home) -> None:
    """End what a killed supervisor left; return if there may be a supervisor after all.

    Raises NoSupervisorError that says what was done.
    """
    if not home.lock_file.exists():
        return
    from interlock.supervisor.spawn.sweep import sweep_recorded

    try:
        lock = HomeLock(home)
    except AlreadyRunningError:
        return
    except OSError as error:
        _nobody_without_lock(home, error)
        return
    try:
        with lock:
            ended = sweep_recorded(home.processes)
            _remove_files(home)
    except OSError as error:
        _cannot_tidy(error)
        return
    names = ", ".join(sorted({name.partition("#")[0] for name in ended}))
    left = f"; what the last one left was ended ({names})" if ended else ""
    raise NoSupervisorError(
        f"No supervisor is running on {home.path}{left}; start one with `interlock up`."
    )


def _nobody_without_lock(home: Home, error: OSError) -> None:
    """Return if there is a supervisor although its home cannot be locked, else say so."""
    try:
        find_supervisor(home)
    except NoSupervisorError:
        raise NoSupervisorError(
            f"No supervisor is running on {home.path}. Its lock file {home.lock_file} cannot be "
            f"used ({error.strerror}): remove it, then start one with `interlock up`, which ends "
            "what the last one left, if anything."
        ) from None


def _remove_files(home: Home) -> None:
    """Remove what only a running supervisor needs; says what cannot be removed, and why."""
    try:
        home.remove_run()
        home.connection_file.unlink(missing_ok=True)
    except OSError as error:
        _cannot_tidy(error)


def _cannot_tidy(error: OSError) -> None:
    where = f"{error.filename}: " if error.filename else ""
    note(f"No file of the supervisor's could be removed ({where}{error.strerror}); remove it.")
