"""Both clients over a long time: nothing piles up, nothing is left, and neither lacks a method."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from bus_peer import ECHO, WORKER, Peer

from interlock.bus import AsyncClient, Client, UsageError, afeeds, connect, feeds
from interlock.bus import messages as m
from interlock.bus.codec import decode_data_up
from interlock.bus.errors import ConnectionLostError
from interlock.bus.events import WorkerReady

READY = WorkerReady(name=WORKER, generation=1)
NEEDED = m.Reply(id=0, code="approval_needed", message="May it?")


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(tmp_path / "home") as found:
        yield found


def publish(peer: Peer, count: int) -> None:
    """Publish events, and after them a message that every reader counts as dropped."""

    def work() -> None:
        for _ in range(count):
            peer.publish(READY)
        peer._events.send_multipart([b"msgpack", b"\xc1"])

    peer.do(work)


def lose_without_a_word(peer: Peer) -> None:
    """Start the worker again; the clients are forgotten and not told."""
    peer._api_clients.clear()
    peer.kill_worker()


def test_a_callback_may_use_the_client_while_events_are_followed(peer: Peer) -> None:
    with connect(peer.home.path) as bus:
        assert bus.call(ECHO).ok
        events = bus.events()
        next(events)
        peer.do(lambda: peer.publish(READY))
        next(events)
        subscription = list(bus._line._handlers)[-1]
        seen: list[float] = []

        def on_progress(news: m.Progress) -> None:
            seen.append(news.progress)
            if len(seen) == 1:  # from the next look on both sockets have something
                peer.do(lambda: peer.publish(READY))
                assert subscription.poll(10_000)
            else:
                bus.status()

        assert bus.call("mcp:test/progress", on_progress=on_progress).ok
        assert seen == [1, 2, 3]
        assert next(events)["seq"] == 2


def test_events_that_nobody_takes_have_a_bound(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BUFFER", 10)
    with connect(peer.home.path) as bus:
        events = bus.events()
        next(events)
        peer.do(lambda: peer.publish(READY))
        next(events)
        publish(peer, 100)
        while not bus._line.dropped:
            bus.status()
        held = list(islice(events, 11))
        assert [event["seq"] for event in held] == [*range(2, 12), 101]
        assert held[-1]["topic"] == "snapshot"


def test_events_that_nobody_takes_have_a_bound_in_a_loop(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(afeeds, "BUFFER", 10)

    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus, aclosing(bus.events()) as events:
            await anext(events)
            await asyncio.to_thread(peer.do, lambda: peer.publish(READY))
            await anext(events)
            await asyncio.to_thread(publish, peer, 100)
            while not bus._line.dropped:
                await bus.status()
            held = [await anext(events) for _ in range(11)]
            assert [event["seq"] for event in held] == [*range(2, 12), 101]
            assert held[-1]["topic"] == "snapshot"

    asyncio.run(main())


def test_closing_leaves_no_descriptor_in_the_loop(peer: Peer) -> None:
    async def main() -> None:
        watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
        before = set(watched)
        bus = AsyncClient.connect(peer.home.path)
        await bus.__aenter__()
        assert (await bus.call(ECHO)).ok
        events, unstarted = bus.events(), bus.events()
        await anext(events)
        assert set(watched) > before
        bus.close()
        assert set(watched) == before
        for each in (events, unstarted):
            with pytest.raises(UsageError, match="closed"):
                await anext(each)

    asyncio.run(main())


def test_events_of_a_closed_client_cannot_begin(peer: Peer) -> None:
    with connect(peer.home.path) as bus:
        events = bus.events()
    with pytest.raises(UsageError, match="closed"):
        next(events)


def test_a_newer_generation_ends_the_connection_to_the_older(peer: Peer) -> None:
    with connect(peer.home.path) as bus:
        assert bus.call(ECHO).ok
        peer.do(lambda: lose_without_a_word(peer))
        assert bus.call("mcp:test/progress").ok
        assert list(bus._caller._edges) == [(WORKER, 2)]
        assert bus._caller._routes.find(ECHO, 0.0) is None


def test_a_newer_generation_ends_the_connection_to_the_older_in_a_loop(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            assert (await bus.call(ECHO)).ok
            waiting = asyncio.create_task(bus.call("mcp:test/mute", timeout=60))
            while len(peer.calls) < 2:
                await bus.status()
            await asyncio.to_thread(peer.do, lambda: lose_without_a_word(peer))
            assert (await bus.call("mcp:test/progress")).ok
            assert list(bus._calls._edges) == [(WORKER, 2)]
            ended = await asyncio.wait_for(waiting, 10)
            assert (ended.outcome, ended.may_have_run) == ("worker_died", True)

    asyncio.run(main())


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, dict[str, object]]:
        return {
            name: {p.name: p.default for p in inspect.signature(member).parameters.values()}
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(AsyncClient) == methods(Client)


@pytest.mark.parametrize("awaited", [True, False])
def test_a_person_is_asked_in_a_loop(peer: Peer, awaited: bool) -> None:
    asked: list[str] = []

    def plain(question: str) -> bool:
        asked.append(question)
        peer.refuse.clear()
        return True

    async def coroutine(question: str) -> bool:
        return plain(question)

    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            peer.refuse[ECHO] = NEEDED
            assert (await bus.call(ECHO, on_approval=coroutine if awaited else plain)).ok
            await bus.resolve(ECHO, timeout=7)

    asyncio.run(main())
    assert asked == ["May it?"]
    resolves = [each for each in peer.requests if isinstance(each, m.Resolve)]
    assert [each.approval for each in resolves] == ["tell", "yes", "park"]
    assert resolves[-1].patience == 7


FORGETFUL = """
import asyncio, gc, sys
from interlock.bus import AsyncClient, connect
async def forget():
    line = AsyncClient.connect(sys.argv[1])
    await (await line.__aenter__()).status()
