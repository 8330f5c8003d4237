"""The socket file of a ZeroMQ socket: guarded, made again, and never another one's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmtp import Wire

from interlock.bus.entrance import for_connections
from interlock.bus.listening import Listening
from interlock.bus.socket import FdSocket, open_socket
from interlock.bus.turnstile import registered

PATIENCE = 20.0
Context = zmq.Context[Any]


@pytest.fixture
def ctx() -> Iterator[Context]:
    made: Context = zmq.Context()
    yield made
    made.destroy(0)


@contextmanager
def few_descriptors(spare: int) -> Iterator[int]:
    """Let this process have about so many descriptors for connections; tells the exact number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    limit = (lowest + spare) * 4 // 3  # a quarter is the reserve
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield for_connections(limit) - lowest
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_more_are_let_in_than_there_are_descriptors_for(tmp_path: Path, ctx: Context) -> None:
    """Twice as many come as there is room for: the rest waits, and comes in when some leave."""

    async def test() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[bool]()
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{tmp_path}/door", told.put_nowait)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(60)]
        with few_descriptors(30) as room:
            for one in crowd:
                one.setblocking(False)
                one.connect(f"{tmp_path}/door")
            greetings = {loop.create_task(loop.sock_recv(one, 64)): one for one in crowd}
            waiting = set(greetings)
            async with asyncio.timeout(PATIENCE):
                assert await told.get()
                while len(crowd) - len(waiting) < room:
                    first = asyncio.FIRST_COMPLETED
                    _, waiting = await asyncio.wait(waiting, return_when=first)
                # One may be on its way while the next one is counted.
                assert room <= len(crowd) - len(waiting) <= room + 1 and told.empty()
                for one in [greetings[task] for task in set(greetings) - waiting]:
                    one.close()
                await asyncio.wait(waiting)
                assert not await told.get()
        for one in crowd:
            one.close()
        listening.close()
        server.close()

    asyncio.run(test())


def test_a_message_that_comes_while_the_file_is_made_again_is_not_left_lying(
    tmp_path: Path, ctx: Context
) -> None:
    """Binding may swallow the announcement of a message, after which none comes for it."""

    async def test() -> None:
        came = asyncio.Queue[list[bytes]]()
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{tmp_path}/door")
        received = FdSocket(server, came.put_nowait)
        listening.on_used = received.look
        peer = open_socket(ctx, zmq.DEALER)
        peer.connect(f"ipc://{tmp_path}/door")
        for number in range(20):
            peer.send(b"first")
            async with asyncio.timeout(PATIENCE):
                assert (await came.get())[1] == b"first"
            await asyncio.sleep(0)  # nothing is looked for any more
            peer.send(b"second")
            assert select.select([server.get(zmq.FD)], [], [], PATIENCE)[0], number
            (tmp_path / "door").unlink()
            assert listening.mend()
            async with asyncio.timeout(PATIENCE):
                assert (await came.get())[1] == b"second"
        listening.close()
        received.close()
        peer.close()

    asyncio.run(test())


def test_a_file_that_was_removed_is_made_again_and_nobody_is_cut_off(
    tmp_path: Path, ctx: Context
) -> None:
    async def test() -> None:
        path = tmp_path / "door"
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{path}")
        early = await asyncio.to_thread(Wire, str(path), b"DEALER")
        assert not listening.mend()
        path.unlink()
        assert listening.mend() and not listening.mend()
        late = await asyncio.to_thread(Wire, str(path), b"DEALER")
        assert not early.ended.is_set() and os.listdir(tmp_path) == ["door"]
        listening.close()
        listening.close()
        assert not os.listdir(tmp_path)
        assert not early.ended.is_set()  # the socket itself ends connections
        server.close()
        for wire in (early, late):
            assert await asyncio.to_thread(wire.ended.wait, PATIENCE)
            wire.close()

    asyncio.run(test())


def listened(
    ctx: Context, path: Path
) -> tuple[Any, FdSocket, Listening, asyncio.Queue[list[bytes]]]:
    """A server that listens there, its socket, and what comes in."""
    came = asyncio.Queue[list[bytes]]()
    server = open_socket(ctx, zmq.ROUTER)
    listening = Listening(server, f"ipc://{path}")
    received = FdSocket(server, came.put_nowait)
    listening.on_used = received.look
    return server, received, listening, came


