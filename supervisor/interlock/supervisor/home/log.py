"""The supervisor's log file: one JSON object a line, rotated, and never in anybody's way."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus.regular import regular
from interlock.bus.remedies import disk_remedy

MAX_BYTES: Final = 5 << 20
RETRY_AFTER: Final = 1.0
"""Seconds between two attempts while the disk refuses."""


class RotatingFile:
    """Appends lines; the file before is kept beside it with `.1` at its end.

    A write that fails is counted and tried again later; `on_trouble(reason, fix)` is called when
    that begins and with "" when it is over. Nothing raises.
    """

    def __init__(
        self, path: Path, on_trouble: Callable[[str, str], None], max_bytes: int = MAX_BYTES
    ) -> None:
        self.lost = 0
        self._path, self._on_trouble, self._max = path, on_trouble, max_bytes
        self._fd, self._size, self._retry_at = -1, 0, 0.0

    @property
    def due(self) -> bool:
        """Whether the last line could not be written, and another may be by now."""
        return bool(self._retry_at) and time.monotonic() >= self._retry_at

    def write_line(self, line: str) -> None:
        """Write one line."""
        if self._retry_at and time.monotonic() < self._retry_at:
            self.lost += 1
            return
        data = (line + "\n").encode("utf-8", "replace")
        try:
            if self._fd >= 0 and self._size + len(data) > self._max:
                self.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
                self.close()  # somebody removed the file
            if self._fd < 0:
                self._fd = regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                self._size = os.fstat(self._fd).st_size
            self._size += os.write(self._fd, data)
        except OSError as error:
            self.lost += 1
            troubled, self._retry_at = self._retry_at, time.monotonic() + RETRY_AFTER
            if not troubled:
                reason = f"The log {self._path} cannot be written: {error.strerror}."
                self._on_trouble(reason, disk_remedy(error.errno, self._path))
            return
        if self._retry_at:
            self._retry_at = 0.0
            self._on_trouble("", "")

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Log:
    """Writes events with their fields to `file`; the names of most are tags of messages."""

    def __init__(self, file: RotatingFile) -> None:
        self._file = file

    def info(self, event: str, **fields: object) -> None:
        """Write that something happened."""
        self._write("info", event, fields)

    def error(self, event: str, error: BaseException | None = None, **fields: object) -> None:
        """Write that something went wrong, with where."""
        if error is not None:
            fields["exception"] = "".join(traceback.format_exception(error))
        self._write("error", event, fields)

    def look(self) -> None:
        """Try to write again, if that failed: nothing else may happen for long."""
        if self._file.due:
            self.info("log.lost", lines=self._file.lost)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"timestamp": now, "level": level, "event": event, **fields}
        self._file.write_line(msgspec.json.encode(line, enc_hook=repr).decode())
