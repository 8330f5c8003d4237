"""Who may speak, ask and call: lies on every plane of a running supervisor change nothing.

A second connection with the identity of a worker that is there, a worker's own connection after its
generation ended, and a second hello need the nonce of a boot record, which only its process has:
test_control_plane does these on the plane itself, as test_admission and test_data_calls do for
revoked and single-use tickets. Approvals do not exist yet.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq
from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing
from zmtp import patiently

from interlock.bus import messages as m
from interlock.bus.client import Client
from interlock.bus.codec import decode_api_answer, decode_data_down, encode
from interlock.bus.endpoints import read_connection
from interlock.bus.records import CapabilityReport, Child
from interlock.bus.routes import Route
from interlock.bus.socket import open_socket
from interlock.bus.tickets import mint, peek

PATIENCE = 20_000
"""Milliseconds for an answer."""
LIFE = 2.0
"""Seconds that tickets live here."""


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing(ping=2.0, ticket=LIFE) + DIRECT_AGENT + rogue_toml("x") + rogue_toml("y")
    with Supervised(tmp_path_factory.mktemp("rights"), config) as running:
        for name in ("agent:main", "mcp:x", "mcp:y"):
            running.wait_state(name, "READY")
        yield running


class Sockets:
    """Sockets of one test, and their end."""

    def __init__(self) -> None:
        self._ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []

    def connect(self, address: str, **options: int | bytes) -> zmq.Socket[bytes]:
        sock = open_socket(self._ctx, zmq.DEALER, immediate=1, sndtimeo=PATIENCE, **options)
        sock.connect(address)
        self._made.append(sock)
        return sock

    def close(self) -> None:
        for sock in self._made:
            sock.close(0)
        self._ctx.destroy(0)


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


class Caller:
    """A connection to a data socket, by hand."""

    def __init__(self, sockets: Sockets, route: Route) -> None:
        self._sock = sockets.connect(route.target.endpoint)
        self._route = route
        self._ids = 0

    def send(self, *frames: bytes) -> None:
        self._sock.send_multipart(frames)

    def receive(self) -> Any:
        assert self._sock.poll(PATIENCE)
        return decode_data_down(self._sock.recv_multipart()[0])

    def open(self, ticket: str = "") -> Any:
        self.send(encode(m.Open(ticket=ticket or self._route.target.ticket)))
        return self.receive()

    def frames(self, body: bytes = b"{}", **changes: Any) -> list[bytes]:
        self._ids += 1
        fields: dict[str, Any] = {
            "id": self._ids,
            "ticket": peek(self._route.target.ticket).id,
            "name": self._route.local,
            "left_ms": 9000,
            "generation": self._route.target.generation,
        }
        return [encode(m.Call(**(fields | changes))), body]

    def call(self, body: bytes = b"{}", **changes: Any) -> Any:
        self.send(*self.frames(body, **changes))
        return self.receive()


def refused(answer: Any, why: str) -> bool:
    return isinstance(answer, m.Failure) and answer.code == "denied" and why in answer.message


def altered(route: Route, **changes: Any) -> str:
    """A ticket with other claims, signed with a key that somebody made up."""
    claims = msgspec.structs.replace(peek(route.target.ticket), **changes)
    return mint(secrets.token_bytes(32), claims)


def turn_works(interlock: Supervised) -> None:
    stream = list(interlock.client.turn("mcp:x/echo {} & mcp:y/echo {}"))
    assert [one["outcome"] for one in stream if one["type"] == "tool.result"] == ["ok", "ok"]
    assert stream[-1]["type"] == "turn.completed"


def test_only_a_ticket_of_this_caller_target_generation_and_name_opens_anything(
    interlock: Supervised, sockets: Sockets
) -> None:
    echo, other = interlock.client.resolve("mcp:x/echo"), interlock.client.resolve("mcp:y/echo")
    place, before = interlock.mark(), interlock.worker("mcp:x")["calls"]
    caller = Caller(sockets, echo)
    assert refused(caller.call(), "not open")  # nothing presented yet
    assert refused(caller.open(altered(echo)), "forged")
    assert refused(caller.open(altered(echo, expires=4e9)), "forged")
    assert refused(caller.open(echo.target.ticket[:-2]), "forged")
    assert refused(caller.open(other.target.ticket), "forged")  # signed with y's own key
    assert refused(caller.call(), "forged")
    assert isinstance(caller.open(), m.Opened)
    assert refused(caller.call(name="env"), "wrong name")
    assert refused(caller.call(ticket="made-up"), "not open")
    assert caller.call(generation=9).code == "unavailable"
    assert isinstance(caller.call(), m.Result)
    with Client(interlock.home.path) as stranger:
        foreign = stranger.resolve("mcp:x/echo").target.ticket
        assert refused(caller.open(foreign), "wrong caller")
    interlock.wait_event("tool.completed", "mcp:x", place)
    assert interlock.worker("mcp:x")["calls"] == before + 1
    turn_works(interlock)


def test_a_ticket_expires_and_its_call_is_refused(interlock: Supervised, sockets: Sockets) -> None:
    """A client that calls by its rules never meets that; it asks for a fresh one in time."""
    route = interlock.client.resolve("mcp:x/echo")
    caller = Caller(sockets, route)
    assert isinstance(caller.open(), m.Opened)
    for _ in patiently():
        answer = caller.call()
        if isinstance(answer, m.Failure):
            break
    assert refused(answer, "expired") and not answer.may_have_run
    assert refused(Caller(sockets, route).open(), "expired")
    assert interlock.client.call("mcp:x/echo").outcome == "ok"


def test_a_call_whose_deadline_is_over_is_not_run(interlock: Supervised, sockets: Sockets) -> None:
    """It is dropped without an answer: its caller has given it a `timeout` itself by then."""
    caller = Caller(sockets, interlock.client.resolve("mcp:x/stderr"))
    caller.open()
    caller.send(*caller.frames(b'{"text": "too-late"}', left_ms=0))
    caller.send(*caller.frames(b'{"text": "too-late"}', left_ms=-(10**15)))
    assert isinstance(caller.call(b'{"text": "in-time"}'), m.Result)
    assert interlock.client.call("mcp:x/mute", timeout=0.3).outcome == "timeout"
    for _ in patiently():
        if "in-time" in interlock.log("mcp-x"):
            break
    assert "too-late" not in interlock.log("mcp-x")


def test_what_waits_for_a_generation_never_reaches_the_next(
    interlock: Supervised, sockets: Sockets
) -> None:
    """A worker is stopped, calls queue up at it, it is killed: they fail, and run nowhere."""
    route = interlock.client.resolve("mcp:x/stderr")
    caller, place = Caller(sockets, route), interlock.mark()
    caller.open()
    outcomes: list[str] = []

    def ask() -> None:
        with Client(interlock.home.path) as client:
            assert client.call("mcp:x/echo").outcome == "ok"
            asking.set()
            go.wait()
            outcomes.append(client.call("mcp:x/stderr", {"text": "queued"}, timeout=60).outcome)

    asking, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=ask)
    thread.start()
    assert asking.wait(20)
    pid = interlock.worker("mcp:x")["pid"]
    os.kill(pid, signal.SIGSTOP)
    for _ in range(20):
        caller.send(*caller.frames(b'{"text": "queued"}'))
    go.set()
    turn = interlock.client.turn('mcp:x/stderr {"text": "queued"}')
    assert next(turn)["type"] == "turn.started"
    assert next(turn)["type"] == "tool.call"
    os.kill(pid, signal.SIGKILL)
    rest = list(turn)
    assert rest[0]["outcome"] == "worker_died" and rest[-1]["type"] == "turn.completed"
    thread.join(60)
    # It asks once more only if the call cannot have run.
    assert outcomes in (["worker_died"], ["unavailable"], ["ok"])
    ready = interlock.wait_event("worker.ready", "mcp:x", place)
    assert ready["generation"] == route.target.generation + 1
    assert interlock.client.call("mcp:x/stderr", {"text": "afterwards"}).outcome == "ok"
    fresh = interlock.client.resolve("mcp:x/stderr")
    assert fresh.target.endpoint != route.target.endpoint
    assert refused(Caller(sockets, fresh).open(route.target.ticket), "forged")
    for _ in patiently():
        if "afterwards" in interlock.log("mcp-x"):
            break
    assert interlock.log("mcp-x").count("queued") == outcomes.count("ok")
    turn_works(interlock)


def test_nobody_speaks_for_a_worker(interlock: Supervised, sockets: Sockets) -> None:
    """Messages in a worker's name: dropped, counted, and nothing that they say becomes true."""
    before = interlock.client.status()
    place = interlock.mark()
    turn = interlock.client.turn('mcp:y/sleep {"seconds": 0.5}')
    number = next(turn)["turn"]
    lies: list[tuple[m.ControlUp, bytes | None]] = [
        (m.Ready(tools=99, endpoint="ipc:///tmp/elsewhere"), None),
        (m.Hello(token="0" * 32, pid=1), None),
        (m.Ready(tools=99), None),
        (m.WorkerFailed(code="lie", reason="a lie", permanent=True), None),
        (m.StateReport(state="DEGRADED", reason="a lie"), None),
        (m.Notice(code="lie", message="a lie"), None),
        (m.Children(children=(Child(pid=os.getpid(), start=1),)), None),
        (m.Capabilities(rows=(CapabilityReport(name="lie", digest="0" * 64),)), b"{}"),
        (m.TurnItems(turn=number), b'[{"type":"turn.completed","text":"a lie"}]'),
        (m.TicketRequest(id=1, turn=number, worker="mcp:x"), None),
        (m.Drained(), None),
        (m.Pong(n=1), None),
    ]
    identities = [
        *(f"{name}#1#{secrets.token_hex(8)}" for name in ("mcp:x", "mcp:y", "agent:main")),
        *("mcp:x#2#", "mcp:y#1#", "mcp:y", "agent:main#1", "supervisor#1#1", "\x01"),
    ]
    for identity in identities:
        address = f"ipc://{interlock.home.run}/control"
        peer = sockets.connect(address, routing_id=identity.encode())
        for lie, body in lies:
            peer.send_multipart([encode(lie)] if body is None else [encode(lie), body])
    count = before["supervisor"]["dropped"] + len(identities) * len(lies)
    for _ in patiently():
        if interlock.client.status()["supervisor"]["dropped"] >= count:
            break
    rest = list(turn)
    assert rest[-1]["type"] == "turn.completed" and "a lie" not in str(rest)
    after = interlock.client.status()
    for was, row in zip(before["workers"], after["workers"], strict=True):
        same = ("name", "state", "generation", "pid", "tools", "restarts")
        assert [was[key] for key in same] == [row[key] for key in same]
    assert "lie" not in str(after) + str(interlock.events[place:])
    assert "lie" not in str(interlock.client.tools())
    turn_works(interlock)


