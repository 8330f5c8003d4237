"""A server's standard error: read all the time, kept in the worker's log within a rate."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Final

from interlock.workers.logs import RateLimit, WorkerLog
from interlock.workers.mcp.lastwords import telling
from interlock.workers.mcp.lines import KEPT_OF_LONG, LineSplitter, LongLine
from interlock.workers.mcp.transport import enlarge_pipe
from interlock.workers.pipes import read_now

MAX_LINE: Final = 64 << 10
LINES_PER_SECOND: Final = 100
READ_SIZE: Final = 256 << 10
FLOOD: Final = 1 << 20
"""Bytes in a second beyond which the reader pauses after every read."""
PAUSE: Final = 0.004
BEGINNING: Final = 256
"""Characters that are kept of a line over MAX_LINE."""
LAST_LINE: Final = 300
"""Characters of the last line that an error text quotes."""
KEPT_LINES: Final = 24
"""Last lines of which one is quoted; what npm and node say at an end is not longer."""


class StderrReader:
    """Drains the pipe `descriptor` into `log` and closes it at its end.

    Lines over the rate are counted in one line later; the last ones that are not blank are
    kept as they came, so that also what is found to be secret later is masked when they are asked
    for.
    """

    def __init__(self, descriptor: int, log: WorkerLog) -> None:
        self._last: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._fd, self._log = descriptor, log
        self._splitter, self._limit = LineSplitter(MAX_LINE), RateLimit(LINES_PER_SECOND)
        self._loop = asyncio.get_running_loop()
        self._second, self._bytes = 0, 0
        self._resume: asyncio.Handle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        enlarge_pipe(descriptor)
        self._loop.add_reader(descriptor, self._readable)

    @property
    def last_line(self) -> str:
        """The last line that tells something, masked and cut."""
        clip = self._log.masks.clip
        return telling([clip(self._text(line).strip(), LAST_LINE) for line in self._last])

    def close(self) -> None:
        """Stop reading; twice is harmless."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        if self._resume is not None:
            self._resume.cancel()
        os.close(self._fd)
        self._fd = -1
        self._take(self._splitter.feed(b"\n"))
        self._say_suppressed()
        if not self.ended.done():
            self.ended.set_result(None)

    def _readable(self) -> None:
        data = read_now(self._fd, READ_SIZE)
        if data is None:
            return
        if not data:
            self.close()
            return
        self._take(self._splitter.feed(data))
        second = int(self._loop.time())
        if second != self._second:
            self._second, self._bytes = second, 0
            self._say_suppressed()
        self._bytes += len(data)
        if self._bytes > FLOOD:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(PAUSE, self._read_again)

    def _read_again(self) -> None:
        self._loop.add_reader(self._fd, self._readable)

    def _take(self, lines: list[bytes]) -> None:
        now = self._loop.time()
        said = [line for line in lines if line.strip()]
        for line in said:
            if self._limit.admit(now):
                self._log.line("STDERR", self._text(line))
        self._last.extend(map(_bounded, said[-KEPT_LINES:]))

    def _text(self, line: bytes) -> str:
        if not isinstance(line, LongLine):
            return line.decode(errors="replace").rstrip()
        # A piece of a secret may stand where the middle was thrown away; `clip` stays far from it.
        head = line[:KEPT_OF_LONG].decode(errors="replace")
        return self._log.masks.clip(head, BEGINNING) + " [cut]"

    def _say_suppressed(self) -> None:
        if count := self._limit.take_suppressed():
            self._log.line("STDERR", f"({count} more lines were not kept)")


def _bounded(line: bytes) -> bytes:
    """The line, or so much of a long one that masking it finds every secret at its beginning."""
    return line if len(line) <= KEPT_OF_LONG else LongLine(line[:KEPT_OF_LONG])
