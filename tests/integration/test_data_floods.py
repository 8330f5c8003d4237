"""Floods on the data plane: whatever a server says meanwhile, each call gets its one answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import zmq
from data_rig import Raw, Rig, run, ticket

from interlock.bus import dataserver, streams
from interlock.bus.channel import DataEdge, IncomingCall
from interlock.bus.codec import decode_data_down, encode
from interlock.bus.messages import (
    CHUNK,
    Call,
    DataDown,
    Failure,
    Log,
    Open,
    Opened,
    Progress,
    Result,
)


def ask(raw: Raw, call_id: int, name: str = "park") -> None:
    call = Call(id=call_id, ticket="t1", name=name, left_ms=30_000, generation=3, progress=True)
    raw.send(encode(call), b"{}")


async def fill(rig: Rig, call: IncomingCall) -> None:
    """Fill the queue to a caller that reads nothing, with what may be lost."""
    other, full = rig.edge(), 0
    while full < 5:
        before = rig.server.dropped
        for _ in range(100):
            call.log("info", "x" * 4096)
        full = full + 1 if rig.server.dropped == before + 100 else 0
        # Meanwhile the threads below move on what they still have room for.
        assert (await other.call("echo", b"{}", 10)).outcome == "ok"


async def answers(raw: Raw, wanted: int) -> dict[int, DataDown]:
    """Read until `wanted` calls are answered."""
    found: dict[int, DataDown] = {}
    while len(found) < wanted:
        message = decode_data_down((await raw.receive())[0])
        if isinstance(message, Result | Failure):
            assert message.id not in found
            found[message.id] = message
    return found


def test_answers_wait_for_a_caller_whose_queue_is_full(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        calls = []
        for n in range(1, 4):
            ask(raw, n)
            calls.append(await rig.next_parked())
        await fill(rig, calls[0])
        calls[0].result(b"{}")
        calls[1].fail("unavailable", "no luck")
        calls[2].result(b"x" * (CHUNK + 1))
        found = await answers(raw, 3)
        assert [type(found[n]) for n in (1, 2, 3)] == [Result, Failure, Result]
        await asyncio.wait_for(rig.server.flushed(), 10)
        assert not rig.server._outbox.identities
        raw.close()

    run(tmp_path, test)


def test_answers_given_in_one_turn_wait_too(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        calls = []
        for n in range(1, 101):
            ask(raw, n)
            calls.append(await rig.next_parked())
        await fill(rig, calls[0])
        for call in calls:
            call.result(b"{}")
        assert len(await answers(raw, 100)) == 100
        raw.close()

    run(tmp_path, test)


def test_who_takes_no_answers_may_call_nothing_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataserver, "MAX_IN_FLIGHT", 3)

    async def test(rig: Rig) -> None:
        raw, edge = rig.raw(), rig.edge()
        raw.send(encode(Open(ticket=ticket())))
        ask(raw, 1)
        call = await rig.next_parked()
        await fill(rig, call)
        call.result(b"{}")
        before = rig.server.dropped
        for n in range(2, 10):
            ask(raw, n, "echo")
        assert (await edge.call("echo", b"{}", 10)).outcome == "ok"
        (peer,) = rig.server._outbox.identities
        while rig.server.dropped < before + 6:
            assert (await edge.call("echo", b"{}", 10)).outcome == "ok"
        assert rig.server._outbox.held(peer)[0] == 3
        assert all(isinstance(each, Result) for each in (await answers(raw, 3)).values())
        raw.close()

    run(tmp_path, test)


def test_answers_to_a_caller_that_left_with_a_full_queue_are_dropped(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        ask(raw, 1)
        call = await rig.next_parked()
        await fill(rig, call)
        call.fail("unavailable", "no luck")
        assert rig.server._outbox.identities
        before = rig.server.dropped
        raw.close()
        await asyncio.wait_for(rig.server.flushed(), 10)
        assert rig.server.dropped == before + 1

    run(tmp_path, test)


def test_of_a_flood_of_progress_the_newest_arrives(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        steps: list[float] = []
        future = rig.edge().call("park", b"{}", 10, on_progress=lambda p: steps.append(p.progress))
        call = await rig.next_parked()
        for n in range(6000):
            call.progress(n)
        call.result(b"{}")
        assert (await future).outcome == "ok"
        assert steps[:2] == [0, 1]
        assert steps == sorted(steps)
        assert steps[-1] == 5999
        # A machine that stops for a while lets a few more through.
        assert len(steps) < 100
        assert rig.server.dropped == 0

    run(tmp_path, test)


def test_progress_that_waits_arrives_without_a_further_one(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        newest = asyncio.Event()

        def on_progress(news: Progress) -> None:
            if news.progress == 99:
                newest.set()

        future = rig.edge().call("park", b"{}", 30, on_progress=on_progress)
        call = await rig.next_parked()
        for n in range(100):
            call.progress(n)
        await asyncio.wait_for(newest.wait(), 10)
        for n in range(100):
            call.progress(n)
        future.cancel()
        await asyncio.wait_for(rig.cancelled.wait(), 10)

    run(tmp_path, test)


def test_texts_are_cut_so_that_their_message_arrives(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        progress: list[Progress] = []
        logs: list[Log] = []
        edge = DataEdge(rig.target(), on_log=logs.append)
        rig.edges.append(edge)
        future = edge.call("park", b"{}", 10, on_progress=progress.append)
        call = await rig.next_parked()
        call.progress(1, None, "p" * (2 << 20))
        call.log("info", "l" * (2 << 20))
        call.fail("unavailable", "f" * (2 << 20))
        answer = await future
        assert (answer.outcome, set(answer.message)) == ("unavailable", {"f"})
        assert [set(news.message) for news in progress] == [{"p"}]
        assert [set(log.message) for log in logs] == [{"l"}]
        assert edge.dropped == 0

    run(tmp_path, test)


def test_every_ticket_is_answered_also_behind_a_full_queue(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        ask(raw, 1)
        call = await rig.next_parked()
        await fill(rig, call)
        raw.send(encode(Open(ticket=ticket(id="t2"))))
        raw.send(encode(Open(ticket=ticket(key=b"z" * 32))))
        raw.send(encode(Open(ticket=ticket(key=b"y" * 32))))
        ask(raw, 2)
        (await rig.next_parked()).result(b"{}")  # it has taken the tickets before this call
        seen: list[DataDown] = []
        while len(seen) < 5:
            message = decode_data_down((await raw.receive())[0])
            if isinstance(message, Opened | Failure | Result):
                seen.append(message)
        assert [m.ticket for m in seen if isinstance(m, Opened)] == ["t1", "t2"]
        assert [m.id for m in seen if isinstance(m, Failure)] == [0, 0]
        raw.close()

    run(tmp_path, test)


def test_refusals_that_nobody_takes_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of who never had a ticket, and is no caller."""
    monkeypatch.setattr(dataserver, "SWEEP", 0.05)
    monkeypatch.setattr(streams, "STALL", 0.2)

    async def test(rig: Rig) -> None:
        raw, other = rig.raw(), rig.edge()
        raw.sock.set(zmq.SNDHWM, 0)
        refused = Call(id=1, ticket="t1", name="x" * 60_000, left_ms=30_000, generation=3)
        for n in range(2500):
            raw.send(encode(msgspec.structs.replace(refused, id=n + 1)), b"{}")
        while not rig.server._outbox.busy:
            assert (await other.call("echo", b"{}", 10)).outcome == "ok"
        other.close()
        async with asyncio.timeout(10):
            await rig.server.flushed()
        raw.close()

    run(tmp_path, test)


def test_what_ended_calls_left_keeps_no_other_one_out(tmp_path: Path) -> None:
    """A target that cannot be reached for a while is not told as an overloaded one."""

    async def test(rig: Rig) -> None:
        rig.server.close()
        edge = rig.edge()
        waiting = [edge.call("echo", b"x" * 15_000, 0.2) for _ in range(1100)]
        outcomes = {answer.outcome for answer in await asyncio.gather(*waiting)}
        assert outcomes == {"overloaded", "unavailable"}
        late = edge.call("echo", b"{}", 10)
        edge.open(ticket(id="t2"))
        rig.server = rig.serve()
        assert (await late).outcome == "ok"
        assert (await edge.call("echo", b"{}", 10, ticket="t2")).outcome == "ok"

    run(tmp_path, test)
