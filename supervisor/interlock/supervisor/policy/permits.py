"""Decides single calls by their arguments, has persons asked, and gives the ticket for one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from interlock.bus.errors import MalformedError, OverloadedError
from interlock.bus.records import Target
from interlock.bus.settings import PolicySettings
from interlock.bus.tickets import read_arguments
from interlock.supervisor.catalog.offer import PERSON, Caller
from interlock.supervisor.catalog.resolve import Refusal, resolve
from interlock.supervisor.catalog.rows import Catalog, CatalogRow
from interlock.supervisor.events.ports import Workers
from interlock.supervisor.policy.approvals import Approval, Asked, Outcome, of_turn
from interlock.supervisor.policy.decision import Ruling, decide, has_rules
from interlock.supervisor.policy.desk import ApprovalDesk
from interlock.supervisor.policy.lent import Basis, void
from interlock.supervisor.policy.tickets import TicketOffice

_TOLD: Final[dict[Outcome, str]] = {
    "approval_denied": "a person said no",
    "approval_timeout": "nobody answered in time",
    "approval_unavailable": "nobody can be asked",
}

Way = Literal["park", "tell", "yes", "no"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """One call that somebody wants to make."""

    caller: str
    """As tickets name it."""
    client: str = ""
    """Whoever sent the turn that the call is of."""
    arguments: bytes
    turn: str = ""
    agent: str = ""
    """Name of the agent; empty for a person's own call."""
    nobody: str = ""
    """Why nobody can be asked; empty if somebody can."""
    way: Way = "park"
    """What to do if a person has to be asked; `yes` and `no`: the caller is one and has said so."""
    patience: float = 0.0
    """Seconds to wait for a person; 0 = as long as an approval may."""
    wanted: Callable[[], bool] = lambda: True
    """Whether it still is, when a person has answered."""


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """The call may be made, once, with this target."""

    row: CatalogRow
    target: Target


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The call may not be made; `code` is an outcome, or `approval_needed`."""

    code: str
    message: str


class _Looked:
    """The arguments of a call, and what they led to; looked at again only for another policy."""

    def __init__(
        self, row: CatalogRow, policy: PolicySettings, arguments: Mapping[str, Any]
    ) -> None:
        self._arguments = arguments
        self._row, self._policy = row, policy
        self.ruling = decide(row.name, row.tier, policy, arguments)

    def again(self, row: CatalogRow, policy: PolicySettings) -> Ruling:
        """What holds now."""
        if (row.name, row.tier) == (self._row.name, self._row.tier) and policy is self._policy:
            return self.ruling
        return decide(row.name, row.tier, policy, self._arguments)


Ended = Callable[[Permit | Refused], None]
Parked = Callable[[str, float], None]
"""Called with the approval's id and the seconds that it waits at most."""


