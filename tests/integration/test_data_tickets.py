"""Tickets that are presented: who hears of which, and what becomes of them without room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from bus_peer import Peer
from data_rig import GENERATION, WORKER, Rig, run, ticket

from interlock.bus import connect
from interlock.bus.channel import DataEdge
from interlock.bus.codec import decode_data_down, decode_data_up, encode
from interlock.bus.dataedge import MAX_WAITING
from interlock.bus.edge import Edge
from interlock.bus.messages import Call, Failure, Message, Open, Opened, Result
from interlock.bus.records import Target
from interlock.bus.routes import Route
from interlock.bus.socket import FdSocket, open_socket
from interlock.bus.tickets import peek

GRACE = 10.0
"""Seconds for what takes hundredths of one."""


async def nobody(rig: Rig) -> DataEdge:
    """A connection to a server that is not there yet."""
    rig.server.close()
    return rig.edge(id="first")


def test_newer_tickets_take_no_waiting_call_its_own(tmp_path: Path) -> None:
    """Tickets without end while a server is away: the calls that wait find theirs opened."""

    async def test(rig: Rig) -> None:
        edge = await nobody(rig)
        own = edge.open(ticket(id="own"))
        waiting = [edge.call("echo", b"{}", GRACE), edge.call("echo", b"{}", GRACE, ticket=own)]
        last = [edge.open(ticket(id=f"other{n}")) for n in range(MAX_WAITING + 10)][-1]
        assert not any(map(edge.is_refused, ("first", own, last)))
        assert edge.is_refused("other0")  # and so it will be opened again when it is needed
        rig.server = rig.serve()
        assert [answer.outcome for answer in await asyncio.gather(*waiting)] == ["ok", "ok"]
        assert (await edge.call("echo", b"{}", GRACE, ticket=last)).outcome == "ok"

    run(tmp_path, test)


def test_calls_that_ended_make_room_before_tickets_do(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = await nobody(rig)
        spare = edge.open(ticket(id="spare"))
        for call in [edge.call("echo", b"{}", GRACE) for _ in range(MAX_WAITING - 2)]:
            call.cancel()
        late = edge.open(ticket(id="late"))
        assert not edge.is_refused(spare) and not edge.is_refused(late)
        rig.server = rig.serve()
        for opened in (spare, late):
            assert (await edge.call("echo", b"{}", GRACE, ticket=opened)).outcome == "ok"

    run(tmp_path, test)


def test_a_ticket_that_finds_no_room_says_so_and_can_be_opened_later(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = await nobody(rig)
        calls = [edge.call("echo", b"{}", GRACE) for _ in range(MAX_WAITING - 1)]
        late = edge.open(ticket(id="late"))
        assert edge.is_refused(late)
        calls.pop().cancel()
        refused = await edge.call("echo", b"{}", GRACE, ticket=late)
        assert (refused.outcome, refused.message) == (
            "overloaded",
            f"Too many messages wait for {WORKER}.",
        )
        rig.server = rig.serve()
        await asyncio.gather(*calls)
        edge.open(ticket(id="late"))
        assert (await edge.call("echo", b"{}", GRACE, ticket=late)).outcome == "ok"
        assert not edge.is_refused(late)

    run(tmp_path, test)


def test_calls_that_find_no_room_cost_no_look_at_all_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tens of thousands of them at once held their agent until it was taken for hung."""
    looks = []
    keep = DataEdge._keep
    monkeypatch.setattr(DataEdge, "_keep", lambda edge, which: (looks.append(1), keep(edge, which)))

    async def test(rig: Rig) -> None:
        edge = await nobody(rig)
        calls = [edge.call("echo", b"{}", GRACE) for _ in range(2 * MAX_WAITING)]
        refused = [call for call in calls if call.done()]
        assert len(refused) >= MAX_WAITING and len(looks) <= 1
        calls[0].cancel()  # it waited: now there is room for one
        assert not edge.call("echo", b"{}", GRACE).done() and len(looks) <= 2
        assert edge.call("echo", b"{}", GRACE).done() and len(looks) <= 2
        edge.close()

    run(tmp_path, test)


