"""What the mcp kind does about its circuit, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from interlock.bus import messages as m
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.transport import Answer
from interlock.workers.mcp.worker import McpKind
from interlock.workers.secrets import Masks


class FakeHost:
    """Collects what the kind starts and sends."""

    def __init__(self) -> None:
        self.masks = Masks()
        self.works: list[Coroutine[Any, Any, None]] = []
        self.sent: list[m.ControlUp] = []

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.works.append(work)

    def send(self, message: m.ControlUp, body: bytes | None = None) -> bool:
        self.sent.append(message)
        return True


class FakeSession:
    """Answers every ping."""

    async def ask(self, method: str, params: bytes) -> Answer:
        return Answer(result=b"{}")


def kind_with(circuit: Circuit) -> tuple[McpKind, FakeHost]:
    kind: Any = McpKind()
    kind._host = host = FakeHost()
    kind._session, kind._calls = FakeSession(), SimpleNamespace(circuit=circuit)
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