def test_a_file_that_is_removed_again_and_again_costs_nothing(tmp_path: Path, ctx: Context) -> None:
    """One stays connected and talks all the time, others come and go: no descriptor is kept."""

    async def test() -> None:
        path = tmp_path / "door"
        server, received, listening, came = listened(ctx, path)
        early = open_socket(ctx, zmq.DEALER)
        early.connect(f"ipc://{path}")
        counts = []
        for number in range(50):
            path.unlink(missing_ok=True)
            assert listening.mend()
            late = await asyncio.to_thread(Wire, str(path), b"DEALER")
            early.send(b"%d" % number)
            async with asyncio.timeout(PATIENCE):
                identity, text = await came.get()
            assert text == b"%d" % number
            server.send_multipart([identity, b"heard"])
            assert await asyncio.to_thread(early.poll, int(PATIENCE * 1000)) and early.recv()
            late.close()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert os.listdir(tmp_path) == ["door"]
        assert counts[-1] <= counts[5] + 4, counts  # libzmq closes its end of the last ones later
        listening.close()
        received.close()
        early.close()
        assert not os.listdir(tmp_path)

    asyncio.run(test())


def test_a_file_that_cannot_be_made_again_cuts_nobody_off(tmp_path: Path, ctx: Context) -> None:
    """Its folder is gone, too: who is connected stays so, and others come when it is back."""

    async def test() -> None:
        path = tmp_path / "folder" / "door"
        path.parent.mkdir()
        _, received, listening, came = listened(ctx, path)
        early = open_socket(ctx, zmq.DEALER)
        early.connect(f"ipc://{path}")
        early.send(b"before")
        async with asyncio.timeout(PATIENCE):
            await came.get()
            shutil.rmtree(path.parent)
            for _ in range(2):
                with pytest.raises(OSError):
                    listening.mend()
            early.send(b"meanwhile")
            assert (await came.get())[1] == b"meanwhile"
            path.parent.mkdir()
            assert listening.mend()
            late = open_socket(ctx, zmq.DEALER)
            late.connect(f"ipc://{path}")
            late.send(b"late")
            assert (await came.get())[1] == b"late"
            early.send(b"after")
            assert (await came.get())[1] == b"after"
        listening.close()
        received.close()
        early.close()
        late.close()

    asyncio.run(test())


def test_who_still_waits_when_the_file_is_made_again_is_sent_away(
    tmp_path: Path, ctx: Context
) -> None:
    """Nobody would let it in at the old door, and it would believe to be connected."""

    async def test() -> None:
        path = tmp_path / "door"
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{path}")
        with socket.socket(socket.AF_UNIX) as waits:
            waits.connect(str(path))
            path.unlink()
            assert listening.mend()
            waits.settimeout(PATIENCE / 10)
            assert waits.recv(64) == b""
        listening.close()
        server.close()

    asyncio.run(test())


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, ctx: Context) -> None:
    async def test() -> None:
        path = tmp_path / "door"
        first, second = open_socket(ctx, zmq.ROUTER), open_socket(ctx, zmq.ROUTER)
        one = Listening(first, f"ipc://{path}")
        other = Listening(second, f"ipc://{path}")
        one.close()
        first.close()
        wire = await asyncio.to_thread(Wire, str(path), b"DEALER")
        wire.close()
        other.close()
        second.close()
        assert not os.listdir(tmp_path)

    asyncio.run(test())


def test_a_place_that_cannot_be_used_is_an_error(tmp_path: Path, ctx: Context) -> None:
    async def test() -> None:
        server = open_socket(ctx, zmq.ROUTER)
        counts = []
        with pytest.raises(OSError):
            Listening(server, f"ipc://{tmp_path}/none/door")
        (tmp_path / "door").mkdir()
        for _ in range(40):
            with pytest.raises(OSError):
                Listening(server, f"ipc://{tmp_path}/door")
            counts.append(len(os.listdir("/proc/self/fd")))
        assert os.listdir(tmp_path) == ["door"]
        assert max(counts) < counts[0] + 10  # libzmq's thread closes its own a moment later
        server.close()

    asyncio.run(test())


