"""Bytes of any kind on every socket of a running supervisor.

What one plane alone does with bad frames is tested beside it (test_control_plane, test_api_plane,
test_data_hostile, test_event_sockets); here they come to all sockets of whole processes, below the
level of ZeroMQ too, and the whole has to go on.
"""

from __future__ import annotations

import contextlib
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fault_rig import descriptors_at_first
from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing
from zmtp import GREETING, LONG, MORE, Wire, frame, message, open_wire, patiently, ready

from interlock.bus.codec import encode
from interlock.bus.messages import (
    MAX_MESSAGE,
    Call,
    Hello,
    Open,
    Pong,
    Ready,
    StatusGet,
    TurnItems,
)

KINDS = {"control": b"DEALER", "api": b"DEALER", "data/mcp-x.1": b"DEALER", "events": b"XSUB"}
SLACK = 96 << 20
"""Bytes of memory that a process may keep from a flood; allocators do not give all back at once."""


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing(ping=2.0) + DIRECT_AGENT + rogue_toml("x")
    with Supervised(tmp_path_factory.mktemp("frames"), config) as running:
        for name in ("agent:main", "mcp:x", "core:basics"):
            running.wait_state(name, "READY")
        running.client.turns()  # SQLite keeps the descriptor of the first reader for the next one
        yield running


@contextlib.contextmanager
def unharmed(interlock: Supervised) -> Iterator[None]:
    """Nothing ended, nothing was forgotten, and turns work as before."""
    before = {row["name"]: row["generation"] for row in interlock.client.status()["workers"]}
    pids = [interlock.pid, interlock.worker("mcp:x")["pid"]]
    resident = [memory(pid) for pid in pids]
    descriptors = descriptors_at_first(interlock)
    yield
    stream = list(interlock.client.turn('mcp:x/echo {"a": 1} & mcp:x/echo {"a": 2}'))
    assert stream[-1]["type"] == "turn.completed"
    assert [one["outcome"] for one in stream if one["type"] == "tool.result"] == ["ok", "ok"]
    assert interlock.client.call("mcp:x/echo", {"b": 1}).outcome == "ok"
    rows = interlock.client.status()["workers"]
    assert {row["name"]: row["generation"] for row in rows} == before
    assert {row["state"] for row in rows} == {"READY"}
    for pid, was in zip(pids, resident, strict=True):
        for _ in patiently():
            if memory(pid) < was + SLACK:
                break
    for _ in patiently():
        if interlock.descriptors() <= descriptors:
            break
    assert endings(interlock) == []


def memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def endings(interlock: Supervised) -> list[str]:
    """What must not have happened meanwhile."""
    bad = ("worker.failed", "worker.backoff", "spawner.died")
    return [event["topic"] for event in interlock.events if event["topic"] in bad]


def dropped(interlock: Supervised) -> int:
    return int(interlock.client.status()["supervisor"]["dropped"])


def hostile_frames() -> list[list[bytes]]:
    chance = random.Random(7)
    headers = [
        encode(one)
        for one in (
            Hello(token="no", pid=1),
            Ready(tools=3),
            Pong(n=1),
            TurnItems(turn="0" * 32),
            Open(ticket="v1.a.b"),
            Call(id=1, ticket="t", name="echo", left_ms=1000, generation=1),
            StatusGet(id=1, key="k"),
        )
    ]
    nested = [b"[" * 10_000 + b"]" * 10_000, b"\x91" * 10_000, b'{"type":' * 10_000]
    messages: list[list[bytes]] = [
        [b""],
        [b""] * 7,
        [b""] * 1000,
        [b"\x00"] * 1000,
        [b"\x01" + b"t" * 400],
        [b"\x00json"],
        *([one] for one in nested),
        *([b"json", one, b"{}"] for one in nested),
        *([b"msgpack", one] for one in nested),
        *([b"json", one] for one in (b'{"type":5}', b"[]", b"null", b'{"type":"status","id":"x"}')),
        [b"msgpack", msgspec.msgpack.encode({"type": "status", "id": {"a": [1]}, "key": 5})],
        [b"json", b"x" * (2 << 20)],
    ]
    for header in headers:
        messages += [[header], [header, b"{}"], [b"msgpack", header], [header[:-2]], [header] * 5]
    messages += [[chance.randbytes(chance.randrange(400))] for _ in range(100)]
    return messages


@pytest.mark.parametrize("plane", KINDS)
def test_messages_that_mean_nothing_are_dropped(interlock: Supervised, plane: str) -> None:
    """Frames that are truncated, nested, of wrong types or far too many harm nobody."""
    kind, before = KINDS[plane], dropped(interlock)
    hostile = hostile_frames()
    # A subscription is at most 512 bytes, what comes before a ticket 512 KiB; more ends the
    # connection, see below.
    most = {"events": 500, "data/mcp-x.1": 500_000}.get(plane, MAX_MESSAGE)
    hostile = [one for one in hostile if max(map(len, one)) < most]
    with unharmed(interlock):
        wires = [Wire(str(interlock.home.run / plane), kind, b"me%d" % n) for n in range(3)]
        for wire in wires:
            for frames in hostile:
                assert wire.send(message(*frames))
        # On control and api nearly all are counted, a few may be answered instead.
        least = {"control": 2 * len(hostile), "api": 2 * len(hostile), "events": 3}
        for _ in patiently():
            if dropped(interlock) >= before + least.get(plane, 0):
                break
        for wire in wires:
            assert not wire.ended.is_set()
            wire.close()


