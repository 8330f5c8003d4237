"""The supervisor's end of the socket to one image, in the event loop."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from interlock.bus.errors import MalformedError
from interlock.supervisor.spawn.protocol import MAX_RECORD, Record, Up, decode_up, encode

_BUDGET: Final = 64
"""Records that are taken in one turn of the event loop."""


class Link:
    """Sends records without waiting and hands on what comes; calls `on_lost` once at the end.

    Whoever gets `on_record` owns the pidfd that comes with it (None where there is none).
    """

    def __init__(
        self,
        end: socket.socket,
        on_record: Callable[[Up, int | None], None],
        on_lost: Callable[[str], None],
        on_bad: Callable[[str], None],
    ) -> None:
        self._end = end
        self._on_record = on_record
        self._on_lost = on_lost
        self._on_bad = on_bad
        self._waiting: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._receive)

    def send(self, record: Record) -> None:
        """Queue a record and send what the kernel takes. Raises TooLargeError."""
        self._waiting.append(encode(record))
        if len(self._waiting) == 1:
            self._flush()

    def close(self) -> None:
        """Close the socket, which tells the image that the supervisor is gone."""
        if self._end.fileno() < 0:
            return
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()

    def _flush(self) -> None:
        try:
            while self._waiting and self._end.fileno() >= 0:
                self._end.send(self._waiting[0])
                self._waiting.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._end, self._flush)
        except OSError as error:
            self._lose(f"its socket failed: {error.strerror}")
        else:
            if self._end.fileno() >= 0:
                self._loop.remove_writer(self._end)

    def _receive(self) -> None:
        for _ in range(_BUDGET):
            if self._end.fileno() < 0:
                return
            try:
                data, ancillary, flags, _ = self._end.recvmsg(
                    MAX_RECORD, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(f"its socket failed: {error.strerror}")
                return
            handle = _handle(ancillary)
            if not data:
                self._lose("it closed its socket")
                return
            try:
                if flags & socket.MSG_TRUNC:
                    raise MalformedError("A record of the spawner is cut off.")
                record = decode_up(data)
            except MalformedError as error:
                if handle is not None:
                    os.close(handle)
                self._on_bad(error.message)
            else:
                self._on_record(record, handle)

    def _lose(self, reason: str) -> None:
        self.close()
        self._on_lost(reason)


def _handle(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    for extra in numbers[1:]:
        os.close(extra)
    return numbers[0] if numbers else None
