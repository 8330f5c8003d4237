"""Splitting a byte stream into lines in linear time, with a bound on one line."""

from __future__ import annotations

from typing import Final

KEPT_OF_LONG: Final = 4096
"""Bytes at each end of an over-long line that are kept, to find out whose answer it was."""

LONG: Final = 1024
"""Bytes of a line from which on it is found faster than split off: `split` looks at each byte."""


class LongLine(bytes):
    """Head and tail of a line that was over the limit; its middle was thrown away."""


class LineSplitter:
    """Collects chunks and hands out complete lines without their line feed.

    A line over `limit` bytes is thrown away while it streams past; what comes out is a LongLine.
    One that lies in a chunk in whole, behind another line, comes out as it is: the limit is there
    for memory, which is bounded by `limit` plus one chunk. Pure.

    >>> lines = LineSplitter(10)
    >>> lines.feed(b"ab"), lines.feed(b"c\\nd\\ne"), lines.feed(b"\\n")
    ([], [b'abc', b'd'], [b'e'])
    >>> isinstance(lines.feed(b"f" * 11 + b"\\n")[0], LongLine)
    True
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def discarding(self) -> bool:
        """Whether the line under way is over the limit already."""
        return self._size > self.limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, in order."""
        complete, rest = _split(chunk)
        if complete:
            complete[0] = self._finish(complete[0])
        if rest:
            self._keep(rest)
        return complete

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self.limit:
            self._parts.append(part)
            return
        if self._parts or not self._head:
            whole = b"".join(self._parts) + part
            self._parts.clear()
            self._head, self._tail = whole[:KEPT_OF_LONG], whole[-KEPT_OF_LONG:]
            return
        self._tail = (self._tail + part)[-KEPT_OF_LONG:]

    def _finish(self, last: bytes) -> bytes:
        if not self._size and len(last) <= self.limit:
            return last
        self._keep(last)
        if self._size > self.limit:
            line: bytes = LongLine(self._head + self._tail)
        else:
            line = b"".join(self._parts)
        self._parts.clear()
        self._size, self._head, self._tail = 0, b"", b""
        return line


def _split(chunk: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines that end in `chunk`, and what follows the last of them."""
    end = chunk.find(b"\n")
    if end < 0:
        return [], chunk
    if end < LONG:
        *lines, rest = chunk.split(b"\n")
        return lines, rest
    lines, start = [], 0
    while end >= 0:
        lines.append(chunk[start:end])
        start = end + 1
        end = chunk.find(b"\n", start)
    return lines, chunk[start:]
