"""The asynchronous client against real sockets."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from bus_peer import ECHO, WORKER, Peer

from interlock.bus import (
    AsyncClient,
    ConnectionLostError,
    NoSupervisorError,
    NotFoundError,
    RequestTimeoutError,
    UsageError,
)
from interlock.bus import messages as m
from interlock.bus.events import WorkerReady

READY = WorkerReady(name=WORKER, generation=1)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    with Peer(tmp_path / "home") as found:
        yield found


def test_requests_and_calls(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            assert (await bus.status())["supervisor"]["pid"] == peer.pid
            assert (await bus.tools(for_text="x"))["capabilities"] == []
            assert (await bus.resolve(ECHO)).local == "echo"
            results = await asyncio.gather(*(bus.call(ECHO, {"n": n}) for n in range(40)))
            assert [result.structured for result in results] == [{"n": n} for n in range(40)]
            assert len((await bus.call("mcp:test/big", {"size": 5 << 20})).text) == 5 << 20
            assert (await bus.call("nonsense")).outcome == "not_found"
            assert (await bus.call("mcp:test/mute", timeout=0.1)).outcome == "timeout"
            steps: list[float] = []
            progressed = await bus.call(
                "mcp:test/progress", on_progress=lambda step: steps.append(step.progress)
            )
            assert progressed.ok
            assert steps == [1, 2, 3]
            assert (await bus.control("restart", WORKER))["state"] == "READY"
            assert (await bus.call(ECHO)).ok
            assert await bus.turns() == {"turns": []}
            assert (await bus.reload())["problems"] == []
            await bus.shutdown()

    asyncio.run(main())


def test_a_worker_that_dies_fails_the_call_at_once(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            call = asyncio.create_task(bus.call("mcp:test/mute", timeout=30))
            while not await asyncio.to_thread(peer.do, lambda: bool(peer.calls)):
                pass
            await asyncio.to_thread(peer.do, peer.kill_worker)
            result = await call
            assert (result.outcome, result.may_have_run) == ("worker_died", True)
            assert (await bus.call(ECHO)).ok

    asyncio.run(main())


def test_turns(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            words = " ".join(str(n) for n in range(1000))
            async with aclosing(bus.turn(f"say {words}", id="d" * 32)) as stream:
                items = [item async for item in stream]
            assert [item["offset"] for item in items] == list(range(1002))
            assert [item["offset"] async for item in bus.watch("d" * 32, 1000)] == [1000, 1001]
            waiting = bus.turn("wait", id="e" * 32)
            assert (await anext(waiting))["type"] == "turn.started"
            assert (await bus.turn_show("e" * 32))["state"] == "running"
            await bus.turn_cancel("e" * 32)
            assert [item["type"] async for item in waiting] == ["turn.cancelled"]
            with pytest.raises(NotFoundError):
                await anext(bus.watch("f" * 32))

    asyncio.run(main())


def test_events(peer: Peer) -> None:
    async def main() -> None:
        async with AsyncClient.connect(peer.home.path) as bus:
            async with aclosing(bus.events(topics=["worker."])) as events:
                assert (await anext(events))["topic"] == "snapshot"
                await asyncio.to_thread(peer.do, lambda: peer.publish(READY, lose=True))
                assert (await anext(events))["seq"] == 1
                await asyncio.to_thread(peer.do, lambda: peer.publish(READY))
                assert (await anext(events))["seq"] == 2
                await asyncio.to_thread(peer.do, peer.restart)
                await asyncio.to_thread(peer.do, lambda: peer.publish(READY))
                assert (await anext(events))["epoch"] == "epoch-2"

    asyncio.run(main())


def test_what_goes_wrong(peer: Peer, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(NoSupervisorError):
            async with AsyncClient.connect(tmp_path):
                pass
        bus = AsyncClient.connect(peer.home.path)
        with pytest.raises(UsageError):
            await bus.status()
        async with bus:
            peer.mute = {m.StatusGet}
            with pytest.raises(RequestTimeoutError):
                await bus.request(m.StatusGet, timeout=0.1)
            with pytest.raises(UsageError, match="number of seconds"):
                await bus.call(ECHO, timeout=float("nan"))
            peer.mute = set()
            events = bus.events()
            await anext(events)
        with pytest.raises(UsageError, match="closed"):
            await anext(events)
        bus.close()
        with pytest.raises(UsageError):
            await bus.call(ECHO)

    asyncio.run(main())


def test_a_supervisor_that_dies(tmp_path: Path) -> None:
    async def main(alive: subprocess.Popen[bytes], peer: Peer) -> None:
        async with AsyncClient.connect(tmp_path) as bus:
            async with aclosing(bus.events()) as events, aclosing(bus.turn("wait")) as turn:
                await anext(events)
                await anext(turn)
                call = asyncio.create_task(bus.call("mcp:test/mute"))
                while not await asyncio.to_thread(lambda: peer.do(lambda: bool(peer.calls))):
                    pass
                alive.kill()
                with pytest.raises(ConnectionLostError):
                    await anext(turn)
                with pytest.raises(ConnectionLostError):
                    while True:
                        await anext(events)
                with pytest.raises(ConnectionLostError):
                    await call

    with subprocess.Popen(["sleep", "60"]) as alive, Peer(tmp_path, pid=alive.pid) as peer:
        asyncio.run(main(alive, peer))
