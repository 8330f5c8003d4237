"""One server from its start to its end: process, transport, handshake and tool list.

It answers what the server asks: a ping gets its answer, everything else is refused, since nothing
of it was advertised.
"""

from __future__ import annotations

import asyncio
import math
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from interlock.bus.wording import spoken
from interlock.workers.discreet import hidden_entry
from interlock.workers.failure import WorkerError
from interlock.workers.logs import WorkerLog
from interlock.workers.looks import items
from interlock.workers.mcp import extras, tools
from interlock.workers.mcp.frames import Frame, json_string, mend_text, read_error
from interlock.workers.mcp.handshake import SdkSession
from interlock.workers.mcp.lastwords import unseen_variable
from interlock.workers.mcp.mending import fault_of, mended_frame
from interlock.workers.mcp.process import ServerProcess, start_server
from interlock.workers.mcp.stderr import StderrReader
from interlock.workers.mcp.transport import Answer, StdioTransport
from interlock.workers.processes import describe_exit
from interlock.workers.programs import Command

LAST_WORDS: Final = 0.3
"""Seconds that a dead server's standard error and exit status may take to arrive."""
UNDECLARED_LIST: Final = 5.0
"""Seconds for the tool list of a server that does not say that it has tools."""
INITIALIZED: Final = b'"protocolVersion"'
"""Stands in nothing that a server writes before its start but in its answer to initialize."""
LONG_LOOK: Final = 4096
"""Bytes of an odd line that are looked at."""
ODD_BETWEEN: Final = 10.0
"""Seconds between two lines of the log about odd lines."""
ODD_SHOWN: Final = 120
"""Characters."""
METHOD_NOT_FOUND: Final = -32601
LIST_CHANGES: Final = tuple(
    f"notifications/{what}/list_changed" for what in ("tools", "resources", "prompts")
)
ReadPage = Callable[[bytes], tuple[list[bytes], str | None]]
"""Reads one page of a list: its entries and the cursor of the next. Raises ValueError."""


class Hooks(NamedTuple):
    """What a session tells its owner, from the event loop."""

    on_progress: Callable[[bytes], None]
    on_log: Callable[[bytes], None]
    on_list_changed: Callable[[], None]
    on_lost: Callable[[], None]
    """The server ended or closed its output, after `open` had returned."""
    watch_child: Callable[[int, Callable[[int], None]], None]


