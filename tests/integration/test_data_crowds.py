"""Many connections to one worker: who is gone takes nobody's place, and who is refused is told why.

`many` is small here; the real one is `callers.MAX_CONNECTIONS`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from data_rig import Raw, Rig, run, ticket

from interlock.bus import admission, callers
from interlock.bus.codec import decode_data_down, encode
from interlock.bus.dataedge import DataEdge
from interlock.bus.messages import Call, DataDown, Failure, Open, Opened, Result
from interlock.workers.agent.edges import EdgePool, TurnTickets
from interlock.workers.agent.tickets import TicketDesk

MANY = 8


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_CONNECTIONS", MANY)


def call(ticket: str = "t1", name: str = "echo", number: int = 1) -> bytes:
    return encode(Call(id=number, ticket=ticket, name=name, left_ms=9000, generation=3))


async def heard(raw: Raw) -> DataDown:
    return decode_data_down((await raw.receive())[0])


async def answer(raw: Raw) -> DataDown:
    """The next message that is not said once more."""
    while isinstance(message := await heard(raw), Opened):
        pass
    return message


async def opened(rig: Rig, caller: str) -> Raw:
    raw = rig.raw()
    raw.send(encode(Open(ticket=ticket(caller=caller))))
    assert await heard(raw) == Opened(ticket="t1")
    return raw


def refused(message: DataDown, code: str, why: str) -> bool:
    return isinstance(message, Failure) and message.code == code and why in message.message


def test_who_is_gone_takes_nobodys_place(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        idle = await opened(rig, "agent:main")
        for n in range(5 * MANY):
            edge = DataEdge(rig.target(id=f"s{n}", caller=f"api:{n}"))
            found = await edge.call("echo", b"{}", 5.0)
            assert (found.outcome, found.message) == ("ok", "")
            edge.close()
        assert rig.server.edges <= MANY
        idle.send(call(), b"{}")
        assert isinstance(await answer(idle), Result)
        idle.close()

    run(tmp_path, test)


def test_the_calls_of_who_is_gone_end_and_make_room(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async def enter(n: int) -> None:
            """Until the server has taken notice that the others are gone."""
            while True:
                edge = DataEdge(rig.target(id=f"n{n}", caller=f"api:n{n}"))
                found = await edge.call("echo", b"{}", 5.0)
                edge.close()
                if found.outcome == "ok":
                    return
                assert found.outcome == "overloaded"

        parked = []
        for n in range(MANY):
            raw = await opened(rig, f"api:{n}")
            raw.send(call(name="park"), b"{}")
            parked.append(await rig.next_parked())
            raw.close()
        await enter(0)
        async with asyncio.timeout(5):
            while not all(one.cancelled for one in parked):
                rig.cancelled.clear()
                await rig.cancelled.wait()
        assert rig.server.in_flight == 0

    run(tmp_path, test)


def test_a_crowd_makes_room_from_itself_the_idle_first_and_the_oldest_of_them(
    tmp_path: Path,
) -> None:
    async def test(rig: Rig) -> None:
        agent = await opened(rig, "agent:main")
        crowd = [await opened(rig, f"api:{n}") for n in range(MANY - 1)]
        crowd[0].send(call(name="park"), b"{}")
        parked = await rig.next_parked()
        crowd[1].send(call(), b"{}")
        assert isinstance(await answer(crowd[1]), Result)
        crowd.append(await opened(rig, "api:new"))
        assert rig.server.edges == MANY
        crowd[2].send(call(), b"{}")  # used longer ago than all others that are idle
        assert refused(await answer(crowd[2]), "denied", "not open")
        for raw in (agent, crowd[1], *crowd[3:]):
            raw.send(call(), b"{}")
            assert isinstance(await answer(raw), Result)
        parked.result(b"{}")
        assert isinstance(await answer(crowd[0]), Result)
        crowd[2].send(encode(Open(ticket=ticket(caller="api:2"))))
        crowd[2].send(call(), b"{}")
        assert isinstance(await answer(crowd[2]), Result)
        for raw in (agent, *crowd):
            raw.close()

    run(tmp_path, test)


def test_who_finds_no_room_is_told_so_and_comes_in_later(tmp_path: Path) -> None:
    """Calls follow their ticket at once: they hear what it heard."""

    async def test(rig: Rig) -> None:
        crowd = [await opened(rig, f"api:{n}") for n in range(MANY)]
        parked = []
        for raw in crowd:
            raw.send(call(name="park"), b"{}")
            parked.append(await rig.next_parked())
        pool, desk = EdgePool(), TicketDesk(lambda request, body: True)
        async with asyncio.TaskGroup() as keepers:
            turn = TurnTickets("turn-1", pool, desk, keepers)
            turn.update([rig.target(id="late")])
            for _ in range(2):
                way = await turn.open("mcp:test", 1.0)
                assert way is not None
                edge, id_ = way
                found = await edge.call("echo", b"{}", 5.0, ticket=id_)
                assert found.outcome == "overloaded" and "too many callers" in found.message
                assert edge.is_refused(id_)
            parked[0].result(b"{}")
            assert isinstance(await answer(crowd[0]), Result)
            way = await turn.open("mcp:test", 1.0)
            assert way == (edge, id_)
            found = await edge.call("echo", b"{}", 5.0, ticket=id_)
            assert (found.outcome, edge.is_refused(id_)) == ("ok", False)
            turn.close()
        pool.close()
        for raw in crowd:
            raw.close()

    run(tmp_path, test)


def test_calls_under_a_ticket_too_many_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_TICKETS", 2)

    async def test(rig: Rig) -> None:
        raw = await opened(rig, "agent:main")
        for n in (2, 3):
            raw.send(encode(Open(ticket=ticket(id=f"t{n}"))))
            raw.send(call(f"t{n}", number=n), b"{}")
        assert await heard(raw) == Opened(ticket="t2")
        assert isinstance(await heard(raw), Result)
        for _ in range(2):
            assert refused(await heard(raw), "overloaded", "too many tickets")
        raw.close()

    run(tmp_path, test)
