"""Any bytes may arrive on a data socket; its owner goes on, counts them and answers the rest."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from data_rig import Raw, Rig, run, ticket

from interlock.bus.codec import decode_data_down, encode
from interlock.bus.messages import MAX_HEADER, Call, Cancel, Credit, Failure, Open, Opened, Result


def call(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "id": 1,
        "ticket": "t1",
        "name": "echo",
        "left_ms": 9000,
        "generation": 3,
    }
    return encode(Call(**(fields | changes)))  # type: ignore[arg-type]


async def opened(rig: Rig) -> Raw:
    raw = rig.raw()
    raw.send(encode(Open(ticket=ticket())))
    assert decode_data_down((await raw.receive())[0]) == Opened(ticket="t1")
    return raw


async def failure(raw: Raw) -> Failure:
    message = decode_data_down((await raw.receive())[0])
    assert isinstance(message, Failure)
    return message


def test_garbage_is_dropped_counted_and_harms_nobody(tmp_path: Path) -> None:
    chance = random.Random(1)
    good = call()
    garbage: list[list[bytes]] = [
        [b""],
        [b"\xc1"],
        [b"{"],
        [b"[" * 10_000],
        [b"\x91" * 10_000],
        [b'{"type":"open","ticket":' + b"[" * 10_000],
        [b'{"type":"nonsense"}'],
        [b'{"type":"open","ticket":5}'],
        [b'{"type":"cancel","id":"x"}'],
        [b'{"type":"cancel","id":0}'],
        [b'{"type":"cancel","id":' + b"9" * 30 + b"}"],
        [b'{"type":"open","ticket":"\xff"}'],
        [b" " * (MAX_HEADER + 1)],
        [good, b"{}", b"third"],
        [b""] * 100,
        [call(left_ms=0), b"{}"],
        [call(left_ms=-5), b"{}"],
        *([good[:n], b"{}"] for n in range(len(good))),
        *([chance.randbytes(chance.randrange(200))] for _ in range(300)),
    ]

    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        for frames in garbage:
            raw.send(*frames)
        raw.send(call(id=5), b"{}")
        answer = decode_data_down((await raw.receive())[0])
        assert isinstance(answer, Result)
        assert answer.id == 5
        assert rig.server.dropped == len(garbage)
        raw.close()

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("presented", "reason"),
    [
        ("", "malformed"),
        ("v1.x.y", "forged"),
        ("v2.x.y", "malformed"),
        ("\u00fc", "malformed"),
        ("v1." + "A" * 300_000, "malformed"),
        (ticket(key=b"other"), "forged"),
        (ticket()[:-1], "forged"),
        (ticket(generation=2), "wrong generation"),
        (ticket(target="mcp:other"), "wrong target"),
        (ticket(expires=1.0), "expired"),
        (ticket(expires=float("nan")), "expired"),
        (ticket(expires=4e9), "malformed"),
    ],
)
def test_tickets_that_do_not_open(tmp_path: Path, presented: str, reason: str) -> None:
    async def test(rig: Rig) -> None:
        raw = rig.raw()
        raw.send(encode(Open(ticket=presented)))
        refused = await failure(raw)
        assert (refused.id, refused.code) == (0, "denied")
        assert refused.message.endswith(f": {reason}.")
        assert rig.server.edges == 0
        raw.send(call(), b"{}")
        assert (await failure(raw)).code == "denied"
        raw.close()

    run(tmp_path, test)


def test_a_connection_belongs_to_one_caller(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        raw.send(encode(Open(ticket=ticket(id="t2", caller="agent:other"))))
        assert (await failure(raw)).message.endswith(": wrong caller.")
        raw.send(call(ticket="t2"), b"{}")
        assert (await failure(raw)).code == "denied"
        raw.close()

    run(tmp_path, test)


def test_the_id_of_anothers_ticket_is_worth_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        owner, thief = await opened(rig), rig.raw()
        thief.send(call(), b"{}")
        assert (await failure(thief)).code == "denied"
        thief.send(encode(Open(ticket=ticket(key=b"thief"))))
        assert (await failure(thief)).message.endswith(": forged.")
        owner.send(call(), b"{}")
        assert isinstance(decode_data_down((await owner.receive())[0]), Result)
        owner.close()
        thief.close()

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        (call(name="other"), b"{}", "denied"),
        (call(ticket="unknown"), b"{}", "denied"),
        (call(generation=2), b"{}", "unavailable"),
        (call(), None, "invalid_arguments"),
    ],
)
def test_calls_that_are_refused(
    tmp_path: Path, header: bytes, body: bytes | None, code: str
) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        raw.send(header) if body is None else raw.send(header, body)
        refused = await failure(raw)
        assert (refused.id, refused.code, refused.may_have_run) == (1, code, False)
        assert rig.server.in_flight == 0
        raw.close()

    run(tmp_path, test)


def test_replays_run_nothing_twice(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        raw.send(encode(Open(ticket=ticket())))
        assert decode_data_down((await raw.receive())[0]) == Opened(ticket="t1")
        raw.send(call(name="park"), b"{}")
        parked = await rig.next_parked()
        raw.send(call(name="park"), b"{}")
        assert (await failure(raw)).code == "invalid_arguments"
        assert rig.parked == []
        parked.result(b"{}")
        assert isinstance(decode_data_down((await raw.receive())[0]), Result)
        raw.close()

    run(tmp_path, test)


def test_cancel_and_credit_for_unknown_calls_do_nothing(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        stranger, raw = rig.raw(), await opened(rig)
        for sender in (stranger, raw):
            sender.send(encode(Cancel(id=4)))
            sender.send(encode(Credit(id=4, n=-3)))
        stranger.send(call(), b"{}")
        assert (await failure(stranger)).code == "denied"
        raw.send(call(), b"{}")
        assert isinstance(decode_data_down((await raw.receive())[0]), Result)
        stranger.close()
        raw.close()

    run(tmp_path, test)


def test_a_handler_that_fails_does_not_stop_the_socket(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        kept = rig.server._handler

        def broken(_: object) -> None:
            rig.server._handler = kept
            raise LookupError("a handler's own fault")

        rig.server._handler = broken
        raw.send(call(id=1), b"{}")
        raw.send(call(id=2), b"{}")
        answer = decode_data_down((await raw.receive())[0])
        assert isinstance(answer, Result)
        assert answer.id == 2
        raw.close()

    run(tmp_path, test, faults=(LookupError,))


def test_the_calls_of_a_caller_that_left_are_cancelled_and_not_answered(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        raw.send(call(name="park"), b"{}")
        parked = await rig.next_parked()
        raw.close()
        async with asyncio.timeout(5):
            await rig.cancelled.wait()
        assert parked.cancelled
        assert rig.server.edges == 0
        parked.result(b"x" * (1 << 20))
        assert not rig.server._outbox.identities
        assert (await rig.edge().call("echo", b"{}", 10)).outcome == "ok"

    run(tmp_path, test)


def test_a_large_result_for_a_caller_that_left_is_counted_and_let_go(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        raw = await opened(rig)
        raw.send(call(name="park"), b"{}")
        parked = await rig.next_parked()
        parked.result(b"x" * (16 << 20))  # it grants no credit, so most of that stays here
        assert rig.server._outbox.identities
        raw.close()
        async with asyncio.timeout(5):
            await rig.server.flushed()
        assert rig.server.dropped == 1

    run(tmp_path, test)
