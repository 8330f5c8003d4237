"""Whether the journal's file still is one while it is open, and what can be read of it if not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from interlock.bus.regular import regular
from interlock.supervisor.events.journalfile import CHECKED_BYTES, create, write_anew

_MAGIC: Final = b"SQLite format 3\0"
_TABLES: Final = ("turns", "items", "calls", "approvals")


class Look:
    """Notices that a file was written by somebody else, from its state at each look.

    Its owner's own writes change the file, too, so only what changed before a quiet while says
    something; a beginning that is none of a journal says it at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._writes = -1
        self._unsure = False
        self._descriptors: dict[int, int] = {}
        """By inode. To close one gives up every lock that this process has on that file, those of
        SQLite too, so one stays open until its file is the journal no more."""

    def close(self) -> None:
        """Look no more; to be called when no connection is open any more. Twice is harmless."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def doubtful(self, writes: int, inode: int) -> bool:
        """Whether the file should be read through; `writes` counts the owner's own writes.

        `inode` is that of the file that the owner has open; another one's is not looked at.
        """
        try:
            found = os.stat(self._path)
            if found.st_ino != inode:
                return False
            if found.st_ino not in self._descriptors:
                opened = regular(self._path, os.O_RDONLY)
                self._descriptors[os.fstat(opened).st_ino] = opened
            begin = os.pread(self._descriptors[found.st_ino], len(_MAGIC), 0)
        except (OSError, KeyError):
            return False  # a file that is gone, or exchanged at this moment, is another matter
        self._let_go(inode)
        now = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._seen is not None and now != self._seen:
            self._unsure = True
        quiet, self._seen, self._writes = writes == self._writes, now, writes
        if (self._unsure and quiet) or (begin and begin != _MAGIC):
            self._unsure = False
            return True
        return False

    def _let_go(self, inode: int) -> None:
        """Close all but this one: what is deleted takes up its space as long as it is open."""
        for other in [each for each in self._descriptors if each != inode]:
            os.close(self._descriptors.pop(other))


def is_whole(path: Path) -> bool:
    """Whether a fresh reader can use the file with its log; of a large one its beginning counts."""
    # Through SQLite alone: to open and close the file beside it would give up its locks.
    try:
        name = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(name, uri=True, timeout=2.0)) as connection:
            if path.stat().st_size > CHECKED_BYTES:
                connection.execute("PRAGMA schema_version").fetchone()
                return True
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.OperationalError:
        return True  # locked, or no permission: that says nothing about the content
    except sqlite3.DatabaseError:
        return False
    except OSError:
        return True


def rescue(connection: sqlite3.Connection, path: Path) -> tuple[Path, bool]:
    """Copy what an open journal still has to a new file, not yet at its place.

    Returns the file, and whether that is all. What the connection has in memory and in its log is
    not lost with the file. Raises sqlite3.Error and OSError if there can be no new file.
    """
    with contextlib.suppress(sqlite3.Error):
        fresh = write_anew(connection, path)
        if is_whole(fresh):
            return fresh, True
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        create(target)
        for table in _TABLES:
            for order in ("", " ORDER BY rowid DESC"):  # from both ends up to what is broken
                _copy(connection, target, table, order)
    return fresh, False


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str, order: str) -> None:
    with contextlib.suppress(sqlite3.Error):
        rows = source.execute(f"SELECT * FROM {table}{order}")
        marks = ", ".join("?" * len(rows.description))
        target.execute("BEGIN")
        try:
            for row in rows:
                target.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
        finally:
            target.execute("COMMIT")
