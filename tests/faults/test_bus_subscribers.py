"""Subscribers that are slow, stopped, late, gone or busy: they catch up, and cost nobody anything.

How a socket of the events plane loses and replays events is tested in test_event_sockets; here
whole clients follow a running supervisor, and what they print is all that counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest
import zmq
from supervised import DIRECT_AGENT, PATIENCE, Supervised, rogue_toml, server_toml, timing
from zmtp import Wire, frame, message, patiently

from interlock.bus.aclient import AsyncClient
from interlock.bus.client import Client
from interlock.bus.endpoints import read_connection
from interlock.bus.errors import InterlockError
from interlock.bus.messages import ReplayGet

MANY = 9
"""Servers that share the calls: the events about the calls of one are limited."""
TINY = "".join(
    server_toml(
        f"tiny{number}",
        sys.executable,
        "-m",
        "interlock.supervisor.bench.servers.tiny",
        concurrency=64,
        queue=2000,
    )
    for number in range(MANY)
)
ATTACH = ["-m", "interlock.supervisor.cli", "--home"]


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing(ping=5.0) + DIRECT_AGENT + rogue_toml("x") + TINY
    with Supervised(tmp_path_factory.mktemp("subscribers"), config) as running:
        for name in ("agent:main", "mcp:x", *(f"mcp:tiny{number}" for number in range(MANY))):
            running.wait_state(name, "READY")
        yield running


class Attached:
    """`interlock attach --json` in a process of its own."""

    def __init__(self, interlock: Supervised, *arguments: str) -> None:
        home = [str(interlock.home.path), "attach", "--json", *arguments]
        command = [sys.executable, *ATTACH, *home]
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, seq: int, after: int = 0) -> None:
        """Until it has printed an event, or a snapshot, of at least that number."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(line["seq"] >= seq for line in self.lines[after:]), PATIENCE
            ), self.lines[-1:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()


def assert_sound(lines: list[dict[str, Any]]) -> int:
    """Snapshots, each followed by every event after it without a gap; how many snapshots."""
    assert lines[0]["topic"] == "snapshot"
    assert len({line["epoch"] for line in lines}) == 1
    for before, line in itertools.pairwise(lines):
        if line["topic"] == "snapshot":
            assert line["seq"] > before["seq"] and line["status"]["workers"]
        else:
            assert line["seq"] == before["seq"] + 1
    return sum(line["topic"] == "snapshot" for line in lines)


def assert_nothing_lost(interlock: Supervised) -> None:
    """The test's own follower got every event since its first turn, without a second snapshot.

    At the start there may be one, for what happened before its subscription was in force.
    """
    assert_sound(interlock.events)
    begin = next(n for n, one in enumerate(interlock.events) if one["topic"] == "turn.started")
    assert not any(one["topic"] == "snapshot" for one in interlock.events[begin:])


def make_events(interlock: Supervised, calls: int, unbroken: int = 3000) -> int:
    """Two events for each call; returns the number of the newest, once the test has it.

    After so many calls as are `unbroken` the test's own follower gets the time for their events:
    what it shares a processor with is not at issue. That it keeps up with a burst of nearly as many
    as its queue holds is shown where all are one.
    """

    async def run(begin: int, end: int) -> None:
        async with AsyncClient.connect(interlock.home.path) as client:
            for batch in range(begin // 500, end // 500):
                name = f"mcp:tiny{batch % MANY}/echo"
                asked = [client.call(name, {"text": "x"}) for _ in range(500)]
                assert {one.outcome for one in await asyncio.gather(*asked)} == {"ok"}

    newest = 0
    for begin in range(0, calls or 1, unbroken):
        place = interlock.mark()
        asyncio.run(run(begin, min(calls, begin + unbroken)))
        turn = list(interlock.client.turn("mcp:x/echo {}"))
        assert turn[-1]["type"] == "turn.completed"
        done = interlock.wait_event("turn.completed", after=place, turn=turn[0]["turn"])
        newest = int(done["seq"])
    return newest


def test_stopped_slow_and_late_followers_catch_up_by_a_snapshot(interlock: Supervised) -> None:
    """A forced gap: more events than all queues on the way and the replay ring hold.

    The stopped one and the one that reads nothing lose events at their high-water marks, the late
    one asks for events that are not kept any more. Each gets a snapshot, then goes on gapless.
    """
    with Attached(interlock) as stopped, Client(interlock.home.path) as slow:
        events = slow.events()
        begin = next(events)
        stopped.wait(begin["seq"])
        os.kill(stopped.process.pid, signal.SIGSTOP)
        # Two queues of 10,000, what the system buffers, and the ring of 10,000.
        make_events(interlock, 16_500)
        place = len(stopped.lines)
        os.kill(stopped.process.pid, signal.SIGCONT)
        last = make_events(interlock, 0)
        stopped.wait(last, place)
        read = [begin]
        while read[-1]["seq"] < last:
            read.append(next(events))
    assert assert_sound(read) == 2
    assert assert_sound(stopped.lines) == 2
    with Attached(interlock, "--since", f"{begin['epoch']}:{begin['seq']}") as late:
        late.wait(last)
    assert late.lines[0]["topic"] == "snapshot" and late.lines[0]["seq"] >= last
    with Attached(interlock, "--since", f"{begin['epoch']}:{last - 100}") as in_time:
        in_time.wait(last)
    assert [line["seq"] for line in in_time.lines[:100]] == list(range(last - 99, last + 1))
    with Attached(interlock, "--since", f"{'0' * 16}:5") as other:
        other.wait(last)
    assert other.lines[0]["topic"] == "snapshot"


def test_the_supervisors_own_follower_lost_nothing_meanwhile(interlock: Supervised) -> None:
    """Stopped followers beside it are nothing to one that keeps reading, nor is one long burst."""
    make_events(interlock, 4500, unbroken=4500)
    assert_nothing_lost(interlock)
    info = read_connection(interlock.home)
    with pytest.raises(InterlockError) as caught:
        interlock.client.request(ReplayGet, epoch=info.epoch, seq=10**9)
    assert caught.value.code == "gap"


def test_thousands_of_subscriptions_change_nothing_for_others(interlock: Supervised) -> None:
    """Subscribing and unsubscribing, for the same and for ever new topics, by frames and commands.

    Its own subscription still works at the end, and goes with its connection.
    """
    path = str(interlock.home.run / "events")
    wires = [Wire(path, kind) for kind in (b"SUB", b"XSUB")]
    for wire in wires:
        for number in range(10_000):
            topic = (b"json", b"msgpack", b"", b"m", b"t%d" % number)[number % 5]
            assert wire.send(message(b"\x01" + topic) + message(b"\x00" + topic))
            if number % 5 == 4:
                assert wire.send(
                    frame(b"\x09SUBSCRIBE" + topic, 4) + frame(b"\x06CANCEL" + topic, 4)
                )
        assert wire.send(message(b"\x00never") + message(b"\x02what") + message(b""))
    make_events(interlock, 0)
    for wire in wires:
        assert not wire.ended.is_set()
        wire.close()
    with zmq.Context() as ctx, ctx.socket(zmq.SUB) as sock:
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.SUBSCRIBE, b"json")
        sock.connect(f"ipc://{path}")
        for _ in patiently():
            make_events(interlock, 0)
            if sock.poll(100):
                break
        assert json.loads(sock.recv_multipart()[1])["epoch"] == interlock.client.epoch
    assert_nothing_lost(interlock)


def test_two_hundred_subscribers_that_die_leave_no_descriptor(interlock: Supervised) -> None:
    """Connections that end in the middle of their handshake, their subscription or an event."""
    make_events(interlock, 0)
    before = interlock.descriptors()
    path = str(interlock.home.run / "events")
    for number in range(200):
        wire = Wire(path, b"SUB")
        wire.send((message(b"\x01json"), frame(b"\x01js", size=5), b"")[number % 3])
        if number % 50 == 0:
            make_events(interlock, 0)
        wire.close()
    for number in range(20):
        with Client(interlock.home.path) as client:
            assert next(client.events())["topic"] == "snapshot", number
    for _ in patiently():
        if interlock.descriptors() <= before:
            break
    make_events(interlock, 0)
    assert_nothing_lost(interlock)
