"""Connections that are read and written without libzmq's threads, to libzmq and to each other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import zmq

from interlock.bus import dealer, router
from interlock.bus.dealer import Dealer
from interlock.bus.endpoints import MAX_PATH
from interlock.bus.errors import UnreachableError
from interlock.bus.link import HIGH_WATER, MAX_WAITING
from interlock.bus.router import Router
from interlock.bus.socket import open_socket
from interlock.bus.zmtp import opening, small_message

PATIENCE = 10


class Ends:
    """A router at `path` that answers nobody, and what reached it and those that call it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "door")
        self.came: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self.told: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self.gone: asyncio.Queue[bytes] = asyncio.Queue()
        self.marks: list[bool | bytes] = []
        self.unsent: list[Any] = []
        self.free = asyncio.Event()
        self.router = Router(
            f"ipc://{self.path}",
            self._arrived,
            on_burst=self.marks.append,
            on_unsent=self.unsent.append,
            on_gone=self.gone.put_nowait,
        )
        self.dealers: list[Dealer] = []

    def _arrived(self, frames: list[bytes]) -> None:
        self.marks.append(frames[-1])
        self.came.put_nowait(frames)

    async def dealer(self) -> Dealer:
        made = Dealer(self.path, "it", self.told.put_nowait, self.free.set, lambda token: None)
        self.dealers.append(made)
        self.free.clear()
        made.want_writable = True
        await self.free.wait()
        made.want_writable = False
        return made

    def raw(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        sock.connect(self.path)
        return sock

    def close(self) -> None:
        for one in self.dealers:
            one.close()
        self.router.close()


def run(folder: Path, test: Callable[[Ends], Coroutine[Any, Any, None]]) -> None:
    before = os.listdir("/proc/self/fd")

    async def main() -> None:
        ends = Ends(folder)
        try:
            async with asyncio.timeout(30):
                await test(ends)
        finally:
            ends.close()

    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert not os.listdir(folder)


async def hung_up(sock: socket.socket) -> bool:
    """Read until the other end hangs up."""

    def drain() -> bool:
        while sock.recv(1 << 16):
            pass
        return True

    return await asyncio.to_thread(drain)


def test_frames_of_all_sizes_pass_both_ways(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        for size in (0, 1, 255, 256, 70_000, 5 << 20):
            assert one.send([b"header", b"x" * size])
            identity, header, body = await ends.came.get()
            ends.router.trust(identity)
            assert (header, body) == (b"header", b"x" * size)
            assert ends.router.send([identity, header, memoryview(body)])
            assert await ends.told.get() == [b"header", body]

    run(tmp_path, test)


def test_libzmq_is_a_caller_too_and_may_choose_its_identity(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        with zmq.Context() as ctx:
            with open_socket(ctx, zmq.DEALER, identity=b"me", heartbeat_ivl=50) as sock:
                sock.connect(f"ipc://{ends.path}")
                sock.send_multipart([b"a" * 300, b""])
                assert await ends.came.get() == [b"me", b"a" * 300, b""]
                assert ends.router.send([b"me", b"b", b"c" * 70_000])
                assert await asyncio.to_thread(sock.poll, PATIENCE * 1000)
                assert sock.recv_multipart() == [b"b", b"c" * 70_000]
                # Nobody takes over the name of one that is there.
                with open_socket(ctx, zmq.DEALER, identity=b"me") as other:
                    other.connect(f"ipc://{ends.path}")
                    other.send(b"taken")
                    sock.send(b"still here")
                    assert await ends.came.get() == [b"me", b"still here"]
            assert await ends.gone.get() == b"me"
        assert ends.came.empty()
        assert not ends.router.send([b"me", b"x"])
        assert ends.router.unreachable

    run(tmp_path, test)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        opening("PUB"),
        opening("DEALER") + b"\x08\0",
        opening("DEALER") + b"\2\xff" + bytes(7),
        opening("DEALER") + b"\1\0" * 2000,
        opening("DEALER") + b"\2" + (1_000_000).to_bytes(8),  # large, of one who has proven nothing
    ],
)
def test_who_says_something_else_is_hung_up_on_and_disturbs_nobody(
    tmp_path: Path, said: bytes
) -> None:
    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        with ends.raw() as raw:
            raw.sendall(said)
            assert await hung_up(raw)
        assert one.send([b"fine"])
        assert (await ends.came.get())[1:] == [b"fine"]

    run(tmp_path, test)


def test_who_never_says_who_it_is_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "HANDSHAKE", 0.2)

    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        with ends.raw() as silent, ends.raw() as slow:
            slow.sendall(opening("DEALER")[:70])
            assert await hung_up(silent)
            assert await hung_up(slow)
        assert one.send([b"fine"])
        assert (await ends.came.get())[1:] == [b"fine"]
        assert not ends.router._strangers

    run(tmp_path, test)


