"""Ticket requests of an agent: numbered, answered by the supervisor, never waited for for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from interlock.bus.messages import TicketGrant, TicketRequest

_RETRY: Final = 0.1
"""Seconds until a request is offered again to a control channel that takes none."""

Send = Callable[[TicketRequest, bytes | None], bool]


class TicketDesk:
    """Owns the requests that wait for their `ticket.grant`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[TicketGrant]] = {}
        self._last = 0

    async def ask(
        self,
        turn: str,
        *,
        capability: str = "",
        worker: str = "",
        arguments: bytes | None = None,
        patience: float,
    ) -> TicketGrant | None:
        """Return the supervisor's answer, or None if none came within `patience` seconds.

        `capability` asks for the right to one call with `arguments`, `worker` renews the turn's
        ticket for that worker.
        """
        self._last += 1
        request = TicketRequest(id=self._last, turn=turn, capability=capability, worker=worker)
        future: asyncio.Future[TicketGrant] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        try:
            async with asyncio.timeout(patience):
                self._offer(request, arguments)
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[request.id]

    def _offer(self, request: TicketRequest, arguments: bytes | None) -> None:
        if request.id in self._waiting and not self._send(request, arguments):
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY, self._offer, request, arguments)

    def on_grant(self, grant: TicketGrant) -> None:
        """Hand an answer to whoever waits for it; late answers are dropped."""
        future = self._waiting.get(grant.id)
        if future is not None and not future.done():
            future.set_result(grant)
