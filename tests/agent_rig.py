"""The agent worker on real sockets, with a serving worker and a supervisor held by the test."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from interlock.bus import messages as m
from interlock.bus.channel import DataServer, IncomingCall
from interlock.bus.names import CapabilityName, wire_name
from interlock.bus.records import Boot, OfferRow, Target
from interlock.bus.settings import AgentConfigure, AgentSettings
from interlock.bus.tickets import TicketClaims, mint
from interlock.workers.agent.worker import AgentKind
from interlock.workers.logs import WorkerLog
from interlock.workers.secrets import Masks

KEY = b"k" * 32
TURN = "a" * 32


def ok(text: str) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


class Server:
    """A serving worker of one generation; each tool is a function of its IncomingCall."""

    def __init__(self, path: Path, name: str, generation: int, tools: dict[str, Any]) -> None:
        self.name = name
        self.generation = generation
        self.tools = tools
        self.endpoint = f"ipc://{path}/{name.replace(':', '_')}.{generation}"
        self.calls: list[IncomingCall] = []
        self.arrived = asyncio.Event()
        self.data = DataServer(self.endpoint, KEY, name, generation, self.on_call)

    def on_call(self, call: IncomingCall) -> None:
        self.calls.append(call)
        self.arrived.set()
        self.tools[call.name](call)

    def target(self, turn: str = TURN, life: float = 60.0, tools: tuple[str, ...] = ()) -> Target:
        claims = TicketClaims(
            id=f"t{time.monotonic_ns()}",
            caller="agent:main",
            target=self.name,
            generation=self.generation,
            names=tools or tuple(self.tools),
            turn=turn,
            expires=time.time() + life,
        )
        return Target(
            worker=self.name,
            generation=self.generation,
            endpoint=self.endpoint,
            ticket=mint(KEY, claims),
            expires_in=life,
        )

    def rows(self, timeout: float = 30.0) -> tuple[OfferRow, ...]:
        return tuple(self.row(tool, timeout) for tool in self.tools)

    def row(self, tool: str, timeout: float = 30.0) -> OfferRow:
        name = CapabilityName.parse(f"{self.name}/{tool}")
        return OfferRow(
            name=str(name),
            wire=wire_name(name),
            worker=self.name,
            local=tool,
            timeout=timeout,
            timeout_max=timeout,
        )


class ControlPeer:
    """Plays host and supervisor: keeps what the agent sends, can refuse to take anything."""

    def __init__(self, folder: Path) -> None:
        self.boot = Boot(
            name="agent:main",
            kind="agent",
            generation=1,
            nonce="n",
            token="t",
            control="",
            home=str(folder),
            log=str(folder / "agent.log"),
        )
        self.masks = Masks()
        self.log = WorkerLog(folder / "agent.log", self.masks)
        self.kind = AgentKind()
        self.accepts = True
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[tuple[m.TicketRequest, bytes | None]] = []
        self.on_request: Callable[[m.TicketRequest], m.TicketGrant | None] = lambda request: None
        self.changed = asyncio.Condition()
        self._wakers: set[asyncio.Task[None]] = set()
        self.behind: list[asyncio.Task[None]] = []

    def send(self, message: m.ControlUp, body: bytes | None = None) -> bool:
        if not self.accepts:
            return False
        if isinstance(message, m.TurnItems):
            assert body is not None
            self.items.setdefault(message.turn, []).extend(json.loads(body))
        elif isinstance(message, m.TicketRequest):
            self.requests.append((message, body))
            if (grant := self.on_request(message)) is not None:
                asyncio.get_running_loop().call_soon(self.kind.on_control, grant, None)
        waker = asyncio.get_running_loop().create_task(self._wake())
        self._wakers.add(waker)
        waker.add_done_callback(self._wakers.discard)
        return True

    def serve(self, handler: Callable[[Any], None]) -> Any:
        raise AssertionError("an agent serves nothing")

    def notice(self, code: str, **options: Any) -> None:
        self.notices.append((code, options))

    def fail(self, *args: str, **options: Any) -> None:
        raise AssertionError(args)

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.behind.append(asyncio.get_running_loop().create_task(work, name=name))

    def report_children(self) -> None: ...

    def watch_child(self, pid: int, on_exit: Callable[[int], None]) -> None: ...

    def dispatch(
        self,
        text: str,
        *servers: Server,
        turn: str = TURN,
        deadline: float = 30.0,
        timeout: float = 30.0,
        life: float = 60.0,
    ) -> None:
        message = m.TurnDispatch(
            turn=turn,
            deadline_ms=int(deadline * 1000),
            offer=tuple(row for server in servers for row in server.rows(timeout)),
            targets=tuple(server.target(turn, life) for server in servers),
        )
        self.kind.on_control(message, json.dumps(text).encode())

    async def until(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(true)

    async def item(self, kind: str, turn: str = TURN) -> dict[str, Any]:
        await self.until(lambda: any(i["type"] == kind for i in self.items.get(turn, [])))
        return next(i for i in self.items[turn] if i["type"] == kind)

    async def ended(self, turn: str = TURN, seconds: float = 10.0) -> list[dict[str, Any]]:
        """Return the turn's items once its last one came."""
        ends = ("turn.completed", "turn.failed", "turn.cancelled")
        await self.until(
            lambda: bool(self.items.get(turn)) and self.items[turn][-1]["type"] in ends, seconds
        )
        return self.items[turn]

    async def _wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def agent(
    folder: Path, model: str = "direct", max_steps: int = 24
) -> AsyncIterator[ControlPeer]:
    peer = ControlPeer(folder)
    settings = AgentSettings(model=model, max_steps=max_steps)
    configure = AgentConfigure(
        agent="main", settings=settings, results_folder=str(folder / "results" / "agent_main")
    )
    await peer.kind.start(peer, msgspec.json.encode(configure))
    try:
        yield peer
    finally:
        await peer.kind.stop()
        for task in peer.behind:
            task.cancel()
        peer.log.close()


def results(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Outcome and text of each result, in the order of the calls."""
    found = [i for i in items if i["type"] == "tool.result"]
    found.sort(key=lambda item: int(item["id"].removeprefix("call_")))
    return [(i["outcome"], "".join(c.get("text", "") for c in i["content"])) for i in found]


def echo(call: IncomingCall) -> None:
    call.result(ok(f"{call.name} {call.arguments.decode()}"))


def hold(call: IncomingCall) -> None:
    """Never answers."""
