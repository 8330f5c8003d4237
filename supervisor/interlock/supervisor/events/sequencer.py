"""The only place that numbers events: stamps, keeps and publishes them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from interlock.bus.errors import InterlockError
from interlock.bus.events import Event

KEPT: Final = 10_000
"""Events that can be replayed."""
KEPT_BYTES: Final = 32 << 20
"""Of text in those, about; a source with thousands of long names must not fill the memory."""
ENCODINGS: Final = (b"json", b"msgpack")
"""Topics of the events socket: a subscriber gets every event in the encoding it names."""

E = TypeVar("E", bound=Event)
Listener = Callable[[Event], None]
_ENCODE: Final = {
    b"json": msgspec.json.Encoder().encode,
    b"msgpack": msgspec.msgpack.Encoder().encode,
}


class Sequencer:
    """Numbers events from 1 and hands them to subscribers, listeners and the replay ring.

    `send` puts one multipart message on the XPUB socket and never waits; a subscriber that is too
    slow loses events by its high-water mark and sees the gap.
    """

    def __init__(
        self,
        epoch: str,
        send: Callable[[list[bytes]], object] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        kept: int = KEPT,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.epoch = epoch
        self.seq = 0
        """Number of the newest event; 0 before the first."""
        self.dropped = 0
        """Messages of subscribers that are no subscription to an encoding."""
        self._send = send
        self._clock = clock
        self._ring: deque[tuple[Event, int]] = deque()
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._topics: set[bytes] = set()
        self._wanted: tuple[bytes, ...] = ()
        self._listeners: list[Listener] = []

    def publish(self, event: E) -> E:
        """Give the event its epoch, seq and time, keep it, send it; return the stamped event."""
        self.seq += 1
        stamped = msgspec.structs.replace(event, epoch=self.epoch, seq=self.seq, time=self._clock())
        self._keep(stamped)
        if self._send is not None:
            for encoding in self._wanted:
                self._send([encoding, _ENCODE[encoding](stamped)])
        for listener in tuple(self._listeners):
            listener(stamped)
        return stamped

    def _keep(self, event: Event) -> None:
        size = _text(event)
        self._ring.append((event, size))
        self._bytes += size
        while len(self._ring) > self._kept or self._bytes > self._kept_bytes:
            self._bytes -= self._ring.popleft()[1]

    def on_frames(self, frames: list[bytes]) -> None:
        """Take one message read from the XPUB: a subscription or its end; anything else is nothing.

        Only topics that some encoding begins with are kept, so a client cannot make this grow.
        """
        frame = frames[0] if len(frames) == 1 else b""
        flag, topic = frame[:1], frame[1:]
        known = any(encoding.startswith(topic) for encoding in ENCODINGS)
        if not known or flag not in (b"\x00", b"\x01"):
            self.dropped += 1
            return
        if flag == b"\x01":
            self._topics.add(topic)
        else:
            self._topics.discard(topic)
        self._wanted = tuple(
            encoding
            for encoding in ENCODINGS
            if any(encoding.startswith(wanted) for wanted in self._topics)
        )

    def wants(self, encoding: bytes) -> bool:
        """Whether anybody subscribes to that encoding now."""
        return encoding in self._wanted

    def replay(self, epoch: str, seq: int) -> list[Event]:
        """All events after `seq`, in order.

        Raises InterlockError with code `gap` if the epoch is another one, the events are no longer
        kept, or `seq` was never reached: take a snapshot then.
        """
        oldest = self._ring[0][0].seq if self._ring else self.seq + 1
        if epoch != self.epoch or seq > self.seq or seq + 1 < oldest:
            raise gap()
        return [event for event, _ in self._ring if event.seq > seq]

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on, in the loop; returns how to stop that."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop


def gap() -> InterlockError:
    """What a client is told that has to take a snapshot."""
    return InterlockError(
        "These events are no longer kept; take a snapshot and go on from there.", code="gap"
    )


def _text(event: Event) -> int:
    """Characters of the texts in an event."""
    size = 0
    for value in msgspec.structs.astuple(event):
        kind = type(value)
        if kind is str:
            size += len(value)
        elif kind is tuple:
            size += sum(map(len, value))
    return size
