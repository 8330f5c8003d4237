"""The connection of a command to the supervisor, and names of workers as people type them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from interlock.bus.client import Client, connect
from interlock.bus.endpoints import Home, read_connection
from interlock.bus.errors import NotFoundError, RequestTimeoutError, UsageError
from interlock.bus.line import silent_supervisor, stands_still, supervisor_lives, unreachable
from interlock.supervisor.cli.output import options

REACHED: Final = 5.0
"""Seconds in which a supervisor has to make a socket again that somebody removed."""
STOPPED: Final = 0.5
"""Seconds after which a stopped supervisor is taken for one that stays so."""
_LOOK: Final = 0.02
_SHORTEST: Final = 4
"""Characters of an id that are enough, if no other begins so."""


def client() -> Client:
    """Connect to the supervisor of the chosen home.

    Raises NoSupervisorError, and RequestTimeoutError if it is stopped and stays so for `STOPPED`,
    or if it has no socket and makes none within `REACHED`.
    """
    return running(options().home)


def running(home: str | os.PathLike[str] | None) -> Client:
    """Connect to the supervisor of that home; raises as `client`."""
    bus = connect(home)
    try:
        _check_reachable(Home(bus.home), bus.pid)
    except BaseException:
        bus.close()
        raise
    return bus


def _check_reachable(home: Home, pid: int) -> None:
    """Raise RequestTimeoutError if the supervisor can answer nobody, now and for a while."""
    begun = time.monotonic()
    # A program may wait for a supervisor that goes on soon; a person is told.
    while stands_still(pid):
        if time.monotonic() > begun + STOPPED:
            raise silent_supervisor(home, read_connection(home), STOPPED)
        time.sleep(_LOOK)
    info = read_connection(home)
    while why := unreachable(home, info):
        if time.monotonic() > begun + REACHED:
            raise RequestTimeoutError(why)
        if not supervisor_lives(home, info):
            return  # which the first request finds out, and says
        time.sleep(_LOOK)


def full_name(typed: str, names: Iterable[str], attention: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return the worker that `typed` means: its name, or the only one with that name after a kind.

    Raises NotFoundError that names what there is, or says why the entry that is meant does not run
    if a row of `attention`, of the status document, knows it.
    """
    from interlock.bus.names import workers_meant
    from interlock.bus.nearest import no_worker

    known = list(names)
    found = workers_meant(typed, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"{typed} may be {' or '.join(found)}; say which one you mean.")
    rows = {str(row["name"]): row for row in attention if ":" in row["name"]}
    if unused := workers_meant(typed, rows):
        from interlock.supervisor.attention import unused_text

        row = rows[unused[0]]
        raise NotFoundError(unused_text(unused[0], row["message"], row["fix"]))
    raise NotFoundError(no_worker(typed, known, rows))


def did_you_mean(typed: str, names: Iterable[str]) -> str:
    """Return a sentence, after a space, with the worker whose name is most like `typed`, or ""."""
    from interlock.bus.nearest import nearest_worker

    near = nearest_worker(typed, names)
    return f" Did you mean {near}?" if near else ""


def turn_meant(bus: Client, typed: str) -> str:
    """Return the id of the newest 1,000 turns that begins with `typed`, if only one does.

    A whole id, and what begins none, comes back as it is. Raises UsageError if it may be several.
    """
    return _begun(typed, 32, lambda: [row["turn"] for row in bus.turns(1000)["turns"]])


def approval_meant(bus: Client, typed: str) -> str:
    """Return the id of the waiting approval that begins with `typed`, as `turn_meant` does."""
    return _begun(typed, 0, lambda: [row["id"] for row in bus.approvals()["approvals"]])


def _begun(typed: str, whole: int, ids: Callable[[], list[str]]) -> str:
    if len(typed) < _SHORTEST or len(typed) == whole:
        return typed
    found = [one for one in ids() if one.startswith(typed)]
    if typed in found or not found:
        return typed
    if len(found) > 1:
        raise UsageError(f"{typed} may be {' or '.join(found[:5])}; type more of it.")
    return found[0]


def workers_of(status: dict[str, Any]) -> list[str]:
    """Return the names of the workers in a status document."""
    return [str(row.get("name", "")) for row in status.get("workers", [])]
