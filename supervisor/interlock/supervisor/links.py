"""Passes what happens to workers on to all who must know before it is announced."""

from __future__ import annotations

import msgspec

from interlock.bus.codec import decode_as
from interlock.bus.events import CatalogChanged
from interlock.bus.messages import Gone, Resolve
from interlock.bus.records import Target
from interlock.supervisor.api import Api
from interlock.supervisor.catalog.rows import Catalog, Delta
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.config.model import Settings, worker_name
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.events.turnapi import TurnApi
from interlock.supervisor.events.turns import TurnService
from interlock.supervisor.fleet import Fleet
from interlock.supervisor.policy.tickets import TicketOffice


class _Resolved(msgspec.Struct):
    target: Target


class Links:
    """The listener of the fleet and of the configuration."""

    def __init__(
        self,
        fleet: Fleet,
        api: Api,
        catalog: Catalog,
        schemas: Schemas,
        tickets: TicketOffice,
        turns: TurnService,
        turn_api: TurnApi,
        sequencer: Sequencer,
    ) -> None:
        self._fleet = fleet
        self._api = api
        self._catalog = catalog
        self._schemas = schemas
        self._tickets = tickets
        self._turns = turns
        self._turn_api = turn_api
        self._sequencer = sequencer

    def worker_changed(self, worker: str) -> None:
        """The worker has a new state or reason."""
        self._turns.worker_changed(worker)

    def worker_gone(self, worker: str, generation: int, reason: str) -> None:
        """A generation has ended: no tickets any more, and its calls in flight fail now."""
        self._tickets.close_target(worker, generation)
        self._turns.worker_gone(worker, generation, reason)
        gone = Gone(worker=worker, generation=generation, reason=reason)
        for member in self._fleet.up():
            if member.worker.kind == "agent":
                self._fleet.send(member.worker.name, member.worker.generation, gone)
        self._api.tell_gone(worker, generation, reason)

    def worker_forgotten(self, worker: str) -> None:
        """The worker is in no configuration any more and has ended."""
        self._publish(worker, self._catalog.remove(worker))
        self._schemas.forget(worker)

    def settings_changed(self, settings: Settings) -> None:
        """These settings are in force from now on."""
        for name, entry in settings.mcp_servers.items():
            worker = worker_name("mcp_servers", name)
            self._publish(worker, self._catalog.configure(worker, entry.settings))

    async def resolve(self, identity: bytes, message: Resolve, body: bytes | None) -> bytes:
        """Answer as the turn service does, and remember who is to hear of that generation's end."""
        document = await self._turn_api.resolve(identity, message, body)
        target = decode_as(document, _Resolved).target
        self._api.holds(identity, target.worker, target.generation)
        return document

    def _publish(self, worker: str, delta: Delta) -> None:
        if delta:
            self._sequencer.publish(
                CatalogChanged(name=worker, added=delta.added, removed=delta.removed)
            )
