"""A real data server and its callers in one event loop, for tests of the data plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import zmq

from interlock.bus.channel import DataEdge, DataServer, IncomingCall
from interlock.bus.records import Target
from interlock.bus.socket import open_socket
from interlock.bus.tickets import TicketClaims, mint

KEY = b"k" * 32
WORKER = "mcp:test"
GENERATION = 3
NAMES = ("echo", "park", "large", "slow")


def claims(**changes: Any) -> TicketClaims:
    fields: dict[str, Any] = {
        "id": "t1",
        "caller": "agent:main",
        "target": WORKER,
        "generation": GENERATION,
        "names": NAMES,
        "turn": "turn-1",
        "expires": time.time() + 30,
    }
    return TicketClaims(**(fields | changes))


def ticket(key: bytes = KEY, **changes: Any) -> str:
    return mint(key, claims(**changes))


class Rig:
    """A server that answers `echo` at once and parks every other call in `parked`."""

    def __init__(self, folder: Path) -> None:
        self.ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address = f"ipc://{folder}/data"
        self.parked: list[IncomingCall] = []
        self.arrived = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.wall = time.time
        self.server = self.serve()
        self.edges: list[DataEdge] = []

    def serve(self) -> DataServer:
        return DataServer(
            self.address,
            KEY,
            WORKER,
            GENERATION,
            self.handle,
            clock=lambda: self.wall(),
        )

    def handle(self, call: IncomingCall) -> None:
        if call.name == "echo":
            call.result(call.arguments)
            return
        call.on_cancel = self.cancelled.set
        self.parked.append(call)
        self.arrived.set()

    async def next_parked(self) -> IncomingCall:
        async with asyncio.timeout(10):
            while not self.parked:
                self.arrived.clear()
                await self.arrived.wait()
        return self.parked.pop(0)

    def target(self, **changes: Any) -> Target:
        return Target(
            worker=WORKER,
            generation=GENERATION,
            endpoint=self.address,
            ticket=ticket(**changes),
            expires_in=30.0,
        )

    def edge(self, **changes: Any) -> DataEdge:
        edge = DataEdge(self.target(**changes))
        self.edges.append(edge)
        return edge

    def raw(self) -> Raw:
        return Raw(self.ctx, self.address)

    def close(self) -> None:
        for edge in self.edges:
            edge.close()
        self.server.close()
        self.ctx.destroy(0)


class Raw:
    """A caller that sends whatever bytes it likes."""

    def __init__(self, ctx: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.sock = open_socket(ctx, zmq.DEALER)
        self.sock.connect(address)

    def send(self, *frames: bytes) -> None:
        self.sock.send_multipart(frames)

    async def receive(self) -> list[bytes]:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.sock.get(zmq.FD), ready.set)
        try:
            async with asyncio.timeout(10):
                while not self.sock.get(zmq.EVENTS) & zmq.POLLIN:
                    ready.clear()
                    await ready.wait()
        finally:
            loop.remove_reader(self.sock.get(zmq.FD))
        return self.sock.recv_multipart(zmq.DONTWAIT)

    def close(self) -> None:
        self.sock.close(0)


def run(
    folder: Path,
    test: Callable[[Rig], Coroutine[Any, Any, None]],
    faults: tuple[type[Exception], ...] = (),
) -> None:
    """Run a test in a fresh loop; the exceptions that reached the loop must be `faults`."""
    stray: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: stray.append(context.get("exception") or context)
        )
        rig = Rig(folder)
        try:
            async with asyncio.timeout(40):
                await test(rig)
        finally:
            rig.close()

    asyncio.run(main())
    assert [type(error) for error in stray] == list(faults), stray
