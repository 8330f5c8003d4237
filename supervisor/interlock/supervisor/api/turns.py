"""Answers of the api that concern turns, tools and direct calls.

Every handler takes `(identity, message, body)` and returns the JSON document of the reply, or None
where the request has no reply of its own. They raise InterlockError; its code goes into the reply.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from interlock.bus.errors import (
    InterlockError,
    JournalError,
    NotFoundError,
    RequestTimeoutError,
    UsageError,
)
from interlock.bus.messages import (
    Resolve,
    TurnCredit,
    TurnGet,
    TurnsGet,
    TurnStart,
    TurnStop,
    TurnUnwatch,
    TurnWatch,
)
from interlock.bus.names import CapabilityName, WorkerName
from interlock.bus.records import Target
from interlock.supervisor.api.documents import Documents
from interlock.supervisor.api.offers import find_agent, text_of
from interlock.supervisor.catalog.offer import PERSON
from interlock.supervisor.catalog.resolve import Refusal, resolve, unavailable
from interlock.supervisor.catalog.rows import CatalogRow
from interlock.supervisor.events.journalfile import MAX_TEXTS
from interlock.supervisor.events.journalrows import CallRow, TurnRow
from interlock.supervisor.events.turns import NewTurn, TurnService
from interlock.supervisor.events.unreported import Told, Unreported, all_calls, told
from interlock.supervisor.policy.decision import per_call
from interlock.supervisor.policy.desk import decided
from interlock.supervisor.policy.permits import Permit, Refused, Wish

MAX_SESSION: Final = 200
"""Characters of a session's name."""
MAX_DEADLINE: Final = 7 * 86_400.0
"""Seconds."""
MAX_LISTED: Final = 1_000
"""Turns in one answer."""
ACCEPT: Final = 10.0
"""Seconds that a start waits for its acceptance; the journal answers long before."""
PRESENT: Final = 2.0
"""Seconds between two looks whether a client still waits for an approval."""
AGAIN: Final = 1.0
"""Seconds between two such looks before somebody decides."""
PIECE: Final = 512 << 10
"""Bytes of items that are read before everything else has its turn."""
PER_ITEM: Final = 256
"""Bytes that looking at an item costs as much as."""
_TURN_ID: Final = re.compile(r"[0-9a-f]{32}")


