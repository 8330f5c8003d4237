"""The SDK's session over the shared connection: the only module of this package that runs it.

The session lives in one task of its own, from its first to its last line, and nothing that it
raises leaves this module: nested exception groups, validation errors and cancellations that nobody
asked for become a WorkerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from mcp import ClientSession, MCPError
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, InitializeResult, jsonrpc_message_adapter
from pydantic import ValidationError

from interlock.bus.errors import OverloadedError
from interlock.workers.failure import WorkerError
from interlock.workers.mcp.frames import read_frame
from interlock.workers.secrets import Masks

INBOX: Final = 64
"""Frames that may wait for the SDK; a server that sends more answers than that loses them."""

QUOTED: Final = 300
"""Characters of an error that are quoted."""


class SdkSession:
    """One ClientSession, opened by `initialize` and closed by `close`."""

    def __init__(self, send_line: Callable[[bytes], None], version: str, masks: Masks) -> None:
        self.dropped = 0
        self._masks = masks
        self._send_line = send_line
        self._info = Implementation(name="interlock", version=version)
        self._inbox: MemoryObjectSendStream[SessionMessage | Exception] | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked: set[str | int | float] = set()
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[InitializeResult] = asyncio.get_running_loop().create_future()

    def feed(self, line: bytes) -> bool:
        """Give the session a frame that is not ours.

        It asks nothing after `initialize`, so from then on every such frame is dropped and counted,
        as is one that it cannot take; False for these.
        """
        try:
            if self._inbox is None or self._ready.done():
                raise anyio.ClosedResourceError
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            self._inbox.send_nowait(SessionMessage(message))
        except (ValueError, RecursionError):
            frame = read_frame(line)
            if frame is not None and frame.id in self._asked:
                self.refuse("it has no object as its result")
            self.dropped += 1
            return False
        except (
            anyio.WouldBlock,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            self.dropped += 1
            return False
        return True

    def refuse(self, why: str) -> None:
        """End the handshake over an answer that the session cannot be given."""
        if not self._ready.done():
            self._ready.set_exception(_wrong_answer(why))

    def end_input(self) -> None:
        """Tell the session that the server says nothing more."""
        if self._inbox is not None:
            self._inbox.close()

    async def initialize(self) -> InitializeResult:
        """Shake hands as clients did before 2026, which every server understands.

        The caller sets the deadline. Raises WorkerError: init_failed, protocol_error.
        """
        self._task = asyncio.create_task(self._run(), name="sdk session")
        waiting: set[asyncio.Future[Any]] = {self._task, self._ready}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done() and not self._ready.cancelled():
            return self._ready.result()
        if self._task.cancelled():
            raise WorkerError("protocol_error", "the connection to the server broke off")
        raise _translate(self._task.exception(), self._masks)

    async def close(self, seconds: float) -> None:
        """End the session; what it raises on its way out says nothing new and is dropped."""
        self._closing.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=seconds)
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=seconds)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()

    async def _run(self) -> None:
        inbox, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](INBOX)
        from_session, outbox = anyio.create_memory_object_stream[SessionMessage](0)
        self._inbox = inbox
        async with to_session, from_session, inbox, outbox:
            async with asyncio.TaskGroup() as group:
                pump = group.create_task(self._pump(outbox))
                async with ClientSession(to_session, from_session, client_info=self._info) as sdk:
                    result = await sdk.initialize()
                    if not self._ready.done():
                        self._ready.set_result(result)
                    await self._closing.wait()
                pump.cancel()

    async def _pump(self, outbox: anyio.abc.ObjectReceiveStream[SessionMessage]) -> None:
        async for item in outbox:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if (frame := read_frame(line)) is not None and frame.id is not None:
                self._asked.add(frame.id)
            try:
                self._send_line(line + b"\n")
            except OverloadedError:
                self.dropped += 1


def _translate(problem: BaseException | None, masks: Masks) -> WorkerError:
    """Say in one sentence what went wrong inside the SDK."""
    leaves = list(_leaves(problem)) if problem is not None else []
    for leaf in leaves:
        if isinstance(leaf, MCPError):
            said = masks.clip(str(leaf), QUOTED)
            return WorkerError("init_failed", f"the server refused to initialize: {said}")
    for leaf in leaves:
        if isinstance(leaf, ValidationError):
            return _wrong_answer(_first_problem(leaf))
    named = "it ended early"
    if leaves:
        named = f"{type(leaves[0]).__name__}: {masks.clip(str(leaves[0]), QUOTED)}"
    return WorkerError("protocol_error", f"the handshake with the server failed ({named})")


def _wrong_answer(why: str) -> WorkerError:
    return WorkerError(
        "protocol_error",
        f"the server's answer to initialize does not follow the protocol ({why})",
        fix="Update the server.",
    )


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for inner in problem.exceptions:
            yield from _leaves(inner)
    else:
        yield problem
