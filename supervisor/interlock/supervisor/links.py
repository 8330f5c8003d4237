"""Passes what happens to workers on to all who must know before it is announced."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from interlock.bus.codec import decode_as
from interlock.bus.errors import InterlockError
from interlock.bus.messages import Resolve
from interlock.bus.records import CallReport, Target
from interlock.supervisor.api.server import Api
from interlock.supervisor.api.turns import TurnApi
from interlock.supervisor.config.model import AgentEntry, Settings
from interlock.supervisor.events.turns import TurnService
from interlock.supervisor.policy.tickets import TicketOffice


class _Resolved(msgspec.Struct):
    target: Target


class Links:
    """The listener of the fleet and of the configuration."""

    def __init__(
        self,
        api: Api,
        turns: TurnService,
        turn_api: TurnApi,
        tickets: TicketOffice,
        forget: Callable[[str], None],
    ) -> None:
        self._api = api
        self._turns = turns
        self._turn_api = turn_api
        self._tickets = tickets
        self._forget = forget

    def worker_changed(self, worker: str) -> None:
        """The worker has a new state or reason."""
        self._turns.worker_changed(worker)

    def worker_gone(self, worker: str, generation: int, reason: str) -> tuple[CallReport, ...]:
        """A generation has ended: whoever may be calling it learns it now.

        Returns how the calls that it had under way ended.
        """
        lost = self._turns.worker_gone(worker, generation, reason)
        self._api.tell_gone(worker, generation, reason)
        return lost

    def worker_forgotten(self, worker: str) -> None:
        """The worker is in no configuration any more and has ended."""
        self._forget(worker)
        if not worker.startswith("agent:"):
            self._turns.source_removed(worker)

    def settings_changed(self, settings: Settings) -> None:
        """These settings are in force from now on."""
        self._tickets.life = settings.supervisor.timing.ticket
        self._turns.stale_after = settings.supervisor.timing.stale
        for name, entry in settings.workers().items():
            if not isinstance(entry, AgentEntry):
                self._turns.source_configured(name, entry.settings)
        self._turns.approvals.life = settings.supervisor.timing.approval
        self._turns.policy_changed()

    async def resolve(self, identity: bytes, message: Resolve, body: bytes | None) -> bytes:
        """Answer as the turn service does, and remember who is to hear of that generation's end.

        Raises InterlockError, code `denied`, for a program that says yes or no itself.
        """
        if message.approval in ("yes", "no") and self._api.role(identity) != "person":
            raise InterlockError("Only a person can decide about a call.", code="denied")
        document = await self._turn_api.resolve(identity, message, body)
        target = decode_as(document, _Resolved).target
        self._api.holds(identity, target.worker, target.generation)
        return document
