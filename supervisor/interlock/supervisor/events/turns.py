"""The turn service: takes, dispatches, follows and ends every turn."""

from __future__ import annotations

import msgspec

from interlock.bus.messages import (
    CallReports,
    Capabilities,
    Revoked,
    SchemaGet,
    TicketRequest,
    TurnItems,
)
from interlock.supervisor.catalog.rows import Catalog
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.journalrows import TurnRow
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.events.turnlog import TurnLogs
from interlock.supervisor.policy.tickets import TicketOffice


class TurnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the service itself allows."""

    agent_wait: float = 30.0
    """For an agent that is still starting."""
    margin: float = 1.0
    """Past the turn's deadline, before the supervisor ends it in the agent's place."""
    grace: float = 2.0
    """From a cancel to the supervisor's own end, if the agent does not answer."""


class TurnService:
    """All turns. Everything here is called in the event loop and returns at once."""

    def __init__(
        self,
        *,
        workers: Workers,
        catalog: Catalog,
        schemas: Schemas,
        tickets: TicketOffice,
        journal: Journal,
        logs: TurnLogs,
        sequencer: Sequencer,
        times: TurnTimes | None = None,
    ) -> None:
        raise NotImplementedError

    def interrupted(self, rows: tuple[TurnRow, ...]) -> None:
        """Announce what `Journal.open` returned."""
        raise NotImplementedError

    def worker_changed(self, worker: str) -> None:
        """Call after every state change of a worker, agents and sources alike."""
        raise NotImplementedError

    def worker_gone(self, worker: str, generation: int, reason: str) -> None:
        """Call when a generation ended (its pidfd), before the new state is announced."""
        raise NotImplementedError

    def on_capabilities(self, worker: str, message: Capabilities, body: bytes | None) -> None:
        """A source reported what it serves. Raises MalformedError."""
        raise NotImplementedError

    def on_items(
        self, worker: str, generation: int, message: TurnItems, body: bytes | None
    ) -> None:
        """An agent sent items of a turn of its own. Raises MalformedError."""
        raise NotImplementedError

    def on_ticket_request(
        self, worker: str, generation: int, message: TicketRequest, body: bytes | None
    ) -> None:
        """An agent asks for a ticket or a renewal; the answer goes out on control."""
        raise NotImplementedError

    def on_schema_get(self, worker: str, generation: int, message: SchemaGet) -> None:
        """An agent fetches tool documents; the answer goes out on control."""
        raise NotImplementedError

    def on_call_reports(self, worker: str, generation: int, message: CallReports) -> None:
        """Journal the calls and publish `tool.*` events."""
        raise NotImplementedError

    def on_revoked(self, worker: str, generation: int, message: Revoked) -> None:
        """A worker acknowledged a revocation."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancel all timers; unfinished turns stay unfinished in the journal."""
        raise NotImplementedError
