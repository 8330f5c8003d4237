"""Single calls of turns that a rule or a person decides: asked for, waited for, answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from interlock.bus.messages import TicketGrant, TicketParked
from interlock.supervisor.catalog.offer import offer_row
from interlock.supervisor.catalog.rows import CatalogRow
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.policy.permits import Permit, Permits, Refused, Wish


class Opened(Protocol):
    """A turn that an agent has."""

    @property
    def turn(self) -> str:
        """Its id."""

    @property
    def client(self) -> str:
        """Who sent it, as tickets name clients."""

    @property
    def agent(self) -> str:
        """The agent's name."""

    @property
    def worker(self) -> str:
        """The agent's worker."""

    @property
    def generation(self) -> int:
        """Of that worker."""

    @property
    def unattended(self) -> bool:
        """Nobody is there to approve."""


Refusals = Callable[[str, str, str, str], None]
"""Called with the caller, the capability, the code and the turn of a call that is refused."""


class TurnPermits:
    """Answers `ticket.request` for one call; `pause(turn, on)` stops a turn's clock meanwhile."""

    def __init__(
        self,
        workers: Workers,
        permits: Permits,
        pause: Callable[[str, bool], None],
        refused: Refusals,
    ) -> None:
        self._workers = workers
        self._permits = permits
        self._pause = pause
        self._refused = refused

    def ask(
        self,
        opened: Opened,
        request: int,
        row: CatalogRow,
        arguments: bytes,
        is_open: Callable[[str, int], bool],
    ) -> None:
        """Decide now, or as soon as a person has; then send the agent its `ticket.grant`."""
        turn, worker, generation = opened.turn, opened.worker, opened.generation
        paused = False

        def parked(approval: str, seconds: float) -> None:
            nonlocal paused
            message = TicketParked(id=request, approval=approval, seconds=seconds)
            if not self._workers.send(worker, generation, message):
                self._permits.withdraw(approval)  # the agent would not wait for the answer
                return
            paused = True
            self._pause(turn, True)

        def ended(outcome: Permit | Refused) -> None:
            if paused:
                self._pause(turn, False)
            if isinstance(outcome, Refused):
                self._refused(worker, row.name, outcome.code, turn)
            self._workers.send(worker, generation, self._grant(request, row, outcome))

        wish = Wish(
            caller=worker,
            client=opened.client,
            arguments=arguments,
            turn=turn,
            agent=opened.agent,
            nobody="the turn was sent unattended" if opened.unattended else "",
            wanted=lambda: is_open(turn, generation),
        )
        self._permits.ask(row, wish, parked, ended)

    def withdraw(self, turn: str) -> None:
        """The turn ends: nothing of it waits any longer."""
        self._permits.withdraw_turn(turn)

    def _grant(self, request: int, row: CatalogRow, outcome: Permit | Refused) -> TicketGrant:
        policy = self._workers.policy()
        if isinstance(outcome, Refused):
            shown = offer_row(row, policy)
            return TicketGrant(id=request, row=shown, code=outcome.code, message=outcome.message)
        return TicketGrant(id=request, row=offer_row(outcome.row, policy), target=outcome.target)