class McpSession:
    """Owner of one server. Create, `open`, use `transport`, `close`; each once."""

    def __init__(
        self, worker: str, command: Command, hooks: Hooks, log: WorkerLog, version: str
    ) -> None:
        self.server = ""
        """Name and version that the server gave, after `open`."""
        self._worker = worker
        self._has_tools = False
        self._listings: tuple[extras.Listing, ...] = ()
        self._command, self._hooks, self._log, self._version = command, hooks, log, version
        self._open = False
        self.odd_line = ""
        """The beginning of a line of its output that was no JSON-RPC message."""
        self._told_odd = -math.inf
        self.process: ServerProcess | None = None
        self._stderr: StderrReader | None = None
        self.transport: StdioTransport
        self._sdk: SdkSession

    @property
    def dropped(self) -> int:
        """Lines and frames of the server that were dropped."""
        return self.transport.dropped + self._sdk.dropped if self.process else 0

    async def open(self) -> None:
        """Start the server and shake hands; the caller sets the deadline.

        Raises WorkerError: command_not_found, no_permission, start_failed, init_failed,
        protocol_error, server_exited, server_closed_output.
        """
        self.process = process = start_server(self._command)
        self._hooks.watch_child(process.pid, self._exited)
        self._stderr = StderrReader(process.stderr, self._log)
        self.transport = StdioTransport(
            process.stdin,
            process.stdout,
            on_message=self._message,
            on_foreign=self._foreign,
            on_closed=self._closed,
            on_unreadable=self._unreadable,
        )
        self._sdk = SdkSession(self.transport.send_line, self._version, self._log.masks)
        handshake = asyncio.ensure_future(self._sdk.initialize())
        try:
            waiting: set[asyncio.Future[Any]] = {handshake, process.exited}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not handshake.done():
                raise await self.post_mortem()
            problem = handshake.exception()
            if problem is not None:
                if self.transport.closed:
                    raise await self.post_mortem()
                raise problem
            result = handshake.result()
        finally:
            handshake.cancel()
        about = result.server_info
        self.server = self._log.masks.clip(f"{about.name} {about.version}".strip(), 200)
        able = result.capabilities
        self._has_tools = able.tools is not None
        self._listings = (*extras.PROMPTS,) if able.prompts is not None else ()
        if able.resources is not None:
            self._listings += extras.RESOURCES
        self._open = True

    async def post_mortem(self) -> WorkerError:
        """Say why the server is not there any more, as exactly as can be known soon."""
        assert self.process and self._stderr
        await asyncio.wait({self.process.exited}, timeout=LAST_WORDS)
        await asyncio.wait({self._stderr.ended}, timeout=LAST_WORDS)
        words = self._stderr.last_line
        if not self.process.exited.done():
            return WorkerError(
                "server_closed_output", "the server closed its output, but its process still runs"
            )
        how = describe_exit(self.process.exited.result())
        reason = f"the server {how}" + (f"; its last words: {words}" if words else "")
        fix = f"Look at its log: `interlock logs {shlex.quote(self._worker)}`."
        if not self._open and (unseen := unseen_variable(words, self._command.env)):
            fix = (
                f'A server sees only what its `env` names: write env = {{ {unseen} = "" }} to pass '
                f"on {unseen} as it is where `interlock up` runs."
            )
        return WorkerError("server_exited", reason, fix=fix)

    def last_words(self) -> str:
        """Return the last line of the server's standard error."""
        return self._stderr.last_line if self._stderr else ""

    async def list_tools(self, seconds: float) -> tools.ToolList:
        """Fetch all pages of the tool list within `seconds`.

        A server that says that it has no tools may answer with an error or not at all. Raises
        WorkerError: tool_list, init_timeout, server_exited.
        """
        limit = seconds if self._has_tools else min(seconds, UNDECLARED_LIST)
        try:
            async with asyncio.timeout(limit):
                return tools.read_tools(
                    *await self._pages("tools/list", _tool_page, tools.MAX_TOOLS)
                )
        except TimeoutError:
            problem = WorkerError(
                "init_timeout", f"the server did not list its tools within {spoken(seconds)} s"
            )
        except WorkerError as error:
            problem = error
        if self._has_tools or self.transport.closed:
            raise problem
        self._log.line("INFO", f"No tools: {problem.reason}.")
        return tools.read_tools(())

    @property
    def has_extras(self) -> bool:
        """Whether the server says that it has resources or prompts."""
        return bool(self._listings)

    async def list_extras(self, seconds: float) -> extras.Extras:
        """Fetch what the server has besides tools; a list that fails counts as empty.

        Each list gets `seconds`. Raises WorkerError(server_exited).
        """
        found = []
        for listing in self._listings:
            try:
                async with asyncio.timeout(seconds):
                    read = partial(extras.read_items, key=listing.key)
                    found.append((listing, *await self._pages(listing.method, read, listing.most)))
            except (TimeoutError, WorkerError) as error:
                if self.transport.closed:
                    raise await self.post_mortem() from None
                why = (
                    error.reason
                    if isinstance(error, WorkerError)
                    else f"no answer in {spoken(seconds)} s"
                )
                self._log.line("WARNING", f"{listing.method}: {why}.")
        return extras.read_extras(found)

    async def ask(self, method: str, params: bytes) -> Answer:
        """Send a request of our own and return its answer; the caller sets the deadline."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request_id = self.transport.next_id()

        def settle(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        self.transport.request(request_id, method, params, settle)
        try:
            return await future
        finally:
            self.transport.forget(request_id)

    async def close(self, grace: float) -> None:
        """End the server and its whole tree; takes at most about 4 x `grace` seconds."""
        self._open = False
        if self.process is None:
            return
        await self._sdk.close(min(grace, 0.5))
        await self.process.end(self.transport.close_input, grace)
        self.transport.close()
        if self._stderr is not None:
            self._stderr.close()

    async def _pages(self, method: str, read: ReadPage, most: int) -> tuple[list[bytes], str]:
        """Fetch the pages of a list until it ends or has more than `most` entries.

        Returns the entries, and why there may be more of them: nobody follows a list for ever.
        """
        found: list[bytes] = []
        cursors: set[str] = set()
        cursor: str | None = None
        size = 0
        for _ in range(tools.MAX_PAGES):
            params = b"{}" if cursor is None else b'{"cursor":%b}' % json_string(cursor)
            answer = await self.ask(method, params)
            if answer.fault == "closed":
                raise await self.post_mortem()
            if answer.error:
                message = self._log.masks.clip(read_error(answer.error).message, 300)
                what = "its tools" if method == "tools/list" else method
                raise WorkerError("tool_list", f"the server refused to list {what}: {message}")
            try:
                entries, cursor = read(answer.result)
            except ValueError as error:
                text = (
                    f"the server's tool list cannot be read ({answer.why or answer.fault or error})"
                )
                text = self._log.masks.clip(text, 400)
                raise WorkerError("tool_list", text, fix="Update the server.") from error
            size += len(answer.result)
            if size > tools.MAX_PAGED:
                text = f"the server's tool list is larger than {tools.MAX_PAGED >> 20} MiB"
                raise WorkerError("tool_list", text, fix="Update the server.")
            found.extend(hidden_entry(entry, self._log.masks) for entry in entries)
            if not cursor or len(found) > most:
                return found, ""
            if cursor in cursors:
                return found, "the server goes on with a page that it gave before"
            cursors.add(cursor)
        return found, f"the server's list has more than {tools.MAX_PAGES} pages"

    def _message(self, frame: Frame) -> None:
        if frame.id is not None:
            self._refuse(frame)
        elif frame.method == "notifications/progress":
            self._hooks.on_progress(bytes(frame.params))
        elif frame.method == "notifications/message":
            self._hooks.on_log(bytes(frame.params))
        elif frame.method in LIST_CHANGES and self._open:
            self._hooks.on_list_changed()

    def _refuse(self, frame: Frame) -> None:
        own = msgspec.json.encode(frame.id)
        if frame.method == "ping":
            reply = b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % own
        else:
            error = b'{"code":%d,"message":"not supported"}' % METHOD_NOT_FOUND
            reply = b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (own, error)
        self.transport.reply(reply)

    def _foreign(self, line: bytes) -> bool:
        return self._sdk.feed(mend_text(line))

    def _unreadable(self, line: bytes) -> None:
        if not self._open and INITIALIZED in line[:LONG_LOOK]:
            why, (mended, frame) = fault_of(line), mended_frame(line)
            if frame is not None:
                self._foreign(mended)
                return
            self._sdk.refuse(f"it is no valid JSON-RPC message: {why}")
        now = asyncio.get_running_loop().time()
        if now >= self._told_odd + ODD_BETWEEN:
            # One of many: whatever a server prints, it fills no log.
            self._told_odd = now
            shown = line[:LONG_LOOK].decode(errors="replace").strip()
            self.odd_line = self._log.masks.clip(shown, ODD_SHOWN)
            count = self.transport.dropped
            self._log.warning(
                f"Its output has lines that are no JSON-RPC messages; {count} were dropped so far, "
                f"the newest begins: {self.odd_line}"
            )

    def _closed(self, reason: str) -> None:
        self._sdk.end_input()
        self._lost(reason)

    def _exited(self, status: int) -> None:
        assert self.process
        self.process.note_exit(status)
        # What the server wrote before its end is still in the pipe, so the reader goes first.
        asyncio.get_running_loop().call_later(
            LAST_WORDS, partial(self._lost, describe_exit(status))
        )

    def _lost(self, reason: str) -> None:
        if self._open:
            self._open = False
            self._log.line("WARNING", f"Connection to the server lost: {reason}.")
            self._hooks.on_lost()


def _tool_page(result: bytes) -> tuple[list[bytes], str | None]:
    page = tools.read_page(result)
    return [bytes(tool) for tool in items(page.tools)], page.next_cursor
