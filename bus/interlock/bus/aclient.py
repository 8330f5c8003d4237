"""The asynchronous client: `interlock.bus.client` for programs with an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from interlock.bus import messages
from interlock.bus.acalling import AsyncCaller, OnAsyncApproval
from interlock.bus.afeeds import follow_events, watch_turn
from interlock.bus.aline import AsyncLine
from interlock.bus.client import CONTROL, LAST_ANSWER, REQUEST, new_follower
from interlock.bus.codec import decode_as
from interlock.bus.edge import OnProgress
from interlock.bus.endpoints import Home, default_home
from interlock.bus.errors import MalformedError, UsageError
from interlock.bus.given import check_times, encode_arguments, encode_text
from interlock.bus.messages import Request
from interlock.bus.results import CallResult, error_of
from interlock.bus.routes import Route
from interlock.bus.subscriber import Document, Position
from interlock.bus.watching import new_turn_id


class AsyncClient:
    """A connection to one supervisor, for one event loop: `async with AsyncClient.connect()`.

    The methods are those of `Client`, and so is what they return and raise.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._home = default_home() if home is None else Path(home).expanduser().absolute()
        self._open_line: AsyncLine | None = None
        self._caller: AsyncCaller | None = None

    @classmethod
    def connect(cls, home: str | os.PathLike[str] | None = None) -> AsyncClient:
        """Return a client for the supervisor that runs on `home` (None: the default home).

        Entering it raises NoSupervisorError if there is none.
        """
        return cls(home)

    async def __aenter__(self) -> AsyncClient:
        """Connect."""
        self._open_line = AsyncLine(Home(self._home))
        self._caller = AsyncCaller(self._open_line)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close every socket; calls in flight end as cancelled. Twice is harmless."""
        if self._open_line is not None and self._caller is not None:
            self._caller.forget()
            self._open_line.close()
            self._open_line = self._caller = None

    @property
    def home(self) -> Path:
        """The home whose supervisor this is."""
        return self._home

    @property
    def epoch(self) -> str:
        """Identity of the supervisor's run."""
        return self._line.info.epoch

    @property
    def pid(self) -> int:
        """Process of the supervisor."""
        return self._line.info.pid

    async def request(
        self,
        kind: type[Request],
        body: bytes | None = None,
        *,
        timeout: float = REQUEST,  # noqa: ASYNC109 - it renews nothing and is part of the protocol
        **fields: Any,
    ) -> Any:
        """Send any request of `interlock.bus.messages` and return the document that answers it."""
        check_times(timeout)
        return await self._line.document(kind, body, timeout, fields)

    async def status(self, name: str = "") -> Document:
        """Return the status document; `name` narrows it to one worker."""
        return await self._document(messages.StatusGet, name=name)

    async def tools(self, for_text: str = "", agent: str = "", name: str = "") -> Document:
        """Return the catalog, or with `for_text` the offer of an agent for that request.

        `name`: only that capability, or those of that source, each with its `schema`.
        """
        return await self._document(messages.ToolsGet, text=for_text, agent=agent, name=name)

    async def why(self, text: str, agent: str = "", session: str = "") -> Document:
        """Return why each source would be offered for a request or not.

        `session`: as the next turn of that session.
        """
        return await self._document(
            messages.WhyGet, encode_text(text), agent=agent, session=session
        )

    async def resolve(
        self,
        capability: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float = REQUEST,  # noqa: ASYNC109 - the supervisor must know it too
    ) -> Route:
        """Return where a capability is called, and the ticket for it. See `Client.resolve`."""
        check_times(timeout)
        reply, body = await self._calls.resolve(
            capability, encode_arguments(arguments), timeout + LAST_ANSWER, patience=timeout
        )
        if reply.code != "ok":
            raise error_of(reply)
        return decode_as(body or b"", Route)

    async def call(
        self,
        capability: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the server must know it too
        timeout_max: float | None = None,
        on_progress: OnProgress | None = None,
        on_approval: OnAsyncApproval | None = None,
    ) -> CallResult:
        """Call one capability and return how it ended. Cancelling the task cancels the call.

        See `Client.call`; `on_approval` may also be a coroutine function.
        """
        check_times(timeout, timeout_max)
        body = encode_arguments(arguments)
        options = (timeout, timeout_max, on_progress, on_approval)
        return await self._calls.call(capability, body, *options)

    async def start_turn(
        self,
        text: str,
        *,
        agent: str = "",
        session: str = "",
        id: str | None = None,  # noqa: A002 - the name that the contract gives it
        deadline: float | None = None,
        unattended: bool = False,
    ) -> Document:
        """Start a turn and return `{turn, state}` without following it."""
        check_times(deadline)
        return await self._document(
            messages.TurnStart,
            encode_text(text),
            turn=new_turn_id() if id is None else id,
            agent=agent,
            session=session,
            deadline=deadline or 0.0,
            unattended=unattended,
        )

    async def turn(
        self,
        text: str,
        *,
        agent: str = "",
        session: str = "",
        id: str | None = None,  # noqa: A002 - the name that the contract gives it
        deadline: float | None = None,
        unattended: bool = False,
    ) -> AsyncGenerator[Document]:
        """Start a turn, at the first step, and go through its stream."""
        started = await self.start_turn(
            text,
            agent=agent,
            session=session,
            id=id,
            deadline=deadline,
            unattended=unattended,
        )
        async with aclosing(self.watch(started["turn"])) as items:
            async for item in items:
                yield item

    def watch(self, turn: str, offset: int = 0) -> AsyncGenerator[Document]:
        """Go through a turn's stream from an offset to its end, waiting for what is to come."""
        return watch_turn(self._line, turn, offset)

    async def turns(self, limit: int = 50) -> Document:
        """Return the newest turns of the journal."""
        return await self._document(messages.TurnsGet, limit=limit)

    async def turn_show(self, turn: str) -> Document:
        """Return one turn with its calls."""
        return await self._document(messages.TurnGet, turn=turn)

    async def turn_cancel(self, turn: str) -> Document:
        """Cancel a turn; its end comes in its stream."""
        return await self._document(messages.TurnStop, turn=turn)

    async def approvals(self, past: int = 0) -> Document:
        """Return the calls that wait for a person, and with `past` the newest decisions."""
        return await self._document(messages.ApprovalsGet, past=past)

    async def approve(self, approval: str) -> Document:
        """Let the call of an approval run, once."""
        return await self._document(messages.Approve, approval=approval)

    async def deny(self, approval: str) -> Document:
        """Refuse the call of an approval."""
        return await self._document(messages.Deny, approval=approval)

    async def control(
        self,
        action: Literal["start", "stop", "restart"],
        name: str,
        timeout: float = CONTROL,  # noqa: ASYNC109 - passed on
    ) -> Document:
        """Start, stop or restart a worker; its status row once the outcome is known.

        `timeout` is in seconds.
        """
        return await self._document(
            messages.WorkerControl, timeout=timeout, action=action, name=name
        )

    async def reload(self) -> Document:
        """Have the configuration read again now; returns `{changed, problems}`."""
        return await self._document(messages.Reload)

    async def shutdown(self) -> None:
        """Have everything stopped in order; returns when that begins."""
        await self.request(messages.Shutdown)

    def events(
        self, topics: Iterable[str] = (), since: str | Position | None = None
    ) -> AsyncGenerator[Document]:
        """Follow events without end: first a snapshot, then each event once and in order."""
        return follow_events(self._line, new_follower(topics, since), self._calls.forget)

    @property
    def _line(self) -> AsyncLine:
        if self._open_line is None:
            raise UsageError("This client is not connected; use it in an `async with` block.")
        return self._open_line

    @property
    def _calls(self) -> AsyncCaller:
        if self._caller is None:
            raise UsageError("This client is not connected; use it in an `async with` block.")
        return self._caller

    async def _document(
        self,
        kind: type[Request],
        body: bytes | None = None,
        *,
        timeout: float = REQUEST,  # noqa: ASYNC109 - passed on
        **fields: Any,
    ) -> Document:
        document = await self._line.document(kind, body, timeout, fields)
        if not isinstance(document, dict):
            raise MalformedError("The supervisor's answer is not an object.")
        return document
