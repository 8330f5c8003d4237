"""What comes in bursts is handled as a burst: one write, one batch of reports, no garbage."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from data_rig import Rig, run

from interlock.bus.channel import IncomingCall
from interlock.bus.messages import CallReports, ControlUp
from interlock.workers.kind import Gauges
from interlock.workers.mcp.transport import GATHERED, StdioTransport
from interlock.workers.reports import BATCH_SIZE, CallReporter


def with_transport(test: Callable[[StdioTransport, int], None]) -> None:
    """Run `test` with a transport and the end of a pipe from which its server would read."""

    async def scenario() -> None:
        server_in, to_server = os.pipe()
        from_server, server_out = os.pipe()
        os.set_blocking(server_in, False)
        transport = StdioTransport(
            to_server,
            from_server,
            on_message=lambda frame: None,
            on_foreign=lambda line: True,
            on_closed=lambda reason: None,
        )
        try:
            test(transport, server_in)
        finally:
            transport.close()
            os.close(server_in)
            os.close(server_out)

    asyncio.run(scenario())


def arrived(server_in: int) -> bytes:
    try:
        return os.read(server_in, 1 << 20)
    except BlockingIOError:
        return b""


def test_gathered_lines_leave_together_and_in_order() -> None:
    def test(transport: StdioTransport, server_in: int) -> None:
        transport.send_line(b"first\n")
        assert arrived(server_in) == b"first\n"
        transport.gather(True)
        for n in range(5):
            transport.send_line(b"%d\n" % n)
        assert arrived(server_in) == b""
        transport.gather(False)
        assert arrived(server_in) == b"0\n1\n2\n3\n4\n"
        transport.send_line(b"last\n")
        assert arrived(server_in) == b"last\n"

    with_transport(test)


def test_what_is_gathered_has_a_bound_and_is_not_lost_at_the_end() -> None:
    def test(transport: StdioTransport, server_in: int) -> None:
        line = b"x" * (GATHERED // 4) + b"\n"
        transport.gather(True)
        for _ in range(4):
            transport.send_line(line)
        assert len(arrived(server_in)) >= GATHERED
        transport.send_line(b"end\n")
        transport.close_input()
        assert arrived(server_in).endswith(b"end\n")

    with_transport(test)


def test_lines_wait_in_order_for_a_server_that_does_not_read() -> None:
    def test(transport: StdioTransport, server_in: int) -> None:
        lines = [b"%05d" % n + b"x" * 50_000 + b"\n" for n in range(20)]
        for n, line in enumerate(lines):
            transport.gather(n % 3 == 0)
            transport.send_line(line)
        transport.gather(False)
        got = b""
        while len(got) < sum(map(len, lines)):
            got += arrived(server_in)
            if transport._outgoing:
                transport._writable()
        assert got == b"".join(lines)

    with_transport(test)


def test_calls_under_way_are_reported_once_when_they_end_in_time() -> None:
    async def scenario() -> list[CallReports]:
        sent: list[ControlUp] = []

        def send(message: ControlUp) -> bool:
            sent.append(message)
            return True

        reporter = CallReporter(send, Gauges, lambda: None)
        call = cast("IncomingCall", SimpleNamespace(name="a", caller="b", turn="", arguments=b""))
        width = 32
        for n in range(BATCH_SIZE):
            reporter.started(f"i{n}", call)
            if n >= width:
                reporter.ended(f"i{n - width}", call, "ok", 0.001)
        reporter.flush()
        return [message for message in sent if isinstance(message, CallReports)]

    batches = asyncio.run(scenario())
    reports = [report for batch in batches for report in batch.reports]
    assert len(batches) == 2
    assert sum(report.whole for report in reports) >= BATCH_SIZE - 2 * 32


def test_an_answered_call_is_freed_without_the_collector(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        def handle(call: IncomingCall) -> None:
            call.on_cancel = partial(lambda one: None, call)
            call.result(b"{}")

        cast("Any", rig.server)._handler = handle
        edge = rig.edge()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                assert (await edge.call("echo", b"{}", 5)).outcome == "ok"
            assert not [one for one in gc.get_objects() if isinstance(one, IncomingCall)]
        finally:
            gc.enable()

    run(tmp_path, test)


def test_a_call_that_is_cancelled_in_its_own_burst_does_not_go_on(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"
        futures = [edge.call("park", b"{}", 5) for _ in range(10)]
        assert edge._socket.held
        futures[-1].cancel()
        calls = [await rig.next_parked() for _ in futures]
        async with asyncio.timeout(10):
            await rig.cancelled.wait()
        assert [call.cancelled for call in calls] == [False] * 9 + [True]

    run(tmp_path, test)


def test_a_call_that_was_only_held_when_its_worker_died_cannot_have_run(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        edge = rig.edge()
        assert (await edge.call("echo", b"{}", 5)).outcome == "ok"
        futures = [edge.call("park", b"{}", 5) for _ in range(10)]
        held = len(edge._socket.held)
        edge.gone("it died")
        answers = [future.result() for future in futures]
        assert {answer.outcome for answer in answers} == {"worker_died"}
        assert held >= 8
        ran = [answer.may_have_run for answer in answers]
        assert ran == [True] * (10 - held) + [False] * held

    run(tmp_path, test)
