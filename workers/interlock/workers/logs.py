"""A worker's log file: the only writer of it, with rotation and masking.

A line is `<UTC time> <LEVEL> <text>`; line breaks inside the text are written as `\\n`. The file is
kept below `MAX_BYTES` and one older file beside it ends in `.1`. A write that fails (full disk) is
counted, reported once and tried again; it never raises and never waits for anybody.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from interlock.bus.regular import regular
from interlock.bus.remedies import disk_remedy
from interlock.workers.secrets import Masks

MAX_BYTES: Final = 5 << 20
MAX_LINE: Final = 8 << 10
"""Bytes of text that one line keeps."""
RETRY_AFTER: Final = 1.0
"""Seconds between two attempts while the disk refuses."""

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES |= str.maketrans({"\n": "\\n", "\r": "\\r", "\x1b": "\\e", "\x00": "\\0", "\t": "\t"})
_ESCAPES |= str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})
"""What would break a line or move the cursor of a terminal, and how it is written instead."""


class WorkerLog:
    """Append-only log of one worker.

    `on_trouble(reason, fix)` is called when writing begins to fail, and with "" when it works
    again, which `look` finds out.
    With `redirect` the standard output and error of the process follow the file when it rotates.
    """

    def __init__(
        self,
        path: Path,
        masks: Masks,
        on_trouble: Callable[[str, str], None] = lambda reason, fix: None,
        *,
        redirect: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.lost = 0
        self._path, self.masks, self._on_trouble = path, masks, on_trouble
        self._redirect, self._max_bytes = redirect, max_bytes
        self._fd, self._size, self._retry_at = -1, 0, 0.0

    def debug(self, text: str) -> None:
        """Write a line that only somebody who looks for a fault needs."""
        self.line("DEBUG", text)

    def info(self, text: str) -> None:
        """Write a line about ordinary work."""
        self.line("INFO", text)

    def warning(self, text: str) -> None:
        """Write a line about something that was survived."""
        self.line("WARNING", text)

    def error(self, text: str) -> None:
        """Write a line about something that failed."""
        self.line("ERROR", text)

    def line(self, level: str, text: str) -> None:
        """Write one line; masked, cut to MAX_LINE, free of control characters that break lines."""
        if self._retry_at and time.monotonic() < self._retry_at:
            self.lost += 1
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        clean = self.masks.clip(text, MAX_LINE).translate(_ESCAPES)
        self._write(
            f"{stamp}.{int(now % 1 * 1000):03d}Z {level} {clean}\n".encode(errors="replace")
        )

    def look(self) -> None:
        """Try to write again, if that failed: nobody else may have anything to say for long."""
        if self._retry_at and time.monotonic() >= self._retry_at:
            self.info(f"{self.lost} lines were lost while this log could not be written.")

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        try:
            if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
                self.close()  # somebody removed the file
            if self._fd < 0:
                self._open()
            elif self._size + len(data) > self._max_bytes:
                self._rotate()
            self._size += os.write(self._fd, data)
        except OSError as error:
            self.lost += 1
            if not self._retry_at:
                reason = f"The log {self._path} cannot be written: {error.strerror}."
                self._on_trouble(reason, disk_remedy(error.errno, self._path))
            self._retry_at = time.monotonic() + RETRY_AFTER
            return
        if self._retry_at:
            self._retry_at = 0.0
            self._on_trouble("", "")

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)  # not a home that was removed
        self._fd = regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size = os.fstat(self._fd).st_size
        if self._redirect:
            os.dup2(self._fd, 1)
            os.dup2(self._fd, 2)

    def _rotate(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # somebody removed it
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        self.close()
        self._open()


class RateLimit:
    """Lets at most `per_second` lines through each second and counts the rest.

    Pure: the caller passes the time.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self.suppressed = 0
        self._window, self._used = 0, 0

    def admit(self, now: float) -> bool:
        """Say whether one more line may be written at `now` (seconds, monotonic).

        >>> limit = RateLimit(1)
        >>> limit.admit(5.0), limit.admit(5.5), limit.admit(6.0)
        (True, False, True)
        """
        window = int(now)
        if window != self._window:
            self._window, self._used = window, 0
        if self._used < self.per_second:
            self._used += 1
            return True
        self.suppressed += 1
        return False

    def take_suppressed(self) -> int:
        """Return how many lines were held back since the last time, and start again from 0."""
        count, self.suppressed = self.suppressed, 0
        return count
