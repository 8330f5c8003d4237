"""Keeps in place what others need to find the supervisor and what the next one needs of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import zmq

from interlock.bus.endpoints import ConnectionInfo, Home, HomeLock, obstacle, write_connection
from interlock.bus.errors import ConfigError
from interlock.bus.listening import Listening
from interlock.bus.remedies import disk_remedy, place_of
from interlock.bus.settings import Timing

LOOK: Final = 1.0
"""Seconds between two looks."""
DAMAGED: Final = "home_damaged"


class _Report(Protocol):
    def __call__(self, code: str, message: str, fix: str, *, clear: bool = False) -> None: ...


class Upkeep:
    """Makes again what somebody removed or damaged in the home: folders, files, sockets.

    `looks` are those of others, each after its own files. `on_row` gets the row for
    what cannot be made again, `on_mended(what)` hears of what was, and
    `on_lost` is called once when the home is gone or another supervisor has it. `timing` says how
    long it may be away.
    """

    def __init__(
        self,
        home: Home,
        lock: HomeLock,
        info: ConnectionInfo,
        sockets: Sequence[Listening],
        looks: Sequence[Callable[[], None]],
        on_row: _Report,
        on_mended: Callable[[str], None],
        on_lost: Callable[[], None],
        timing: Callable[[], Timing],
    ) -> None:
        self._home = home
        self._lock = lock
        self._info = info
        self._sockets = sockets
        self._looks = looks
        self._on_row = on_row
        self._on_mended = on_mended
        self._on_lost = on_lost
        self._timing = timing
        self._written: tuple[int, ...] = ()
        self._troubled = False

    def write_connection(self) -> None:
        """Write the connection file. Raises OSError."""
        write_connection(self._home, self._info)
        self._written = self._found()

    async def watch(self) -> None:
        """Look every `LOOK` seconds. Until cancelled, or until the home is lost.

        Then nobody new can find the supervisor, and another one can be started in its place.
        """
        away = 0.0
        while True:
            await asyncio.sleep(LOOK)
            away = 0.0 if self.look() else away + LOOK
            if away >= self._timing().away or (away and self._lock.same_home()):
                self._on_lost()
                return

    def look(self) -> bool:
        """Look at everything once, and mend it; nothing, and False, if the home is lost."""
        try:
            if self._lock.state() != "held" or not self._lock.same_home():
                # Nobody else makes it again: whoever does has to say so.
                if not self._lock.restore():
                    return False
                self._on_mended("lock file")
            self._home.prepare()
            self._lock.sign()
            for one in self._sockets:
                if one.mend():
                    self._on_mended(f"socket {one.path.name}")
            if self._found() != self._written:
                self.write_connection()
                self._on_mended("connection file")
        except (ConfigError, OSError, zmq.ZMQError) as error:
            self._troubled = True
            said, todo = _in_words(error, self._home.path)
            self._on_row(
                DAMAGED,
                f"Something in the home was removed and cannot be made again: {said} Nobody new "
                "may find the supervisor.",
                f"{todo}; it is tried again by itself.",
            )
        else:
            if self._troubled:
                self._troubled = False
                self._on_row(DAMAGED, "", "", clear=True)
        for look in self._looks:
            look()
        return True

    def _found(self) -> tuple[int, ...]:
        try:
            found = os.lstat(self._home.connection_file)
        except OSError:
            return ()
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


def _in_words(error: ConfigError | OSError | zmq.ZMQError, home: Path) -> tuple[str, str]:
    """Say what went wrong and what to do, alike each time that it goes wrong in the same way."""
    if isinstance(error, ConfigError):
        return error.message, f"Make {home} as it was"
    place = place_of(error, home) if isinstance(error, OSError) else str(home)
    return f"{place}: {error.strerror}.", disk_remedy(error.errno, obstacle(Path(place)))