@pytest.mark.parametrize("plane", KINDS)
def test_frames_over_the_limit_end_their_connection_before_they_cost_anything(
    interlock: Supervised, plane: str
) -> None:
    """65 MiB, and sizes that only claim to be that or more."""
    kind, path = KINDS[plane], str(interlock.home.run / plane)
    with unharmed(interlock):
        wires = []
        for size in (65 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
            wires.append(Wire(path, kind))
            wires[-1].send(frame(b"x", size=size))
        wires.append(Wire(path, kind))
        wires[-1].send(frame(b"y" * (65 << 20)))
        if plane == "events":
            # A tree of topics, one node for each byte: 50 times the memory, and a deep recursion.
            wires.append(Wire(path, b"SUB"))
            wires[-1].send(frame(b"\x01" + random.Random(1).randbytes(1 << 20)))
            wires.append(Wire(path, b"SUB"))
            wires[-1].send(frame(b"\x01" + b"j" * 1000))
        for wire in wires:
            assert wire.ended.wait(20.0)
            wire.close()


def test_the_largest_frames_that_are_allowed_are_not_kept(interlock: Supervised) -> None:
    """Frames just below 64 MiB that nobody wants go as fast as they come."""
    path = str(interlock.home.run / "control")
    big = message(b"x" * (MAX_MESSAGE - 10))
    with unharmed(interlock):
        before = dropped(interlock)
        wire = Wire(path, b"DEALER")
        for _ in range(8):
            assert wire.send(big)
        for _ in patiently():
            if dropped(interlock) >= before + 8:
                break
        wire.close()


@pytest.mark.parametrize("plane", KINDS)
def test_bytes_that_are_no_zmtp_at_all(interlock: Supervised, plane: str) -> None:
    """Whatever talks to the socket files hangs up or is hung up on, and leaves no descriptor."""
    path, chance = str(interlock.home.run / plane), random.Random(3)
    greeting = GREETING + ready(KINDS[plane])
    speeches = [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(1000),
        b"\xff" * 1000,
        b"\x01\x00",
        GREETING[:11] + b"\x7f" * 53,
        GREETING.replace(b"NULL", b"CURV") + bytes(200),
        GREETING + ready(b"NONSENSE"),
        GREETING + ready(KINDS[plane], b"i" * 300),
        GREETING + frame(b"\x05READY\xff", 4),
        GREETING + frame(b"x" * 9000, 4),
        greeting + bytes([MORE | LONG]) + b"\x00\x00",
        greeting + frame(b"\x04PING", 4) + frame(b"\x04PING\x00", 4),
        greeting + frame(b"\x09SUBSCRIBE", 4) + frame(b"\x06CANCEL", 4),
        *(chance.randbytes(chance.randrange(1, 300)) for _ in range(60)),
        *(greeting[:n] for n in range(0, len(greeting), 5)),
        *(greeting + chance.randbytes(40) for _ in range(40)),
    ]
    with unharmed(interlock):
        for speech in speeches:
            wire = open_wire(path)
            with contextlib.suppress(ConnectionError):
                wire.sendall(speech)
            wire.close()


def test_a_low_limit_of_descriptors_does_not_end_the_supervisor(tmp_path: Path) -> None:
    """libzmq ends its process when no descriptor is left; any number of clients may connect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    interlock = Supervised(tmp_path, timing() + DIRECT_AGENT + rogue_toml("x"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        interlock.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    interlock.wait_state("agent:main", "READY")
    pid = interlock.wait_state("mcp:x", "READY")["pid"]
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (200, hard)
    with unharmed(interlock):
        wires = [open_wire(str(interlock.home.run / "api")) for _ in range(400)]
        for _ in patiently():
            if interlock.descriptors() > 400:
                break
        assert interlock.client.status()["supervisor"]["pid"] == interlock.pid
        for wire in wires:
            wire.close()
    assert interlock.client.control("restart", "mcp:x")["state"] == "READY"
    interlock.__exit__(None, None, None)


def test_a_message_without_end_is_only_its_own_trouble(interlock: Supervised) -> None:
    """A sender that never finishes its message keeps nobody else from being heard."""
    with unharmed(interlock):
        wire = Wire(str(interlock.home.run / "api"), b"DEALER")
        for _ in range(2000):
            assert wire.send(frame(b"json", MORE))
        assert interlock.client.status()["supervisor"]["pid"] == interlock.pid
        wire.close()