class Permits:
    """Every call that a turn ticket or a client's ticket does not cover by itself."""

    def __init__(
        self, workers: Workers, catalog: Catalog, tickets: TicketOffice, desk: ApprovalDesk
    ) -> None:
        self._workers = workers
        self._catalog = catalog
        self._tickets = tickets
        self._desk = desk

    def ask(self, row: CatalogRow, wish: Wish, parked: Parked, ended: Ended) -> None:
        """Decide about a call of a capability that grants and denials leave to the caller.

        `ended` is called once, at once or when a person has answered.
        """
        generation = self._tickets.serves(row.source)
        if generation is None:
            ended(Refused(code="unavailable", message=f"{row.source} is not usable now."))
            return
        try:
            arguments, digest = read_arguments(wish.arguments)
        except MalformedError as error:
            ended(Refused(code="invalid_arguments", message=error.message))
            return
        looked = _Looked(row, self._workers.policy(), arguments)
        ruling = looked.ruling
        asked = Asked(
            id=self._desk.new_id(),
            capability=row.name,
            worker=row.source,
            generation=generation,
            caller=wish.caller,
            client=wish.client,
            arguments=wish.arguments,
            digest=digest,
            turn=wish.turn,
            agent=wish.agent,
            document=row.digest,
            reason=ruling.reason,
        )
        if ruling.tier == "block":
            ended(_blocked(row.name, ruling.reason))
        elif ruling.tier != "ask":
            ended(self._permit(asked, wish, looked))
        else:
            self._approval(asked, wish, looked, parked, ended)

    def _approval(
        self,
        asked: Asked,
        wish: Wish,
        looked: _Looked,
        parked: Parked,
        ended: Ended,
    ) -> None:
        def decided(outcome: Outcome) -> None:
            ended(self._decided(asked, wish, looked, outcome))

        never = self._workers.policy().approval == "never"
        if never or wish.nobody:
            self._desk.settle(asked, "approval_unavailable", "", decided)
        elif wish.way == "tell":
            text = f"A person has to approve this call of {asked.capability}: {asked.reason}."
            ended(Refused(code="approval_needed", message=text))
        elif wish.way == "park":
            try:
                self._desk.park(
                    asked, wish.patience, lambda seconds: parked(asked.id, seconds), decided
                )
            except OverloadedError as error:
                ended(Refused(code=error.code, message=error.message))
        else:
            said: Outcome = "approved" if wish.way == "yes" else "approval_denied"
            self._desk.settle(asked, said, wish.caller, decided)

    def _decided(
        self, asked: Asked, wish: Wish, looked: _Looked, outcome: Outcome
    ) -> Permit | Refused:
        if outcome in _TOLD:
            why = f" ({wish.nobody or 'approval is never'})"
            why = why if outcome == "approval_unavailable" else ""
            text = f"{asked.capability} was not called: {_TOLD[outcome]}{why}."
            return Refused(code=outcome, message=text)
        given_up = outcome == "withdrawn" or not wish.wanted()
        return self._permit(asked, wish, looked, given_up=given_up)

    def _permit(
        self, asked: Asked, wish: Wish, looked: _Looked, *, given_up: bool = False
    ) -> Permit | Refused:
        """The ticket, if what was decided about is still there and still may be called."""
        policy = self._workers.policy()
        found = resolve(
            asked.capability,
            self._catalog.rows(),
            self._catalog.sources(),
            policy,
            self._caller(wish.agent),
        )
        if isinstance(found, Refusal):
            return Refused(code=found.code, message=found.message)
        ruling = looked.again(found, policy)
        if ruling.tier == "block":
            return _blocked(found.name, ruling.reason)
        same = self._tickets.serves(asked.worker) == asked.generation
        if not same or found.digest != asked.document:
            text = f"{asked.worker} was started again, or changed the tool, before the call; "
            return Refused(code="unavailable", message=f"{text}nothing was run.")
        if given_up:
            text = f"{asked.capability} was not called: it was given up before."
            return Refused(code="cancelled", message=text)
        basis = Basis(row=found, policy=policy, agent=wish.agent)
        target = self._tickets.call_target(
            basis, asked.generation, asked.caller, asked.turn, asked.digest
        )
        if target is None:
            return Refused(code="unavailable", message=f"{asked.worker} is not usable now.")
        return Permit(row=found, target=target)

    def _caller(self, agent: str) -> Caller:
        """For whom a call is decided, by what is in force now; `agent` empty: a person."""
        return self._workers.agents().get(agent) if agent else PERSON

    def withdraw(self, approval: str) -> None:
        """Its caller does not wait any longer."""
        self._desk.withdraw(lambda each: each.asked.id == approval)

    def withdraw_turn(self, turn: str) -> None:
        """The turn ends."""
        self._desk.withdraw(of_turn(turn))

    def worker_gone(self, worker: str, generation: int) -> None:
        """A generation ended: what would have been called there cannot be any more."""
        self._desk.withdraw(
            lambda each: (each.asked.worker, each.asked.generation) == (worker, generation)
        )

    def source_changed(self, worker: str) -> None:
        """Void what was given out for that worker and does not hold any more.

        Call it after every change of its state, of what it serves, of policy or of agents.
        """
        lent = self._tickets.lent(worker)
        if not lent:
            return
        gone = void(lent, self._catalog.rows_of(worker), self._workers.policy(), self._caller)
        told = self._tickets.revoke_lent(worker, gone)
        if told is not None:
            self._workers.send(told.worker, told.generation, told.message)

    def policy_changed(self) -> None:
        """Take in a new policy: what it forbids, or what nobody may be asked for, waits no more."""
        policy = self._workers.policy()
        if policy.approval == "never":
            self._desk.withdraw(lambda each: True, "approval_unavailable")
        self._desk.withdraw(self._forbidden)

    def _forbidden(self, approval: Approval) -> bool:
        asked = approval.asked
        policy = self._workers.policy()
        rows, sources = self._catalog.rows(), self._catalog.sources()
        found = resolve(asked.capability, rows, sources, policy, self._caller(asked.agent))
        if isinstance(found, Refusal):
            return found.code == "denied"
        # Those of a thousand calls may wait: they are read only if a rule looks at them.
        looks = has_rules(found.name, policy)
        arguments = read_arguments(asked.arguments)[0] if looks else {}
        return decide(found.name, found.tier, policy, arguments).tier == "block"


def _blocked(name: str, reason: str) -> Refused:
    return Refused(code="denied", message=f"{name} may not be called: {reason}.")
