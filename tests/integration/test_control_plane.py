"""Who is heard on control: bytes of any kind arrive on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import zmq
from peers import PATIENCE, Peer, context

from interlock.bus.codec import encode
from interlock.bus.messages import MAX_HEADER, ControlUp, Drain, Hello, Pong, Ready
from interlock.bus.records import Boot
from interlock.supervisor.control.plane import ControlPlane


class Stage:
    """A control plane that expects one worker, and what it heard."""

    def __init__(self, ctx: zmq.Context[zmq.Socket[bytes]], folder: Path) -> None:
        self.ctx = ctx
        self.address = f"ipc://{folder / 'c'}"
        self.heard: list[tuple[str, int, ControlUp, bytes | None]] = []
        self._changed = asyncio.Event()
        self.plane = ControlPlane(ctx, self.address, self._hear)
        self.boot = Boot(
            name="mcp:x",
            kind="mcp",
            generation=3,
            nonce="n",
            token="secret",
            control=self.address,
            home="/",
            log="",
        )
        self.plane.expect(self.boot)

    def _hear(self, name: str, generation: int, message: ControlUp, body: bytes | None) -> None:
        self.heard.append((name, generation, message, body))
        self._changed.set()

    async def until_heard(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < count:
                self._changed.clear()
                await self._changed.wait()

    def peer(self, identity: bytes | None = None) -> Peer:
        return Peer(self.ctx, self.address, identity or self.boot.identity)

    async def proven(self) -> Peer:
        peer = self.peer()
        peer.send(encode(Hello(token="secret", pid=7)))
        await self.until_heard(1)
        return peer


def on_stage(folder: Path, play: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        async with context() as ctx:
            stage = Stage(ctx, folder)
            await play(stage)
            stage.plane.close()

    asyncio.run(run())


def test_a_worker_is_heard_and_answered_after_its_hello(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        assert not stage.plane.send("mcp:x", 3, Drain(seconds=1.0))
        peer = await stage.proven()
        peer.send(encode(Ready(tools=2)), b"body")
        await stage.until_heard(2)
        assert stage.heard[1] == ("mcp:x", 3, Ready(tools=2), b"body")
        assert stage.plane.send("mcp:x", 3, Drain(seconds=1.0), b"{}")
        assert (await peer.receive())[1] == b"{}"
        assert not stage.plane.send("mcp:x", 2, Drain(seconds=1.0))
        assert stage.plane.dropped == 0

    on_stage(tmp_path, play)


BAD: dict[str, list[bytes]] = {
    "no hello first": [encode(Ready())],
    "wrong token": [encode(Hello(token="other", pid=7))],
    "token with a lone surrogate": [b"\x82\xa4type\xa5hello\xa5token\xa3\xed\xa0\x80"],
    "another protocol": [encode(Hello(token="secret", pid=7, protocol=99))],
    "garbage": [b"\xc1\xff\x00"],
    "truncated": [encode(Hello(token="secret", pid=7))[:-3]],
    "empty": [b""],
    "nested": [b"\x91" * 10_000],
    "oversized": [b"\xc6" + b"\x00" * (MAX_HEADER + 1)],
    "json": [msgspec.json.encode({"type": "hello", "token": "secret", "pid": 7})],
    "too many frames": [encode(Hello(token="secret", pid=7)), b"", b"", b""],
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_not_a_proof_is_dropped_and_harms_nobody(tmp_path: Path, what: str) -> None:
    async def play(stage: Stage) -> None:
        peer = stage.peer()
        peer.send(*BAD[what])
        peer.send(encode(Hello(token="secret", pid=7)))
        await stage.until_heard(1)
        assert [heard[2] for heard in stage.heard] == [Hello(token="secret", pid=7)]
        assert stage.plane.dropped == 1

    on_stage(tmp_path, play)


def test_nobody_speaks_in_another_s_name(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        worker = await stage.proven()
        stage.plane.expect(
            Boot(
                name="mcp:y",
                kind="mcp",
                generation=1,
                nonce="m",
                token="other",
                control=stage.address,
                home="/",
                log="",
            )
        )
        liar = stage.peer(b"mcp:y#1#m")
        liar.send(encode(Hello(token="secret", pid=9)))  # x's token does not prove y
        liar.send(encode(Ready()))
        twin = stage.peer()  # the identity of x, which has a connection: not even let in
        twin.send(encode(Ready(tools=66)))
        guess = stage.peer(b"mcp:x#3#guessed")
        guess.send(encode(Ready(tools=77)))
        worker.send(encode(Hello(token="secret", pid=7)))  # a second hello is not heard
        worker.send(encode(Pong(n=1)))
        await stage.until_heard(2)
        liar.send(encode(Hello(token="other", pid=9)))
        await stage.until_heard(3)
        assert [(name, type(message)) for name, _, message, _ in stage.heard] == [
            ("mcp:x", Hello),
            ("mcp:x", Pong),
            ("mcp:y", Hello),
        ]
        assert 3 <= stage.plane.dropped <= 4

    on_stage(tmp_path, play)


def test_a_generation_that_has_ended_is_not_heard_any_more(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        old = await stage.proven()
        stage.plane.forget("mcp:x", 3)
        old.send(encode(Ready()))
        old.send(encode(Hello(token="secret", pid=7)))
        stage.plane.expect(
            msgspec.structs.replace(stage.boot, generation=4, nonce="fresh", token="fresh")
        )
        fresh = stage.peer(b"mcp:x#4#fresh")
        fresh.send(encode(Hello(token="fresh", pid=8)))
        await stage.until_heard(2)
        assert stage.heard[1][1] == 4
        assert not stage.plane.send("mcp:x", 3, Drain(seconds=1.0))

    on_stage(tmp_path, play)
