"""What running turns may call: their offers, tickets, updates and revocations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from interlock.bus.errors import NotFoundError
from interlock.bus.messages import Gone, OfferUpdate, TicketGrant, TicketRequest, ToolsFind
from interlock.bus.records import OfferRow, Target
from interlock.bus.settings import AgentSettings
from interlock.supervisor.catalog.find import find
from interlock.supervisor.catalog.gating import Gating
from interlock.supervisor.catalog.offer import (
    LEFT,
    PERSON,
    admitted,
    forbidden,
    gated,
    listed,
    offer_row,
    permitted,
)
from interlock.supervisor.catalog.resolve import Refusal, resolve, unavailable
from interlock.supervisor.catalog.rows import Catalog, CatalogRow
from interlock.supervisor.events.journalrows import TurnRow
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.events.sessions import Sessions
from interlock.supervisor.events.turnpermits import Refusals, TurnPermits
from interlock.supervisor.policy.tickets import TicketOffice

DIRECT: Final = "direct"
"""Model of agents whose turns are programs of tool calls."""
PART: Final = 512 << 10
"""Bytes of rows and targets in one message, about; what is more follows as `offer.update`."""


@dataclass(slots=True)
class _Open:
    """The offer of one running turn, as its agent has it."""

    turn: str
    agent: str
    worker: str
    generation: int
    client: str
    unattended: bool = False
    text: str = ""
    session: str = ""
    passed: frozenset[str] = frozenset()
    """Sources that the gate lets through."""
    decided: int = 0
    """`Gating.changes` when the gate decided."""
    joined: set[str] = field(default_factory=set)
    """Capabilities that the turn found by itself, though they were not put before it."""
    rows: dict[str, OfferRow] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    """Generations that the agent holds tickets for, by worker."""

    def wants(self, row: CatalogRow, settings: AgentSettings | None) -> bool:
        """Whether a permitted row belongs to this turn's offer."""
        if row.name in self.joined:
            return True
        return settings is not None and admitted(row, self.passed) and listed(row, settings)

    def names(self, worker: str) -> tuple[str, ...]:
        """What a ticket of the turn names: nothing that needs one of its own for each call."""
        rows = (row for row in self.rows.values() if row.worker == worker)
        return tuple(row.local for row in rows if not row.per_call)


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What grant, deny and policy let an agent have of one source; the same for all its turns."""

    settings: AgentSettings | None
    rows: dict[str, tuple[CatalogRow, OfferRow]]
    """By the name of the capability, in the order of the catalog."""


@dataclass(frozen=True, slots=True)
class OfferPart:
    """Rows and targets that fit into one message."""

    rows: tuple[OfferRow, ...]
    targets: tuple[Target, ...]


class TurnOffers:
    """Composes offers from catalog and tickets, and keeps running turns up to date."""

    def __init__(
        self,
        workers: Workers,
        catalog: Catalog,
        tickets: TicketOffice,
        permits: TurnPermits,
        gating: Gating,
        refused: Refusals,
    ) -> None:
        self._workers = workers
        self._catalog = catalog
        self._tickets = tickets
        self._permits = permits
        self._gating = gating
        self._refused = refused
        self._sessions = Sessions()
        self._open: dict[str, _Open] = {}
        self._told: dict[tuple[str, int], dict[str, int]] = {}
        """By generation of an agent, the generations that it was ever given a target for: it may
        keep the connection when the turn ends."""

    def open(
        self, row: TurnRow, worker: str, generation: int, client: str
    ) -> tuple[int, Iterator[OfferPart]]:
        """Compose the offer of a turn that is about to be dispatched; `client` sent it.

        Returns how many rows it has, and its parts, of which there is at least one.
        """
        opened = _Open(
            turn=row.turn,
            agent=row.agent,
            worker=worker,
            generation=generation,
            client=client,
            unattended=row.unattended,
            text=row.text,
            session=row.session,
        )
        self._open[row.turn] = opened
        settings = self._settings(row.agent)
        rows = []
        if settings is not None:
            self._gate(opened, settings)
            policy = self._workers.policy()
            allowed = permitted(self._catalog.rows(), settings, policy)
            serving = {row.source for row in allowed if self._tickets.serves(row.source)}
            rows = [
                offer_row(row, policy)
                for row in allowed
                if row.connected and row.source in serving and opened.wants(row, settings)
            ]
        opened.rows = {row.name: row for row in rows}
        targets = self._targets(opened, dict.fromkeys(row.worker for row in rows))
        return len(rows), _parts(rows, targets)

    def _settings(self, agent: str) -> AgentSettings | None:
        settings = self._workers.agents().get(agent)
        return self._gating.focused(agent, settings) if settings is not None else None

    def _gate(self, opened: _Open, settings: AgentSettings) -> None:
        """Decide which sources the turn is about; one that was in it stays."""
        recent = self._sessions.recent(opened.agent, opened.session)
        calls = settings.model == DIRECT
        opened.decided = self._gating.changes
        opened.passed |= self._gating.passed(opened.text, recent, calls=calls)

    def recent(self, agent: str, session: str) -> tuple[tuple[str, ...], ...]:
        """The gated sources that the last turns of a session had, the newest first."""
        return self._sessions.recent(agent, session)

    def _targets(self, opened: _Open, workers: Iterable[str]) -> list[Target]:
        targets = []
        for worker in workers:
            names = opened.names(worker)
            if not names:
                continue
            target = self._tickets.turn_target(worker, opened.turn, opened.worker, names)
            if target is not None:
                opened.targets[worker] = target.generation
                told = self._told.setdefault((opened.worker, opened.generation), {})
                told[worker] = target.generation
                targets.append(target)
        return targets

    def source_changed(self, source: str) -> None:
        """A serving worker changed its state or its tools: tell the agents of running turns.

        A source that is down stays in running turns, so that a call to it fails as unavailable and
        not as unknown; only what it no longer serves, or policy no longer allows, is taken away,
        from the tickets that the turns hold, too.
        """
        allowed: dict[str, _Allowed] = {}
        for opened in tuple(self._open.values()):
            if opened.agent not in allowed:
                allowed[opened.agent] = self._allowed(opened.agent, source)
            self._update(opened, source, allowed[opened.agent])

    def _allowed(self, agent: str, source: str) -> _Allowed:
        """What any turn of that agent may have of a source."""
        settings = self._settings(agent)
        if settings is None:
            return _Allowed(None, {})  # it has left the configuration
        policy = self._workers.policy()
        rows = permitted(self._catalog.rows_of(source), settings, policy)
        return _Allowed(settings, {row.name: (row, offer_row(row, policy)) for row in rows})

    def _update(self, opened: _Open, source: str, allowed: _Allowed) -> None:
        settings, kept = allowed.settings, allowed.rows
        before = opened.names(source)
        if settings is not None:
            self._look_again(opened, source, settings)
        removed = tuple(
            name for name, row in opened.rows.items() if row.worker == source and name not in kept
        )
        for name in removed:
            del opened.rows[name]
        serving = self._tickets.serves(source)
        offered = [
            offer
            for row, offer in kept.values()
            # What the turn has is kept true, usable or not: no renewal may go by old rules.
            if row.name in opened.rows
            or (serving is not None and row.connected and opened.wants(row, settings))
        ]
        rows = [row for row in offered if opened.rows.get(row.name) != row]
        opened.rows.update((row.name, row) for row in rows)
        names = opened.names(source)
        void = None
        if not set(before) <= set(names):
            void = self._tickets.revoke_earlier(opened.turn, source)
        targets: list[Target] = []
        if serving is not None and (rows or void or opened.targets.get(source) != serving):
            targets = self._targets(opened, (source,))
        if rows or removed or targets:
            self._send_update(opened, rows, removed, targets)
        if void is not None:  # after the new ticket, so that what is still allowed goes on
            self._workers.send(void.worker, void.generation, void.message)

    def _look_again(self, opened: _Open, source: str, settings: AgentSettings) -> None:
        """Decide again on a source that the gate knows more of than when the turn began."""
        if source in opened.passed or not gated(source):
            return
        if self._gating.changed_since(source, opened.decided):
            self._gate(opened, settings)

    def _send_update(
        self,
        opened: _Open,
        rows: Sequence[OfferRow],
        removed: tuple[str, ...],
        targets: Sequence[Target],
    ) -> None:
        for part in _parts(rows, targets):
            message = OfferUpdate(
                turn=opened.turn, rows=part.rows, removed=removed, targets=part.targets
            )
            # A full queue: the agent asks for a renewal when its ticket runs out.
            self._workers.send(opened.worker, opened.generation, message)
            removed = ()

    def worker_gone(self, worker: str, generation: int, reason: str) -> None:
        """A generation ended: all agents that may be connected to it learn it now."""
        self._told.pop((worker, generation), None)
        for opened in self._open.values():
            if opened.targets.get(worker) == generation:
                del opened.targets[worker]
        message = Gone(worker=worker, generation=generation, reason=reason)
        for agent, told in self._told.items():
            if told.get(worker) == generation:
                del told[worker]
                self._workers.send(*agent, message)

    def on_request(
        self, worker: str, generation: int, message: TicketRequest, body: bytes | None
    ) -> None:
        """Answer an agent's `ticket.request`: a renewal, or a capability outside its ticket."""
        opened = self._open.get(message.turn)
        if opened is None or (opened.worker, opened.generation) != (worker, generation):
            grant: TicketGrant | None = TicketGrant(
                id=message.id, code="denied", message="That turn is not running at this agent."
            )
        elif message.capability:
            grant = self._grant(opened, message, body)
            if grant is not None and grant.code:
                name = grant.row.name if grant.row is not None else message.capability
                self._refused(opened.worker, name, grant.code, opened.turn)
        else:
            grant = self._renew(opened, message)
        if grant is not None:
            self._workers.send(worker, generation, grant)

    def _renew(self, opened: _Open, message: TicketRequest) -> TicketGrant:
        if self._workers.agents().get(opened.agent) is None:
            return TicketGrant(id=message.id, code="denied", message=f"No tickets: {LEFT}.")
        if not opened.names(message.worker):
            return TicketGrant(
                id=message.id, code="denied", message=f"{message.worker} is not in the offer."
            )
        targets = self._targets(opened, (message.worker,))
        if targets:
            return TicketGrant(id=message.id, target=targets[0])
        return self._unavailable(message.id, message.worker)

    def _unavailable(self, id_: int, worker: str) -> TicketGrant:
        source = self._catalog.sources().get(worker)
        text = f"{worker} is no longer configured." if source is None else unavailable(source)
        return TicketGrant(id=id_, code="unavailable", message=text)

    def _grant(
        self, opened: _Open, message: TicketRequest, body: bytes | None
    ) -> TicketGrant | None:
        """The answer for a capability; None: a person has to be asked, or the arguments looked at.

        Then it is sent when that is done.
        """
        settings = self._workers.agents().get(opened.agent)
        policy = self._workers.policy()
        found = resolve(
            message.capability, self._catalog.rows(), self._catalog.sources(), policy, settings
        )
        if isinstance(found, Refusal):
            shown = offer_row(found.row, policy) if found.row is not None else None
            return TicketGrant(id=message.id, row=shown, code=found.code, message=found.message)
        row = offer_row(found, policy)
        opened.rows[row.name] = row
        opened.joined.add(row.name)
        if row.per_call:
            self._permits.ask(opened, message.id, found, body or b"{}", self._is_open)
            return None
        targets = self._targets(opened, (row.worker,))
        if not targets:
            refused = self._unavailable(message.id, row.worker)
            return msgspec.structs.replace(refused, row=row)
        return TicketGrant(id=message.id, row=row, target=targets[0])

    def find(self, message: ToolsFind) -> tuple[CatalogRow, ...]:
        """Search what a turn was not offered and add what is found to its offer.

        Nothing is found that grant, deny or policy keep from its agent. Without a turn a person
        asks, who may call whatever policy allows. Raises NotFoundError for a turn that is over.
        """
        policy, rows = self._workers.policy(), self._catalog.rows()
        if not message.turn:
            open_to_all = [row for row in rows if forbidden(row, PERSON, policy) is None]
            return find(message.query, _usable(open_to_all), message.limit)
        opened = self._open.get(message.turn)
        settings = self._workers.agents().get(opened.agent) if opened is not None else None
        if opened is None or settings is None:
            raise NotFoundError("That turn is not running any more.")
        allowed = _usable(permitted(rows, settings, policy))
        found = find(
            message.query, [row for row in allowed if row.name not in opened.rows], message.limit
        )
        self._join(opened, found)
        return found

    def _join(self, opened: _Open, found: Sequence[CatalogRow]) -> None:
        """Make rows a part of a running turn and tell its agent."""
        policy = self._workers.policy()
        rows = [
            offer_row(row, policy) for row in found if self._tickets.serves(row.source) is not None
        ]
        if not rows:
            return
        opened.joined.update(row.name for row in rows)
        opened.rows.update((row.name, row) for row in rows)
        targets = self._targets(opened, dict.fromkeys(row.worker for row in rows))
        self._send_update(opened, rows, (), targets)

    def _is_open(self, turn: str, generation: int) -> bool:
        opened = self._open.get(turn)
        return opened is not None and opened.generation == generation

    def close(self, turn: str) -> None:
        """The turn ends: its tickets are void from now on, at every worker that still serves."""
        opened = self._open.pop(turn, None)
        if opened is not None:
            had = {row.worker for row in opened.rows.values() if self._gating.decides(row.worker)}
            self._sessions.ended(opened.agent, opened.session, had)
        self._permits.withdraw(turn)
        for void in self._tickets.revoke_turn(turn):
            self._workers.send(void.worker, void.generation, void.message)


def _usable(rows: Iterable[CatalogRow]) -> list[CatalogRow]:
    return [row for row in rows if row.connected]


def _parts(rows: Sequence[OfferRow], targets: Sequence[Target]) -> Iterator[OfferPart]:
    """Cut rows and targets into messages of about PART bytes, rows first; at least one.

    All rows come before the last target, so no agent has a ticket for a row that it does not know.
    """
    part_rows: list[OfferRow] = []
    part_targets: list[Target] = []
    size = 0
    records: list[OfferRow | Target] = [*rows, *targets]
    for record in records:
        cost = _cost(record)
        if size and size + cost > PART:
            yield OfferPart(tuple(part_rows), tuple(part_targets))
            part_rows, part_targets, size = [], [], 0
        size += cost
        if isinstance(record, Target):
            part_targets.append(record)
        else:
            part_rows.append(record)
    yield OfferPart(tuple(part_rows), tuple(part_targets))


def _cost(record: OfferRow | Target) -> int:
    if isinstance(record, Target):
        return 200 + len(record.ticket) + len(record.endpoint)
    return 250 + 4 * (len(record.name) + len(record.local) + len(record.summary))
