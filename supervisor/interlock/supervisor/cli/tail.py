"""Reads the end of log files, and what is added to them; knows that they rotate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

from interlock.bus.regular import regular

_BLOCK: Final = 64 << 10
_LINE: Final = 1 << 20
"""Bytes after which a line without an end is given out as it is."""


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last `count` lines, from the rotated file too if the present one has too few."""
    if count == 0:
        return []
    lines = _from_end(path, count)
    if len(lines) < count:
        lines = _from_end(path.with_name(path.name + ".1"), count - len(lines)) + lines
    return [line.decode(errors="replace") for line in lines]


def _from_end(path: Path, count: int) -> list[bytes]:
    try:
        with open(path, "rb", opener=regular) as file:
            at = file.seek(0, os.SEEK_END)
            data = b""
            while at > 0 and data.count(b"\n") <= count:
                step = min(_BLOCK, at)
                at -= step
                file.seek(at)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.splitlines()[-count:]


class LogTail:
    """The lines that a log file gets from now on; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open()

    def skip_to_end(self) -> None:
        """Begin with what comes after now."""
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def new_lines(self) -> list[str]:
        """Return the whole lines that were added since the last call."""
        lines = self._read()
        if self._replaced():
            lines += self._read()
            self.close()
            self._open()
            lines += self._read()
        return lines

    def close(self) -> None:
        """Close the file; twice is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        try:
            self._file = open(self._path, "rb", opener=regular)
        except OSError:
            self._file = None

    def _replaced(self) -> bool:
        try:
            now = os.stat(self._path)
        except OSError:
            return False
        if self._file is None:
            return True
        mine = os.fstat(self._file.fileno())
        return (mine.st_ino, mine.st_dev) != (now.st_ino, now.st_dev) or (
            now.st_size < self._file.tell()
        )

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        data = self._rest + self._file.read()
        whole, newline, self._rest = data.rpartition(b"\n")
        if len(self._rest) > _LINE:
            whole, newline, self._rest = data, b"\n", b""
        if not newline:
            return []
        return [line.decode(errors="replace") for line in whole.split(b"\n")]
