"""The serving end of the data plane: tickets, calls and results of one generation of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Final, Literal

from interlock.bus.admission import MEMORY, Admission
from interlock.bus.callers import LONGEST_ID, Callers, Connection
from interlock.bus.codec import Encoding, decode_data_up, encode, encoding_of, writable
from interlock.bus.errors import InterlockError, MalformedError, OverloadedError, TicketError
from interlock.bus.messages import (
    CHUNK,
    MAX_MESSAGE,
    Call,
    Cancel,
    DataDown,
    Failure,
    Log,
    Open,
    Opened,
    Progress,
    Result,
    Revoke,
)
from interlock.bus.pace import Pace, pace_for
from interlock.bus.router import Router
from interlock.bus.streams import Outbox, ResultStream, WholeAnswer
from interlock.bus.tickets import peek

MAX_IN_FLIGHT: Final = 1024
"""Calls in flight of one connection."""
MAX_HELD: Final = 4 * MAX_MESSAGE
"""Bytes of results that wait for one connection before it may call nothing further."""
MAX_NEWS: Final = 4096
"""Characters of the text of a progress or log message; the rest is cut off."""
MAX_FAILURE: Final = 64 << 10
"""Characters of a failure's text: with more its header might be too large for the caller."""
MAX_LEFT_MS: Final = 24 * 3600 * 1000
"""Remaining time beyond this counts as this."""
SWEEP: Final = 5.0
"""Seconds between two looks for what has expired."""