def test_of_many_tickets_exactly_the_refused_ones_are_known_as_refused(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        bad = {n for n in range(300) if n % 3 == 0}
        for n in range(300):
            edge.open(ticket(id=f"n{n}", generation=GENERATION + (n in bad)))
        assert (await edge.call("echo", b"{}", GRACE)).outcome == "ok"  # all before it are answered
        assert {n for n in range(300) if edge.is_refused(f"n{n}")} == bad

    run(tmp_path, test)


def test_an_answer_that_comes_late_is_its_own_tickets(tmp_path: Path) -> None:
    """A target whose answer had to wait, so that it comes behind a later one."""

    async def test(rig: Rig) -> None:
        rig.server.close()
        router, asked, over = open_socket(rig.ctx, zmq.ROUTER), list[bytes](), asyncio.Event()
        router.bind(rig.address)

        def heard(frames: list[bytes]) -> None:
            asked.append(frames[0])
            over.set()

        target = FdSocket(router, heard)
        edge = rig.edge(id="early")
        edge.open(ticket(id="later"))
        while len(asked) < 2:
            over.clear()
            await over.wait()
        for answer in (
            Opened(ticket="later"),
            Failure(id=0, code="denied", message="It is void.", ticket="early"),
            Failure(id=1, code="denied", message="It is void."),
        ):
            target.send([asked[0], encode(answer)])
        assert (await edge.call("echo", b"{}", GRACE)).outcome == "denied"
        assert edge.is_refused("early") and not edge.is_refused("later")
        target.close()

    run(tmp_path, test)


def test_tickets_are_answered_in_order_also_when_answers_have_to_wait(tmp_path: Path) -> None:
    """A caller that reads nothing for a while, and goes on opening tickets."""
    many = 6_000

    async def test(rig: Rig) -> None:
        raw, answered, asked = rig.raw(), list[int](), 0

        async def read() -> None:
            message = decode_data_down((await raw.receive())[0])
            assert isinstance(message, Failure)
            answered.append(int(message.ticket[1:]))

        async def open_next() -> None:
            nonlocal asked
            text = ticket(id=f"n{asked}", generation=GENERATION + 1)
            while True:
                try:
                    raw.sock.send_multipart([encode(Open(ticket=text))], zmq.DONTWAIT)
                    break
                except zmq.Again:  # the server does not keep up for now
                    await read()
            asked += 1

        while asked < many:
            await open_next()
            if asked % 50 == 0:
                await asyncio.sleep(0)
            if asked > many // 2 and asked % 3 == 0:  # there is room again and again
                await read()
        while answered[-1] < many:  # more than a thousand are not kept, so the last may be lost
            if len(answered) % 10 == 0:
                await open_next()
            await read()
        assert answered == sorted(answered)
        raw.close()

    run(tmp_path, test)


def test_what_is_opened_is_answered_although_somebody_else_is_gone(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw, more = rig.raw(), 8
        asked = 0
        while not rig.server._outbox.busy:  # so the answers to those that follow wait behind it
            for _ in range(50):
                raw.send(encode(Open(ticket=ticket(id="t0"))))
                asked += 1
            await asyncio.sleep(0)
        assert not rig.server._socket.send([b"nobody", b"x"])
        for n in range(1, more):
            raw.send(encode(Open(ticket=ticket(id=f"t{n}"))))
        answered = set[str]()
        while len(answered) < more:
            message = decode_data_down((await raw.receive())[0])
            assert isinstance(message, Opened)
            answered.add(message.ticket)
        assert rig.server.dropped == 0
        raw.close()

    run(tmp_path, test)


def test_names_of_tickets_that_nobody_opened_are_not_kept(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.server.close()
        router, asked = open_socket(rig.ctx, zmq.ROUTER), asyncio.Queue[list[bytes]]()
        router.bind(rig.address)
        target = FdSocket(router, asked.put_nowait)
        edge = rig.edge()
        identity = (await asked.get())[0]
        for n in range(100):
            failure = Failure(id=0, code="denied", message="It is void.", ticket=f"{n}" * 1000)
            assert target.send([identity, encode(failure)])
        target.send([identity, encode(Failure(id=1, code="denied", message="It is void."))])
        assert (await edge.call("echo", b"{}", GRACE)).outcome == "denied"
        assert not edge._refused
        target.close()

    run(tmp_path, test)


class Scripted:
    """A serving worker that says what a test tells it, in a thread."""

    def __init__(self, address: str) -> None:
        self._ctx = zmq.Context[zmq.Socket[bytes]]()
        self._sock = open_socket(self._ctx, zmq.ROUTER)
        self._sock.bind(address)
        self._script: list[tuple[str, list[Message]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def start(self, script: list[tuple[str, list[Message]]]) -> None:
        """Begin; the script tells, by what is opened or called, what is said then."""
        self._script = script
        self._thread.start()

    def _serve(self) -> None:
        said = dict(self._script)
        while not self._over.is_set():
            if not self._sock.poll(50):
                continue
            identity, header = self._sock.recv_multipart()[:2]
            message = decode_data_up(header)
            name = peek(message.ticket).id if isinstance(message, Open) else ""
            name = message.ticket if isinstance(message, Call) else name
            key = f"call {name}" if isinstance(message, Call) else name
            for answer in said.get(key, []):
                self._sock.send_multipart([identity, encode(answer), b"{}"])

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._ctx.destroy(0)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Scripted]:
    found = Scripted(f"ipc://{tmp_path}/data")
    yield found
    found.close()


def test_a_late_refusal_is_not_taken_for_the_next_tickets(tmp_path: Path, worker: Scripted) -> None:
    """The synchronous client: a first ticket is answered when a third one is being opened."""

    def target(name: str) -> Target:
        address = f"ipc://{tmp_path}/data"
        return Target(
            worker=WORKER,
            generation=GENERATION,
            endpoint=address,
            ticket=ticket(id=name),
            expires_in=30.0,
        )

    refusal = Failure(id=0, code="denied", message="It is void.", ticket="a")
    worker.start(
        [
            ("b", [Opened(ticket="b")]),
            ("call b", [Result(id=1, outcome="ok")]),
            ("c", [refusal, Opened(ticket="c")]),
            ("call c", [Result(id=2, outcome="ok")]),
        ]
    )
    with Peer(tmp_path / "home") as peer, connect(peer.home.path) as client:
        edge = Edge(client._line, target("a"))
        outcomes = {}
        for name, seconds in (("a", 0.3), ("b", GRACE), ("c", GRACE)):
            route = Route(capability="x", local="echo", target=target(name))
            outcomes[name] = edge.call(route, b"{}", seconds, seconds).outcome
        edge.close()
    assert outcomes == {"a": "timeout", "b": "ok", "c": "ok"}
