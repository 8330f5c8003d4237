"""The core kind: the one worker that serves Interlock's own tools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from interlock.bus.channel import IncomingCall
from interlock.bus.limits import MAX_ARGUMENTS
from interlock.bus.messages import Capabilities, ControlDown, Ready, ToolsFind, ToolsFound
from interlock.bus.remedies import disk_remedy, place_of
from interlock.bus.settings import CoreConfigure
from interlock.workers.core.notes import NoteError, Notes
from interlock.workers.core.tools import reports, told_time
from interlock.workers.disk import Disk
from interlock.workers.failure import WorkerError
from interlock.workers.kept import reason_of
from interlock.workers.kind import Gauges, Host
from interlock.workers.reports import CallReporter

ANSWER: Final = 5.0
"""Seconds that the supervisor may take for a search."""
MAX_RUNNING: Final = 64
_T = TypeVar("_T")


class FindArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Of `find_tools`."""

    query: str
    limit: int = 8


class ReadArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Of `notes_read`."""

    name: str | None = None


class WriteArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Of `notes_write`."""

    name: str
    text: str
    append: bool = False


class TimeArguments(msgspec.Struct, forbid_unknown_fields=True):
    """Of `time`."""

    zone: str | None = None


class Refused(Exception):  # noqa: N818 - the end of one call, no fault of ours
    """A call ends without a result; `code` is an outcome."""

    def __init__(self, code: str, message: str, *, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.may_have_run = code, message, may_have_run


class CoreKind:
    """Implements `interlock.workers.kind.WorkerKind`. Owns the notes and the open searches."""

    def __init__(self) -> None:
        self._host: Host
        self._notes: Notes
        self._reporter: CallReporter | None = None
        self._in_order = asyncio.Lock()
        self._disk = Disk()
        self._asked: dict[int, asyncio.Future[tuple[ToolsFound, bytes]]] = {}
        self._count = 0
        self._running: set[asyncio.Task[None]] = set()
        self._draining = False
        self._tools: dict[str, Callable[[IncomingCall], Awaitable[Any]]] = {
            "find_tools": self._find,
            "notes_read": self._read,
            "notes_write": self._write,
            "time": self._time,
        }

    async def start(self, host: Host, body: bytes) -> Ready:
        """Report the tools and serve them."""
        self._host = host
        self._notes = Notes(Path(_settings(body).notes_folder))
        self._reporter = CallReporter(host.send, self.gauges, lambda: None)
        rows, documents = reports()
        host.send(Capabilities(rows=rows), msgspec.json.encode(documents))
        host.serve(self._submit)
        return Ready(tools=len(rows))

    async def apply(self, body: bytes) -> None:
        """Take over new settings."""
        notes = Notes(Path(_settings(body).notes_folder))
        if notes.folder != self._notes.folder:  # else it knows what is being written there
            self._notes = notes

    async def drain(self, seconds: float) -> None:
        """Refuse new calls and return when the running ones have ended."""
        self._draining = True
        if self._running:
            await asyncio.wait(self._running)

    async def stop(self) -> None:
        """End the calls."""
        self._draining = True
        for task in self._running:
            task.cancel()
        if self._reporter is not None:
            self._reporter.flush()

    def on_control(self, message: ControlDown, body: bytes | None) -> None:
        """Take the answers to searches."""
        if isinstance(message, ToolsFound):
            asked = self._asked.pop(message.id, None)
            if asked is not None and not asked.done():
                asked.set_result((message, body or b"{}"))

    def gauges(self) -> Gauges:
        """Calls under way; none waits."""
        lost = self._reporter.lost if self._reporter is not None else 0
        return Gauges(in_flight=len(self._running), dropped=lost)

    def _submit(self, call: IncomingCall) -> None:
        tool = self._tools.get(call.name)
        if self._draining:
            call.fail("unavailable", "Interlock's own tools are being stopped.")
        elif tool is None:
            call.fail("not_found", f"There is no core tool {call.name!r}.")
        elif len(self._running) >= MAX_RUNNING:
            call.fail("overloaded", f"{MAX_RUNNING} calls run already; try again later.")
        else:
            task = asyncio.get_running_loop().create_task(self._run(tool, call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(
        self, tool: Callable[[IncomingCall], Awaitable[Any]], call: IncomingCall
    ) -> None:
        assert self._reporter is not None
        self._count += 1
        ident, begun, size, outcome = f"c{self._count}", time.monotonic(), 0, "cancelled"
        self._reporter.started(ident, call)
        try:
            async with asyncio.timeout(max(call.left, 0.0)):
                answer = await tool(call)
            body = msgspec.json.encode(
                {
                    "content": [{"type": "text", "text": msgspec.json.encode(answer).decode()}],
                    "structuredContent": answer,
                }
            )
            size, outcome = len(body), "ok"
            call.result(body)
        except Refused as refused:
            outcome = refused.code
            call.fail(refused.code, refused.message, may_have_run=refused.may_have_run)
        except TimeoutError:
            outcome = "timeout"
            call.fail("timeout", f"core:{call.name} did not end in time.", may_have_run=True)
        except OSError as error:
            outcome = "unavailable"
            todo = disk_remedy(error.errno, place_of(error, "the notes"))
            call.fail("unavailable", f"The notes cannot be used: {error.strerror}. {todo}.")
        finally:
            self._reporter.ended(ident, call, outcome, time.monotonic() - begun, size)

    async def _find(self, call: IncomingCall) -> Any:
        asked = _arguments(call, FindArguments)
        if not asked.query.strip():
            raise Refused("invalid_arguments", "query: say in a few words what is looked for.")
        self._count += 1
        answer: asyncio.Future[tuple[ToolsFound, bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        message = ToolsFind(
            id=self._count,
            turn=call.turn,
            query=asked.query[:1000],
            limit=max(1, min(asked.limit, 20)),
        )
        self._asked[message.id] = answer
        try:
            if not self._host.send(message):
                raise Refused("overloaded", "The supervisor takes no search now.")
            async with asyncio.timeout(ANSWER):
                found, body = await answer
        except TimeoutError:
            raise Refused("unavailable", "The supervisor did not answer the search.") from None
        finally:
            self._asked.pop(message.id, None)
        if found.code:
            raise Refused(found.code, found.message)
        return msgspec.json.decode(body)

    async def _read(self, call: IncomingCall) -> Any:
        asked = _arguments(call, ReadArguments)
        notes = self._notes
        if asked.name is None:
            return {"notes": [_shown(*note) for note in await self._at_disk(notes.all)]}
        return {"name": asked.name, "text": await self._at_disk(partial(notes.read, asked.name))}

    async def _write(self, call: IncomingCall) -> Any:
        asked = _arguments(call, WriteArguments)
        work = partial(self._notes.write, asked.name, asked.text, asked.append)
        return {"name": asked.name, "bytes": await self._at_disk(work, changes=True)}

    async def _at_disk(self, work: Callable[[], _T], changes: bool = False) -> _T:
        """Return what `work` does with the notes, in the order of the calls. Raises Refused.

        A disk that hangs costs a call its time, and the worker three threads.
        """
        async with self._in_order:
            try:
                return await self._disk.do(work)
            except NoteError as error:
                raise Refused("invalid_arguments", str(error)) from None
            except TimeoutError as error:
                message = f"The notes cannot be used: {reason_of(error)}."
                raise Refused("unavailable", message, may_have_run=changes) from None

    async def _time(self, call: IncomingCall) -> Any:
        asked = _arguments(call, TimeArguments)
        zone = None
        if asked.zone:
            try:
                zone = await self._disk.do(partial(ZoneInfo, asked.zone))
            except TimeoutError:
                message = "The time zones cannot be read: the disk did not answer in time."
                raise Refused("unavailable", message) from None
            except (ZoneInfoNotFoundError, ValueError, OSError):
                message = f"zone: {asked.zone[:60]!r} is no known time zone."
                raise Refused("invalid_arguments", message) from None
        return told_time(datetime.now(UTC), zone)


def kind() -> CoreKind:
    """Return the kind; called by the host once per process."""
    return CoreKind()


def _shown(name: str, size: int, written: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")
    return {"name": name, "bytes": size, "written": moment}


def _arguments(call: IncomingCall, kind: type[_T]) -> _T:
    if len(call.arguments) > MAX_ARGUMENTS:
        raise Refused("invalid_arguments", f"core:{call.name}: the arguments are too large.")
    try:
        return msgspec.json.decode(call.arguments or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid_arguments", f"core:{call.name}: {error}.") from None


def _settings(body: bytes) -> CoreConfigure:
    try:
        return msgspec.json.decode(body, type=CoreConfigure)
    except msgspec.MsgspecError as error:
        raise WorkerError(
            "config", f"the settings cannot be read: {error}", permanent=True
        ) from None