class TurnApi:
    """The handlers; the runtime dispatches by message type.

    `present` says whether a client is still connected.
    """

    def __init__(
        self,
        turns: TurnService,
        documents: Documents | None = None,
        present: Callable[[bytes], bool] = lambda identity: True,
    ) -> None:
        self._turns = turns
        self._documents = documents or Documents()
        self._present = present
        self._parked: dict[str, bytes] = {}
        """Who waits for an approval, by its id: clients with a direct call."""
        self._looked: dict[str, float] = {}
        """When somebody last looked whether those are still there, in monotonic seconds."""

    async def start(self, identity: bytes, message: TurnStart, body: bytes | None) -> bytes:
        """`{turn, state}` once the turn is accepted; the same id again answers the same turn."""
        turn = message.turn
        if not _TURN_ID.fullmatch(turn):
            raise UsageError("A turn's id is 32 hex digits in lower case.")
        if self._turns.row(turn) is None and not self._turns.ended_before(turn):
            self._turns.begin(self._new(identity, message, body))
        waiting = self._turns.accepted(turn)
        if waiting is not None:
            try:
                async with asyncio.timeout(ACCEPT):
                    await asyncio.shield(waiting)
            except TimeoutError as error:
                raise RequestTimeoutError("The turn was not accepted in time.") from error
        return self._state(await self._row(turn))

    def _new(self, identity: bytes, message: TurnStart, body: bytes | None) -> NewTurn:
        workers = self._turns.workers
        agent, settings = find_agent(workers, message.agent or workers.default_agent())
        text = text_of(body)
        if not text.strip():
            raise UsageError("A turn needs a text.")
        if len(message.session) > MAX_SESSION:
            raise UsageError(f"A session's name has at most {MAX_SESSION} characters.")
        if not (math.isfinite(message.deadline) and message.deadline >= 0):
            raise UsageError("A deadline is a number of seconds, 0 for the agent's own.")
        return NewTurn(
            turn=message.turn,
            agent=agent,
            text=text,
            session=message.session,
            deadline=min(message.deadline or settings.deadline, MAX_DEADLINE),
            unattended=message.unattended,
            client=caller_name(identity),
        )

    async def _row(self, turn: str) -> TurnRow:
        row = self._turns.row(turn)
        if row is None:
            row = await self._turns.journal.turn(turn) if _TURN_ID.fullmatch(turn) else None
        if row is None:
            raise NotFoundError(f"There is no turn {turn[:40]!r}; see `interlock turns`.")
        return row

    @staticmethod
    def _state(row: TurnRow) -> bytes:
        return msgspec.json.encode({"turn": row.turn, "state": row.state})

    async def watch(self, identity: bytes, message: TurnWatch, body: bytes | None) -> None:
        """Streams `items`; a reply is sent only for an unknown turn (`not_found`)."""
        if message.offset < 0 or message.credit < 0:
            raise UsageError("Offset and credit of a watch are not negative.")
        if not self._turns.logs.known(message.turn):
            self._turns.logs.reserve(identity, message.id)
            try:
                await self._row(message.turn)
            except InterlockError:
                self._turns.logs.unwatch(identity, message.id)
                raise
            if not self._turns.logs.reserved(identity, message.id):
                return
        await self._turns.logs.watch(
            identity, message.id, message.turn, offset=message.offset, credit=message.credit
        )

    async def credit(self, identity: bytes, message: TurnCredit, body: bytes | None) -> None:
        """Grants a watcher more items."""
        self._turns.logs.credit(identity, message.watch, message.credit)

    async def unwatch(self, identity: bytes, message: TurnUnwatch, body: bytes | None) -> None:
        """Ends a watch."""
        self._turns.logs.unwatch(identity, message.watch)

    async def cancel(self, identity: bytes, message: TurnStop, body: bytes | None) -> bytes:
        """`{turn, state}`; the end itself arrives in the stream."""
        self._turns.cancel(message.turn)
        return self._state(await self._row(message.turn))

    async def turns(self, identity: bytes, message: TurnsGet, body: bytes | None) -> bytes:
        """`{turns: [...]}`, newest first."""
        limit = min(max(message.limit, 1), MAX_LISTED)
        rows = {row.turn: row for row in self._turns.rows()}
        try:
            for row in await self._turns.journal.turns(limit):
                rows.setdefault(row.turn, row)
        except JournalError:
            # The journal stands under needs attention; memory has what is under way.
            if not rows:
                raise
        # By the journal's order and not by the clock, which may have been set back; it has those
        # that nobody else remembers in order.
        order = self._turns.order
        newest = sorted(rows.values(), key=lambda row: order(row.turn), reverse=True)[:limit]
        waits = self._turns.approvals.by_turn()
        rows_shown = (_turn_document(row, waits) for row in _within(MAX_TEXTS, newest))
        return await self._documents.make({}, {"turns": rows_shown})

    async def show(self, identity: bytes, message: TurnGet, body: bytes | None) -> bytes:
        """One turn's row with its calls and approvals."""
        row = await self._row(message.turn)
        try:
            calls = await self._turns.journal.calls(message.turn)
            approvals = await self._turns.journal.approvals(MAX_LISTED, message.turn)
            items = self._turns.logs.items(message.turn)
            if items is None:
                items = await self._turns.journal.items(message.turn)
        except JournalError:
            calls, approvals, items = [], [], self._turns.logs.items(message.turn) or []
        said = await self._told(items)
        rows = await self._documents.alone(
            lambda: all_calls(said, calls, reversed(approvals), row.state)
        )
        return await self._documents.make(
            _turn_document(row, self._turns.approvals.by_turn()),
            {
                "calls": (_call_document(row, call) for call in rows),
                "approvals": map(decided, reversed(approvals)),
            },
        )

    async def _told(self, items: Sequence[bytes]) -> list[Told]:
        """What the items say of calls, read in pieces; a turn may have many MiB of them."""
        found: list[Told] = []
        first = size = 0
        for n, item in enumerate(items, 1):
            size += len(item) + PER_ITEM
            if size >= PIECE or n == len(items):
                piece = items[first:n]
                await self._documents.alone(lambda piece=piece: found.extend(told(piece)))  # type: ignore[misc]
                first, size = n, 0
        return found

    async def resolve(self, identity: bytes, message: Resolve, body: bytes | None) -> bytes:
        """`{capability, local, timeout, timeout_max, target, single_use}` for a direct call.

        Where a person has to approve the call, it waits for that, or says so.
        A refusal is an event.
        """
        try:
            return await self._resolve(identity, message, body)
        except InterlockError as error:
            self._turns.refused(caller_name(identity), message.capability, error.code)
            raise

    async def _resolve(self, identity: bytes, message: Resolve, body: bytes | None) -> bytes:
        turns = self._turns
        policy = turns.workers.policy()
        rows, sources = turns.catalog.rows(), turns.catalog.sources()
        found = resolve(message.capability, rows, sources, policy, PERSON)
        if isinstance(found, Refusal):
            unused = turns.workers.unused(found.missing) if found.missing else ""
            raise InterlockError(unused or found.message, code=found.code)
        caller = caller_name(identity)
        single_use = per_call(found.name, found.tier, policy)
        if single_use:
            if not (math.isfinite(message.patience) and message.patience >= 0):
                raise UsageError("The patience is a number of seconds, 0 for the usual.")
            wish = Wish(
                caller=caller,
                arguments=body or b"{}",
                way=message.approval,
                patience=message.patience,
            )
            target: Target | None = await self._permitted(found, wish, identity)
        else:
            target = turns.tickets.api_target(found.source, found.local, caller)
        if target is None:
            source = turns.catalog.sources()[found.source]
            raise InterlockError(unavailable(source), code="unavailable")
        document = {
            "capability": found.name,
            "local": found.local,
            "timeout": found.timeout,
            "timeout_max": found.timeout_max,
            "target": target,
        }
        if single_use:
            document["single_use"] = True
        return msgspec.json.encode(document)

    async def _permitted(self, row: CatalogRow, wish: Wish, identity: bytes) -> Target:
        """The ticket for one call. Its deadline is that of the approval, which always ends."""
        ended: asyncio.Future[Permit | Refused] = asyncio.get_running_loop().create_future()
        approval = ""

        def parked(id_: str, seconds: float) -> None:
            nonlocal approval
            approval = id_
            if ended.done():
                self._turns.permits.withdraw(id_)
            else:
                self._parked[id_] = identity

        def answered(outcome: Permit | Refused) -> None:
            if not ended.done():
                ended.set_result(outcome)

        wish = msgspec.structs.replace(wish, wanted=lambda: not ended.done())
        self._turns.permits.ask(row, wish, parked, answered)
        try:
            while not ended.done():
                await asyncio.wait((ended,), timeout=PRESENT)
                if not ended.done() and not self._present(identity):
                    raise InterlockError("Whoever asked for the call is gone.", code="cancelled")
            outcome = ended.result()
        finally:
            ended.cancel()
            if approval:
                self._parked.pop(approval, None)
                self._looked.pop(approval, None)
                self._turns.permits.withdraw(approval)
        if isinstance(outcome, Refused):
            raise InterlockError(outcome.message, code=outcome.code)
        return outcome.target

    def look(self, approval: str) -> None:
        """Withdraw an approval whose caller has left; to be called before somebody decides."""
        who, now = self._parked.get(approval), asyncio.get_running_loop().time()
        if who is None or now < self._looked.get(approval, -math.inf) + AGAIN:
            return  # a look writes to it, and also who may decide nothing can ask for one
        self._looked[approval] = now
        if not self._present(who):
            self._turns.permits.withdraw(approval)


