"""Lines of a server that would take long: no shape of one keeps the worker from its pings."""

from __future__ import annotations

import asyncio
import json
import os
import time
import tracemalloc

import pytest

from interlock.workers.mcp.frames import MAX_MENDS, Frame, mend_halves
from interlock.workers.mcp.mending import MAX_BATCH, batch_of, mended_frame
from interlock.workers.mcp.transport import LINES_PER_TURN, Answer, StdioTransport

SIZE = 4 << 20
SECONDS = 4.0
"""Of the processor, for what takes tenths of one; what is not linear takes minutes."""


def told(line: bytes) -> tuple[list[int], list[Answer]]:
    """How many messages each turn of the loop delivers of that line, and how a request ends."""

    async def scenario() -> tuple[list[int], list[Answer]]:
        loop = asyncio.get_running_loop()
        (output, server_out), (server_in, input_) = os.pipe(), os.pipe()
        turns, answers, over = [0], list[Answer](), asyncio.Event()

        def delivered(frame: Frame) -> None:
            turns[-1] += 1
            if frame.method == "last":
                over.set()

        def turn() -> None:
            turns.append(0)
            if not over.is_set():
                loop.call_soon(turn)

        transport = StdioTransport(
            input_,
            output,
            on_message=delivered,
            on_foreign=lambda line: False,
            on_closed=lambda reason: None,
        )
        transport.request("i1", "tools/call", b"{}", answers.append)
        turn()
        sent = loop.run_in_executor(None, _write, server_out, line + b'\n{"method":"last"}\n')
        try:
            async with asyncio.timeout(30):
                await sent
                await over.wait()
        finally:
            transport.close()
            os.close(server_out)
            os.close(server_in)
        return [count for count in turns if count], answers

    return asyncio.run(scenario())


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def test_an_array_of_messages_is_dealt_with_in_many_turns() -> None:
    notes = [b'{"method":"note","params":{"n":%d}}' % n for n in range(MAX_BATCH - 1)]
    turns, answers = told(b"[" + b",".join([*notes, b'{"id":"i1","result":{}}']) + b"]")
    assert sum(turns) == len(notes) + 1
    assert max(turns) <= LINES_PER_TURN
    assert [answer.fault for answer in answers] == [""]


@pytest.mark.parametrize("part", [b"{}", b"0", b'{"method":"x"}', b"[]"])
def test_of_an_array_of_millions_few_are_read(part: bytes) -> None:
    line = b"[" + b",".join([part] * (SIZE // (len(part) + 1))) + b"]"
    tracemalloc.start()
    try:
        found = batch_of(line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.more and len(found.frames) <= MAX_BATCH and peak < 1 << 20
    turns, _ = told(line)
    assert sum(turns) <= MAX_BATCH + 1


@pytest.mark.parametrize(
    "text",
    [
        b'"' + b'\\"' * (SIZE // 2),
        b'"' * (SIZE + 1),
        b'"' + b"\x01" * SIZE + b'"',
        b'"\x01",' * (SIZE // 4),
        b'"a",' * (SIZE // 4) + b"NaN",
        b"NaN," * (SIZE // 4),
        b"-" * SIZE + b"NaN",
        b'"' + b"\\ud800" * (SIZE // 6) + b'"',
        b"\\" * SIZE + b"\\ud800",
    ],
    ids=lambda text: repr(text[:8]),
)
def test_mending_takes_time_linear_in_the_line(text: bytes) -> None:
    line = b'{"id":"i1","result":' + text
    before = time.process_time()
    mended_frame(line)
    mend_halves(line)
    assert time.process_time() - before < SECONDS


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb'[NaN,-Infinity,Infinity,"NaN","\"-Infinity"]', [None] * 3 + ["NaN", '"-Infinity']),
        (b'["a\tb\x01",\t"plain"]', ["a\tb\x01", "plain"]),
        (b'["\x1fNaN",NaN,"\\ud83d","\\\\ud83d"]', ["\x1fNaN", None, "\ufffd", "\\ud83d"]),
    ],
)
def test_what_is_mended_says_what_was_written(written: bytes, read: list[str | None]) -> None:
    mended, frame = mended_frame(b'\xef\xbb\xbf{"id":"i1","result":%b}' % written)
    assert frame is not None
    assert json.loads(mended)["result"] == read


def test_a_line_with_too_much_to_mend_stays_unreadable() -> None:
    enough = b'{"id":"i1","result":[%b]}' % b",".join([b"NaN"] * MAX_MENDS)
    assert mended_frame(enough)[1] is not None
    more = b'{"id":"i1","result":[%b]}' % b",".join([b"NaN"] * (MAX_MENDS + 1))
    assert mended_frame(more)[1] is None
