"""The synchronous client's connection to one generation of a serving worker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from interlock.bus.codec import decode_data_down, encode
from interlock.bus.errors import MalformedError, UnreachableError
from interlock.bus.line import Line
from interlock.bus.link import Link, LinkClosed, connected, path_of
from interlock.bus.messages import Call, Cancel, Credit, Failure, Log, Open, Opened, Progress
from interlock.bus.records import Target
from interlock.bus.routes import Ending, PendingCall, Route
from interlock.bus.tickets import peek
from interlock.bus.wording import spoken

CONNECT_GRACE: Final = 2.0
"""Seconds that a call waits for a worker that takes no messages."""
AGAIN: Final = 0.1
"""Seconds between attempts to connect."""
LOST_GRACE: Final = 2.0
"""Seconds that a call waits for a word about its worker after the connection to it was lost."""
OPEN_TICKETS: Final = 64
"""Opened tickets that are remembered; an older one is opened again when it is needed."""

_T = TypeVar("_T")
OnProgress = Callable[[Progress], None]


class _Opening:
    """A ticket that is being opened."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Opened | Failure | None = None


class Edge:
    """One DEALER to one generation. It ends with that generation and is never used for another.

    Making one raises UnreachableError where there is no descriptor for it.
    """

    def __init__(self, line: Line, target: Target) -> None:
        self._line = line
        self._generation = target.generation
        self._worker = target.worker
        self._tickets: dict[str, str] = {}
        self._openings: dict[str, _Opening] = {}
        """By id: those without an answer, the oldest first."""
        self._pending: dict[int, tuple[PendingCall, OnProgress | None]] = {}
        self._ids = 0
        self.ended: str | None = None
        """Why the generation ended; None while it lives."""
        self._path = path_of(target.endpoint)
        self._link: Link | None = None
        self._waits_for_room = False
        self._connect_at = 0.0
        """When it is connected again, should it be lost; monotonic seconds."""
        self._connect()

    def call(
        self,
        route: Route,
        body: bytes,
        timeout: float,
        timeout_max: float,
        on_progress: OnProgress | None = None,
    ) -> Ending:
        """Call a capability and wait for its ending, at its deadline at the latest.

        Times in seconds; progress renews `timeout`, up to `timeout_max`. Raises only for a lost
        supervisor.
        """
        pending = PendingCall(time.monotonic(), timeout, timeout_max)
        ticket = self._open(route.target.ticket, pending)
        if pending.ending is not None:
            return pending.ending
        self._ids += 1
        call_id = self._ids
        self._pending[call_id] = (pending, on_progress)
        try:
            left = pending.deadline - time.monotonic()
            call = Call(
                id=call_id,
                ticket=ticket,
                name=route.local,
                left_ms=max(1, round(left * 1000)),
                generation=self._generation,
                progress=True,
            )
            if self._send([encode(call), body], pending):
                pending.sent = True
                self._wait(pending)
            pending.end("timeout", message=_too_late(timeout), may_have_run=pending.sent)
        finally:
            del self._pending[call_id]
            if pending.ending is None or pending.ending.outcome == "timeout":
                # Also when the wait was interrupted: the tool need not go on.
                self._try_send(Cancel(id=call_id))
        assert pending.ending is not None
        return pending.ending

    def gone(self, reason: str) -> None:
        """Fail what is in flight and drop the connection; twice is harmless."""
        if self.ended is not None:
            return
        if self._link is not None:  # a result may have come and not be read yet
            for frames in self._link.last_words():
                self._on_frames(frames)
        self.ended = reason or "The worker ended."
        for pending, _ in self._pending.values():
            pending.end("worker_died", message=self.ended, may_have_run=pending.sent)
        self._hang_up()

    def close(self) -> None:
        """Drop the connection; twice is harmless."""
        self.gone("The client was closed.")

    def _open(self, token: str, pending: PendingCall) -> str:
        """Present a ticket, once, and return its id; a failure becomes the call's ending."""
        known = self._tickets.get(token)
        if known is not None:
            return known
        ticket_id, opening = peek(token).id, _Opening()
        if self._send([encode(Open(ticket=token))], pending):
            remember(self._openings, ticket_id, opening)
            while opening.answer is None and ticket_id in self._openings:
                if time.monotonic() >= pending.deadline:
                    break
                self._line.pump(pending.deadline)
        match opening.answer:
            case Opened():
                remember(self._tickets, token, ticket_id)
                return ticket_id
            case Failure():
                pending.end(opening.answer.code, message=opening.answer.message)
            case _ if self.ended is not None:
                pending.end("worker_died", message=self.ended)
            case _ if ticket_id not in self._openings:
                pending.end("unavailable", message=f"The connection to {self._worker} was lost.")
            case _:
                pending.end("timeout", message=_too_late(pending.timeout))
        return ""

    def _send(self, frames: list[bytes], pending: PendingCall) -> bool:
        """Send soon, and within the call's deadline; False if that is not possible."""
        until = min(pending.deadline, time.monotonic() + CONNECT_GRACE)
        while self.ended is None and not self._send_now(frames):
            now = time.monotonic()
            if now >= until:
                if until < pending.deadline:
                    pending.end("unavailable", message=f"{self._worker} cannot be reached now.")
                return False
            self._line.pump(min(until, now + AGAIN))
        if self.ended is not None:
            pending.end("worker_died", message=self.ended)
        return pending.ending is None

    def _wait(self, pending: PendingCall) -> None:
        while pending.ending is None and (now := time.monotonic()) < pending.deadline:
            if pending.lost_at is not None and now >= pending.lost_at + LOST_GRACE:
                text = f"The connection to {self._worker} was lost."
                pending.end("unavailable", message=text, may_have_run=True)
                return
            self._line.pump(min(pending.deadline, now + LOST_GRACE))

    def _try_send(self, message: Cancel | Credit) -> None:
        if self.ended is None:
            self._send_now([encode(message)], always=True)

    # --- the connection ---

    def _connect(self) -> None:
        self._connect_at = time.monotonic() + AGAIN
        try:
            self._link = connected(self._path, "DEALER")
        except OSError as error:
            raise UnreachableError(self._worker, error.strerror or str(error)) from None
        if self._link is not None:
            self._waits_for_room = False
            self._line.watch(self._link.fd, self._on_ready)

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        now = time.monotonic()
        for pending, _ in self._pending.values():
            if pending.sent and pending.lost_at is None:
                pending.lost_at = now
        self._tickets.clear()  # they were opened on that connection
        self._openings.clear()
        if link is not None:
            self._line.unwatch(link.fd)
            link.close()

    def _send_now(self, frames: list[bytes], always: bool = False) -> bool:
        """Send if the worker is connected and has room; nothing is kept for one that is not."""
        if self._link is None:
            if time.monotonic() >= self._connect_at:
                with contextlib.suppress(UnreachableError):  # no descriptor, now
                    self._connect()
            return False
        try:
            taken = self._link.send(frames, always)
            self._watch_room(self._link)
        except BaseException:
            # A signal's, for example: a message that is half there would take the next ones along.
            self._hang_up()
            raise
        return taken

    def _watch_room(self, link: Link) -> None:
        if link.pending != self._waits_for_room:
            self._waits_for_room = link.pending
            self._line.watch(link.fd, self._on_ready, writing=link.pending)

    def _on_ready(self) -> None:
        link = self._link
        if link is None:
            return
        try:
            if self._waits_for_room:
                link.flush()
            messages = link.receive()
            while link.more:
                messages += link.receive()
            self._watch_room(link)
            for frames in messages:
                self._on_frames(frames)
        except LinkClosed:
            self._hang_up()
        except BaseException:  # what came is not wholly dealt with
            self._hang_up()
            raise

    def _on_frames(self, frames: list[bytes]) -> None:
        try:
            message = decode_data_down(frames[0])
        except MalformedError:
            self._line.dropped += 1
            return
        body = frames[1] if len(frames) > 1 else None
        if isinstance(message, Log):
            return
        if isinstance(message, Opened):
            self._answered(message.ticket, message)
            return
        if message.id == 0:
            if isinstance(message, Failure):
                self._on_refused(message)
            return
        pending, on_progress = self._pending.get(message.id, (None, None))
        if pending is None:
            return
        granted = pending.on_message(message, body, time.monotonic())
        if granted:
            self._try_send(Credit(id=message.id, n=granted))
        if on_progress is not None and isinstance(message, Progress):
            on_progress(message)

    def _on_refused(self, message: Failure) -> None:
        # One that names no ticket is the oldest one's, also if nobody waits for that any more.
        self._answered(message.ticket or next(iter(self._openings), ""), message)

    def _answered(self, ticket: str, answer: Opened | Failure) -> None:
        opening = self._openings.pop(ticket, None)
        if opening is not None:
            opening.answer = answer


def remember(tickets: dict[str, _T], ticket: str, value: _T) -> None:
    """Note something of a ticket as the newest; the oldest of too many is forgotten."""
    tickets.pop(ticket, None)
    if len(tickets) >= OPEN_TICKETS:
        del tickets[next(iter(tickets))]
    tickets[ticket] = value


def _too_late(timeout: float) -> str:
    return f"The call did not end within {spoken(timeout)} s."
