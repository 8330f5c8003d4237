"""Answers of the api that concern approvals: list, approve, deny."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from interlock.bus.messages import ApprovalsGet, Approve, Deny, Request
from interlock.supervisor.api.documents import Documents
from interlock.supervisor.api.server import Handler
from interlock.supervisor.api.turns import caller_name
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.policy.approvals import Answerer, Role
from interlock.supervisor.policy.desk import ApprovalDesk, decided

MAX_PAST = 1_000
"""Decisions in one answer."""


class ApprovalApi:
    """Every method takes `(identity, message, body)` and returns the document of its reply.

    `look(approval)` is called before somebody decides: it withdraws what nobody waits for.
    """

    def __init__(
        self,
        desk: ApprovalDesk,
        journal: Journal,
        role: Callable[[bytes], Role],
        documents: Documents | None = None,
        look: Callable[[str], None] = lambda approval: None,
    ) -> None:
        self._desk = desk
        self._journal = journal
        self._role = role
        self._documents = documents or Documents()
        self._look = look

    def table(self) -> dict[type[Request], Handler]:
        """Which request each method answers."""
        return {ApprovalsGet: self.list, Approve: self.approve, Deny: self.deny}

    async def list(self, identity: bytes, message: ApprovalsGet, body: bytes | None) -> bytes:
        """`{approvals: [...]}`, with `past` also the newest decisions of the journal."""
        waiting = self._desk.rows()
        lists: dict[str, Iterable[object]] = {"approvals": waiting}
        if message.past > 0:
            rows = await self._journal.approvals(min(message.past, MAX_PAST) + len(waiting))
            ended = [row for row in rows if row.outcome][: message.past]
            lists["past"] = map(decided, ended)
        return await self._documents.make({}, lists)

    async def approve(self, identity: bytes, message: Approve, body: bytes | None) -> bytes:
        """`{id, outcome}` once the decision is stored."""
        return await self._answer(identity, message.approval, approve=True)

    async def deny(self, identity: bytes, message: Deny, body: bytes | None) -> bytes:
        """`{id, outcome}` once the decision is stored."""
        return await self._answer(identity, message.approval, approve=False)

    async def _answer(self, identity: bytes, approval: str, *, approve: bool) -> bytes:
        self._look(approval)
        who = Answerer(name=caller_name(identity), role=self._role(identity))
        await self._desk.answer(approval, who, approve)
        outcome = "approved" if approve else "approval_denied"
        return msgspec.json.encode({"id": approval, "outcome": outcome})
