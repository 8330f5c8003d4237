"""A bare ZeroMQ peer in an event loop, for tests that send whatever bytes they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import zmq

from interlock.bus.socket import FdSocket, open_socket

PATIENCE = 10.0


class Peer:
    """A DEALER; what it receives can be awaited."""

    def __init__(
        self, ctx: zmq.Context[zmq.Socket[bytes]], address: str, identity: bytes = b""
    ) -> None:
        options: dict[str, int | bytes] = {"routing_id": identity} if identity else {}
        sock = open_socket(ctx, zmq.DEALER, **options)
        sock.connect(address)
        self._inbox: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._socket = FdSocket(sock, self._inbox.put_nowait)

    def send(self, *frames: bytes) -> None:
        assert self._socket.send(frames)

    async def receive(self) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            return await self._inbox.get()

    def nothing(self) -> bool:
        return self._inbox.empty()

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def context() -> AsyncIterator[zmq.Context[zmq.Socket[bytes]]]:
    """A ZeroMQ context that leaves nothing behind."""
    ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield ctx
    finally:
        ctx.destroy(0)
