"""Calls over real sockets: answers, chunks, deadlines, cancelling, the end of a generation."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

import msgspec
import pytest
import zmq
from data_rig import Rig, run, ticket

from interlock.bus import dataedge, dataserver, pace, streams
from interlock.bus.channel import DataEdge
from interlock.bus.codec import decode_data_down, encode
from interlock.bus.messages import (
    CHUNK,
    CHUNK_WINDOW,
    MAX_MESSAGE,
    Call,
    Cancel,
    Chunk,
    Credit,
    Failure,
    Log,
    Open,
    Opened,
    Progress,
    Result,
    Revoke,
)
from interlock.bus.socket import FdSocket, open_socket
from interlock.bus.tickets import arguments_digest


def test_a_call_on_a_fresh_edge_is_answered_with_the_bytes_of_the_server(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.edge().call("echo", b'{"a": 1}', 5)
        assert (answer.outcome, answer.body) == ("ok", b'{"a": 1}')
        assert answer.duration_ms >= 0
        assert (rig.server.in_flight, rig.server.edges, rig.server.dropped) == (0, 1, 0)

    run(tmp_path, test)


def test_many_calls_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        bodies = [b'{"n": %d}' % n for n in range(200)]
        answers = await asyncio.gather(*(edge.call("echo", body, 10) for body in bodies))
        assert [answer.body for answer in answers] == bodies

    run(tmp_path, test)


def test_what_the_handler_sees_and_says(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        logs: list[Log] = []
        edge = DataEdge(rig.target(), on_log=logs.append)
        rig.edges.append(edge)
        progress: list[Progress] = []
        future = edge.call("park", b"{}", 5, on_progress=progress.append)
        call = await rig.next_parked()
        assert (call.name, call.arguments, call.caller) == ("park", b"{}", "agent:main")
        assert (call.turn, call.ticket_id, call.wants_progress) == ("turn-1", "t1", True)
        assert 0 < call.left <= 5
        call.log("warning", "half \ud800 broken")
        call.progress(1, 2, "one")
        call.progress(10**400)
        call.result(b'{"isError":true}', "tool_error", 12.5)
        call.result(b"{}")
        call.fail("unavailable", "too late")
        answer = await future
        assert (answer.outcome, answer.duration_ms) == ("tool_error", 12.5)
        assert progress == [Progress(id=1, progress=1, total=2, message="one")]
        assert [log.message for log in logs] == ["half ? broken"]
        assert call.answered
        assert rig.server.dropped == 1

    run(tmp_path, test)


def test_a_failure_carries_code_message_and_whether_it_may_have_run(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        future = rig.edge().call("park", b"{}", 5)
        (await rig.next_parked()).fail("worker_died", "the server ended", may_have_run=True)
        answer = await future
        assert (answer.outcome, answer.message) == ("worker_died", "the server ended")
        assert answer.may_have_run
        assert answer.body is None

    run(tmp_path, test)


@pytest.mark.parametrize("size", [CHUNK, CHUNK + 1, CHUNK * (CHUNK_WINDOW + 3), 10 << 20])
def test_large_results_arrive_whole(tmp_path: Path, size: int) -> None:
    async def test(rig: Rig) -> None:
        body = hashlib.shake_128(b"x").digest(size)
        future = rig.edge().call("large", b"{}", 20)
        (await rig.next_parked()).result(body)
        answer = await future
        assert answer.body == body

    run(tmp_path, test)


def test_small_calls_pass_a_large_result(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        slow, quick = rig.edge(), rig.edge(id="t2", caller="agent:other")
        await quick.call("echo", b"{}", 5)
        future = slow.call("large", b"{}", 20)
        (await rig.next_parked()).result(b"x" * (10 << 20))
        passed = 0
        while not future.done():
            assert (await quick.call("echo", b"{}", 5)).outcome == "ok"
            passed += 1
        assert (await future).outcome == "ok"
        assert passed >= 5

    run(tmp_path, test)


def test_a_result_stays_within_the_window_until_credit_comes(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        assert decode_data_down((await raw.receive())[0]) == Opened(ticket="t1")
        raw.send(encode(Call(id=7, ticket="t1", name="large", left_ms=9000, generation=3)), b"{}")
        (await rig.next_parked()).result(b"x" * (CHUNK * 20))
        for n in range(CHUNK_WINDOW):
            header, body = await raw.receive()
            assert decode_data_down(header) == Chunk(id=7, n=n)
            assert len(body) == CHUNK
        # Everything that was to come has come: an answer to a later call is next in the queue.
        raw.send(encode(Call(id=8, ticket="t1", name="echo", left_ms=9000, generation=3)), b"{}")
        assert isinstance(decode_data_down((await raw.receive())[0]), Result)
        raw.send(encode(Credit(id=7, n=1 << 40)))
        for n in range(CHUNK_WINDOW, CHUNK_WINDOW * 2):
            assert decode_data_down((await raw.receive())[0]) == Chunk(id=7, n=n)
        raw.send(encode(Cancel(id=7)))
        raw.send(encode(Credit(id=7, n=8)))
        raw.send(encode(Call(id=9, ticket="t1", name="echo", left_ms=9000, generation=3)), b"{}")
        answer = decode_data_down((await raw.receive())[0])
        assert isinstance(answer, Result)
        assert answer.id == 9
        raw.close()

    run(tmp_path, test)


def test_a_result_nobody_takes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALL", -1.0)

    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        raw.send(encode(Call(id=7, ticket="t1", name="large", left_ms=9000, generation=3)), b"{}")
        (await rig.next_parked()).result(b"x" * (CHUNK * 20))
        for _ in range(CHUNK_WINDOW + 1):
            await raw.receive()
        rig.server._sweep()
        assert rig.server.dropped == 1
        assert not rig.server._outbox.identities
        raw.close()

    run(tmp_path, test)


def test_who_takes_no_results_gets_no_further_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataserver, "MAX_HELD", CHUNK * 30)

    async def test(rig: Rig) -> None:
        edge, raw = rig.edge(), rig.raw()
        raw.send(encode(Open(ticket=ticket())))
        for n in (1, 2):
            call = Call(id=n, ticket="t1", name="large", left_ms=9000, generation=3)
            raw.send(encode(call), b"{}")
            (await rig.next_parked()).result(b"x" * (CHUNK * 20))
        raw.send(encode(Call(id=3, ticket="t1", name="echo", left_ms=9000, generation=3)), b"{}")
        answer: object = None
        while not isinstance(answer, Failure):
            answer = decode_data_down((await raw.receive())[0])
        assert (answer.id, answer.code) == (3, "overloaded")
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"
        raw.close()

    run(tmp_path, test)


def test_a_result_over_the_limit_is_a_failure(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        future = rig.edge().call("large", b"{}", 20)
        (await rig.next_parked()).result(bytes(MAX_MESSAGE + 1))
        answer = await future
        assert answer.outcome == "unavailable"
        assert answer.may_have_run

    run(tmp_path, test)


def test_the_deadline_cancels_and_late_results_are_counted(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        await edge.call("echo", b"{}", 5)
        began = time.monotonic()
        answer = await edge.call("park", b"{}", 0.1)
        assert (answer.outcome, answer.may_have_run) == ("timeout", True)
        assert 0.09 < time.monotonic() - began < 2
        call = await rig.next_parked()
        await asyncio.wait_for(rig.cancelled.wait(), 5)
        assert call.cancelled
        call.result(b"{}")
        assert edge.in_flight == 0
        assert rig.server.in_flight == 0

    run(tmp_path, test)


def test_cancelled_calls_that_nobody_answers_take_no_room(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        forgotten = []
        for _ in range(dataserver.MAX_IN_FLIGHT + 1):
            future = edge.call("park", b"{}", 30)
            forgotten.append(await rig.next_parked())
            future.cancel()
        answer = await edge.call("echo", b"{}", 5)
        assert (answer.outcome, rig.server.in_flight) == ("ok", 0)
        forgotten[-1].result(b"{}")
        assert forgotten[-1].answered and rig.server.in_flight == 0

    run(tmp_path, test)


def test_an_answer_that_crosses_the_cancel_is_late(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        future = edge.call("park", b"{}", 5)
        call = await rig.next_parked()
        call.result(b"{}")
        future.cancel()
        await edge.call("echo", b"{}", 5)
        assert edge.late == 1

    run(tmp_path, test)


def test_progress_renews_the_deadline_up_to_its_cap(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        began = asyncio.get_running_loop().time()
        future = rig.edge().call("park", b"{}", 1.0, timeout_max=2.0)
        call = await rig.next_parked()

        def report() -> None:
            call.progress(1)
            if not future.done():
                asyncio.get_running_loop().call_later(0.05, report)

        report()
        answer = await future
        assert answer.outcome == "timeout"
        assert 1.95 < asyncio.get_running_loop().time() - began < 6

    run(tmp_path, test)


def test_progress_renews_a_deadline_that_is_shorter_than_its_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "EVERY", 2.0)

    async def test(rig: Rig) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        future = rig.edge().call("park", b"{}", 1.0, timeout_max=4.0, on_progress=lambda p: None)
        call = await rig.next_parked()

        def report() -> None:
            call.progress(1)
            if not future.done():
                loop.call_later(0.02, report)

        report()
        assert (await future).outcome == "timeout"
        assert loop.time() - began > 3.95

    run(tmp_path, test)


def test_cancelling_the_task_that_waits_tells_the_server(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async def wait() -> None:
            await rig.edge().call("park", b"{}", 30)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(wait())
            await rig.next_parked()
            task.cancel()
        await asyncio.wait_for(rig.cancelled.wait(), 5)

    run(tmp_path, test)


def test_gone_fails_everything_at_once(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        futures = [edge.call("park", b"{}", 30) for _ in range(3)]
        await rig.next_parked()
        edge.gone("mcp:test was killed")
        assert all(future.done() for future in futures)
        first = futures[0].result()
        assert (first.outcome, first.message) == ("worker_died", "mcp:test was killed")
        assert first.may_have_run
        assert (await edge.call("echo", b"{}", 5)).outcome == "unavailable"
        edge.gone("again")

    run(tmp_path, test)


def test_close_ends_calls_as_cancelled(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        future = edge.call("park", b"{}", 30)
        edge.close()
        assert (await future).outcome == "cancelled"

    run(tmp_path, test)


def test_a_target_that_is_not_there_is_unavailable_after_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataedge, "CONNECT_GRACE", 0.1)

    async def test(rig: Rig) -> None:
        rig.server.close()
        answer = await rig.edge().call("echo", b"{}", 30)
        assert (answer.outcome, answer.may_have_run) == ("unavailable", False)

    run(tmp_path, test)


def test_a_full_queue_is_overloaded_at_once(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.address += "-silent"
        silent = open_socket(rig.ctx, zmq.ROUTER, rcvhwm=1)
        silent.bind(rig.address)
        heard = asyncio.Event()
        reader = FdSocket(silent, lambda _: heard.set())
        edge = rig.edge()
        await heard.wait()
        asyncio.get_running_loop().remove_reader(silent.get(zmq.FD))
        body = b"{" + b" " * 20_000 + b"}"
        futures = [edge.call("echo", body, 30) for _ in range(3000)]
        began = time.monotonic()
        last = edge.call("echo", body, 30)
        assert last.done()
        assert time.monotonic() - began < 1
        assert last.result().outcome == "overloaded"
        assert not last.result().may_have_run
        assert not futures[0].done()
        reader.close()

    run(tmp_path, test)


def test_renewed_tickets_take_over(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        edge.renew(rig.target(id="t9"))
        future = edge.call("park", b"{}", 5)
        call = await rig.next_parked()
        assert call.ticket_id == "t9"
        call.result(b"{}")
        await future
        with pytest.raises(ValueError, match="generation 3"):
            edge.renew(msgspec.structs.replace(rig.target(), generation=4))

    run(tmp_path, test)


def test_an_approval_ticket_works_once_and_for_its_arguments_alone(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        digest = arguments_digest(b'{"b": 1, "a": 2}')
        approved = edge.open(ticket(id="a1", digest=digest, single_use=True))
        wrong = await edge.call("echo", b'{"a": 3}', 5, ticket=approved)
        assert (wrong.outcome, wrong.message.split(": ")[1]) == ("denied", "wrong arguments.")
        assert (await edge.call("echo", b'{"a":2,"b":1}', 5, ticket=approved)).outcome == "ok"
        again = await edge.call("echo", b'{"a":2,"b":1}', 5, ticket=approved)
        assert (again.outcome, again.message.split(": ")[1]) == ("denied", "used.")
        other = rig.edge(id="t5")
        copied = other.open(ticket(id="a1", digest=digest, single_use=True))
        assert (await other.call("echo", b'{"a":2,"b":1}', 5, ticket=copied)).outcome == "denied"

    run(tmp_path, test)


@pytest.mark.parametrize(
    "revoke",
    [
        Revoke(n=1, ids=("t1",)),
        Revoke(n=1, turn="turn-1"),
        Revoke(n=1, caller="agent:main"),
    ],
)
def test_revoked_tickets_are_denied_and_newer_ones_are_not(tmp_path: Path, revoke: Revoke) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        running = edge.call("park", b"{}", 5)
        call = await rig.next_parked()
        rig.server.revoke(revoke)
        denied = await edge.call("echo", b"{}", 5)
        assert (denied.outcome, denied.message.split(": ")[1]) == ("denied", "revoked.")
        call.result(b"{}")
        assert (await running).outcome == "ok"
        fresh = rig.edge()
        assert (await fresh.call("echo", b"{}", 5)).outcome == "denied"
        assert fresh.refused
        edge.renew(rig.target(id="t2", issued=time.time() + 0.001))
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"

    run(tmp_path, test)


def test_a_ticket_expires_on_an_open_connection(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        expires = time.time() + 1.0
        edge = rig.edge(expires=expires)
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(expires - time.time() + 0.01, over.set)
        await over.wait()
        denied = await edge.call("echo", b"{}", 5)
        assert (denied.outcome, denied.message.split(": ")[1]) == ("denied", "expired.")

    run(tmp_path, test)


def test_a_json_caller_is_answered_in_json(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=ticket()), "json"))
        assert await raw.receive() == [b'{"type":"opened","ticket":"t1"}']
        call = Call(id=1, ticket="t1", name="echo", left_ms=9000, generation=3)
        raw.send(encode(call, "json"), b"{}")
        header, body = await raw.receive()
        assert header.startswith(b'{"type":"result","id":1')
        assert body == b"{}"
        raw.close()

    run(tmp_path, test)


def test_connections_without_a_valid_ticket_are_forgotten(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        await edge.call("echo", b"{}", 5)
        rig.server._callers.forget(rig.server.time())
        assert rig.server.edges == 1
        rig.server._callers.forget(rig.server.time() + 40)
        assert rig.server.edges == 0
        assert (await edge.call("echo", b"{}", 5)).outcome == "denied"
        edge.renew(rig.target())
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"

    run(tmp_path, test)


def test_a_chunk_that_does_not_fit_ends_the_call(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.address += "-fake"
        server = open_socket(rig.ctx, zmq.ROUTER)
        server.bind(rig.address)
        got: asyncio.Queue[list[bytes]] = asyncio.Queue()
        fake = FdSocket(server, got.put_nowait)
        edge = rig.edge()
        future = edge.call("echo", b"{}", 10)
        identity = (await got.get())[0]
        await got.get()
        for hostile in ([b""], [b"\xc1"], [b"{"], [b"[" * 10_000], [b"x", b"y", b"z"]):
            fake.send([identity, *hostile])
        fake.send([identity, encode(Failure(id=99, code="x", message=""))])
        fake.send([identity, encode(Chunk(id=1, n=5)), b"x"])
        answer = await future
        assert (answer.outcome, answer.may_have_run) == ("unavailable", True)
        assert (edge.dropped, edge.late) == (5, 1)
        fake.close()

    run(tmp_path, test)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_result_that_came_before_its_worker_died_is_not_lost(tmp_path: Path, size: int) -> None:
    """Also if the caller was busy, and hears of the end first."""

    async def test(rig: Rig) -> None:
        edge = rig.edge()
        futures = [edge.call("park", b"{}", 30) for _ in range(2)]
        done, other = [await rig.next_parked() for _ in futures]
        done.result(b"x" * size)
        rig.server.close()
        edge.gone("It died.")
        answers = [future.result() for future in futures]
        assert [answer.outcome for answer in answers] == ["ok", "worker_died"]
        assert answers[0].body == b"x" * size
        assert not other.cancelled

    run(tmp_path, test)


BIG = b'"' + b"x" * (30 << 20) + b'"'


def test_large_arguments_on_their_way_stop_no_other_call(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        assert (await edge.call("echo", b"{}", 10)).outcome == "ok"
        calls = [edge.call("echo", BIG, 30), *(edge.call("echo", b"{}", 30) for _ in range(5))]
        assert [(await call).outcome for call in calls] == ["ok"] * 6

    run(tmp_path, test)


def test_behind_large_arguments_a_cancel_and_credit_are_not_lost(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        wanted = edge.call("park", b"{}", 30)
        given_up = edge.call("park", b"{}", 30)
        parked = [await rig.next_parked() for _ in range(2)]
        parked[0].result(b"x" * (CHUNK * 30))
        large = edge.call("echo", BIG, 30)
        given_up.cancel()
        assert (await wanted).body == b"x" * (CHUNK * 30)
        async with asyncio.timeout(10):
            await rig.cancelled.wait()
        assert parked[1].cancelled
        assert (await large).outcome == "ok"

    run(tmp_path, test)


def test_a_connection_that_is_lost_keeps_no_call_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataedge, "LOST_GRACE", 0.1)

    async def test(rig: Rig) -> None:
        edge = rig.edge()
        waiting = edge.call("park", b"{}", 30)
        call = await rig.next_parked()
        rig.server._socket._forget(rig.server._socket._peers[call.peer])
        answer = await asyncio.wait_for(waiting, 10)
        assert answer.outcome == "unavailable"
        assert answer.may_have_run
        assert edge.is_refused("t1")
        edge.renew(rig.target())
        assert (await edge.call("echo", b"{}", 10)).outcome == "ok"

    run(tmp_path, test)