def caller_name(identity: bytes) -> str:
    """The name of an api client as a caller."""
    return f"api:{identity.hex()}"


def _within(size: int, rows: Iterable[TurnRow]) -> Iterator[TurnRow]:
    """The first rows, up to that many characters of their texts and one row beyond."""
    for row in rows:
        yield row
        size -= len(row.text)
        if size < 0:
            return


def _turn_document(row: TurnRow, waits: Mapping[str, list[str]]) -> dict[str, Any]:
    return {
        "turn": row.turn,
        "agent": row.agent,
        "session": row.session,
        "state": row.state,
        "text": row.text,
        "started": row.started,
        "ended": row.ended,
        "code": row.code,
        "message": row.message,
        "waits": waits.get(row.turn, []),
    }


def _call_document(row: TurnRow, call: CallRow | Unreported) -> dict[str, Any]:
    if isinstance(call, Unreported):
        return _unreported_document(row, call)
    return {
        "capability": call.capability,
        "outcome": call.outcome,
        "duration_ms": call.duration_ms,
        "started": call.started,
        "may_have_run": call.may_have_run,
        "worker": call.worker,
        "generation": call.generation,
        "call": call.call,
        "caller": call.caller,
    }


def _unreported_document(row: TurnRow, call: Unreported) -> dict[str, Any]:
    try:
        worker = str(CapabilityName.parse(call.capability).worker)
    except UsageError:
        worker = ""
    return {
        "capability": call.capability,
        "outcome": call.outcome,
        "duration_ms": call.duration_ms,
        "started": row.started,
        "may_have_run": call.may_have_run,
        "worker": worker,
        "generation": 0,
        "call": call.call,
        "caller": str(WorkerName("agent", row.agent)),
        "approval": call.approval,
    }