def test_a_flood_of_one_caller_leaves_the_others_their_turns(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        with ends.raw() as raw:
            raw.sendall(opening("DEALER") + small_message([b""]) * 20_000)
            assert one.send([b"mine"])
            seen = 0
            while (await ends.came.get())[-1] != b"mine":
                seen += 1
            assert seen < 20_000

    run(tmp_path, test)


def test_who_asks_for_signs_of_life_and_reads_none_costs_nothing(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        with ends.raw() as raw:
            ping = b"\4\x07\4PING\0\x0a"
            raw.sendall(opening("DEALER") + small_message([b"here"]))
            identity = (await ends.came.get())[0]
            await asyncio.to_thread(raw.sendall, ping * 50_000 + small_message([b"end"]))
            assert await ends.came.get() == [identity, b"end"]
            peer = ends.router._peers[identity]
            assert peer.link._messages <= 1

    run(tmp_path, test)


def test_a_burst_is_marked_and_its_answers_leave_in_order(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        assert one.send([b"first"])
        ends.router.trust((await ends.came.get())[0])
        for n in range(300):
            frames = [b"%d" % n, b"x" * (60_000 if n == 150 else 10)]
            assert one.send(frames) if n % 70 == 69 else one.send_soon(frames)
        assert one.held
        came = [await ends.came.get() for _ in range(300)]
        assert [frames[1] for frames in came] == [b"%d" % n for n in range(300)]
        marks = [mark for mark in ends.marks if isinstance(mark, bool)]
        assert marks
        assert marks == [True, False] * (len(marks) // 2)
        for identity, number, _ in came:
            assert ends.router.send_soon([identity, number, b""])
        assert [(await ends.told.get())[0] for _ in range(300)] == [b"%d" % n for n in range(300)]

    run(tmp_path, test)


def test_what_finds_no_room_is_handed_back_and_there_is_room_again(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        with ends.raw() as raw:
            raw.sendall(opening("DEALER") + small_message([b"here"]))
            identity = (await ends.came.get())[0]
            taken = [n for n in range(5000) if ends.router.send_soon([identity, b"x" * 1000], n)]
            assert not ends.router.unreachable
            await asyncio.sleep(0)  # the end of that turn
            refused = set(range(5000)) - set(taken)
            kept = len(taken) - len(ends.unsent)
            assert refused
            assert kept >= HIGH_WATER
            assert max(set(taken) - set(ends.unsent)) < min({*ends.unsent, *refused})
            got = 0
            while got < kept * 1003:
                got += len(await asyncio.to_thread(raw.recv, 1 << 20))
            raw.setblocking(False)
            reads = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(raw, 1))
            await asyncio.wait([reads], timeout=0)
            assert ends.router.send([identity, b"again"])
            await reads

    run(tmp_path, test)


def test_bytes_that_wait_have_a_bound_too(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        with ends.raw() as raw:
            raw.sendall(opening("DEALER") + small_message([b"here"]))
            identity = (await ends.came.get())[0]
            body = bytes(1 << 20)
            sent = 0
            while ends.router.send([identity, body]):
                sent += len(body)
            assert MAX_WAITING <= sent <= MAX_WAITING + (3 << 20)

    run(tmp_path, test)


def test_what_is_queued_may_leave_when_a_router_closes(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        with ends.raw() as raw:
            raw.sendall(opening("DEALER") + small_message([b"here"]))
            identity = (await ends.came.get())[0]
            body = bytes(8 << 20)
            assert ends.router.send([identity, body])
            reading = asyncio.to_thread(_all_of, raw)
            task = asyncio.ensure_future(reading)
            await asyncio.sleep(0)
            ends.router.close(linger=5.0)
            assert len(await task) > len(body)

    run(tmp_path, test)


def _all_of(raw: socket.socket) -> bytes:
    got = bytearray()
    while data := raw.recv(1 << 20):
        got += data
    return bytes(got)


def test_a_dealer_finds_a_router_that_comes_later_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealer, "AGAIN", 0.01)

    async def test(ends: Ends) -> None:
        ends.router.close()
        one = asyncio.ensure_future(ends.dealer())
        await asyncio.sleep(0)
        assert not ends.dealers[0].send([b"nobody there"])
        for _ in range(2):
            ends.dealers[0].want_writable = True
            ends.router = Router(f"ipc://{ends.path}", ends.came.put_nowait)
            while not ends.dealers[0].send([b"hello"]):
                ends.free.clear()  # it may not know yet that the one before is gone
                await ends.free.wait()
            assert (await ends.came.get())[1:] == [b"hello"]
            ends.router.close()
        await one

    run(tmp_path, test)


def test_a_dealer_leaves_who_never_greets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealer, "HANDSHAKE", 0.1)

    async def test(ends: Ends) -> None:
        mute = str(tmp_path / "mute")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(mute)
            listening.listen()
            listening.settimeout(PATIENCE)
            one = Dealer(mute, "it", ends.told.put_nowait, ends.free.set, lambda token: None)
            first = (await asyncio.to_thread(listening.accept))[0]
            with first:
                first.settimeout(PATIENCE)
                assert await hung_up(first)
            again = (await asyncio.to_thread(listening.accept))[0]
            again.close()
            one.close()
        os.unlink(mute)

    run(tmp_path, test)


def test_a_removed_socket_file_is_made_again_and_nobody_is_cut_off(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        one = await ends.dealer()
        assert not ends.router.mend()
        os.unlink(ends.path)
        assert ends.router.mend()
        other = await ends.dealer()
        for each in (one, other):
            assert each.send([b"hello"])
            assert (await ends.came.get())[1:] == [b"hello"]

    run(tmp_path, test)


def test_where_there_is_no_descriptor_a_dealer_says_so(tmp_path: Path) -> None:
    async def test(ends: Ends) -> None:
        too_long = "/" + "x" * MAX_PATH
        with pytest.raises(UnreachableError, match="it"):
            Dealer(too_long, "it", ends.told.put_nowait, ends.free.set, lambda token: None)

    run(tmp_path, test)
