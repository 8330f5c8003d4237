"""What clients may send to the api, in both encodings, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from peers import Peer, context

from interlock.bus import messages as m
from interlock.bus.codec import decode_api_answer
from interlock.bus.errors import NotFoundError
from interlock.bus.socket import open_socket
from interlock.supervisor.api import server as api_module
from interlock.supervisor.api.server import Api
from interlock.supervisor.policy.approvals import Role

KEY = "k" * 64
CODECS: dict[bytes, Callable[[Any], bytes]] = {
    b"json": msgspec.json.encode,
    b"msgpack": msgspec.msgpack.encode,
}


class Stage:
    """An api with a few handlers of every temper."""

    def __init__(self, ctx: zmq.Context[zmq.Socket[bytes]], folder: Path) -> None:
        self.ctx = ctx
        self.address = f"ipc://{folder / 'a'}"
        self.trouble: list[tuple[str, str]] = []
        self.gone: list[bytes] = []
        self.started = asyncio.Event()
        self.api = Api(ctx, self.address, {KEY: "person"}, self._trouble, self.gone.append)
        self.api.serve(
            {
                m.StatusGet: self.status,
                m.Reload: self.broken,
                m.TurnCredit: self.silent,
                m.SnapshotGet: self.endless,
            },
            frozenset(),
        )

    def _trouble(self, error: BaseException, what: str) -> None:
        self.trouble.append((type(error).__name__, what))

    async def status(self, identity: bytes, message: m.StatusGet, body: bytes | None) -> bytes:
        if message.name:
            raise NotFoundError(f"There is no worker {message.name}.")
        self.api.holds(identity, "mcp:x", 2)
        return msgspec.json.encode({"body": None if body is None else body.decode()})

    async def broken(self, identity: bytes, message: m.Reload, body: bytes | None) -> bytes:
        return msgspec.json.encode({}["nothing"])

    async def silent(self, identity: bytes, message: m.TurnCredit, body: bytes | None) -> None:
        return None

    async def endless(self, identity: bytes, message: m.SnapshotGet, body: bytes | None) -> bytes:
        self.started.set()
        await asyncio.Event().wait()
        return b"{}"


def on_stage(folder: Path, play: Callable[[Stage, Peer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with context() as ctx:
            stage = Stage(ctx, folder)
            await play(stage, Peer(ctx, stage.address))
            await stage.api.close()

    asyncio.run(run())


async def ask(peer: Peer, encoding: bytes, *body: bytes, **fields: Any) -> tuple[Any, list[bytes]]:
    peer.send(encoding, CODECS[encoding]({"key": KEY, **fields}), *body)
    return await answer(peer)


async def answer(peer: Peer) -> tuple[Any, list[bytes]]:
    encoding, header, *rest = await peer.receive()
    return decode_api_answer(encoding, header), rest


@pytest.mark.parametrize("encoding", CODECS)
def test_a_request_gets_its_document(tmp_path: Path, encoding: bytes) -> None:
    async def play(stage: Stage, peer: Peer) -> None:
        reply, rest = await ask(peer, encoding, b'"hi"', type="status", id=5)
        assert (reply, rest) == (m.Reply(id=5), [b'{"body":"\\"hi\\""}'])

    on_stage(tmp_path, play)


@pytest.mark.parametrize("encoding", CODECS)
def test_every_refusal_is_coded_and_none_ends_the_api(tmp_path: Path, encoding: bytes) -> None:
    async def play(stage: Stage, peer: Peer) -> None:
        requests: list[tuple[str, dict[str, Any]]] = [
            ("unauthorized", {"type": "status", "id": 1, "key": "wrong"}),
            ("unauthorized", {"type": "status", "id": 2, "key": ""}),
            ("malformed", {"type": "status", "id": 3, "name": 7}),
            ("malformed", {"type": "no.such.thing", "id": 4}),
            ("malformed", {"type": "worker", "id": 5, "name": "x", "action": "explode"}),
            ("malformed", {"id": 6}),
            ("not_found", {"type": "status", "id": 7, "name": "mcp:y"}),
            ("internal", {"type": "reload", "id": 8}),
            ("unsupported", {"type": "turns", "id": 9}),
        ]
        for code, fields in requests:
            reply, rest = await ask(peer, encoding, **fields)
            assert (reply.id, reply.code, rest) == (fields["id"], code, [])
            assert reply.message
        assert stage.trouble == [("KeyError", "reload")]
        reply, _ = await ask(peer, encoding, type="status", id=99)
        assert reply.code == "ok"

    on_stage(tmp_path, play)


NOISE: dict[str, list[bytes]] = {
    "nothing": [b""],
    "one frame": [b"json"],
    "unknown encoding": [b"xml", b"<status/>"],
    "garbage": [b"msgpack", b"\xc1\xc1"],
    "truncated": [b"json", b'{"type":"status","id":1,'],
    "nested": [b"json", b"[" * 10_000],
    "nested in a field": [b"msgpack", b"\x81\xa2id" + b"\x91" * 10_000],
    "oversized": [b"json", b" " * (m.MAX_HEADER + 1)],
    "many frames": [b"json", b"{}", b"", b"", b"", b""],
    "utf-8": [b"json", b'{"type":"\xff"}'],
}


@pytest.mark.parametrize("what", NOISE)
def test_noise_is_dropped_and_counted(tmp_path: Path, what: str) -> None:
    async def play(stage: Stage, peer: Peer) -> None:
        peer.send(*NOISE[what])
        reply, _ = await ask(peer, b"json", type="status", id=1)
        assert reply == m.Reply(id=1)
        assert stage.api.dropped == 1

    on_stage(tmp_path, play)


def test_the_end_of_a_generation_is_told_to_who_may_call_it(tmp_path: Path) -> None:
    async def play(stage: Stage, peer: Peer) -> None:
        await ask(peer, b"json", type="status", id=1)
        stranger = Peer(stage.ctx, stage.address)
        await ask(stranger, b"msgpack", type="turns", id=1)
        stage.api.tell_gone("mcp:x", 1, "another generation")
        stage.api.tell_gone("mcp:x", 2, "killed")
        stage.api.tell_gone("mcp:x", 2, "once is enough")
        gone, _ = await answer(peer)
        assert gone == m.Gone(worker="mcp:x", generation=2, reason="killed")
        await ask(peer, b"json", type="turns", id=2)
        assert peer.nothing() and stranger.nothing()

    on_stage(tmp_path, play)


def test_who_a_client_is_follows_from_its_key(tmp_path: Path) -> None:
    async def story() -> None:
        ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        keys: dict[str, Role] = {KEY: "person", "app" * 20: "app"}
        api = Api(ctx, f"ipc://{tmp_path}/api", keys, lambda *_: None, lambda _: None)
        asked: list[tuple[bytes, str]] = []

        async def status(identity: bytes, message: m.StatusGet, body: bytes | None) -> bytes:
            asked.append((identity, api.role(identity)))
            return b"{}"

        api.serve({m.StatusGet: status}, frozenset())
        person = Peer(ctx, f"ipc://{tmp_path}/api", b"one")
        app = Peer(ctx, f"ipc://{tmp_path}/api", b"two")
        for peer, key in ((person, KEY), (app, "app" * 20), (app, KEY), (person, "other")):
            peer.send(b"json", CODECS[b"json"]({"type": "status", "id": 1, "key": key}))
            reply, _ = await answer(peer)
            # A connection keeps its role: an app does not become a person by another key.
            known = (peer, key) in ((person, KEY), (app, "app" * 20))
            assert reply.code == ("ok" if known else "unauthorized")
        assert asked == [(b"one", "person"), (b"two", "app")]
        assert api.role(b"three") == "app"
        await api.close()
        person.close()
        app.close()
        ctx.destroy(0)

    asyncio.run(story())


def test_what_is_under_way_at_the_end_is_answered(tmp_path: Path) -> None:
    async def play(stage: Stage, peer: Peer) -> None:
        peer.send(b"json", CODECS[b"json"]({"type": "snapshot", "id": 4, "key": KEY}))
        await stage.started.wait()
        await stage.api.close()
        reply, _ = await answer(peer)
        assert (reply.id, reply.code) == (4, "stopping")

    on_stage(tmp_path, play)


def test_a_client_that_waits_long_is_not_forgotten_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer comes, however many clients have come and gone meanwhile."""
    monkeypatch.setattr(api_module, "MAX_CLIENTS", 3)
    decided = asyncio.Event()

    async def slow(identity: bytes, message: m.ReplayGet, body: bytes | None) -> bytes:
        await decided.wait()
        return b"[]"

    async def play(stage: Stage, peer: Peer) -> None:
        stage.api.serve({m.ReplayGet: slow}, frozenset())
        fields = {"type": "replay", "id": 9, "key": KEY, "epoch": "e", "seq": 0}
        peer.send(b"json", CODECS[b"json"](fields))
        for number in range(20):
            other = Peer(stage.ctx, stage.address)
            await ask(other, b"json", type="status", id=number + 1)
            other.close()
        decided.set()
        reply, _ = await answer(peer)
        while reply.id == 0:  # a look whether it is there
            reply, _ = await answer(peer)
        assert (reply.id, reply.code) == (9, "ok")
        assert len(stage.gone) > 10

    on_stage(tmp_path, play)


