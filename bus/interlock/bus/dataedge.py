"""The calling end of the data plane: one connection to one generation of a serving worker."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from interlock.bus.codec import decode_data_down, encode
from interlock.bus.dealer import Dealer
from interlock.bus.errors import OUTCOMES, MalformedError
from interlock.bus.link import HIGH_WATER, path_of
from interlock.bus.messages import (
    CHUNK_WINDOW,
    MAX_MESSAGE,
    Call,
    Cancel,
    Chunk,
    Credit,
    Failure,
    Log,
    Open,
    Opened,
    Progress,
    Result,
)
from interlock.bus.records import Target
from interlock.bus.tickets import peek
from interlock.bus.wording import spoken

CONNECT_GRACE: Final = 2.0
"""Seconds that calls wait for a connection that does not stand yet."""
LOST_GRACE: Final = 2.0
"""Seconds that calls wait for a word about their worker after the connection to it was lost."""
MAX_WAITING: Final = 1024
"""Messages that wait for that connection."""
MAX_WAITING_BYTES: Final = 16 << 20
"""Bytes that wait for that connection."""
REMEMBERED: Final = 1024
"""Tickets that wait for an answer, and refused ones, that are remembered."""
_CREDIT_AT: Final = CHUNK_WINDOW // 2
"""Chunks after which credit is granted: half a window, so that the sender never runs dry."""
_T = TypeVar("_T")


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended; `outcome` is one of `errors.OUTCOMES`."""

    outcome: str
    body: bytes | None = None
    """The JSON result; None unless the outcome is ok or tool_error."""
    message: str = ""
    duration_ms: float = 0.0
    may_have_run: bool = False
    """The server had the request, or may have had it, so its effect is unknown."""


