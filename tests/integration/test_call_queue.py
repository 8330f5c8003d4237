"""Calls that wait for a place at a server: their deadlines, and whom their ends are blamed on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_rig import Rig, run
from supervised import PATIENCE

from interlock.bus.channel import DataEdge, IncomingCall
from interlock.workers import cuts
from interlock.workers import disk as disks
from interlock.workers.kept import reason_of
from interlock.workers.mcp.calls import Calls, CallSettings
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.transport import Answer
from interlock.workers.secrets import Masks


class SteadyServer:
    """Answers every request after the same time; implements `Connection`."""

    closed = False

    def __init__(self, seconds: float, crowd: int = 0, result: bytes = b'{"content":[]}') -> None:
        self.seconds, self.crowd, self.result = seconds, crowd, result
        self.asked: list[str] = []
        self.crowded = asyncio.Event()
        self._ids = itertools.count()

    def next_id(self) -> str:
        return f"i{next(self._ids)}"

    def ask(self, request_id: str, line: bytes, on_answer: Callable[[Answer], None]) -> None:
        self.asked.append(request_id)
        if len(self.asked) == self.crowd:
            self.crowded.set()
        answer = Answer(result=self.result)
        asyncio.get_running_loop().call_later(self.seconds, on_answer, answer)

    def notify(self, method: str, params: bytes) -> None:
        """Nobody listens."""

    def forget(self, request_id: str) -> None:
        """Late answers are harmless."""


class NoBooks:
    """Keeps no books; implements `Reports`."""

    def started(self, request_id: str, call: IncomingCall) -> None: ...

    def ended(self, *about: Any) -> None: ...


def calls_of(server: SteadyServer, concurrency: int, circuit: Circuit) -> Calls:
    calls = Calls(
        "steady",
        server,
        CallSettings(concurrency, 64, 60, 600, 1 << 20, Path("/nowhere")),
        circuit,
        Masks(),
        reports=NoBooks(),
        on_circuit=lambda: None,
        on_kept=lambda problem, folder, size: None,
    )
    calls.names = frozenset({"slow"})
    return calls


class HungDisk:
    """Keeps whoever writes to it until `free` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.entered = 0

    def keep(self, whole: bytes, suffix: str, **where: object) -> tuple[None, OSError]:
        self.entered += 1
        self.free.wait(PATIENCE)
        return None, OSError(0, "too late")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> HungDisk:
    """A disk that answers nobody who keeps a result until it is set free."""
    made = HungDisk()
    monkeypatch.setattr(cuts, "keep", made.keep)
    return made


def test_a_disk_that_hangs_costs_the_file_and_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: HungDisk
) -> None:
    """A disk that hangs: the results are cut all the same, and no place at the server is held."""
    monkeypatch.setattr(disks, "PATIENCE", 0.05)
    text = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * (2 << 20))

    async def test(rig: Rig) -> None:
        calls = calls_of(SteadyServer(0.0, result=text), 1, Circuit(10))
        rig.handle = calls.submit  # type: ignore[method-assign]
        rig.server.close()
        rig.server = rig.serve()
        edge = rig.edge()
        try:
            for _ in range(2):
                answer = await asyncio.wait_for(edge.call("slow", b"{}", 30.0), PATIENCE / 2)
                body = answer.body or b""
                assert answer.outcome == "ok" and len(body) <= 1 << 20
                assert b"could not be kept (the disk did not answer in time)" in body
        finally:
            disk.free.set()

    run(tmp_path, test)


def test_a_disk_that_hangs_keeps_few_threads_and_no_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: HungDisk
) -> None:
    """A disk that hangs: all other work in threads goes on, and nobody waits for it in vain."""
    monkeypatch.setattr(disks, "PATIENCE", 0.3)
    body = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * (1 << 16))

    async def test() -> None:
        cutter = cuts.Cutter()

        async def cut() -> str:
            problem = (await cutter.cut(body, 8192, tmp_path, "t")).problem
            return reason_of(problem) if problem else ""

        try:
            async with asyncio.timeout(PATIENCE / 2):
                told = await asyncio.gather(*(cut() for _ in range(64)))
                assert set(told) == {"the disk did not answer in time"}
                assert await asyncio.to_thread(lambda: "still there") == "still there"
                assert disk.entered == disks.MOST
                monkeypatch.setattr(disks, "PATIENCE", 1000.0)  # the next do not wait at all
                assert await cut() == "the disk did not answer in time"
        finally:
            disk.free.set()
        async with asyncio.timeout(PATIENCE):
            while await cut() != "too late":  # what the disk says once it answers again
                pass
        assert {await cut() for _ in range(2 * disks.MOST)} == {"too late"}

    asyncio.run(test())


def test_a_queue_behind_a_healthy_server_opens_no_circuit(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        server, circuit = SteadyServer(0.75), Circuit(10)
        calls = calls_of(server, 1, circuit)
        rig.handle = calls.submit  # type: ignore[method-assign]
        rig.server.close()
        rig.server = rig.serve()
        edge = rig.edge()
        answers = await asyncio.gather(*(edge.call("slow", b"{}", 1.0) for _ in range(6)))
        assert [answer.outcome for answer in answers] == ["ok", *["timeout"] * 5]
        # The second was sent when the first was answered. Nothing is sent that nobody waits for.
        assert (await edge.call("slow", b"{}", 5.0)).outcome == "ok"
        assert len(server.asked) == 3
        assert circuit.state is CircuitState.CLOSED

    run(tmp_path, test)


def test_a_log_message_reaches_each_caller_once(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        server = SteadyServer(0.2, crowd=10)
        calls = calls_of(server, 32, Circuit(10))
        rig.handle = calls.submit  # type: ignore[method-assign]
        rig.server.close()
        rig.server = rig.serve()
        logs: list[Any] = []
        edges = [DataEdge(rig.target(), logs.append) for _ in range(2)]
        rig.edges += edges
        started = [edge.call("slow", b"{}", 5) for _ in range(5) for edge in edges]
        answered = asyncio.gather(*started)
        async with asyncio.timeout(10):
            await server.crowded.wait()
        calls.log("info", "one message")
        await answered
        assert [log.message for log in logs] == ["one message"] * 2

    run(tmp_path, test)


def test_a_call_after_the_end_is_told_something_else_than_one_during_it(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        server = SteadyServer(60, crowd=1)
        calls = calls_of(server, 1, Circuit(10))
        rig.handle = calls.submit  # type: ignore[method-assign]
        rig.server.close()
        rig.server = rig.serve()
        edge = rig.edge()
        during = asyncio.ensure_future(edge.call("slow", b"{}", 10))
        async with asyncio.timeout(10):
            await server.crowded.wait()
        calls.end_all("worker_died", "It ended during the call.", "It has ended.")
        ended, later = await during, await edge.call("slow", b"{}", 10)
        assert (ended.outcome, ended.message) == ("worker_died", "It ended during the call.")
        assert (later.outcome, later.message) == ("unavailable", "It has ended.")

    run(tmp_path, test)
