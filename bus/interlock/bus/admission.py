"""Which calls a serving worker lets in: tickets opened, expired, used up and revoked.

Pure: clocks are arguments. `now` is monotonic seconds, `wall` Unix seconds. A ticket's expiry is
turned into monotonic time once, when it is opened, so that a clock that is set later neither
prolongs nor cuts it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.bus.errors import OverloadedError, TicketError
from interlock.bus.messages import TICKET_LIFE, Call, Revoke
from interlock.bus.tickets import CLOCK_SLACK, TicketClaims, arguments_digest, verify

MAX_TICKETS: Final = 1024
"""Tickets that one connection may hold open; a client needs one for each tool that it calls."""
MAX_USED: Final = 10_000
"""Single-use tickets that are remembered as used; beyond, further ones are refused."""
MEMORY: Final = TICKET_LIFE + CLOCK_SLACK
"""Seconds after which no ticket of now can be valid any more."""


class HeldTicket:
    """A verified ticket of one connection. `expires` is in monotonic seconds."""

    __slots__ = ("claims", "expires", "names", "revoked")

    def __init__(self, claims: TicketClaims, expires: float) -> None:
        self.claims = claims
        self.names = frozenset(claims.names)
        self.expires = expires
        self.revoked = False

    def revoke(self) -> None:
        """Void it. It stays known as revoked, but its names, which may be many, are not needed."""
        self.revoked = True
        self.names = frozenset()
        self.claims = msgspec.structs.replace(self.claims, names=())


class Holder:
    """The tickets of one connection, all of the same caller."""

    __slots__ = ("caller", "tickets")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.tickets: dict[str, HeldTicket] = {}

    def forget_expired(self, before: float) -> bool:
        """Drop tickets that expired before that moment; False if none is left."""
        for ticket in [t for t in self.tickets.values() if t.expires <= before]:
            del self.tickets[ticket.claims.id]
        return bool(self.tickets)

    def make_room(self, now: float) -> None:
        """Drop all tickets that permit nothing any more, expired or revoked."""
        self.tickets = {
            name: ticket
            for name, ticket in self.tickets.items()
            if not ticket.revoked and ticket.expires > now
        }


class Admission:
    """Decides for one generation of one worker, under its ticket key."""

    def __init__(self, key: bytes, worker: str, generation: int) -> None:
        self._key = key
        self._worker = worker
        self._generation = generation
        self._used: dict[str, float] = {}
        self._revoked_ids: dict[str, float] = {}
        self._revoked_turns: dict[str, tuple[float, float]] = {}
        self._revoked_callers: dict[str, tuple[float, float]] = {}

    def verify(self, token: str, caller: str | None, now: float, wall: float) -> HeldTicket:
        """Check a presented ticket in full; raises `TicketError`."""
        claims = verify(self._key, token, wall, self._worker, self._generation, caller)
        if claims.id in self._revoked_ids or self._revoked_before(claims):
            raise TicketError("revoked")
        return HeldTicket(claims, now + claims.expires - wall)

    def hold(self, holder: Holder, ticket: HeldTicket, now: float) -> None:
        """Keep a verified ticket; the same one again changes nothing.

        Raises `OverloadedError` if the connection holds too many.
        """
        if ticket.claims.id in holder.tickets:
            return
        if len(holder.tickets) >= MAX_TICKETS:
            # An agent opens one a turn, and those of ended turns are revoked long before they
            # expire; until now they were kept so that their use is called what it is.
            holder.make_room(now)
            if len(holder.tickets) >= MAX_TICKETS:
                raise OverloadedError("This connection holds too many tickets; open another one.")
        holder.tickets[ticket.claims.id] = ticket

    def admit(self, holder: Holder, call: Call, body: bytes, now: float) -> HeldTicket:
        """Permit a call, using up a single-use ticket.

        Raises `TicketError`; `MalformedError` if the arguments have to be looked at and are no
        JSON object; `OverloadedError` if too many single-use tickets are remembered.
        """
        ticket = holder.tickets.get(call.ticket)
        if ticket is None:
            raise TicketError("not_open")
        if ticket.revoked:
            raise TicketError("revoked")
        if ticket.expires <= now:
            raise TicketError("expired")
        if call.name not in ticket.names:
            raise TicketError("wrong_name")
        claims = ticket.claims
        if claims.digest and arguments_digest(body) != claims.digest:
            raise TicketError("wrong_arguments")
        if claims.single_use:
            self._use(ticket, now)
        return ticket

    def revoke(self, revoke: Revoke, holders: list[Holder], now: float, wall: float) -> None:
        """Void opened tickets and remember the order for those that are opened later."""
        until = now + MEMORY
        self._revoked_ids |= dict.fromkeys(revoke.ids, until)
        if revoke.turn:
            self._revoked_turns[revoke.turn] = (wall, until)
        if revoke.caller:
            self._revoked_callers[revoke.caller] = (wall, until)
        for holder in holders:
            for ticket in [one for one in holder.tickets.values() if not one.revoked]:
                if ticket.claims.id in revoke.ids or self._revoked_before(ticket.claims):
                    ticket.revoke()

    @property
    def remembers(self) -> bool:
        """Whether there is something that `forget` will drop in time."""
        return bool(self._used or self._revoked_ids or self._revoked_turns or self._revoked_callers)

    def forget(self, now: float) -> None:
        """Drop what can matter to no valid ticket any more."""
        self._used = {k: until for k, until in self._used.items() if until > now}
        self._revoked_ids = {k: until for k, until in self._revoked_ids.items() if until > now}
        self._revoked_turns = {k: v for k, v in self._revoked_turns.items() if v[1] > now}
        self._revoked_callers = {k: v for k, v in self._revoked_callers.items() if v[1] > now}

    def _use(self, ticket: HeldTicket, now: float) -> None:
        if ticket.claims.id in self._used:
            raise TicketError("used")
        if len(self._used) >= MAX_USED:
            self.forget(now)
            if len(self._used) >= MAX_USED:
                raise OverloadedError("Too many approved calls in a minute; try again later.")
        # Remembered for longer than it is valid: a copy may have been opened with other clocks.
        self._used[ticket.claims.id] = ticket.expires + CLOCK_SLACK

    def _revoked_before(self, claims: TicketClaims) -> bool:
        for table, key in (
            (self._revoked_turns, claims.turn),
            (self._revoked_callers, claims.caller),
        ):
            found = table.get(key)
            if found is not None and claims.issued_at <= found[0]:
                return True
        return False
