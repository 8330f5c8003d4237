"""What a worker says too fast waits, and its last word is never the one that is left out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
import pytest

from interlock.bus import messages as m
from interlock.bus.errors import MalformedError
from interlock.bus.records import CapabilityReport
from interlock.supervisor.catalog.schemas import MAX_REPORT, merge_lists, split_documents
from interlock.supervisor.control.pacing import LIST_COST, MAX_LISTS, WAITING, Pacing
from interlock.supervisor.control.quotas import Rate

Said = tuple[m.ControlUp, bytes | None]
FAST = Rate(LIST_COST, 1_000)


def document(n: int) -> tuple[str, bytes]:
    text = json.dumps({"name": f"t{n}"}).encode()
    return hashlib.sha256(text).hexdigest(), text


def list_of(*numbers: int, sent: tuple[int, ...] = ()) -> Said:
    """A list of tools with the documents of those that are sent with it."""
    rows = tuple(CapabilityReport(name=f"t{n}", digest=document(n)[0]) for n in numbers)
    body = msgspec.json.encode({d: msgspec.Raw(text) for d, text in map(document, sent)})
    return m.Capabilities(rows=rows), body


def deliver(
    *said: Said, enough: Callable[[Said], bool], rate: Rate = FAST
) -> tuple[list[Said], int]:
    """What is delivered of what one worker says at once, until `enough`, and how much is lost."""

    async def scenario() -> tuple[list[Said], int]:
        got: list[Said] = []
        lost: list[str] = []
        done = asyncio.Event()

        def take(name: str, generation: int, message: m.ControlUp, body: bytes | None) -> None:
            got.append((message, body))
            if enough(got[-1]):
                done.set()

        pacing = Pacing(take, lost.append, merge_lists, rate)
        for message, body in said:
            pacing.take("mcp:x", 1, message, body)
        async with asyncio.timeout(10):
            await done.wait()
        pacing.close()
        return got, len(lost)

    return asyncio.run(scenario())


def names(said: Said) -> tuple[str, ...]:
    return tuple(row.name for row in said[0].rows) if isinstance(said[0], m.Capabilities) else ()


def test_the_newest_list_always_comes_through() -> None:
    lists = [list_of(n) for n in range(40)]
    got, lost = deliver(*lists, enough=lambda said: names(said) == ("t39",))
    assert [names(one) for one in got] == [("t0",), ("t39",)] and lost == 38


def test_a_list_that_takes_the_place_of_another_keeps_the_documents_that_only_that_one_had() -> (
    None
):
    got, _ = deliver(
        list_of(0, sent=(0,)),
        list_of(1, 2, sent=(1, 2)),
        list_of(2, 3, sent=(3,)),
        list_of(1, 3, sent=(1,)),
        enough=lambda said: names(said) == ("t1", "t3"),
    )
    assert msgspec.json.decode(got[-1][1] or b"").keys() == {document(1)[0], document(3)[0]}


@pytest.mark.parametrize(
    "body",
    [b"{", b'{"no digest":1}', b'{"a":"%b"}' % (b"x" * MAX_REPORT)],
    ids=["no JSON", "no digests", "too large"],
)
def test_a_list_whose_documents_cannot_be_taken_takes_no_other_with_it(body: bytes) -> None:
    broken: Said = (list_of(2)[0], body)
    got, lost = deliver(
        list_of(0), list_of(1, sent=(1,)), broken, enough=lambda said: names(said) == ("t2",)
    )
    assert got == [list_of(0), list_of(1, sent=(1,)), broken]
    assert lost <= 1  # whether the second one still waits when the last comes is a matter of time


def test_a_broken_list_that_waits_first_is_refused_and_holds_no_other_back() -> None:
    broken: Said = (list_of(1)[0], b"{")
    got, lost = deliver(
        list_of(0), broken, list_of(2, sent=(2,)), enough=lambda said: names(said) == ("t2",)
    )
    assert got == [list_of(0), broken, list_of(2, sent=(2,))] and lost == 1


@pytest.mark.parametrize("key", [b"%d", b"%064d"], ids=["no digests", "digests"])
def test_more_documents_than_tools_are_not_read(key: bytes) -> None:
    body = b"{%b}" % b",".join(b'"%b":{}' % (key % n) for n in range(400_000))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError):
            split_documents(body, 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_as_many_documents_as_tools_are_taken_and_no_more() -> None:
    body = list_of(sent=(1, 2, 3))[1]
    assert len(split_documents(body, 3)) == 3
    with pytest.raises(MalformedError, match="one for each tool"):
        split_documents(body, 2)


def test_lists_that_wait_are_read_only_when_they_are_delivered_and_large_ones_wait_longer() -> None:
    """What it costs to read them is paced, too, whatever they hold; and they are bounded."""

    async def scenario() -> None:
        read: list[int] = []
        got: list[m.ControlUp] = []
        done = asyncio.Event()

        def take(name: str, generation: int, message: m.ControlUp, body: bytes | None) -> None:
            got.append(message)
            if len(got) == 2:
                done.set()

        def merge(
            lists: Sequence[tuple[m.Capabilities, bytes | None]],
        ) -> tuple[int | None, bytes | None, int | None]:
            read.append(len(lists))
            return merge_lists(lists)

        pacing = Pacing(take, lambda name: None, merge, Rate(20, 100))
        large = b"{" + b" " * (20 << 20) + b"}"
        for n in range(40):
            pacing.take("mcp:x", 1, list_of(n)[0], large)
        assert len(got) == 1 and not read  # a small one would leave room for three more
        async with asyncio.timeout(10):
            await done.wait()
        pacing.close()
        assert got == [list_of(0)[0], list_of(39)[0]]
        assert len(read) == 1 and read[0] <= MAX_LISTS + 1

    asyncio.run(scenario())


def test_documents_that_two_lists_have_no_room_for_cost_no_list() -> None:
    """The newer list's own come first; the rest of them are as if they had not been sent."""
    half = "x" * (MAX_REPORT // 2)
    large = [msgspec.json.encode({letter: half}) for letter in "ab"]
    digests = [hashlib.sha256(one).hexdigest() for one in large]
    message = m.Capabilities(rows=tuple(CapabilityReport(name=d, digest=d) for d in digests))
    bodies = [
        msgspec.json.encode({digest: msgspec.Raw(one)})
        for digest, one in zip(digests, large, strict=True)
    ]
    good, merged, bad = merge_lists([(message, body) for body in bodies])
    assert good == 1 and bad is None and merged is not None and len(merged) <= MAX_REPORT
    assert msgspec.json.decode(merged).keys() == {digests[1]}


def test_rows_without_end_leave_room_for_the_list_and_the_state() -> None:
    rows: list[Said] = [
        (m.Notice(code="c", subject=str(n), message="x"), None) for n in range(2 * WAITING)
    ]
    state: Said = (m.StateReport(state="DEGRADED"), None)
    got, _ = deliver(*rows, list_of(7), state, enough=lambda said: said == state)
    assert ("t7",) in [names(one) for one in got]