def test_clients_that_left_are_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(api_module, "MAX_CLIENTS", 3)
        ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        api = Api(ctx, f"ipc://{tmp_path}/api", {"key": "person"}, lambda *_: None, lambda _: None)
        for number in range(50):
            api.holds(b"client%d" % number, "mcp:x", 1)
        assert len(api._holders["mcp:x", 1]) <= 3
        await api.close()
        ctx.destroy(0)

    asyncio.run(story())


def test_answers_that_nobody_reads_stop_only_the_requests_of_that_client(tmp_path: Path) -> None:
    """Of a hundred large answers a few are made; the others come as the client reads them."""
    made = 0

    async def large(identity: bytes, message: m.ReplayGet, body: bytes | None) -> bytes:
        nonlocal made
        made += 1
        return b'"' + b"x" * (4 << 20) + b'"'

    async def play(stage: Stage, peer: Peer) -> None:
        stage.api.serve({m.ReplayGet: large}, frozenset())
        lazy = open_socket(stage.ctx, zmq.DEALER, rcvhwm=1)
        lazy.connect(stage.address)
        for number in range(100):
            fields = {"type": "replay", "id": number + 1, "key": KEY, "epoch": "e", "seq": 0}
            lazy.send_multipart([b"json", CODECS[b"json"](fields)])
        while not made:
            await ask(peer, b"json", type="status", id=1)
        for number in range(200):
            reply, _ = await ask(peer, b"json", type="status", id=number + 1)
            assert reply.code == "ok"
        assert made <= 8
        read = 0
        while read < 100:
            reply, _ = await ask(peer, b"json", type="status", id=1)
            while lazy.poll(0):
                frames = lazy.recv_multipart()
                assert decode_api_answer(frames[0], frames[1]).code == "ok"
                read += 1
        lazy.close()

    on_stage(tmp_path, play)


def test_requests_of_one_client_take_no_memory_without_a_bound(tmp_path: Path) -> None:
    """Requests that wait are bounded in number and in bytes, and a small one has room always."""

    async def play(stage: Stage, peer: Peer) -> None:
        header = {"type": "snapshot", "key": KEY}
        for number in range(api_module.MAX_LARGE + 5):
            peer.send(b"json", CODECS[b"json"]({**header, "id": number + 1}))
        refused = [(await answer(peer))[0] for _ in range(5)]
        assert {reply.code for reply in refused} == {"overloaded"}
        other = Peer(stage.ctx, stage.address)
        for number in range(4):
            other.send(b"json", CODECS[b"json"]({**header, "id": number + 1}), b"x" * (15 << 20))
        for number in (3, 4):
            reply, _ = await answer(other)
            assert (reply.id, reply.code) == (number, "overloaded")
        third = Peer(stage.ctx, stage.address)
        reply, _ = await ask(third, b"json", type="status", id=1)
        assert reply.code == "ok"

    on_stage(tmp_path, play)