def test_the_api_asks_for_its_key(interlock: Supervised, sockets: Sockets) -> None:
    """Without the key of this very run nothing is done, whatever is asked."""
    info = read_connection(interlock.home)
    sock = sockets.connect(info.api)
    before = interlock.client.status()["supervisor"]["dropped"]
    turn = secrets.token_hex(16)
    keys = ("", "0" * 64, info.key[:-1], info.key + "0", info.key.upper(), info.epoch)
    for number, key in enumerate(keys, start=1):
        if key == info.key:
            continue
        asked: list[tuple[Any, list[bytes]]] = [
            (m.Shutdown(id=number, key=key), []),
            (m.StatusGet(id=number, key=key), []),
            (m.TurnStart(id=number, key=key, turn=turn), [b'"mcp:x/echo {}"']),
            (m.Resolve(id=number, key=key, capability="mcp:x/echo"), []),
            (m.WorkerControl(id=number, key=key, action="stop", name="mcp:x"), []),
        ]
        for request, body in asked:
            sock.send_multipart([b"msgpack", encode(request), *body])
            assert sock.poll(PATIENCE)
            encoding, header, *rest = sock.recv_multipart()
            answer = decode_api_answer(encoding, header)
            assert isinstance(answer, m.Reply)
            assert (answer.id, answer.code, rest) == (number, "unauthorized", [])
            assert info.key not in answer.message
    assert interlock.client.status()["supervisor"]["dropped"] >= before + 5 * 5
    assert turn not in [row["turn"] for row in interlock.client.turns()["turns"]]
    turn_works(interlock)
