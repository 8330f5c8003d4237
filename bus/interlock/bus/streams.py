"""Large results on their way out: cut into chunks, sent as credit allows, one a loop turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from interlock.bus.codec import Encoding, encode
from interlock.bus.messages import CHUNK, CHUNK_WINDOW, Chunk, Result
from interlock.bus.socket import Frames

STALL: Final = 30.0
"""Seconds that a result waits for credit before it is given up."""


class ResultStream:
    """One result of more than `CHUNK` bytes. The body is held once, chunks are views of it."""

    __slots__ = (
        "_body",
        "_n",
        "_offset",
        "credit",
        "encoding",
        "identity",
        "queued",
        "result",
        "seen",
    )

    def __init__(
        self, identity: bytes, encoding: Encoding, result: Result, body: bytes, now: float
    ) -> None:
        self.identity = identity
        self.encoding: Encoding = encoding
        self.result = result
        self.credit = CHUNK_WINDOW
        self.seen = now
        """When the caller was last heard of."""
        self.queued = False
        self._body = memoryview(body)
        self._offset = 0
        self._n = 0

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return len(self._body)

    @property
    def last(self) -> bool:
        """Whether the next part ends the result; that part needs no credit."""
        return len(self._body) - self._offset <= CHUNK

    def next_part(self) -> Frames:
        """Take the next message: a chunk, or the result with the last bytes."""
        if self.last:
            rest = self._body[self._offset :]
            return [self.identity, encode(self.result, self.encoding), rest]
        header = encode(Chunk(id=self.result.id, n=self._n), self.encoding)
        part = self._body[self._offset : self._offset + CHUNK]
        self._offset += CHUNK
        self._n += 1
        self.credit -= 1
        return [self.identity, header, part]


class Outbox:
    """Sends the streams of one socket in turn, so that small answers pass between the chunks.

    `lost` is called for a stream whose peer took no more.
    """

    def __init__(
        self, send: Callable[[Frames], bool], lost: Callable[[ResultStream], None]
    ) -> None:
        self._send = send
        self._lost = lost
        self._streams: dict[tuple[bytes, int], ResultStream] = {}
        self._ready: deque[ResultStream] = deque()
        self._loop = asyncio.get_running_loop()
        self._pump_handle: asyncio.Handle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def sends(self, identity: bytes, call_id: int) -> bool:
        """Whether that call's result is still on its way."""
        return bool(self._streams) and (identity, call_id) in self._streams

    def held(self, identity: bytes) -> int:
        """Bytes of results that are kept for a peer until it takes them."""
        if not self._streams:
            return 0
        return sum(s.size for (peer, _), s in self._streams.items() if peer == identity)

    @property
    def identities(self) -> set[bytes]:
        """Peers that still get a result."""
        return {identity for identity, _ in self._streams}

    def add(self, stream: ResultStream) -> None:
        """Begin to send a result, in later turns of the loop."""
        self._streams[stream.identity, stream.result.id] = stream
        self._empty.clear()
        self._queue(stream)

    def grant(self, identity: bytes, call_id: int, n: int) -> None:
        """Take credit from a caller; more than a window at once is not granted."""
        stream = self._streams.get((identity, call_id))
        if stream is None or n < 1:
            return
        stream.credit = min(stream.credit + n, CHUNK_WINDOW)
        stream.seen = self._loop.time()
        self._queue(stream)

    def cancel(self, identity: bytes, call_id: int) -> None:
        """Send nothing more of that result."""
        self._drop((identity, call_id))

    def drop_stalled(self, now: float) -> None:
        """Give up results whose caller grants nothing any more."""
        for key, stream in list(self._streams.items()):
            if now - stream.seen > STALL:
                self._drop(key)
                self._lost(stream)

    async def flushed(self) -> None:
        """Return when no result is on its way any more; the caller sets a deadline."""
        await self._empty.wait()

    def close(self) -> None:
        """Drop everything."""
        self._streams.clear()
        self._empty.set()
        self._ready.clear()
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None

    def _queue(self, stream: ResultStream) -> None:
        if stream.queued:
            return
        stream.queued = True
        self._ready.append(stream)
        if self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)

    def _drop(self, key: tuple[bytes, int]) -> None:
        self._streams.pop(key, None)
        if not self._streams:
            self._empty.set()

    def _pump(self) -> None:
        self._pump_handle = None
        stream = self._ready.popleft()
        stream.queued = False
        key = (stream.identity, stream.result.id)
        if self._streams.get(key) is stream:
            ended = stream.last
            if not self._send(stream.next_part()):
                self._drop(key)
                self._lost(stream)
            elif ended:
                self._drop(key)
            elif stream.credit > 0 or stream.last:
                self._queue(stream)
        if self._ready and self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)
