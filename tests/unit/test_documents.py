"""Documents of the api are made a slice at a time, and what clients do not read is counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from interlock.supervisor.api.documents import AT_ONCE, Documents, DocumentTooLargeError
from interlock.supervisor.api.shares import CONFIRMED, Shares, Unsent


def test_a_document_is_what_encoding_it_at_once_gives() -> None:
    lists: dict[str, list[Any]] = {
        "rows": [{"n": n} for n in range(100)],
        "none": [],
        "texts": ["a", 'b"'],
    }
    for head in ({}, {"epoch": "e", "seq": 3}):
        made = asyncio.run(Documents(piece=0.0).make(head, lists))
        assert json.loads(made) == head | lists


def test_the_loop_goes_on_between_the_slices_of_many_documents() -> None:
    """Whatever is asked for at once, one row is made in a turn of the loop if it takes the time."""
    turns: list[int] = []
    now = 0

    def rows() -> Iterator[int]:
        for number in range(20):
            turns.append(now)
            yield number

    async def story() -> None:
        nonlocal now
        documents = Documents(piece=0.0)
        asked = [asyncio.ensure_future(documents.make({}, {"rows": rows()})) for _ in range(10)]
        while not all(one.done() for one in asked):
            await asyncio.sleep(0)
            now += 1
        assert {await one for one in asked} == {await documents.make({}, {"rows": range(20)})}

    asyncio.run(story())
    assert len(turns) == 200
    assert len(set(turns)) == 200


def test_small_work_waits_for_a_slice_of_each_document_and_for_no_whole_one() -> None:
    async def story() -> None:
        documents = Documents(piece=0.0)
        done: list[int] = []
        begun = asyncio.Event()

        def rows() -> Iterator[int]:
            for number in range(1000):
                done.append(number)
                if len(done) == AT_ONCE:
                    begun.set()
                yield number

        asked = [
            asyncio.ensure_future(documents.make({}, {"rows": rows()})) for _ in range(AT_ONCE * 5)
        ]
        await begun.wait()
        before = len(done)
        assert await documents.alone(lambda: len(done)) <= before + AT_ONCE + 1
        for one in asked:
            one.cancel()
        await asyncio.wait(asked)

    asyncio.run(story())


def test_a_document_that_no_client_would_take_is_not_made() -> None:
    documents = Documents(piece=0.0, largest=1000)
    taken = 0

    def rows() -> Iterator[str]:
        nonlocal taken
        while taken < 100:
            taken += 1
            yield "x" * 100

    with pytest.raises(DocumentTooLargeError):
        asyncio.run(documents.make({}, {"rows": rows()}))
    assert taken < 15


def test_what_a_client_does_not_read_is_counted_until_it_does() -> None:
    ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = ctx.socket(zmq.ROUTER), ctx.socket(zmq.DEALER)
    dealer.set(zmq.SocketOption.ROUTING_ID, b"c")
    dealer.set(zmq.SocketOption.RCVHWM, 1)
    router.bind("inproc://x")
    dealer.connect("inproc://x")
    dealer.send(b"hi")
    router.recv_multipart()
    unsent = Unsent(Shares(of_client=10 * CONFIRMED, of_all=20 * CONFIRMED, small=CONFIRMED))
    piece = b"x" * (CONFIRMED // 2)
    sent = 0

    def send(body: bytes) -> None:
        frame = unsent.frame(b"c", body)
        router.send_multipart([b"c", frame])
        unsent.sent(b"c", frame)

    while unsent.fits(b"c", len(piece)):
        send(piece)
        sent += 1
    assert 10 <= sent <= 21
    assert unsent.total >= 9 * CONFIRMED
    assert not unsent.has_room(12 * CONFIRMED)
    assert unsent.fits(b"another", CONFIRMED)
    for _ in range(sent):
        assert dealer.recv_multipart() == [piece]
    until = time.monotonic() + 10
    while unsent.total:  # another thread hears of it
        assert time.monotonic() < until
    assert unsent.fits(b"c", 10 * CONFIRMED)
    ctx.destroy(0)
