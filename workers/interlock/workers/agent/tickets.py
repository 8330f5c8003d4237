"""Ticket requests of an agent: numbered, answered by the supervisor, never waited for for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from interlock.bus.messages import TicketGrant, TicketParked, TicketRequest

PARKED_MARGIN: Final = 10.0
"""Seconds past the end of an approval before its answer counts as lost."""
_RETRY: Final = 0.1
"""Seconds until a request is offered again to a control channel that takes none."""

Send = Callable[[TicketRequest, bytes | None], bool]
OnParked = Callable[[str], None]
"""Called with the approval's id when a request begins to wait for a person."""


@dataclass(slots=True, eq=False)
class _Waiting:
    future: asyncio.Future[TicketGrant]
    clock: asyncio.Timeout
    on_parked: OnParked | None


class TicketDesk:
    """Owns the requests that wait for their `ticket.grant`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0

    async def ask(
        self,
        turn: str,
        *,
        capability: str = "",
        worker: str = "",
        arguments: bytes | None = None,
        patience: float,
        on_parked: OnParked | None = None,
    ) -> TicketGrant | None:
        """Return the supervisor's answer, or None if none came within `patience` seconds.

        `capability` asks for the right to one call with `arguments`, `worker` renews the turn's
        ticket for that worker. A request that waits for a person has that person's time on top.
        """
        self._last += 1
        request = TicketRequest(id=self._last, turn=turn, capability=capability, worker=worker)
        future: asyncio.Future[TicketGrant] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience) as clock:
                self._waiting[request.id] = _Waiting(future, clock, on_parked)
                self._offer(request, arguments)
                return await future
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(request.id, None)

    def _offer(self, request: TicketRequest, arguments: bytes | None) -> None:
        if request.id in self._waiting and not self._send(request, arguments):
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY, self._offer, request, arguments)

    def on_grant(self, grant: TicketGrant) -> None:
        """Hand an answer to whoever waits for it; late answers are dropped."""
        waiting = self._waiting.get(grant.id)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(grant)

    def on_parked(self, parked: TicketParked) -> None:
        """A request waits for a person from now on."""
        waiting = self._waiting.get(parked.id)
        if waiting is None or waiting.future.done() or waiting.clock.expired():
            return
        now = asyncio.get_running_loop().time()
        waiting.clock.reschedule(now + parked.seconds + PARKED_MARGIN)
        if waiting.on_parked is not None:
            waiting.on_parked(parked.approval)