def test_a_guard_that_finds_no_descriptor_is_a_failed_bind(tmp_path: Path, ctx: Context) -> None:
    """Left out without a word, the next burst would end the process."""

    async def test() -> None:
        path = tmp_path / "door"
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{path}")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        held: list[int] = []
        try:
            while True:
                try:
                    held.append(os.dup(0))
                except OSError:
                    break
            path.unlink()
            while (
                not path.exists()
            ):  # with one more each time, until there are enough for all of it
                os.close(held.pop())
                with contextlib.suppress(OSError):
                    listening.mend()
        finally:
            for one in held:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(60)]
        loop = asyncio.get_running_loop()
        with few_descriptors(30) as room:
            for one in crowd:
                one.setblocking(False)
                one.connect(f"{tmp_path}/door")
            greetings = [loop.create_task(loop.sock_recv(one, 64)) for one in crowd]
            async with asyncio.timeout(PATIENCE):
                for done, next_one in enumerate(asyncio.as_completed(greetings), 1):
                    await next_one
                    if done == room:
                        break
            assert room <= sum(task.done() for task in greetings) <= room + 1
            for task in greetings:
                task.cancel()
            await asyncio.wait(greetings)
        for one in crowd:
            one.close()
        listening.close()
        server.close()

    asyncio.run(test())


def test_who_had_to_wait_at_a_door_that_is_closed_waits_no_more(
    tmp_path: Path, ctx: Context
) -> None:
    async def test() -> None:
        told = asyncio.Queue[bool]()
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{tmp_path}/door", told.put_nowait)
        with few_descriptors(0), socket.socket(socket.AF_UNIX) as waits:
            waits.connect(f"{tmp_path}/door")
            async with asyncio.timeout(PATIENCE):
                assert await told.get()
            listening.close()
        assert not told.get_nowait() and told.empty()
        server.close()

    asyncio.run(test())


def test_closed_twice_it_takes_no_successor_along(tmp_path: Path, ctx: Context) -> None:
    async def test() -> None:
        path = tmp_path / "door"
        server = open_socket(ctx, zmq.ROUTER)
        listening = Listening(server, f"ipc://{path}")
        os.link(path, tmp_path / "kept")  # a successor may well get the same inode
        listening.close()
        (tmp_path / "kept").rename(path)
        listening.close()
        assert path.exists()
        server.close()

    asyncio.run(test())


def test_a_socket_is_guarded_only_once_libzmq_listens(tmp_path: Path) -> None:
    """What is said before is undone when libzmq asks for connections, in a second step."""
    with socket.socket(socket.AF_UNIX) as door, select.epoll() as poller:
        door.bind(str(tmp_path / "door"))
        door.listen()
        inode = f"ino:{os.fstat(door.fileno()).st_ino:x}"
        poller.register(door, 0)
        assert registered(poller.fileno(), door.fileno(), inode) is None
        poller.modify(door, select.EPOLLIN)
        assert registered(poller.fileno(), door.fileno(), inode) is not None


def test_where_one_comes_first_the_reserve_is_open_by_half(tmp_path: Path, ctx: Context) -> None:
    """A worker that is started again finds a place although clients wait for one."""

    async def test() -> None:
        told = asyncio.Queue[bool]()
        clients, workers = open_socket(ctx, zmq.ROUTER), open_socket(ctx, zmq.ROUTER)
        front = Listening(clients, f"ipc://{tmp_path}/front", told.put_nowait)
        side = Listening(workers, f"ipc://{tmp_path}/side", first=True)
        loop = asyncio.get_running_loop()
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        worker = socket.socket(socket.AF_UNIX)
        with few_descriptors(20):
            for one in crowd:
                one.setblocking(False)
                one.connect(f"{tmp_path}/front")
            async with asyncio.timeout(PATIENCE):
                assert await told.get()
                worker.setblocking(False)
                worker.connect(f"{tmp_path}/side")
                assert await loop.sock_recv(worker, 64)
        for one in (*crowd, worker):
            one.close()
        front.close()
        side.close()
        clients.close()
        workers.close()

    asyncio.run(test())