class _CallFuture(asyncio.Future[CallAnswer]):
    """The caller's view of a call; cancelling it, also through its task, tells the target."""

    on_cancel: Callable[[], None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled and self.on_cancel is not None:
            self.on_cancel()
        return cancelled


class _Outstanding:
    """A call under way. Times are in seconds of the loop's clock."""

    __slots__ = (
        "cap",
        "deadline",
        "future",
        "id",
        "lost",
        "on_progress",
        "parts",
        "sent",
        "size",
        "started",
        "timeout",
        "uncredited",
    )

    def __init__(
        self,
        call_id: int,
        future: _CallFuture,
        now: float,
        timeout: float,
        timeout_max: float,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.id = call_id
        self.future = future
        self.started = now
        self.timeout = timeout
        self.deadline = now + timeout
        self.cap = now + timeout_max
        self.on_progress = on_progress
        self.sent = False
        self.lost = False
        """The connection that it was sent over is no more."""
        self.parts: list[bytes] = []
        self.size = 0
        self.uncredited = 0


class _Waiting(NamedTuple):
    """A message that waits for the connection; `call_id` 0: an `open` of the ticket."""

    call_id: int
    ticket: str
    frames: list[bytes]


class DataEdge:
    """Calls one generation of a worker. Dropped for good when that generation ends.

    `late` counts answers that came after their call had ended here, `dropped` frames that were no
    message. `refused` is the last reason for which the target did not accept a ticket. Making one
    raises UnreachableError.
    """

    def __init__(
        self,
        target: Target,
        on_log: Callable[[Log], None] | None = None,
    ) -> None:
        self.worker = target.worker
        self.generation = target.generation
        self.late = 0
        self.dropped = 0
        self.refused = ""
        self._on_log = on_log
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._calls: dict[int, _Outstanding] = {}
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._connected = False
        self._unheard = 0
        self._given_up = False
        """A call has ended that may still wait; to look for such takes time for all that wait."""
        self._opening: dict[str, None] = {}
        """Ids of tickets without an answer, the oldest first."""
        self._opened: dict[str, None] = {}
        self._refused: dict[str, bool] = {}
        """By id, whether it never left for want of room: then the target does not say why."""
        self._ended = ""
        self._timer: asyncio.TimerHandle | None = None
        # Nothing is queued for a target that is not there: it might be the next generation.
        self._socket = Dealer(
            path_of(target.endpoint),
            target.worker,
            self._received,
            self._writable,
            self._unsent,
            self._lost,
        )
        self._ticket = self.open(target.ticket)

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def open(self, ticket: str) -> str:
        """Present a further ticket and return its id, for `call(ticket=...)`.

        Calls under it may follow at once. Raises `TicketError` if the text is no ticket.
        """
        ticket_id = peek(ticket).id
        if self._ended:
            return ticket_id
        self._refused.pop(ticket_id, None)
        _remember(self._opening, ticket_id, None)
        frames = [encode(Open(ticket=ticket))]
        if not self._waiting and self._socket.send(frames):
            self._connected = True
            self._unheard += 1
        elif not self._wait(0, ticket_id, frames):
            self._not_opened(ticket_id, unsent=True)
        return ticket_id

    def is_refused(self, ticket: str) -> bool:
        """Whether the ticket with that id was not opened; it may be if the target is asked again.

        Where it had too many callers, for example, it may have room by now. Too many messages that
        wait for a connection are a reason, too.
        """
        return ticket in self._refused

    def renew(self, target: Target) -> None:
        """Use the ticket of `target`, the same generation, from now on.

        Raises ValueError for another worker or generation: that needs an edge of its own.
        """
        if (target.worker, target.generation) != (self.worker, self.generation):
            raise ValueError(f"this edge belongs to {self.worker} generation {self.generation}")
        self._ticket = self.open(target.ticket)

    def call(
        self,
        local_name: str,
        body: bytes,
        timeout: float,
        timeout_max: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        ticket: str = "",
    ) -> asyncio.Future[CallAnswer]:
        """Call a capability; the future always ends with an answer, at its deadline at the latest.

        `timeout` in seconds runs from now and anew from each progress, `timeout_max` (None =
        `timeout`) bounds the whole. `ticket` is an id from `open`; empty = the target's ticket.
        Cancelling the future tells the server.
        """
        now = self._loop.time()
        call_id = next(self._ids)
        future = _CallFuture(loop=self._loop)
        longest = max(timeout, timeout_max or timeout)
        call = _Outstanding(call_id, future, now, timeout, longest, on_progress)
        if self._ended:
            self._end(call, "unavailable", self._ended)
            return future
        ticket = ticket or self._ticket
        if self._refused.get(ticket):
            self._end(call, "overloaded", f"Too many messages wait for {self.worker}.")
            return future
        try:
            if len(body) > MAX_MESSAGE:
                raise MalformedError(f"Arguments of {len(body)} bytes are too large.")
            header = encode(
                Call(
                    id=call_id,
                    ticket=ticket,
                    name=local_name,
                    left_ms=max(1, int(timeout * 1000)),
                    generation=self.generation,
                    progress=on_progress is not None or longest > timeout,
                )
            )
        except MalformedError as error:
            self._end(call, "invalid_arguments", error.message)
            return future
        self._start(call, ticket, [header, body], now)
        return future

    def gone(self, reason: str) -> None:
        """Fail all calls in flight with `worker_died` and drop the connection.

        A call whose result has come already, but was not read yet, ends with that.
        """
        if not self._ended:
            self._socket.hear_out()
        self._shut("worker_died", reason or f"{self.worker} ended.")

    def close(self) -> None:
        """Drop the connection; calls in flight end as cancelled. Twice is harmless."""
        self._shut("cancelled", f"The connection to {self.worker} was closed.")

    # --- sending ---

    def _start(self, call: _Outstanding, ticket: str, frames: list[bytes], now: float) -> None:
        if not self._waiting and self._socket.send_soon(frames, call):
            self._connected = True
            self._unheard += 1
            call.sent = True
        elif self._connected:
            self._not_taken(call)
            return
        elif self._wait(call.id, ticket, frames):
            call.deadline = now + min(call.timeout, CONNECT_GRACE)
        else:
            self._end(call, "overloaded", f"Too many calls wait for {self.worker}.")
            return
        self._calls[call.id] = call
        call.future.on_cancel = lambda: self._abandon(call)
        if self._timer is None or call.deadline < self._timer.when():
            self._arm(call.deadline)

    def _not_taken(self, call: _Outstanding) -> None:
        # Full, or no longer there. Half a queue without an answer tells the two apart.
        if self._unheard >= HIGH_WATER // 2:
            self._end(call, "overloaded", f"{self.worker} does not keep up; try again later.")
        else:
            self._end(call, "unavailable", f"{self.worker} cannot be reached now.")

    def _unsent(self, call: _Outstanding) -> None:
        self._unheard -= 1
        call.sent = False
        if call.id in self._calls:
            self._not_taken(call)

    def _wait(self, call_id: int, ticket: str, frames: list[bytes]) -> bool:
        size = sum(map(len, frames))
        if self._given_up and self._no_room(size):
            self._given_up = False
            self._keep(lambda one: not one.call_id or one.call_id in self._calls)
        if self._no_room(size) and not call_id:
            self._forget_opens()
        if self._no_room(size):
            return False
        self._waiting.append(_Waiting(call_id, ticket, frames))
        self._waiting_bytes += size
        self._socket.want_writable = True
        return True

    def _no_room(self, size: int) -> bool:
        return len(self._waiting) >= MAX_WAITING or self._waiting_bytes + size > MAX_WAITING_BYTES

    def _forget_opens(self) -> None:
        """Drop tickets that wait without a call that needs them, for a newer one."""
        needed = {one.ticket for one in self._waiting if one.call_id}
        for one in self._waiting:
            if not one.call_id and one.ticket not in needed:
                self._not_opened(one.ticket, unsent=True)
        self._keep(lambda one: bool(one.call_id) or one.ticket in needed)

    def _keep(self, kept: Callable[[_Waiting], bool]) -> None:
        self._waiting = deque(one for one in self._waiting if kept(one))
        self._waiting_bytes = sum(len(frame) for one in self._waiting for frame in one.frames)

    def _not_opened(self, ticket: str, unsent: bool = False) -> None:
        self._opening.pop(ticket, None)
        _remember(self._refused, ticket, unsent)

    def _writable(self) -> None:
        self._connected = True
        while self._waiting:
            call_id, _, frames = self._waiting[0]
            call = self._calls.get(call_id)
            if call is not None or not call_id:
                if not self._socket.send(frames):
                    return
                self._unheard += 1
            self._waiting.popleft()
            self._waiting_bytes -= sum(map(len, frames))
            if call is not None:
                call.sent = True
                call.deadline = call.started + call.timeout
        self._socket.want_writable = False

    def _abandon(self, call: _Outstanding) -> None:
        call.future.on_cancel = None
        ended = self._calls.pop(call.id, None) is not None
        self._given_up |= ended and not call.sent
        if ended and call.sent:
            self._socket.send([encode(Cancel(id=call.id))], always=True)

    def _lost(self) -> None:
        """See to it that nobody waits long for answers that cannot come any more.

        If the worker has died, that is told within this time, and why.
        """
        self._connected = False  # what is called now waits for the next one
        for ticket in (*self._opened, *self._opening):
            self._not_opened(ticket)
        self._opened.clear()
        until = self._loop.time() + LOST_GRACE
        for call in self._calls.values():
            if call.sent:
                call.lost = True
                call.deadline = min(call.deadline, until)
        if self._calls:
            self._arm(until)

    # --- receiving ---

    def _received(self, frames: list[bytes]) -> None:
        self._connected = True
        self._unheard = 0
        try:
            if len(frames) > 2:
                raise MalformedError("A data message has one or two frames.")
            message = decode_data_down(frames[0])
        except MalformedError:
            self.dropped += 1
            return
        body = frames[1] if len(frames) == 2 else b""
        if isinstance(message, Result):
            call = self._calls.get(message.id)
            if call is None:
                self.late += 1
            else:
                self._finish(call, message, body)
        elif isinstance(message, Log):
            if self._on_log is not None:
                self._on_log(message)
        elif isinstance(message, Opened):  # a target may say it again
            if message.ticket in self._opening:
                del self._opening[message.ticket]
                _remember(self._opened, message.ticket, None)
            self._refused.pop(message.ticket, None)
        else:
            self._answer(message, body)

    def _answer(self, message: Chunk | Progress | Failure, body: bytes) -> None:
        call = self._calls.get(message.id)
        if call is None:
            if message.id == 0 and isinstance(message, Failure):
                self.refused = message.message
                # One that names no ticket is the oldest one's: a target answers in order.
                named = message.ticket or next(iter(self._opening), "")
                if named in self._opening:
                    self._not_opened(named)
            else:
                self.late += 1
        elif isinstance(message, Failure):
            code = message.code if message.code in OUTCOMES else "unavailable"
            self._end(call, code, message.message, message.may_have_run)
        elif isinstance(message, Chunk):
            self._collect(call, message, body)
        else:
            self._renew_deadline(call)
            if call.on_progress is not None:
                call.on_progress(message)

    def _finish(self, call: _Outstanding, message: Result, body: bytes) -> None:
        if call.parts:
            if call.size + len(body) > MAX_MESSAGE:
                self._refuse_result(call)
                return
            call.parts.append(body)
            body = b"".join(call.parts)
        del self._calls[call.id]
        call.future.on_cancel = None
        call.future.set_result(
            CallAnswer(outcome=message.outcome, body=body, duration_ms=message.duration_ms)
        )

    def _collect(self, call: _Outstanding, message: Chunk, body: bytes) -> None:
        call.size += len(body)
        if message.n != len(call.parts) or not body or call.size > MAX_MESSAGE:
            self._refuse_result(call)
            return
        call.parts.append(body)
        self._renew_deadline(call)
        call.uncredited += 1
        if call.uncredited >= _CREDIT_AT:
            self._socket.send([encode(Credit(id=call.id, n=call.uncredited))], always=True)
            call.uncredited = 0

    def _refuse_result(self, call: _Outstanding) -> None:
        self._abandon(call)
        text = f"The result from {self.worker} is too large or its parts do not fit together."
        self._end(call, "unavailable", text, may_have_run=True)

    # --- ends ---

    def _end(
        self, call: _Outstanding, outcome: str, message: str, may_have_run: bool = False
    ) -> None:
        if self._calls.pop(call.id, None) is not None:
            self._given_up |= not call.sent
        call.future.on_cancel = None
        if not call.future.done():
            spent = (self._loop.time() - call.started) * 1000
            call.future.set_result(
                CallAnswer(
                    outcome=outcome, message=message, duration_ms=spent, may_have_run=may_have_run
                )
            )

    def _shut(self, outcome: str, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        for call in self._socket.held:
            call.sent = False
        for call in list(self._calls.values()):
            self._end(call, outcome, reason, may_have_run=call.sent)
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._socket.close()

    # --- deadlines: one timer for all calls, set to the earliest deadline that it knows ---

    def _renew_deadline(self, call: _Outstanding) -> None:
        call.deadline = min(self._loop.time() + call.timeout, call.cap)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        # Calls that ended or were renewed since left the timer alone, so it may find nothing.
        self._timer = None
        now = self._loop.time()
        for call in [c for c in self._calls.values() if c.deadline <= now]:
            if call.lost:
                text = f"The connection to {self.worker} was lost."
                self._end(call, "unavailable", text, may_have_run=True)
            elif call.sent:
                self._abandon(call)
                text = f"{self.worker} did not answer within {spoken(now - call.started)} s."
                self._end(call, "timeout", text, may_have_run=True)
            else:
                self._end(call, "unavailable", f"{self.worker} cannot be reached now.")
        if self._calls:
            self._arm(min(call.deadline for call in self._calls.values()))


def _remember(tickets: dict[str, _T], ticket: str, value: _T) -> None:
    """Note a ticket as the newest; the oldest of too many is forgotten."""
    tickets.pop(ticket, None)
    if len(tickets) >= REMEMBERED:
        del tickets[next(iter(tickets))]
    tickets[ticket] = value
