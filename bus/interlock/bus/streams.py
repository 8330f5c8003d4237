"""Answers on their way out that cannot leave at once.

Large results are cut into chunks and sent as credit allows, one a loop turn. Small answers come
here if their caller's queue was full, and are sent when it has room again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from interlock.bus.codec import Encoding, encode
from interlock.bus.messages import CHUNK, CHUNK_WINDOW, Chunk, Result
from interlock.bus.router import Frames, Router

STALL: Final = 30.0
"""Seconds that an answer waits for credit or for room before it is given up."""
RETRY: Final = 0.05
"""Seconds after which a full queue is tried again."""
_TURN: Final = 64
"""Small answers that leave in one turn of the loop."""


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
    def id(self) -> int:
        """The call's."""
        return self.result.id

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return len(self._body)

    @property
    def last(self) -> bool:
        """Whether the next part ends the result; that part needs no credit."""
        return len(self._body) - self._offset <= CHUNK

    @property
    def part(self) -> Frames:
        """The next message: a chunk, or the result with the last bytes."""
        if self.last:
            rest = self._body[self._offset :]
            return [self.identity, encode(self.result, self.encoding), rest]
        header = encode(Chunk(id=self.result.id, n=self._n), self.encoding)
        return [self.identity, header, self._body[self._offset : self._offset + CHUNK]]

    def passed(self) -> None:
        """Go on to the part after the one that was sent."""
        self._offset += CHUNK
        self._n += 1
        self.credit -= 1


class WholeAnswer:
    """An answer in one message, which found no room."""

    __slots__ = ("credit", "id", "identity", "last", "part", "queued", "seen", "size")

    def __init__(self, call_id: int, frames: list[bytes], now: float) -> None:
        self.id = call_id
        self.identity = frames[0]
        self.part: Frames = frames
        self.size = sum(map(len, frames))
        self.seen = now
        self.credit = 0
        self.queued = False
        self.last = True

    def passed(self) -> None:
        """Nothing comes after the only part."""


Stream = ResultStream | WholeAnswer


class Outbox:
    """Sends the streams of one socket in turn, so that small answers pass between the chunks.

    A stream whose peer has no room waits for it; `lost` is called for each whose peer is gone or
    took nothing for too long.
    """

    def __init__(self, socket: Router, lost: Callable[[], None]) -> None:
        self._socket = socket
        self._lost = lost
        self._streams: dict[tuple[bytes, int], Stream] = {}
        self._opens: Counter[bytes] = Counter()
        """By peer: how many answers to an `open` wait."""
        self._ready: deque[Stream] = deque()
        self._stuck: dict[bytes, list[Stream]] = {}
        """By peer: what waits until it has room."""
        self._retry_handle: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pump_handle: asyncio.Handle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def sends(self, identity: bytes, call_id: int) -> bool:
        """Whether that call's result is still on its way."""
        return bool(self._streams) and (identity, call_id) in self._streams

    def opens(self, identity: bytes) -> bool:
        """Whether an answer to an `open` of that peer waits; its number is negative."""
        return self._opens[identity] > 0

    def held(self, identity: bytes) -> tuple[int, int]:
        """Return how many answers are kept for a peer until it takes them, and their bytes."""
        if not self._streams:
            return 0, 0
        sizes = [s.size for (peer, _), s in self._streams.items() if peer == identity]
        return len(sizes), sum(sizes)

    @property
    def busy(self) -> bool:
        """Whether any answer is kept."""
        return bool(self._streams)

    @property
    def identities(self) -> set[bytes]:
        """Peers that still get a result."""
        return {identity for identity, _ in self._streams}

    def add(self, stream: Stream) -> None:
        """Begin to send an answer, in later turns of the loop."""
        self._streams[stream.identity, stream.id] = stream
        self._opens[stream.identity] += stream.id < 0
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

    def gone(self, identity: bytes) -> None:
        """Send nothing more to a peer that has hung up."""
        for key in [key for key in self._streams if key[0] == identity]:
            self._drop(key)
            self._lost()

    def drop_stalled(self, now: float) -> None:
        """Give up results whose caller grants nothing any more."""
        for key, stream in list(self._streams.items()):
            if now - stream.seen > STALL:
                self._drop(key)
                self._lost()

    async def flushed(self) -> None:
        """Return when no result is on its way any more; the caller sets a deadline."""
        await self._empty.wait()

    def close(self) -> None:
        """Drop everything."""
        self._streams.clear()
        self._empty.set()
        self._ready.clear()
        self._stuck.clear()
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._retry_handle is not None:
            self._retry_handle.cancel()
            self._retry_handle = None

    def _queue(self, stream: Stream) -> None:
        if stream.queued:
            return
        stream.queued = True
        self._ready.append(stream)
        if self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)

    def _drop(self, key: tuple[bytes, int]) -> None:
        if self._streams.pop(key, None) is not None:
            self._opens[key[0]] -= key[1] < 0
        if not self._streams:
            self._opens.clear()
            self._empty.set()

    def _pump(self) -> None:
        self._pump_handle = None
        for _ in range(_TURN):
            if not self._ready or self._step(self._ready.popleft()):
                break
        if self._ready and self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)

    def _step(self, stream: Stream) -> bool:
        """Send the next part of a stream if that is possible; True if it was one of many."""
        stream.queued = False
        key = (stream.identity, stream.id)
        if self._streams.get(key) is not stream:
            return False
        stuck = self._stuck.get(stream.identity)
        if stuck is not None:
            self._hold(stream, stuck)
        elif self._socket.send(stream.part):
            if stream.last:
                self._drop(key)
            else:
                stream.passed()
                if stream.credit > 0 or stream.last:
                    self._queue(stream)
            return isinstance(stream, ResultStream)
        elif self._socket.unreachable:
            self._drop(key)
            self._lost()
        else:
            self._hold(stream, self._stuck.setdefault(stream.identity, []))
        return False

    def _hold(self, stream: Stream, stuck: list[Stream]) -> None:
        # As queued it takes credit, but is not queued for it a second time.
        stream.queued = True
        stuck.append(stream)
        if self._retry_handle is None:
            self._retry_handle = self._loop.call_later(RETRY, self._retry)

    def _retry(self) -> None:
        # The first of a peer that finds no room again holds the others back. They come before what
        # was added meanwhile, so that the answers to one peer stay in order.
        self._retry_handle = None
        stuck, self._stuck = self._stuck, {}
        self._ready.extendleft(stream for held in stuck.values() for stream in reversed(held))
        if self._ready and self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)
