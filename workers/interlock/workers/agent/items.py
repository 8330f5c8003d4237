"""A turn's items on their way to the supervisor: coalesced, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.bus.events import TERMINAL_ITEMS, AnyItem, TextDelta
from interlock.bus.messages import ITEMS_BATCH

BATCH_BURST: Final = 4
"""Batches of one turn that may go at once, so that a short turn waits for nothing."""
BATCH_INTERVAL: Final = 1 / 16
"""Seconds between further batches. With the burst that makes at most 20 in any second."""
DELTA_MAX: Final = 8 << 10
"""Characters of one text delta; larger ones are split, smaller neighbours are merged."""
BUFFER_MAX: Final = 4 << 20
"""Bytes of items that wait while the supervisor takes none; above, deltas are merged and cut."""
KEPT_ON_OVERFLOW: Final = 256 << 10
"""Characters at the end of the merged deltas that survive an overflow."""

PATIENCE: Final = 120.0
"""Seconds that the last items of a turn wait for a supervisor that takes none; it ends the turn by
itself long before."""

_CUT_NOTE: Final = "[text left out here while the supervisor was away; the end of the turn has it]"


class Batcher:
    """Pure buffer of one turn's items: what goes into the next batch, and when.

    Order is kept. Only text deltas are ever shortened, and only when more than `BUFFER_MAX` bytes
    wait; results and the terminal item are never lost.
    """

    def __init__(self) -> None:
        self._waiting: deque[TextDelta | bytes] = deque()
        self._size = 0
        self._paced = 0.0
        self._retry = 0.0
        self._limit = BUFFER_MAX

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes that wait, text counted in characters."""
        return self._size

    def put(self, item: AnyItem) -> None:
        """Add an item at the end."""
        if isinstance(item, TextDelta):
            self._put_text(item.text)
        else:
            self._append(msgspec.json.encode(item))
        if self._size > self._limit:
            self._shrink()

    def ready_in(self, now: float) -> float:
        """Return the seconds until a batch may go, 0.0 for at once."""
        paced = self._paced - (BATCH_BURST - 1) * BATCH_INTERVAL
        return max(0.0, paced - now, self._retry - now)

    def peek(self) -> tuple[bytes, int]:
        """Return the next batch, a JSON array, and how many items it has; nothing is removed.

        A single item above the limit of a batch goes alone.
        """
        parts: list[bytes] = []
        size = 1
        for item in self._waiting:
            part = item if isinstance(item, bytes) else msgspec.json.encode(item)
            if parts and size + len(part) + 1 > ITEMS_BATCH:
                break
            parts.append(part)
            size += len(part) + 1
        return b"[" + b",".join(parts) + b"]", len(parts)

    def sent(self, count: int, now: float) -> None:
        """Remove the items of a batch that was accepted at `now`."""
        for _ in range(count):
            self._size -= _size(self._waiting.popleft())
        self._paced = max(self._paced, now) + BATCH_INTERVAL

    def refused(self, now: float) -> None:
        """Try the same items again one interval later."""
        self._retry = now + BATCH_INTERVAL

    def _put_text(self, text: str) -> None:
        if self._waiting and isinstance(last := self._waiting[-1], TextDelta):
            room = DELTA_MAX - len(last.text)
            if room > 0:
                self._waiting[-1] = TextDelta(text=last.text + text[:room])
                self._size += len(text[:room])
                text = text[room:]
        for start in range(0, len(text), DELTA_MAX):
            self._append(TextDelta(text=text[start : start + DELTA_MAX]))

    def _append(self, item: TextDelta | bytes) -> None:
        self._waiting.append(item)
        self._size += _size(item)

    def _shrink(self) -> None:
        """Merge all waiting deltas into their end, where the newest of them stands."""
        texts = [item.text for item in self._waiting if isinstance(item, TextDelta)]
        text = "".join(texts)
        if len(text) > KEPT_ON_OVERFLOW:
            text = _CUT_NOTE + text[-KEPT_ON_OVERFLOW:]
        last = max((i for i, w in enumerate(self._waiting) if isinstance(w, TextDelta)), default=-1)
        old = list(self._waiting)
        self._waiting.clear()
        self._size = 0
        for index, item in enumerate(old):
            if not isinstance(item, TextDelta):
                self._append(item)
            elif index == last:
                for start in range(0, len(text), DELTA_MAX):
                    self._append(TextDelta(text=text[start : start + DELTA_MAX]))
        # What is left cannot shrink again soon; the next look waits until that much more came.
        self._limit = max(BUFFER_MAX, self._size + BUFFER_MAX // 2)


def _size(item: TextDelta | bytes) -> int:
    return len(item) if isinstance(item, bytes) else len(item.text)


class ItemSink:
    """Sends one turn's items through `send`, which returns False while nothing is accepted."""

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._batcher = Batcher()
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._ended = False

    def put(self, item: AnyItem) -> None:
        """Add an item; what comes behind the terminal item is dropped."""
        if self._ended:
            return
        self._ended = isinstance(item, TERMINAL_ITEMS)
        self._batcher.put(item)
        self._empty.clear()
        if self._timer is None:
            delay = self._batcher.ready_in(self._loop.time())
            self._timer = self._loop.call_later(delay, self._flush)

    async def flushed(self, seconds: float = PATIENCE) -> bool:
        """Wait until the supervisor's socket has taken every item; False if it did not in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Stop sending; items that still wait are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._timer = None
        body, count = self._batcher.peek()
        now = self._loop.time()
        if self._send(body):
            self._batcher.sent(count, now)
        else:
            self._batcher.refused(now)
        if len(self._batcher):
            self._timer = self._loop.call_later(self._batcher.ready_in(now), self._flush)
        else:
            self._empty.set()
