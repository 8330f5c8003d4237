"""What the mcp kind does about its circuit, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from interlock.bus import messages as m
from interlock.bus.settings import McpServerSettings
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.tools import read_tools
from interlock.workers.mcp.transport import Answer
from interlock.workers.mcp.worker import LOG_TEXT, McpKind
from interlock.workers.secrets import Masks


class NotedMasks(Masks):
    """Notes the lengths of the texts that were looked through as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[int] = []

    def mask(self, text: str) -> str:
        self.looked.append(len(text))
        return super().mask(text)


class FakeHost:
    """Collects what the kind starts and sends."""

    def __init__(self) -> None:
        self.masks = NotedMasks()
        self.log = SimpleNamespace(line=lambda level, text: None)
        self.full = False
        self.bodies: list[bytes | None] = []
        self._news = asyncio.Event()
        self.works: list[Coroutine[Any, Any, None]] = []
        self.sent: list[m.ControlUp] = []

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.works.append(work)

    def send(self, message: m.ControlUp, body: bytes | None = None) -> bool:
        if self.full:
            return False
        self.sent.append(message)
        self.bodies.append(body)
        self._news.set()
        return True

    async def expect(self, count: int) -> None:
        """Wait until so many messages were sent."""
        async with asyncio.timeout(10):
            while len(self.sent) < count:
                self._news.clear()
                await self._news.wait()


class FakeSession:
    """Answers every ping."""

    async def ask(self, method: str, params: bytes) -> Answer:
        return Answer(result=b"{}")


def kind_with(circuit: Circuit) -> tuple[McpKind, FakeHost]:
    kind: Any = McpKind()
    kind._host = host = FakeHost()
    kind._session, kind._calls = FakeSession(), SimpleNamespace(circuit=circuit)
    kind._configure = SimpleNamespace(settings=McpServerSettings())
    return kind, host


def test_one_probe_watches_a_circuit_however_often_it_opens() -> None:
    async def scenario() -> None:
        circuit = Circuit(open_for=0.0)
        kind, host = kind_with(circuit)
        for _ in range(3):
            circuit.failed(0.0, "timeout")
        for _ in range(5):
            kind._circuit_changed()
            assert circuit.admit(1.0)
            circuit.failed(1.0, "timeout")
        [probe] = host.works
        await probe
        kind._circuit_changed()
        assert len(host.works) == 2
        await host.works[1]

    asyncio.run(scenario())


def test_a_probing_call_that_was_cancelled_leaves_the_server_usable() -> None:
    async def scenario() -> None:
        circuit = Circuit(open_for=0.0)
        kind, host = kind_with(circuit)
        for _ in range(3):
            circuit.failed(0.0, "timeout")
        kind._circuit_changed()
        assert circuit.admit(1.0)
        circuit.abandoned()
        assert circuit.state is CircuitState.HALF_OPEN
        await host.works[0]
        assert [s.state for s in host.sent if isinstance(s, m.StateReport)] == ["DEGRADED", "READY"]

    asyncio.run(scenario())


def test_documents_that_left_and_come_back_are_sent_again() -> None:
    async def scenario() -> None:
        kind, host = kind_with(Circuit(open_for=0.0))
        both = read_tools([b'{"name":"a"}', b'{"name":"b"}'])
        one = read_tools([b'{"name":"a"}'])
        host.full = True
        kind._tools = both
        kind._publish()
        host.full = False
        await host.expect(1)
        for tools in (one, both):
            kind._tools = tools
            kind._publish()
        assert [sorted(json.loads(body)) for body in host.bodies] == [
            sorted(both.documents),
            [],
            [digest for digest in both.documents if digest not in one.documents],
        ]

    asyncio.run(scenario())


def test_a_state_that_could_not_be_told_is_told_later() -> None:
    async def scenario() -> None:
        circuit = Circuit(open_for=0.0)
        kind, host = kind_with(circuit)
        for _ in range(3):
            circuit.failed(0.0, "timeout")
        host.full = True
        kind._circuit_changed()
        kind._circuit_changed()
        host.full = False
        await host.expect(1)
        await host.works[0]
        assert [s.state for s in host.sent if isinstance(s, m.StateReport)] == ["DEGRADED", "READY"]

    asyncio.run(scenario())


def test_a_huge_log_line_is_cut_before_it_is_looked_through() -> None:
    async def scenario() -> None:
        kind, host = kind_with(Circuit(open_for=0.0))
        told: list[str] = []
        kind._calls.log = lambda level, text: told.append(text)
        host.masks.add("planted-secret")
        kind._logged(json.dumps({"data": "planted-secret " + "x" * 1_000_000}).encode())
        assert (
            host.masks.looked == []
            and told[0].startswith("[secret] xxx")
            and len(told[0]) == LOG_TEXT
        )

    asyncio.run(scenario())
