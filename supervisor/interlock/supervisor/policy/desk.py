"""Approvals in the running supervisor: timers, the journal, events and needs attention.

Nothing is announced before it is stored, and nobody's answer takes effect before that either.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from interlock.bus.events import ApprovalRequested, ApprovalResolved
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.journalrows import ApprovalRow
from interlock.supervisor.events.ports import Attention
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.policy.approvals import (
    Answerer,
    Approval,
    Approvals,
    Asked,
    Outcome,
    summary,
)

SHOWN: Final = 64 << 10
"""Bytes of arguments that are shown and stored; of longer ones the beginning is."""
ATTENTION: Final = "approval_waiting"

Ended = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class _Case:
    row: ApprovalRow
    ended: Ended
    requested: ApprovalRequested | None = None
    """The event that is still to be published."""
    parked: Callable[[], None] = lambda: None
    timer: asyncio.TimerHandle | None = None


class ApprovalDesk:
    """The only owner of approvals. Called in the event loop; nothing waits."""

    def __init__(
        self,
        journal: Journal,
        sequencer: Sequencer,
        attention: Attention,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.life = 300.0
        """Seconds that a call may wait."""
        self._journal = journal
        self._sequencer = sequencer
        self._attention = attention
        self._clock = clock
        self._book = Approvals()
        self._cases: dict[str, _Case] = {}

    def new_id(self) -> str:
        """An id that no approval has, short enough to be typed."""
        while self._book.known(made := secrets.token_hex(4)):
            pass
        return made

    def park(
        self,
        asked: Asked,
        patience: float,
        parked: Callable[[float], None],
        ended: Ended,
    ) -> None:
        """Let a call wait for a person, for `patience` seconds or, with 0, for `life`.

        `parked(seconds)` is called when it is stored and announced, `ended(outcome)` once, when it
        has ended and that is stored. Raises OverloadedError.
        """
        loop = asyncio.get_running_loop()
        seconds = min(patience, self.life) if patience else self.life
        approval = self._book.park(asked, loop.time(), seconds)
        now = self._clock()
        case = _Case(_row(asked, now), ended)
        case.requested = ApprovalRequested(
            id=asked.id,
            capability=asked.capability,
            caller=asked.caller,
            turn=asked.turn,
            agent=asked.agent,
            reason=asked.reason,
            expires=now + seconds,
        )
        case.parked = lambda: parked(seconds)
        self._cases[asked.id] = case
        case.timer = loop.call_at(approval.expires, self._expire, asked.id)
        stored = self._journal.put_approval(case.row)
        stored.add_done_callback(lambda _: self._announce(approval, case))

    def settle(self, asked: Asked, outcome: Outcome, by: str, ended: Ended) -> None:
        """Record what is decided at once; `ended(outcome)` is called when it is stored."""
        self._end(self._book.settle(asked, outcome, by), _Case(_row(asked, self._clock()), ended))

    def answer(self, id_: str, who: Answerer, approve: bool) -> asyncio.Future[bool]:
        """Decide an approval; resolves when that is stored. Raises as `Approvals.answer`."""
        now = asyncio.get_running_loop().time()
        approval = self._book.answer(id_, who, approve, now)
        return self._end(approval, self._cases.pop(id_))

    def withdraw(self, which: Callable[[Approval], bool], outcome: Outcome = "withdrawn") -> None:
        """End all waiting approvals that are meant."""
        for approval in self._book.withdraw(which, outcome):
            self._end(approval, self._cases.pop(approval.asked.id))

    def rows(self) -> list[dict[str, Any]]:
        """What waits, as `approvals` answers it; the oldest first."""
        shift = self._clock() - asyncio.get_running_loop().time()
        return [
            document(self._cases[one.asked.id].row) | {"expires": one.expires + shift}
            for one in self._book.waiting()
        ]

    def by_turn(self) -> dict[str, list[str]]:
        """The ids of what waits, the oldest first, by the turn that each is of."""
        found: dict[str, list[str]] = {}
        for one in self._book.waiting():
            found.setdefault(one.asked.turn, []).append(one.asked.id)
        return found

    def close(self) -> None:
        """The supervisor ends: nothing waits any longer."""
        self.withdraw(lambda approval: True)

    def _expire(self, id_: str) -> None:
        now = asyncio.get_running_loop().time()
        approval = self._book.expire(id_, max(now, self._due(id_)))
        if approval is not None:
            self._end(approval, self._cases.pop(id_))

    def _due(self, id_: str) -> float:
        timer = self._cases[id_].timer  # a loop calls a timer up to its resolution too early
        return timer.when() if timer is not None else 0.0

    def _announce(self, approval: Approval, case: _Case) -> None:
        event, case.requested = case.requested, None
        if event is None:
            return
        self._sequencer.publish(event)
        self._attend()
        if not approval.outcome:
            case.parked()

    def _end(self, approval: Approval, case: _Case) -> asyncio.Future[bool]:
        if case.timer is not None:
            case.timer.cancel()
        row = msgspec.structs.replace(
            case.row, outcome=approval.outcome, by=approval.by, decided=self._clock()
        )
        stored = self._journal.put_approval(row)
        stored.add_done_callback(lambda _: self._announce_end(approval, case))
        return stored

    def _announce_end(self, approval: Approval, case: _Case) -> None:
        self._announce(approval, case)
        asked, outcome = approval.asked, approval.outcome
        assert outcome
        self._sequencer.publish(
            ApprovalResolved(
                id=asked.id,
                capability=asked.capability,
                caller=asked.caller,
                turn=asked.turn,
                agent=asked.agent,
                outcome=outcome,
                by=approval.by,
            )
        )
        self._attend()
        case.ended(outcome)

    def _attend(self) -> None:
        told = summary(self._book.waiting())
        self._attention(ATTENTION, told, "interlock approvals", clear=not told)


def document(row: ApprovalRow) -> dict[str, Any]:
    """One approval as the api shows it, without its expiry."""
    cut = len(row.arguments) >= SHOWN
    return {
        "id": row.id,
        "turn": row.turn,
        "agent": row.agent,
        "capability": row.capability,
        "arguments": {"cut": row.arguments} if cut else msgspec.Raw(row.arguments.encode()),
        "caller": row.caller,
        "reason": row.reason,
        "asked": row.asked,
    }


def decided(row: ApprovalRow) -> dict[str, Any]:
    """One approval that has ended, as the api shows it."""
    return document(row) | {"outcome": row.outcome, "by": row.by, "decided": row.decided}


def _row(asked: Asked, now: float) -> ApprovalRow:
    return ApprovalRow(
        id=asked.id,
        turn=asked.turn,
        agent=asked.agent,
        caller=asked.caller,
        capability=asked.capability,
        arguments=asked.arguments.decode("utf-8", "replace")[:SHOWN],
        digest=asked.digest,
        reason=asked.reason,
        asked=now,
    )