class IncomingCall:
    """One call that its ticket permits. Answer it exactly once with `result` or `fail`.

    Further answers, and answers to a call that its caller cancelled, are dropped.
    """

    __slots__ = (
        "_connection",
        "_pace",
        "_server",
        "_started",
        "answered",
        "arguments",
        "caller",
        "cancelled",
        "deadline",
        "id",
        "name",
        "on_cancel",
        "ticket_id",
        "turn",
        "wants_progress",
    )

    def __init__(
        self,
        server: DataServer,
        connection: Connection,
        call: Call,
        arguments: bytes,
        turn: str,
        now: float,
    ) -> None:
        self._server = server
        self._connection = connection
        self._pace: Pace[Progress] | None = None
        self._started = now
        self.deadline = now + min(call.left_ms, MAX_LEFT_MS) / 1000
        """When the caller stops waiting, without renewals; monotonic seconds."""
        self.id = call.id
        """Chosen by the caller; unique among the calls in flight of its connection only."""
        self.name = call.name
        """Local name of the capability."""
        self.arguments = arguments
        self.caller = connection.holder.caller
        self.turn = turn
        self.ticket_id = call.ticket
        self.wants_progress = call.progress
        self.answered = False
        self.cancelled = False
        """The caller is no longer interested."""
        self.on_cancel: Callable[[], None] | None = None
        """Set by the handler; called once if the caller cancels before the answer."""

    @property
    def peer(self) -> bytes:
        """Which connection the call came over; opaque."""
        return self._connection.identity

    @property
    def left(self) -> float:
        """Seconds that the caller still waits, without renewals; negative when they are over."""
        return self.deadline - self._server.time()

    def result(
        self,
        body: bytes,
        outcome: Literal["ok", "tool_error"] = "ok",
        duration_ms: float | None = None,
    ) -> None:
        """Answer with a JSON result. `duration_ms`: None = since the call arrived."""
        if len(body) > MAX_MESSAGE:
            size = f"{len(body)} bytes, over the limit of {MAX_MESSAGE}"
            self.fail("unavailable", f"The result has {size}.", may_have_run=True)
            return
        if duration_ms is None:
            duration_ms = (self._server.time() - self._started) * 1000
        if self._end():
            message = Result(id=self.id, outcome=outcome, duration_ms=duration_ms)
            self._server.send_result(self._connection, message, body)

    def fail(self, code: str, message: str, may_have_run: bool = False) -> None:
        """Answer without a result; `code` is one of `errors.OUTCOMES`."""
        if self._end():
            text = writable(message[:MAX_FAILURE])
            failure = Failure(id=self.id, code=code, message=text, may_have_run=may_have_run)
            self._server.send_failure(self._connection, failure)

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Pass progress on, which renews the caller's deadline; nothing if it wants none.

        Of a flood only the newest is passed on, several times a second.
        """
        if self.wants_progress and not self.answered and not self.cancelled:
            if self._pace is None:
                self._pace = self._server.pace(self._connection, self.deadline - self._started)
            text = writable(message[:MAX_NEWS])
            self._pace.tell(Progress(id=self.id, progress=progress, total=total, message=text))

    def log(self, level: str, message: str) -> None:
        """Pass a log message of the server on to the caller."""
        if not self.answered and not self.cancelled:
            news = Log(level=writable(level[:MAX_NEWS]), message=writable(message[:MAX_NEWS]))
            self._server.send(self._connection, news)

    def cancel(self) -> None:
        """Mark the call as unwanted and tell the handler; called for the caller's `cancel`.

        It counts no longer as one of its connection, whether the handler answers it or not.
        """
        if self.cancelled or self.answered:
            return
        self.cancelled = True
        del self._connection.calls[self.id]
        if self._pace is not None:
            self._pace.stop()
        if self.on_cancel is not None:
            self.on_cancel()

    def _end(self) -> bool:
        if self.answered:
            return False
        self.answered = True
        self.on_cancel = None  # it leads back to this call: such circles wait for the collector
        if self.cancelled:
            return False
        del self._connection.calls[self.id]
        if self._pace is not None:
            self._pace.finish()
        return True


class DataServer:
    """Binds `endpoint` and hands every permitted call to `handler`, in the event loop.

    `on_burst(True)` and `on_burst(False)` enclose calls that are handed over one right after the
    other.

    A frame that is no message of this plane, has expired or has lost its receiver is counted in
    `dropped`; every other one that is not permitted gets a coded failure. `on_full` is told while
    callers have to wait for a descriptor. Raises OSError.
    """

    def __init__(
        self,
        endpoint: str,
        key: bytes,
        worker: str,
        generation: int,
        handler: Callable[[IncomingCall], None],
        *,
        on_burst: Callable[[bool], None] | None = None,
        on_full: Callable[[bool], None] = lambda full: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.time: Callable[[], float] = time.monotonic
        """Seconds of the loop's clock."""
        self.dropped = 0
        self._worker = worker
        self._generation = generation
        self._handler = handler
        self._clock = clock
        self._admission = Admission(key, worker, generation)
        self._socket = Router(
            endpoint,
            self._received,
            on_burst=on_burst,
            on_unsent=self._unsent,
            on_gone=self._gone,
            on_full=on_full,
        )
        self._outbox = Outbox(self._socket, self._lost)
        self._callers = Callers(worker, lambda: self._outbox.identities)
        self._loop = loop
        self._openings = itertools.count(-1, -1)
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> int:
        """Calls that were handed over and not answered yet."""
        return sum(len(connection.calls) for connection in self._callers)

    @property
    def edges(self) -> int:
        """Connections that hold a valid ticket or have a call in flight."""
        return len(self._callers)

    def revoke(self, revoke: Revoke) -> None:
        """Void tickets, opened or not; calls that already run go on."""
        holders = [connection.holder for connection in self._callers]
        self._admission.revoke(revoke, holders, self.time(), self._clock())
        self._sweep_later()

    def mend(self) -> bool:
        """Bind again if the socket file was removed; True if that was so.

        Raises OSError.
        """
        return self._socket.mend()

    async def flushed(self) -> None:
        """Return when every answer that had to wait has left; the caller sets a deadline."""
        await self._outbox.flushed()

    def close(self, linger: float = 0.0) -> None:
        """Unbind and drop everything; twice is harmless.

        Queued answers have `linger` seconds to leave, during which this waits.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._outbox.close()
        self._socket.close(linger)

    def send(self, connection: Connection, message: DataDown) -> None:
        """Send a message without a body to a caller; lost ones are counted."""
        try:
            header = encode(message, connection.encoding)
        except MalformedError:  # such as a server's progress of 400 digits
            self.dropped += 1
            return
        if not self._socket.send([connection.identity, header]):
            self.dropped += 1

    def pace(self, connection: Connection, patience: float) -> Pace[Progress]:
        """Return what slows the progress of one call down to what a caller can take.

        `patience`: seconds that it waits, renewed by each progress.
        """

        def send(news: Progress) -> None:
            self.send(connection, news)

        return Pace(self._loop, send, pace_for(patience))

    def send_failure(self, connection: Connection, failure: Failure) -> None:
        """Send how a call ended, as soon as its caller can take it."""
        self._answer(connection.identity, connection.encoding, failure)

    def send_result(self, connection: Connection, result: Result, body: bytes) -> None:
        """Send a result, in chunks if it is large, as soon as its caller can take it."""
        if len(body) > CHUNK:
            identity, encoding = connection.identity, connection.encoding
            self._outbox.add(ResultStream(identity, encoding, result, body, self.time()))
            return
        frames = [connection.identity, encode(result, connection.encoding), body]
        unsent = (result.id, frames)
        if not self._socket.send_soon(frames, unsent):
            self._unsent(unsent)

    def _received(self, frames: list[bytes]) -> None:
        try:
            if not 2 <= len(frames) <= 3:
                raise MalformedError("A data message has one or two frames.")
            message = decode_data_up(frames[1])
            if isinstance(message, Open):
                self._open(frames[0], encoding_of(frames[1]), message)
                return
            if not 0 < message.id < 1 << 63:
                raise MalformedError("Call ids are positive and below 2^63.")
        except MalformedError:
            self.dropped += 1
            return
        if isinstance(message, Call):
            self._call(frames, message)
        elif isinstance(message, Cancel):
            self._cancel(frames[0], message.id)
        else:
            self._outbox.grant(frames[0], message.id, message.n)

    def _open(self, identity: bytes, encoding: Encoding, message: Open) -> None:
        connection = self._callers.get(identity)
        now = self.time()
        try:
            caller = None if connection is None else connection.holder.caller
            ticket = self._admission.verify(message.ticket, caller, now, self._clock())
            if connection is None:
                connection = self._callers.add(identity, encoding, ticket.claims.caller, now)
                self._sweep_later()
            self._admission.hold(connection.holder, ticket, now)
            self._socket.trust(identity)
        except InterlockError as error:
            named = ""
            with contextlib.suppress(TicketError):  # what is no ticket at all, no call can name
                named = peek(message.ticket).id
                self._callers.refuse(identity, named, error)
            self._refuse(identity, encoding, 0, error.code, error.message, named)
        else:
            self._answer(identity, encoding, Opened(ticket=ticket.claims.id))

    def _gone(self, identity: bytes) -> None:
        self._callers.gone(identity)
        self._outbox.gone(identity)

    def _call(self, frames: list[bytes], call: Call) -> None:
        if call.left_ms <= 0:
            self.dropped += 1
            return
        identity = frames[0]
        connection = self._callers.get(identity)
        now = self.time()
        try:
            if connection is None or call.ticket not in connection.holder.tickets:
                raise self._callers.why_not(identity, call.ticket)
            self._check(connection, call, len(frames))
            ticket = self._admission.admit(connection.holder, call, frames[2], now)
        except InterlockError as error:
            encoding = connection.encoding if connection else encoding_of(frames[1])
            malformed = isinstance(error, MalformedError)
            code = "invalid_arguments" if malformed else error.code
            self._refuse(identity, encoding, call.id, code, error.message)
            return
        incoming = IncomingCall(self, connection, call, frames[2], ticket.claims.turn, now)
        connection.used = now
        connection.calls[call.id] = incoming
        self._handler(incoming)

    def _check(self, connection: Connection, call: Call, frames: int) -> None:
        if call.generation != self._generation:
            raise InterlockError(
                f"This is generation {self._generation} of {self._worker}, not {call.generation}.",
                code="unavailable",
            )
        if frames < 3:
            raise MalformedError("The call has no arguments frame.")
        if call.id in connection.calls or self._outbox.sends(connection.identity, call.id):
            raise MalformedError(f"Call id {call.id} is still in use.")
        waiting, size = self._outbox.held(connection.identity)
        if len(connection.calls) + waiting >= MAX_IN_FLIGHT:
            raise OverloadedError(f"Too many calls to {self._worker} at once; try again later.")
        if size > MAX_HELD:
            raise OverloadedError("Too many large results wait to be taken; take them first.")

    def _cancel(self, identity: bytes, call_id: int) -> None:
        connection = self._callers.get(identity)
        if connection is None:
            return
        self._outbox.cancel(identity, call_id)
        call = connection.calls.get(call_id)
        if call is not None:
            call.cancel()

    def _refuse(
        self,
        identity: bytes,
        encoding: Encoding,
        call_id: int,
        code: str,
        message: str,
        ticket: str = "",
    ) -> None:
        ticket = ticket if len(ticket) <= LONGEST_ID else ""
        refused = Failure(id=call_id, code=code, message=writable(message), ticket=ticket)
        self._answer(identity, encoding, refused)

    def _answer(self, identity: bytes, encoding: Encoding, answer: Failure | Opened) -> None:
        frames = [identity, encode(answer, encoding)]
        call_id = answer.id if isinstance(answer, Failure) else 0
        # An answer to `open` is no call's: each has a number of its own, below those of calls.
        number = call_id or next(self._openings)
        # What is opened is answered in order, also when one of the answers has to wait.
        if not call_id and self._outbox.opens(identity):
            self._keep(number, frames)
        elif not self._socket.send(frames):
            self._unsent((number, frames))

    def _lost(self) -> None:
        self.dropped += 1

    def _unsent(self, answer: tuple[int, list[bytes]]) -> None:
        """Keep an answer that has just found its caller's queue full; there is no other one."""
        if self._socket.unreachable:
            self._lost()
        else:
            self._keep(*answer)

    def _keep(self, number: int, frames: list[bytes]) -> None:
        identity = frames[0]
        waiting, _ = self._outbox.held(identity)
        if self._outbox.sends(identity, number) or waiting >= MAX_IN_FLIGHT:
            self._lost()
        else:
            self._outbox.add(WholeAnswer(number, frames, self.time()))
            self._sweep_later()  # it is kept for a while only

    def _sweep_later(self) -> None:
        # An idle server, without callers and memories, is not woken up.
        if self._sweeper is None and not self._socket.closed:
            self._sweeper = self._loop.call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self.time()
        self._outbox.drop_stalled(now)
        self._admission.forget(now)
        # Expired tickets stay known for a while, so that their use is called what it is.
        self._callers.forget(now - MEMORY)
        if self._callers or self._admission.remembers or self._outbox.busy:
            self._sweep_later()