for _ in range(3):
    connect(sys.argv[1]).call("mcp:test/echo")
    asyncio.run(forget())
gc.collect()
"""


def test_a_forgotten_client_ends_with_the_collection_of_garbage(peer: Peer) -> None:
    """The collector waited for sockets that it would have closed itself a moment later."""
    command = [sys.executable, "-c", FORGETFUL, str(peer.home.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def test_a_request_to_a_supervisor_that_was_replaced_ends_at_once(peer: Peer) -> None:
    """Events go on with the next one; a request would wait for it in vain."""

    async def test() -> None:
        async with AsyncClient.connect(peer.home.path) as bus, aclosing(bus.events()) as events:
            await anext(events)
            peer.mute = {m.TurnsGet}
            asked = asyncio.create_task(bus.turns())
            await asyncio.sleep(0)
            await bus.status()  # it is behind the other one
            assert any(isinstance(one, m.TurnsGet) for one in peer.requests)
            await asyncio.to_thread(peer.do, peer.restart)
            assert (await anext(events))["topic"] == "snapshot"
            with pytest.raises(ConnectionLostError):
                async with asyncio.timeout(5):
                    await asked

    asyncio.run(test())


class Delayed:
    """Keeps the messages to the worker back, until `opens` tickets are presented."""

    def __init__(self, peer: Peer, opens: int) -> None:
        self._peer, self._opens = peer, opens
        self._real = peer._on_data
        self._held: list[list[bytes]] = []
        peer._on_data = self._take  # type: ignore[method-assign]

    def _take(self, frames: list[bytes]) -> None:
        self._held.append(frames)
        self._opens -= isinstance(decode_data_up(frames[1]), m.Open)
        if not self._opens:
            self._peer._on_data = self._real  # type: ignore[method-assign]
            for one in self._held:
                self._real(one)


def test_a_refusal_that_comes_late_is_not_the_next_tickets(peer: Peer) -> None:
    with connect(peer.home.path) as bus:
        assert bus.call(ECHO).ok
        Delayed(peer, 2)
        peer.life = 0.3
        assert bus.call("mcp:test/broken", timeout=0.5).outcome == "timeout"
        peer.life = 60.0
        assert bus.call("mcp:test/progress", timeout=20).ok


@pytest.mark.parametrize("wrong", [-1, 0, float("nan"), "5"])
def test_times_that_are_none_are_refused_before_anything_is_sent(peer: Peer, wrong: Any) -> None:
    with connect(peer.home.path) as bus:
        asked = len(peer.requests)
        for use in (partial(bus.request, m.TurnsGet), partial(bus.resolve, ECHO)):
            with pytest.raises(UsageError):
                use(timeout=wrong)
        with pytest.raises(UsageError):
            bus.call(ECHO, timeout=wrong)
        assert len(peer.requests) == asked
