"""Calls of the asynchronous client: resolve, call, and once more where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from interlock.bus.aline import AsyncLine
from interlock.bus.calling import (
    NEEDED,
    RESOLVE,
    RESTARTED,
    Way,
    older,
    refusal,
    result_of,
    way_of,
)
from interlock.bus.codec import decode_as
from interlock.bus.dataedge import CallAnswer, DataEdge
from interlock.bus.edge import OnProgress, remember
from interlock.bus.errors import InterlockError, UnreachableError
from interlock.bus.line import CHECK
from interlock.bus.messages import Gone, Reply, Resolve
from interlock.bus.results import CallResult
from interlock.bus.routes import Route, Routes, worth_another

OnAsyncApproval = Callable[[str], bool | Awaitable[bool | None] | None]
"""As `OnApproval`; what it returns may also be awaited for the answer."""


class AsyncCaller:
    """Routes and connections of one client; each ends with the generation that it leads to."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line
        self._routes = Routes()
        self._edges: dict[tuple[str, int], tuple[DataEdge, dict[str, str]]] = {}
        """By worker and generation: the connection, and the ids of the tickets opened on it."""
        self._look: asyncio.TimerHandle | None = None
        self._lost: InterlockError | None = None
        line.on_gone = self._on_gone

    async def resolve(
        self, capability: str, body: bytes, limit: float, way: Way = "park", patience: float = 0.0
    ) -> tuple[Reply, bytes | None]:
        """Ask the supervisor where a capability is called; `body` holds the arguments."""
        fields = {"capability": capability, "approval": way, "patience": patience}
        return await self._line.exchange(Resolve, body, limit, fields)

    async def call(
        self,
        capability: str,
        body: bytes,
        first: float | None,
        latest: float | None,
        on_progress: OnProgress | None,
        on_approval: OnAsyncApproval | None = None,
    ) -> CallResult:
        """Call a capability and return how it ended; see `Client.call`. Times in seconds."""
        clock = asyncio.get_running_loop().time
        started = clock()
        kept = self._routes.find(capability, started)
        options = (first, latest, on_progress, on_approval)
        if kept is not None:
            answer = await self._send(kept, body, first, latest, on_progress)
            result = self._ended(kept, answer)
        else:
            result = await self._attempt(capability, body, *options)
        if worth_another(result.outcome, result.may_have_run, fresh=kept is None):
            self._routes.drop(capability)
            result = await self._attempt(capability, body, *options)
        if result.duration_ms:
            return result
        return msgspec.structs.replace(result, duration_ms=(clock() - started) * 1000)

    def forget(self) -> None:
        """Drop what belongs to a supervisor that is gone; calls in flight end as cancelled."""
        self._routes = Routes()
        self._lost = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for edge, _ in self._edges.values():
            edge.close()
        self._edges.clear()

    async def _attempt(
        self,
        capability: str,
        body: bytes,
        first: float | None,
        latest: float | None,
        on_progress: OnProgress | None,
        on_approval: OnAsyncApproval | None = None,
    ) -> CallResult:
        """Resolve, and call once."""
        reply, document = await self.resolve(capability, body, RESOLVE, "tell")
        if reply.code == NEEDED:
            answer = None if on_approval is None else on_approval(reply.message)
            if isinstance(answer, Awaitable):
                answer = await answer
            way, patience = way_of(answer, first)
            limit = patience + RESOLVE
            reply, document = await self.resolve(capability, body, limit, way, patience)
        if reply.code != "ok":
            return refusal(capability, reply)
        route = self._settle(capability, decode_as(document or b"", Route))
        return self._ended(route, await self._send(route, body, first, latest, on_progress))

    def _send(
        self,
        route: Route,
        body: bytes,
        first: float | None,
        latest: float | None,
        on_progress: OnProgress | None,
    ) -> asyncio.Future[CallAnswer]:
        """Begin a call. Whoever awaits it holds no coroutine in between: this is a hot path."""
        first = route.timeout if first is None else first
        latest = max(first, route.timeout_max) if latest is None else latest
        try:
            edge, ticket = self._edge(route)
        except UnreachableError as error:
            refused: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
            refused.set_result(CallAnswer(outcome=error.code, message=error.message))
            return refused
        future = edge.call(route.local, body, first, latest, on_progress, ticket)
        if self._look is None:
            self._look_later()
        return future

    def _ended(self, route: Route, answer: CallAnswer) -> CallResult:
        if self._lost is not None:
            raise self._lost
        return result_of(route.capability, answer)

    def _settle(self, capability: str, found: Route) -> Route:
        """Return the route to use: of many calls that asked at once, all use the first answer.

        Otherwise each would open a ticket of its own, and a target keeps only so many.
        """
        now = asyncio.get_running_loop().time()
        kept = None if found.single_use else self._routes.find(capability, now)
        if kept is not None and kept.target.generation == found.target.generation:
            return kept
        self._routes.keep(capability, found, now)
        return found

    def _edge(self, route: Route) -> tuple[DataEdge, str]:
        """Return the connection to a route's target and the id of its ticket, opened there."""
        key = (route.target.worker, route.target.generation)
        token = route.target.ticket
        if key not in self._edges:
            self._line.check_open()  # closed while this call waited for its route
            for worker, generation in older(route.target, self._edges):
                self._end_generation(worker, generation, RESTARTED)
            self._edges[key] = (DataEdge(route.target), {})
        edge, opened = self._edges[key]
        if token not in opened or edge.is_refused(opened[token]):
            remember(opened, token, edge.open(token))
        return edge, opened[token]

    def _look_later(self) -> None:
        """See to it that a call does not wait for workers whose supervisor is gone."""
        if self._look is None and any(edge.in_flight for edge, _ in self._edges.values()):
            self._look = asyncio.get_running_loop().call_later(CHECK, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        try:
            self._line.check()
        except InterlockError as error:
            self._lost = error
            for edge, _ in self._edges.values():
                edge.gone(error.message)
            self._edges.clear()
        self._look_later()

    def _on_gone(self, message: Gone) -> None:
        self._end_generation(message.worker, message.generation, message.reason)

    def _end_generation(self, worker: str, generation: int, reason: str) -> None:
        self._routes.gone(worker, generation)
        edge, _ = self._edges.pop((worker, generation), (None, None))
        if edge is not None:
            edge.gone(reason)
