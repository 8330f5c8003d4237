from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from interlock.bus.errors import InterlockError
from interlock.bus.events import WorkerStarting
from interlock.bus.socket import FdSocket, open_socket
from interlock.supervisor.events.sequencer import Sequencer

HIGH_WATER = 50


class Subscriber:
    """One SUB socket and the events that it got."""

    def __init__(self, ctx: zmq.Context[Any], endpoint: str, encoding: bytes) -> None:
        sock = open_socket(ctx, zmq.SUB, rcvhwm=HIGH_WATER)
        sock.setsockopt(zmq.SUBSCRIBE, encoding)
        sock.connect(endpoint)
        self.seqs: list[int] = []
        self._changed = asyncio.Event()
        self._socket = FdSocket(sock, self._on_frames)

    def _on_frames(self, frames: list[bytes]) -> None:
        encoding, frame = frames
        decode = json.loads if encoding == b"json" else msgspec.msgpack.decode
        self.seqs.append(decode(frame)["seq"])
        self._changed.set()

    async def until(self, condition: Callable[[list[int]], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition(self.seqs):
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        self._socket.close()


class Publisher:
    """A sequencer on a real XPUB, as the supervisor has it."""

    def __init__(self, ctx: zmq.Context[Any], endpoint: str) -> None:
        sock = open_socket(ctx, zmq.XPUB, sndhwm=HIGH_WATER)
        sock.bind(endpoint)
        self._subscribed = asyncio.Event()
        self._socket = FdSocket(sock, self._on_frames)
        self.sequencer = Sequencer("e1", self._socket.send, kept=500)

    def _on_frames(self, frames: list[bytes]) -> None:
        self.sequencer.on_frames(frames)
        self._subscribed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._subscribed.clear()
                await self._subscribed.wait()

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.sequencer.publish(WorkerStarting(name="mcp:git"))

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def stage(tmp_path: Path) -> AsyncIterator[tuple[Publisher, Callable[..., Subscriber]]]:
    ctx: zmq.Context[Any] = zmq.Context()
    endpoint = f"ipc://{tmp_path}/events"
    publisher = Publisher(ctx, endpoint)
    subscribers: list[Subscriber] = []

    def subscribe(encoding: bytes = b"msgpack") -> Subscriber:
        subscribers.append(Subscriber(ctx, endpoint, encoding))
        return subscribers[-1]

    try:
        yield publisher, subscribe
    finally:
        for subscriber in subscribers:
            subscriber.close()
        publisher.close()
        ctx.destroy(0)


async def heard(publisher: Publisher, subscriber: Subscriber) -> None:
    """Until that subscriber, the first for msgpack, gets events: its subscription has arrived."""
    await publisher.until(lambda: publisher.sequencer.wants(b"msgpack"))
    publisher.publish()
    await subscriber.until(lambda seqs: seqs[-1:] == [publisher.sequencer.seq])


def test_both_encodings_get_every_event_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with stage(tmp_path) as (publisher, subscribe):
            publisher.publish(3)
            one, other = subscribe(b"json"), subscribe(b"msgpack")
            sequencer = publisher.sequencer
            await publisher.until(lambda: sequencer.wants(b"json") and sequencer.wants(b"msgpack"))
            publisher.publish(20)
            for subscriber in (one, other):
                await subscriber.until(lambda seqs: len(seqs) >= 20)
                assert subscriber.seqs == list(range(4, 24))
            one.close()
            await publisher.until(lambda: not sequencer.wants(b"json"))
            assert sequencer.wants(b"msgpack")

    asyncio.run(story())


def test_a_late_subscriber_catches_up_by_replay_without_loss_or_repetition(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with stage(tmp_path) as (publisher, subscribe):
            publisher.publish(100)
            late = subscribe()
            await heard(publisher, late)
            await late.until(lambda seqs: seqs[-1] == publisher.sequencer.seq)
            replayed = [event.seq for event in publisher.sequencer.replay("e1", 40)]
            live = [seq for seq in late.seqs if seq > replayed[-1]]
            assert replayed + live == list(range(41, publisher.sequencer.seq + 1))

    asyncio.run(story())


def test_a_slow_subscriber_loses_events_and_slows_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        ctx: zmq.Context[Any] = zmq.Context()
        async with stage(tmp_path) as (publisher, subscribe):
            quick = subscribe()
            await heard(publisher, quick)
            slow = open_socket(ctx, zmq.SUB, rcvhwm=1)
            slow.setsockopt(zmq.SUBSCRIBE, b"json")
            slow.connect(f"ipc://{tmp_path}/events")
            await publisher.until(lambda: publisher.sequencer.wants(b"json"))
            # Far more than all buffers on the way hold; `slow` reads nothing meanwhile.
            first = publisher.sequencer.seq + 1
            for _ in range(300):
                publisher.publish(20)
                last = publisher.sequencer.seq
                await quick.until(lambda seqs, last=last: seqs[-1] == last)
            assert quick.seqs[-6_000:] == list(range(first, first + 6_000))
            got, after_the_gap = _up_to_a_gap(slow, publisher)
            assert got == list(range(first, first + len(got))) and 0 < len(got) < 6_000
            assert after_the_gap > got[-1] + 1
            # The missing ones are no longer kept.
            with pytest.raises(InterlockError) as caught:
                publisher.sequencer.replay("e1", got[-1])
            assert caught.value.code == "gap"
            slow.close(0)
        ctx.destroy(0)

    asyncio.run(story())


def _up_to_a_gap(sock: zmq.Socket[bytes], publisher: Publisher) -> tuple[list[int], int]:
    """Read events as long as none is missing: the numbers of those, and the number after that."""
    got: list[int] = []
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not sock.poll(200):
            publisher.publish()  # all are read, so a gap shows with the next one
            continue
        seq = json.loads(sock.recv_multipart()[1])["seq"]
        if got and seq != got[-1] + 1:
            return got, seq
        got.append(seq)
    raise AssertionError("no event is missing")


def test_garbage_from_subscribers_is_survived(tmp_path: Path) -> None:
    async def story() -> None:
        ctx: zmq.Context[Any] = zmq.Context()
        async with stage(tmp_path) as (publisher, subscribe):
            bad = open_socket(ctx, zmq.XSUB)
            bad.connect(f"ipc://{tmp_path}/events")
            for frames in ([b"\x07"], [b"\x01" + b"x" * 1000], [b""], [b"a", b"b", b"c"]):
                bad.send_multipart(frames)
            bad.send(b"\x01json")
            await publisher.until(lambda: publisher.sequencer.wants(b"json"))
            quick = subscribe()
            await heard(publisher, quick)
            bad.close(0)
        ctx.destroy(0)

    asyncio.run(story())
