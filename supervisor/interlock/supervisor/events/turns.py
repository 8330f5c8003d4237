"""The turn service: takes, dispatches, follows and ends every turn.

It owns all turns of this supervisor's life. Decisions are in `turnstate`; here they are carried out
with the journal, the logs, the tickets and the agents. Nothing here waits: the journal answers
through futures, agents through messages, and every wait of a turn has a timer.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from interlock.bus.errors import NotFoundError, OverloadedError
from interlock.bus.events import (
    CatalogChanged,
    Event,
    TurnAccepted,
    TurnCancelled,
    TurnCancelledEvent,
    TurnCompletedEvent,
    TurnFailed,
    TurnFailedEvent,
    TurnInterrupted,
    TurnStartedEvent,
)
from interlock.bus.messages import (
    CallReports,
    Capabilities,
    OfferUpdate,
    Revoked,
    SchemaGet,
    TicketRequest,
    ToolsFind,
    ToolsFound,
    TurnCancel,
    TurnDispatch,
    TurnItems,
)
from interlock.bus.messages import Schemas as SchemasMessage
from interlock.bus.names import WorkerName
from interlock.bus.records import CallReport
from interlock.bus.settings import Timing
from interlock.bus.wording import spoken
from interlock.supervisor.catalog.gating import Gating
from interlock.supervisor.catalog.rows import Catalog, Delta, SourceSettings
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.events import turnstate
from interlock.supervisor.events.calls import CallBook
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.journalrows import TurnRow
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.events.stalerows import StaleRows
from interlock.supervisor.events.turnitems import encode, parse
from interlock.supervisor.events.turnlog import TurnLogs
from interlock.supervisor.events.turnoffers import TurnOffers
from interlock.supervisor.events.turnpermits import TurnPermits
from interlock.supervisor.events.turnstate import Phase, Terminal, TurnState, step
from interlock.supervisor.lifecycle.wording import start_again
from interlock.supervisor.policy.desk import ApprovalDesk
from interlock.supervisor.policy.permits import Permits
from interlock.supervisor.policy.tickets import TicketOffice
from interlock.supervisor.shipped import tables

LIVE: Final = 1_000
"""Turns under way at once."""
PAST: Final = 20_000
"""Ids of ended turns that are remembered, so that none runs twice."""
_ENDS: Final = {
    "turn.completed": "completed",
    "turn.failed": "failed",
    "turn.cancelled": "cancelled",
}


class TurnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the service itself allows."""

    agent_wait: float = 30.0
    """For an agent that is still starting."""
    margin: float = 1.0
    """Past the turn's deadline, before the supervisor ends it in the agent's place."""
    grace: float = 2.0
    """From a cancel to the supervisor's own end, if the agent does not answer."""
    last_ends: float = 2.5
    """For the ends that are still to be stored when the supervisor ends."""


class NewTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as a client asks for it, checked."""

    turn: str
    agent: str
    text: str
    session: str = ""
    deadline: float
    unattended: bool = False
    client: str = ""
    """Who sends it, as tickets name clients."""


@dataclass(eq=False, slots=True)
class _Live:
    """A turn under way."""

    row: TurnRow
    until: float
    """Loop time of its deadline."""
    accepted: asyncio.Future[None]
    client: str
    """Who sent it."""
    state: TurnState = field(default_factory=TurnState)
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    last: bytes | None = None
    parked: int = 0
    """Calls that wait for a person; the deadline does not run meanwhile."""
    left: float = 0.0
    """Seconds until the deadline while it does not run."""

    @property
    def worker(self) -> str:
        return str(WorkerName("agent", self.row.agent))


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
        approvals: ApprovalDesk,
        publish_call: Callable[[str, Event], object] | None = None,
        times: TurnTimes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.workers = workers
        self.catalog = catalog
        self.tickets = tickets
        self.journal = journal
        self.logs = logs
        self.bad_items = 0
        """Items that were not valid, of a turn that is not the sender's, or after the end."""
        self.schemas = schemas
        self._sequencer = sequencer
        self._times = times or TurnTimes()
        self._clock = clock
        self.stale_after = Timing().stale
        """Seconds that the rows of a source that is down stay in the catalog."""
        self._stale = StaleRows(catalog, self.catalog_changed)
        self.approvals = approvals
        self.permits = Permits(workers, catalog, tickets, approvals)
        self.gating = Gating(catalog, schemas, tables())
        publish_call = publish_call or (lambda _, event: sequencer.publish(event))
        self._calls = CallBook(journal, publish_call, clock)
        self.refused = self._calls.refused
        turn_permits = TurnPermits(workers, self.permits, self._pause, self.refused)
        self.offers = TurnOffers(workers, catalog, tickets, turn_permits, self.gating, self.refused)
        self._live: dict[str, _Live] = {}
        self._ended: dict[str, TurnRow] = {}
        self._past: OrderedDict[str, int] = OrderedDict()
        """Turns by their place in the order of all, as far as they are remembered."""
        self._count = 0
        self._an_end = asyncio.Event()
        logs.on_evicted = self._evicted

    # --- for the api ---

    def begin(self, new: NewTurn) -> asyncio.Future[None]:
        """Take a new turn; the future resolves once it is accepted. Raises OverloadedError."""
        if len(self._live) >= LIVE:
            raise OverloadedError("Too many turns are under way; wait for one to end.")
        if self.journal.overfull:
            raise OverloadedError(
                "The journal cannot be written and no more turns fit into memory. "
                f"{self.journal.fix or 'See `interlock status`.'}"
            )
        loop = asyncio.get_running_loop()
        row = TurnRow(
            turn=new.turn,
            agent=new.agent,
            session=new.session,
            text=new.text,
            started=self._clock(),
            unattended=new.unattended,
        )
        live = _Live(row, loop.time() + new.deadline, loop.create_future(), new.client)
        self._live[new.turn] = live
        self._remember(new.turn)
        self.logs.begin(new.turn)
        live.timers["deadline"] = loop.call_later(
            new.deadline, self._apply, live, turnstate.DeadlinePassed()
        )
        stored = self.journal.accept_turn(row)
        stored.add_done_callback(lambda _: self._apply(live, turnstate.Stored()))
        return live.accepted

    def accepted(self, turn: str) -> asyncio.Future[None] | None:
        """The future of a turn that is under way."""
        live = self._live.get(turn)
        return live.accepted if live is not None else None

    def row(self, turn: str) -> TurnRow | None:
        """The turn as it is now, if memory has it."""
        live = self._live.get(turn)
        return live.row if live is not None else self._ended.get(turn)

    def rows(self) -> Iterable[TurnRow]:
        """All turns that memory has, oldest first."""
        rows = [*self._ended.values(), *(live.row for live in self._live.values())]
        return sorted(rows, key=lambda row: self.order(row.turn))

    def order(self, turn: str) -> int:
        """A number that is larger for every turn that was accepted later; 0 for very old ones."""
        return self._past.get(turn, 0)

    def ended_before(self, turn: str) -> bool:
        """Whether a turn with that id is known to have ended and is no longer in memory."""
        return turn in self._past and self.row(turn) is None

    def cancel(self, turn: str) -> None:
        """Ask for a turn's end; nothing happens to one that has ended."""
        live = self._live.get(turn)
        if live is not None:
            self._apply(live, turnstate.CancelAsked())

    # --- for the runtime ---

    def interrupted(self, rows: Iterable[TurnRow]) -> None:
        """Announce what `Journal.open` returned, and remember the ids of all earlier turns."""
        for turn in self.journal.past:
            self._remember(turn)
        for row in rows:
            self._sequencer.publish(TurnInterrupted(turn=row.turn, agent=row.agent))

    def worker_changed(self, worker: str) -> None:
        """Call after every state change of a worker, agents and sources alike."""
        view = self.workers.view(worker)
        if worker.startswith("agent:"):
            for live in tuple(self._live.values()):
                if live.worker == worker and live.state.phase is Phase.WAITING:
                    self._find_agent(live)
            return
        if view is not None:
            delta = self.catalog.set_state(worker, view.state, view.reason)
            self.catalog_changed(worker, delta)
            self._stale.look(worker, self.stale_after)

    def source_configured(self, worker: str, settings: SourceSettings) -> None:
        """A serving worker came into the configuration, or has new settings."""
        delta = self.catalog.configure(worker, settings)
        self.gating.configure(worker, settings)
        self.catalog_changed(worker, delta)

    def source_removed(self, worker: str) -> None:
        """A serving worker left the configuration."""
        self.schemas.forget(worker)
        self.gating.remove(worker)
        self.catalog_changed(worker, self.catalog.remove(worker))

    def catalog_changed(self, worker: str, delta: Delta) -> None:
        """Announce a difference of the catalog and bring running turns up to date."""
        if delta:
            self._sequencer.publish(
                CatalogChanged(
                    name=worker,
                    added=delta.added,
                    removed=delta.removed,
                    changed=delta.changed,
                )
            )
        self.offers.source_changed(worker)
        self.permits.source_changed(worker)

    def policy_changed(self) -> None:
        """A new policy, or new grants, are in force: what they forbid is void from now on."""
        for source in self.catalog.sources():
            self.offers.source_changed(source)
            self.permits.source_changed(source)
        self.permits.policy_changed()

    def worker_gone(self, worker: str, generation: int, reason: str) -> tuple[CallReport, ...]:
        """Call when a generation ended (its pidfd), before the new state is announced.

        Returns how the calls that it had under way ended.
        """
        self.tickets.close_target(worker, generation)
        self.offers.worker_gone(worker, generation, reason)
        self.permits.worker_gone(worker, generation)
        lost = self._calls.lose(worker, generation)
        view = self.workers.view(worker)
        orderly = view is not None and bool(view.stopped_for)
        ended = turnstate.AgentStopped if orderly else turnstate.AgentDied
        for live in tuple(self._live.values()):
            if live.worker == worker:
                self._apply(live, ended(generation, reason))
        return lost

    def on_capabilities(self, worker: str, message: Capabilities, body: bytes | None) -> None:
        """A source reported what it serves. Raises MalformedError."""
        self.schemas.report(worker, (row.digest for row in message.rows), body)
        delta = self.catalog.report(worker, message.rows)
        self.gating.reported(worker)
        self.catalog_changed(worker, delta)

    def on_items(
        self, worker: str, generation: int, message: TurnItems, body: bytes | None
    ) -> None:
        """An agent sent items of a turn of its own. Raises MalformedError."""
        items, bad = parse(body)
        self.bad_items += bad
        live = self._live.get(message.turn)
        if (
            live is None
            or live.worker != worker
            or live.state.phase is not Phase.RUNNING
            or live.state.generation != generation
        ):
            self.bad_items += len(items)
            return
        last = next((n for n, item in enumerate(items) if item.terminal is not None), len(items))
        self.bad_items += len(items[last + 1 :])
        if last:
            self.logs.append(message.turn, [item.raw for item in items[:last]])
        if last < len(items) and (terminal := items[last].terminal) is not None:
            self._agent_ended(live, terminal, items[last].raw)
        elif self.logs.full(message.turn):
            self._apply(live, turnstate.LogFull())

    def on_ticket_request(
        self, worker: str, generation: int, message: TicketRequest, body: bytes | None
    ) -> None:
        """An agent asks for a ticket or a renewal; the answer goes out on control."""
        self.offers.on_request(worker, generation, message, body)

    def on_schema_get(self, worker: str, generation: int, message: SchemaGet) -> None:
        """An agent fetches tool documents; the answer goes out on control."""
        documents = self.schemas.get(message.digests)
        self.workers.send(worker, generation, SchemasMessage(id=message.id), documents)

    def on_tools_find(self, worker: str, generation: int, message: ToolsFind) -> None:
        """The core worker searches for a turn; the answer goes out on control."""
        try:
            found = self.offers.find(message)
        except NotFoundError as error:
            refused = ToolsFound(id=message.id, code="unavailable", message=error.message)
            self.workers.send(worker, generation, refused)
            return
        rows = [{"name": row.name, "wire": row.wire, "summary": row.summary} for row in found]
        body = msgspec.json.encode({"tools": rows})
        self.workers.send(worker, generation, ToolsFound(id=message.id), body)

    def on_call_reports(self, worker: str, generation: int, message: CallReports) -> None:
        """Journal the calls and publish `tool.*` events."""
        self._calls.report(worker, generation, message)

    def on_revoked(self, worker: str, generation: int, message: Revoked) -> None:
        """A worker acknowledged a revocation."""
        self.tickets.revoked(worker, generation, message.n)

    def stop(self) -> None:
        """The supervisor begins to end: turns that no agent has end now, the others with theirs."""
        for live in tuple(self._live.values()):
            self._apply(live, turnstate.SupervisorStops())
        self._stale.close()

    async def close(self) -> None:
        """Wait, bounded, for the ends that are on their way to the disk, then end all streams.

        A turn that has not ended then stays unfinished in the journal.
        """
        try:
            async with asyncio.timeout(self._times.last_ends):
                while self._live:
                    self._an_end.clear()
                    await self._an_end.wait()
        except TimeoutError:
            for live in self._live.values():
                _stop_timers(live)
        self.approvals.close()
        self.logs.close()

    # --- carrying out decisions ---

    def _apply(self, live: _Live, event: turnstate.Happening) -> None:
        for command in step(live.state, event):
            match command:
                case turnstate.AnnounceAccepted():
                    self._sequencer.publish(TurnAccepted(turn=live.row.turn, agent=live.row.agent))
                    if not live.accepted.done():
                        live.accepted.set_result(None)
                case turnstate.FindAgent():
                    self._find_agent(live)
                case turnstate.Dispatch(generation):
                    self._dispatch(live, generation)
                case turnstate.SendCancel(code):
                    self._send_cancel(live, code)
                case turnstate.End(item):
                    self._end(live, item)
                case turnstate.AnnounceEnd():
                    self._announce_end(live)

    def _find_agent(self, live: _Live) -> None:
        view = self.workers.view(live.worker)
        name = live.worker
        if view is None:
            message = f"{name} is no longer configured."
        elif view.state in ("READY", "DEGRADED"):
            self._apply(live, turnstate.AgentReady(view.generation))
            return
        elif view.state == "FAILED":
            message = f"{name} has failed: {view.reason or 'see its log'}. "
            message += f"See `interlock logs {name}`, then `interlock restart {name}`."
        elif view.state in ("STOPPED", "STOPPING"):
            message = f"{name} is stopped. {start_again(name, view.reason)}."
        else:
            if "agent" not in live.timers:
                live.timers["agent"] = asyncio.get_running_loop().call_later(
                    self._times.agent_wait, self._agent_late, live
                )
            return
        self._apply(live, turnstate.AgentUnusable(message))

    def _agent_late(self, live: _Live) -> None:
        message = f"{live.worker} did not become ready within {spoken(self._times.agent_wait)} s. "
        message += f"See `interlock logs {live.worker}`."
        self._apply(live, turnstate.AgentUnusable(message))

    def _dispatch(self, live: _Live, generation: int) -> None:
        row = live.row
        _stop_timer(live, "agent")
        loop = asyncio.get_running_loop()
        left = live.until - loop.time()
        offered, parts = self.offers.open(row, live.worker, generation, live.client)
        first = next(parts)
        message = TurnDispatch(
            turn=row.turn,
            session=row.session,
            deadline_ms=max(1, int(left * 1000)),
            unattended=row.unattended,
            offer=first.rows,
            targets=first.targets,
            offered=offered,
        )
        if not self.workers.send(live.worker, generation, message, msgspec.json.encode(row.text)):
            failed = turnstate.DispatchFailed(f"{live.worker} takes no more turns now; try again.")
            self._apply(live, failed)
            return
        for part in parts:
            update = OfferUpdate(turn=row.turn, rows=part.rows, targets=part.targets)
            self.workers.send(live.worker, generation, update)
        # From now on the agent watches the deadline; the supervisor only if it does not.
        _stop_timer(live, "deadline")
        live.timers["deadline"] = loop.call_later(
            max(left, 0.0) + self._times.margin, self._apply, live, turnstate.DeadlinePassed()
        )
        live.row = msgspec.structs.replace(row, state="running")
        self.journal.change_turn(live.row)
        self._sequencer.publish(TurnStartedEvent(turn=row.turn, agent=row.agent))

    def _pause(self, turn: str, on: bool) -> None:
        """Stop the clock of a turn that waits for a person, or let it run again."""
        live = self._live.get(turn)
        if live is None or live.state.phase is not Phase.RUNNING:
            return
        loop = asyncio.get_running_loop()
        live.parked += 1 if on else -1
        if on and live.parked == 1:
            live.left = live.until - loop.time()
            _stop_timer(live, "deadline")
        elif not on and live.parked == 0:
            live.until = loop.time() + live.left
            live.timers["deadline"] = loop.call_later(
                max(live.left, 0.0) + self._times.margin,
                self._apply,
                live,
                turnstate.DeadlinePassed(),
            )

    def _send_cancel(self, live: _Live, code: turnstate.CancelCode) -> None:
        message = TurnCancel(turn=live.row.turn, code=code)
        self.workers.send(live.worker, live.state.generation, message)
        live.timers["grace"] = asyncio.get_running_loop().call_later(
            self._times.grace, self._apply, live, turnstate.GraceOver()
        )

    def _agent_ended(self, live: _Live, item: Terminal, raw: bytes) -> None:
        view = self.workers.view(live.worker)
        given_up = isinstance(item, TurnCancelled) and live.state.cancel is None
        if given_up and view is not None and view.stopped_for:
            stopped = turnstate.AgentStopped(live.state.generation, view.stopped_for)
            self._apply(live, stopped)
            return
        live.last = raw
        self._apply(live, turnstate.AgentEnded(item))

    def _end(self, live: _Live, item: Terminal) -> None:
        _stop_timers(live)
        self.offers.close(live.row.turn)
        raw = live.last if live.last is not None else encode(item)
        live.last = self.logs.prepare_end(live.row.turn, raw)
        failed = item if isinstance(item, TurnFailed) else None
        # The row that others see changes only once the end is stored.
        ended = msgspec.structs.replace(
            live.row,
            state=_ENDS[str(type(item).__struct_config__.tag)],
            ended=self._clock(),
            code=failed.code if failed is not None else "",
            message=failed.message if failed is not None else "",
        )
        stored = self.journal.end_turn(ended)
        stored.add_done_callback(lambda _: self._end_stored(live, ended))

    def _end_stored(self, live: _Live, ended: TurnRow) -> None:
        live.row = ended
        self._apply(live, turnstate.Stored())

    def _announce_end(self, live: _Live) -> None:
        row = live.row
        del self._live[row.turn]
        self._ended[row.turn] = row
        self.logs.end(row.turn, live.last)
        self._an_end.set()
        if row.state == "completed":
            self._sequencer.publish(TurnCompletedEvent(turn=row.turn, agent=row.agent))
        elif row.state == "cancelled":
            self._sequencer.publish(TurnCancelledEvent(turn=row.turn, agent=row.agent))
        else:
            self._sequencer.publish(
                TurnFailedEvent(turn=row.turn, agent=row.agent, code=row.code, message=row.message)
            )

    def _remember(self, turn: str) -> None:
        self._count += 1
        self._past[turn] = self._count
        while len(self._past) > PAST:
            self._past.popitem(last=False)

    def _evicted(self, turn: str) -> None:
        self._ended.pop(turn, None)


def _stop_timer(live: _Live, name: str) -> None:
    timer = live.timers.pop(name, None)
    if timer is not None:
        timer.cancel()


def _stop_timers(live: _Live) -> None:
    for name in tuple(live.timers):
        _stop_timer(live, name)
