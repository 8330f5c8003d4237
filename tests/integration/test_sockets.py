"""Sockets on the loop: nothing leaks, the control channel survives what it gets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq
from data_rig import Rig, run

from interlock.bus.channel import ControlChannel
from interlock.bus.codec import decode_control_up, encode
from interlock.bus.errors import MalformedError
from interlock.bus.messages import ControlDown, Hello, Ping, Pong, Stop
from interlock.bus.records import Boot
from interlock.bus.socket import MAX_FRAMES, SKIPPED, FdSocket, open_socket


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_closing_leaves_no_descriptor_and_no_reader(tmp_path: Path) -> None:
    counts = []

    async def test(rig: Rig) -> None:
        for _ in range(20):
            edge = rig.edge()
            # Large enough for the thread that pyzmq starts for uncopied frames, once a process.
            assert (await edge.call("echo", b"{" + b" " * 100_000 + b"}", 5)).outcome == "ok"
            edge.close()
            edge.close()

    for n in range(4):
        folder = tmp_path / str(n)
        folder.mkdir()
        run(folder, test)
        counts.append(descriptors())
    assert counts[-1] <= counts[0]


def boot(address: str) -> Boot:
    return Boot(
        name="mcp:git", kind="mcp", generation=2, nonce="n", token="t", control=address, home="",
        log="",
    )  # fmt: skip


def test_the_control_channel_talks_under_its_identity(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        address = f"ipc://{tmp_path}/control"
        got: list[tuple[ControlDown, bytes | None]] = []
        bad: list[MalformedError] = []
        done = asyncio.Event()

        def received(message: ControlDown, body: bytes | None) -> None:
            got.append((message, body))
            if isinstance(message, Stop):
                done.set()

        channel = ControlChannel(rig.ctx, boot(address), received, bad.append)
        assert channel.send(Hello(token="t", pid=1))
        assert channel.send(Pong(n=1), b"body")
        up: asyncio.Queue[list[bytes]] = asyncio.Queue()
        router = open_socket(rig.ctx, zmq.ROUTER)
        router.bind(address)
        supervisor = FdSocket(router, up.put_nowait)
        identity, header = await up.get()
        assert identity == b"mcp:git#2#n"
        assert decode_control_up(header) == Hello(token="t", pid=1)
        assert (await up.get())[2] == b"body"
        supervisor.send([identity, b"\xc1"])
        supervisor.send([identity, encode(Ping(n=1)), b"x", b"y"])
        supervisor.send([identity, encode(Ping(n=2)), b"body"])
        supervisor.send([identity, encode(Stop())])
        await done.wait()
        assert got == [(Ping(n=2), b"body"), (Stop(), None)]
        assert (len(bad), channel.dropped) == (2, 2)
        assert not supervisor.send([b"nobody", b"x"])
        channel.close()
        channel.close()
        assert not channel.send(Pong(n=2))
        supervisor.close()

    run(tmp_path, test)


def test_a_burst_beyond_the_budget_arrives_whole(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        left, right = open_socket(rig.ctx, zmq.DEALER), open_socket(rig.ctx, zmq.DEALER)
        left.bind(f"ipc://{tmp_path}/pair")
        right.connect(f"ipc://{tmp_path}/pair")
        got: list[bytes] = []
        done = asyncio.Event()

        def received(frames: list[bytes]) -> None:
            got.extend(frames)
            if len(got) == 500:
                done.set()

        reader, writer = FdSocket(left, received, budget=3), FdSocket(right, lambda _: None)
        assert all(writer.send([b"%d" % n]) for n in range(500))
        await done.wait()
        assert got == [b"%d" % n for n in range(500)]
        reader.close()
        writer.close()

    run(tmp_path, test)


def test_room_that_was_announced_before_anybody_wanted_it_is_told() -> None:
    read, write = os.pipe()

    class SilentSocket(zmq.Socket[bytes]):
        """Has room but never announces it: some look took the announcement."""

        def get(self, option: int) -> Any:
            return read if option == zmq.FD else int(zmq.POLLOUT)

    async def scenario() -> None:
        told = asyncio.Event()
        with zmq.Context() as ctx, SilentSocket(ctx, zmq.DEALER) as silent:
            writer = FdSocket(silent, lambda _: None, on_writable=told.set)
            await asyncio.sleep(0)  # its first look is over
            assert not writer.send([b"x"])
            writer.want_writable = True
            async with asyncio.timeout(2):
                await told.wait()
            writer.close()

    asyncio.run(scenario())
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("module", ["codec", "tickets", "endpoints", "socket"])
def test_what_the_synchronous_client_imports_is_light(module: str) -> None:
    script = (
        f"import sys, interlock.bus.{module}\n"
        "heavy = {'asyncio', 'mcp', 'click', 'psutil', 'structlog', 'rich', 'keyring',"
        " 'platformdirs', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=30)


def test_the_first_large_message_opens_nothing_for_good() -> None:
    """What pyzmq needs for uncopied frames is there before anybody counts descriptors."""
    script = (
        "import os, zmq\n"
        "from interlock.bus.socket import shares_memory\n"
        "assert shares_memory()\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "zmq.Frame(bytes(1 << 20), copy=False)\n"
        "assert len(os.listdir('/proc/self/fd')) == before\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=30)


def test_a_message_of_very_many_frames_leaves_the_loop_its_turns(tmp_path: Path) -> None:
    """What is too many is thrown away a little in each turn; the next message comes whole."""
    count = 100 * SKIPPED
    got: list[list[bytes]] = []
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        with zmq.Context() as ctx:
            address, done = f"ipc://{tmp_path}/s", asyncio.Event()
            router, dealer = open_socket(ctx, zmq.ROUTER), open_socket(ctx, zmq.DEALER)
            router.bind(address)
            dealer.connect(address)

            def take(frames: list[bytes]) -> None:
                got.append(frames)
                if len(got) == 2:
                    done.set()

            reader = FdSocket(router, take)
            dealer.send_multipart([b"x"] * count)
            dealer.send_multipart([b"next"])
            async with asyncio.timeout(20):
                while not done.is_set():
                    await asyncio.sleep(0)
                    turns += bool(got)
            reader.close()
            dealer.close()

    asyncio.run(scenario())
    assert [frames[1:] for frames in got] == [[b"x"] * (MAX_FRAMES - 1), [b"next"]]
    assert turns >= 50
