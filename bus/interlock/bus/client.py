"""The synchronous client: what other programs use to talk to a running Interlock.

Requests go to the supervisor; calls go directly to the worker that serves them. How a call or a
turn ends is returned; `InterlockError` is raised when there is no supervisor, the connection is
lost, or the client is used wrongly. What only some methods need is imported by them: a status is to
be there at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from interlock.bus import messages
from interlock.bus.codec import decode_as
from interlock.bus.endpoints import Home, default_home
from interlock.bus.errors import MalformedError, UsageError
from interlock.bus.given import check_times, encode_arguments, encode_text
from interlock.bus.line import Line
from interlock.bus.messages import Request
from interlock.bus.results import CallResult, error_of

if TYPE_CHECKING:
    from interlock.bus.calling import Caller, OnApproval
    from interlock.bus.edge import OnProgress
    from interlock.bus.routes import Route
    from interlock.bus.subscriber import Document, Follower, Position

REQUEST: Final = 10.0
"""Seconds that the supervisor has for an answer, where nothing else is said."""
LAST_ANSWER: Final = 2.0
"""Seconds for the answer that nobody has approved a call in time."""
CONTROL: Final = 120.0
"""Seconds that starting, stopping or restarting a worker may take."""


def connect(home: str | os.PathLike[str] | None = None) -> Client:
    """Find the supervisor that runs on `home` (None: the default home) and return a client for it.

    Raises NoSupervisorError with what to do if there is none.
    """
    return Client(home)


class Client:
    """A connection to one supervisor, for one thread. Use it in a `with` block, or `close` it."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        path = default_home() if home is None else Path(home).expanduser().absolute()
        self._line = Line(Home(path))
        self._calls: Caller | None = None
        self._thread = threading.get_ident()
        self._closed = False

    def __enter__(self) -> Client:
        """Use the client for a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close every socket; twice is harmless."""
        self._closed = True
        if self._calls is not None:
            self._calls.forget()
        self._line.close()

    @property
    def home(self) -> Path:
        """The home whose supervisor this is."""
        return self._line.home.path

    @property
    def epoch(self) -> str:
        """Identity of the supervisor's run."""
        return self._line.info.epoch

    @property
    def pid(self) -> int:
        """Process of the supervisor."""
        return self._line.info.pid

    def request(
        self,
        kind: type[Request],
        body: bytes | None = None,
        *,
        timeout: float = REQUEST,
        **fields: Any,
    ) -> Any:
        """Send any request of `interlock.bus.messages` and return the document that answers it.

        `fields` are those of the message besides `id` and `key`; `timeout` is in seconds. Raises
        the error of an answer that is not ok, and RequestTimeoutError.
        """
        self._check()
        check_times(timeout)
        return self._line.document(kind, body, timeout, fields)

    def status(self, name: str = "") -> Document:
        """Return the status document; `name` narrows it to one worker."""
        return self._document(messages.StatusGet, name=name)

    def tools(self, for_text: str = "", agent: str = "", name: str = "") -> Document:
        """Return the catalog, or with `for_text` the offer of an agent for that request.

        `name`: only that capability, or those of that source, each with its `schema`.
        """
        return self._document(messages.ToolsGet, text=for_text, agent=agent, name=name)

    def why(self, text: str, agent: str = "", session: str = "") -> Document:
        """Return why each source would be offered for a request or not.

        `session`: as the next turn of that session.
        """
        return self._document(messages.WhyGet, encode_text(text), agent=agent, session=session)

    def resolve(
        self, capability: str, arguments: Mapping[str, Any] | None = None, timeout: float = REQUEST
    ) -> Route:
        """Return where a capability is called, and the ticket for it.

        Raises the error of the answer: codes denied, unavailable, not_found. If a person has to
        approve the call it waits for that, too, for `timeout` seconds.
        """
        from interlock.bus.routes import Route

        self._check()
        check_times(timeout)
        reply, body = self._caller.resolve(
            capability, encode_arguments(arguments), timeout + LAST_ANSWER, patience=timeout
        )
        if reply.code != "ok":
            raise error_of(reply)
        return decode_as(body or b"", Route)

    def call(
        self,
        capability: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        timeout_max: float | None = None,
        on_progress: OnProgress | None = None,
        on_approval: OnApproval | None = None,
    ) -> CallResult:
        """Call one capability, by its exact or wire name, and return how it ended.

        `timeout` in seconds (None: what the tool's server is configured with) is renewed by each
        progress the tool reports, up to `timeout_max`. Nothing is sent twice that may have run.
        A call that a person has to approve waits for that, for `timeout` seconds or as long as an
        approval may; with `on_approval` that is asked first, and its yes or no is the decision.
        """
        self._check()
        check_times(timeout, timeout_max)
        body = encode_arguments(arguments)
        return self._caller.call(capability, body, timeout, timeout_max, on_progress, on_approval)

    def start_turn(
        self,
        text: str,
        *,
        agent: str = "",
        session: str = "",
        id: str | None = None,  # noqa: A002 - the name that the contract gives it
        deadline: float | None = None,
        unattended: bool = False,
    ) -> Document:
        """Start a turn and return `{turn, state}` without following it.

        `id` is 32 hex digits, made here if None; the same id again returns the same turn.
        `text` has at most 1 MiB. `deadline` is in seconds (None: the agent's own). `unattended`:
        nobody is there to approve anything.
        """
        from interlock.bus.watching import new_turn_id

        check_times(deadline)
        return self._document(
            messages.TurnStart,
            encode_text(text),
            turn=new_turn_id() if id is None else id,
            agent=agent,
            session=session,
            deadline=deadline or 0.0,
            unattended=unattended,
        )

    def turn(
        self,
        text: str,
        *,
        agent: str = "",
        session: str = "",
        id: str | None = None,  # noqa: A002 - the name that the contract gives it
        deadline: float | None = None,
        unattended: bool = False,
    ) -> Iterator[Document]:
        """Start a turn, at once, and return the iterator of its stream. See `start_turn`."""
        started = self.start_turn(
            text,
            agent=agent,
            session=session,
            id=id,
            deadline=deadline,
            unattended=unattended,
        )
        return self.watch(started["turn"])

    def watch(self, turn: str, offset: int = 0) -> Iterator[Document]:
        """Go through a turn's stream from an offset to its end, waiting for what is to come.

        Nothing comes of a turn that has ended with fewer items.
        Raises NotFoundError for an unknown turn, ConnectionLostError if the supervisor goes away.
        """
        from interlock.bus.feeds import watch_turn

        self._check()
        return watch_turn(self._line, turn, offset)

    def turns(self, limit: int = 50) -> Document:
        """Return the newest turns of the journal."""
        return self._document(messages.TurnsGet, limit=limit)

    def turn_show(self, turn: str) -> Document:
        """Return one turn with its calls."""
        return self._document(messages.TurnGet, turn=turn)

    def turn_cancel(self, turn: str) -> Document:
        """Cancel a turn; its end comes in its stream."""
        return self._document(messages.TurnStop, turn=turn)

    def approvals(self, past: int = 0) -> Document:
        """Return the calls that wait for a person, and with `past` the newest decisions."""
        return self._document(messages.ApprovalsGet, past=past)

    def approve(self, approval: str) -> Document:
        """Let the call of an approval run, once. Raises ApprovalClosedError, NotFoundError."""
        return self._document(messages.Approve, approval=approval)

    def deny(self, approval: str) -> Document:
        """Refuse the call of an approval. Raises ApprovalClosedError, NotFoundError."""
        return self._document(messages.Deny, approval=approval)

    def control(
        self, action: Literal["start", "stop", "restart"], name: str, timeout: float = CONTROL
    ) -> Document:
        """Start, stop or restart a worker and return its status row once the outcome is known."""
        return self._document(messages.WorkerControl, timeout=timeout, action=action, name=name)

    def reload(self) -> Document:
        """Have the configuration read again now; returns `{changed, problems}`."""
        return self._document(messages.Reload)

    def shutdown(self) -> None:
        """Have everything stopped in order; returns when that begins."""
        self.request(messages.Shutdown)

    def events(
        self, topics: Iterable[str] = (), since: str | Position | None = None
    ) -> Iterator[Document]:
        """Follow events without end: first a snapshot, then each event once and in order.

        `topics` are beginnings such as "worker."; none means all. `since` (`EPOCH:SEQ`) resumes
        after that event, without a snapshot if all since then are kept. After a gap, or when
        another supervisor took over, a snapshot comes again. Raises ConnectionLostError when the
        supervisor is gone.
        """
        from interlock.bus.feeds import follow_events

        self._check()
        follower = new_follower(topics, since)
        return follow_events(self._line, follower, self._caller.forget)

    @property
    def _caller(self) -> Caller:
        if self._calls is None:
            from interlock.bus.calling import Caller

            self._calls = Caller(self._line)
        return self._calls

    def _check(self) -> None:
        if self._closed:
            raise UsageError("This client is closed; connect again.")
        if threading.get_ident() != self._thread:
            raise UsageError("A client belongs to the thread that made it; connect in each thread.")

    def _document(
        self,
        kind: type[Request],
        body: bytes | None = None,
        *,
        timeout: float = REQUEST,
        **fields: Any,
    ) -> Document:
        document = self.request(kind, body, timeout=timeout, **fields)
        if not isinstance(document, dict):
            raise MalformedError("The supervisor's answer is not an object.")
        return document


def new_follower(topics: Iterable[str], since: str | Position | None) -> Follower:
    """Return the follower for what `events` was asked for. Raises UsageError."""
    from interlock.bus.subscriber import Follower, Position

    position = Position.parse(since) if isinstance(since, str) else since
    if since is not None and position is None:
        raise UsageError(f"{since!r} is no place in the events; write EPOCH:SEQ.")
    return Follower([topics] if isinstance(topics, str) else topics, position)
