"""The mcp kind: one worker process that owns one MCP server and serves its tools."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus.errors import InterlockError, OverloadedError
from interlock.bus.messages import Capabilities, ControlDown, Ready, StateReport
from interlock.bus.settings import McpConfigure
from interlock.bus.wording import spoken
from interlock.workers.failure import WorkerError
from interlock.workers.kept import prune
from interlock.workers.keptrow import KeptRow
from interlock.workers.kind import Gauges, Host
from interlock.workers.logs import RateLimit
from interlock.workers.mcp.calls import Calls, CallSettings
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.command import build_command
from interlock.workers.mcp.extras import Extras
from interlock.workers.mcp.frames import NOTHING, mend_text
from interlock.workers.mcp.pace import ListPace
from interlock.workers.mcp.process import standing_still
from interlock.workers.mcp.session import Hooks, McpSession
from interlock.workers.mcp.tools import ToolList
from interlock.workers.programs import size_in_bytes
from interlock.workers.reports import CallReporter

RELIST_TIMEOUT: Final = 30.0
RELIST_RETRY: Final = 30.0
"""Seconds from a listing that failed to the next attempt, unless the server says more before."""
LIST_CHANGES: Final = "list_changes"
"""Code of the row for a server whose lists change at every reading."""
EXTRAS_TIMEOUT: Final = 15.0
"""Seconds for each list of resources or prompts; no turn waits for them."""
PROBE_TIMEOUT: Final = 5.0
SEND_AGAIN: Final = 0.5
"""Seconds until a report is sent again that could not be queued."""
LOG_TEXT: Final = 4096
"""Characters of a server's log message that are passed on."""
LOGS_PER_SECOND: Final = 50
GRACE: Final = 1.3
"""Seconds that a server gets to end by itself, and again after SIGTERM; less with a short term."""


class _LogParams(msgspec.Struct):
    level: str = "info"
    logger: str | None = None
    data: msgspec.Raw = NOTHING


class McpKind:
    """Implements `interlock.workers.kind.WorkerKind` for MCP servers over stdio."""

    def __init__(self) -> None:
        self._host: Host
        self._configure: McpConfigure
        self._session: McpSession | None = None
        self._calls: Calls | None = None
        self._reporter: CallReporter | None = None
        self._tools = ToolList((), {}, ())
        self._extras = Extras()
        self._sent: set[str] = set()
        self._pace, self._slow = ListPace(), False
        """How soon the lists are read again, and whether a person was told that it is seldom."""
        self._relist = asyncio.Event()
        self._log_limit = RateLimit(LOGS_PER_SECOND)
        self._told, self._trouble, self._still = (False, ""), "", ""
        """What the supervisor was told, and what it is to know."""
        self._unsent: list[Callable[[], None]] = []
        self._probing = False
        self._ended = False
        """Whether the server ended by itself."""

    async def start(self, host: Host, body: bytes) -> Ready:
        """Start the server, list its tools and serve them.

        Raises WorkerError, also when all of it together takes longer than `init_timeout`.
        """
        self._host = host
        self._configure = _read(body)
        limit = self._configure.settings.init_timeout
        prune(Path(self._configure.results_folder), time.time())
        try:
            async with asyncio.timeout(limit):
                session = await self._open_session()
                self._tools = await session.list_tools(limit)
        except TimeoutError:
            raise self._mute(limit) from None
        except WorkerError as error:
            raise self._mute(limit) if error.code == "init_timeout" else error from None
        configure = self._configure  # as it is now: `apply` may have changed it meanwhile
        reporter = CallReporter(host.send, self._call_gauges, host.report_children)
        self._reporter = reporter
        self._calls = calls = Calls(
            configure.server,
            session.transport,
            _call_settings(configure),
            Circuit(configure.timing.circuit_open),
            host.masks,
            reports=reporter,
            on_circuit=self._circuit_changed,
            on_kept=KeptRow(host).told,
        )
        self._publish()
        host.serve(calls.submit, session.transport.gather)
        host.background(self._follow_list(), "tool list")
        tools = len(self._tools.names - set(configure.settings.disabled_tools))
        return Ready(tools=tools, server=session.server)

    async def apply(self, body: bytes) -> None:
        """Take over time limits, bounds and hidden tools; the server goes on running."""
        before, self._configure = self._configure, _read(body)
        if self._calls is not None:
            if before.settings.disabled_tools != self._configure.settings.disabled_tools:
                self._publish()  # the supervisor counts anew what is served
            self._calls.settings = _call_settings(self._configure)
            self._calls.circuit.open_for = self._configure.timing.circuit_open
            self._calls.pump()

    async def drain(self, seconds: float) -> None:
        """Refuse new calls and return when the running ones have ended."""
        if self._calls is not None:
            await self._calls.drain(f"The server {self._configure.server} is being stopped.")

    async def stop(self) -> None:
        """End the calls, the server and everything that the server started."""
        if self._calls is not None:
            name = self._configure.server
            how, refusal = (
                ("ended", "has ended") if self._ended else ("was stopped", "is being stopped")
            )
            self._calls.end_all(
                "worker_died",
                f"The server {name} {how} during the call.",
                f"The server {name} {refusal}; try again in a moment.",
            )
        if self._reporter is not None:
            self._reporter.flush()
        if self._session is not None:
            await self._session.close(min(GRACE, self._configure.timing.term / 6))

    def on_control(self, message: ControlDown, body: bytes | None) -> None:
        """Ignore what is meant for other kinds."""
        self._host.log.line("DEBUG", f"Ignored a message {type(message).__name__}.")

    def gauges(self) -> Gauges:
        """Say how many calls run and wait, and how many lines were dropped."""
        if self._calls is None or self._session is None:
            return Gauges()
        running, waiting, dropped = self._calls.gauges
        lost = self._reporter.lost if self._reporter is not None else 0
        return Gauges(running, waiting, dropped + self._session.dropped + lost)

    def _mute(self, limit: float) -> WorkerError:
        words = self._session.last_words() if self._session else ""
        tail = f"; its last words: {words}" if words else ""
        if self._session and self._session.odd_line:
            tail += f"; its output has lines that are no JSON-RPC: {self._session.odd_line}"
        return WorkerError(
            "init_timeout",
            f"the server did not answer within {spoken(limit)} s (initialize and tool list){tail}",
            fix="Try its command in a terminal, or set a longer `init_timeout`.",
        )

    async def _open_session(self) -> McpSession:
        host = self._host
        command = await build_command(self._configure, host.masks)
        hooks = Hooks(
            on_progress=lambda params: self._calls.progress(params) if self._calls else None,
            on_log=self._logged,
            on_list_changed=self._relist.set,
            on_lost=lambda: host.background(self._lost(), "last words"),
            watch_child=host.watch_child,
        )
        self._session = McpSession(host.boot.name, command, hooks, host.log, own_version())
        await self._session.open()
        return self._session

    def _publish(self) -> None:
        """Report the tools; documents that this generation already sent are not sent again."""
        assert self._calls is not None
        found, extras = self._tools, self._extras
        hidden = frozenset(self._configure.settings.disabled_tools)
        # Those are reported, so that it can be said why they may not be called.
        self._calls.names = (found.names - hidden) | extras.by_name.keys()
        self._calls.extras = extras.by_name
        documents = found.documents | extras.documents
        fresh = {d: msgspec.Raw(doc) for d, doc in documents.items() if d not in self._sent}
        dropped = (*found.dropped, *extras.dropped)
        message = Capabilities(rows=(*found.rows, *extras.rows), dropped=dropped)
        if self._host.send(message, msgspec.json.encode(fresh)):
            # What the newest report does not name the supervisor forgets.
            self._sent = set(documents)
        else:
            self._send_later(self._publish)
        for tool in dropped:
            self._host.log.line("WARNING", f"Tool {tool.name}: {tool.reason}.")

    async def _follow_list(self) -> None:
        """List again whenever the server says that its tools changed; never ends by itself.

        A listing that fails stands under needs attention until a later one succeeds.
        """
        assert self._session is not None
        stale, clock = False, asyncio.get_running_loop().time
        if self._session.has_extras:
            # Not before the start is over: a server is ready when its tools are.
            await self._look_for_extras()
        while True:
            calm = self._pace.calm_after if self._slow else None
            await _set_within(self._relist, RELIST_RETRY if stale else calm)
            await asyncio.sleep(self._pace.delay(clock()))
            self._relist.clear()
            try:
                found = await self._session.list_tools(RELIST_TIMEOUT)
            except (WorkerError, OverloadedError) as error:
                if not stale:
                    self._stale(error)
                stale = True
                continue
            if stale:
                self._host.notice("tool_list", clear=True)
                stale = False
            others = found != self._tools
            if others:
                self._tools = found
                self._publish()
            if await self._look_for_extras() or others:
                self._pace.changed(clock())
            self._pace.look(clock())
            self._tell_pace()

    def _tell_pace(self) -> None:
        if self._slow == self._pace.slow:
            return
        self._slow, name = self._pace.slow, self._host.boot.name
        if not self._slow:
            self._host.notice(LIST_CHANGES, clear=True)
            return
        message = (
            "The server has other tools, resources or prompts each time it is asked; it is asked "
            "less often now, at most a minute after it says that they changed."
        )
        self._host.log.warning(message)
        fix = f"Update the server; `interlock restart {name}` asks it anew."
        self._host.notice(LIST_CHANGES, message=message, fix=fix)

    async def _look_for_extras(self) -> bool:
        """List resources and prompts and report them if there is news, which it returns."""
        assert self._session is not None
        try:
            found = await self._session.list_extras(EXTRAS_TIMEOUT)
        except (WorkerError, OverloadedError) as error:
            text = f"Resources and prompts could not be listed: {error.message}."
            self._host.log.line("WARNING", text)
            return False
        if found == self._extras:
            return False
        self._extras = found
        self._publish()
        return True

    def _stale(self, error: InterlockError) -> None:
        message = f"The tools could not be listed again, the list before stays: {error.message}."
        self._host.log.warning(message)
        fix = f"`interlock restart {self._host.boot.name}`, or update the server."
        self._host.notice("tool_list", message=message, fix=fix)

    async def _lost(self) -> None:
        assert self._session is not None
        self._ended = True
        reason = await self._session.post_mortem()
        self._host.fail(reason.code, reason.reason, fix=reason.fix)

    def _call_gauges(self) -> Gauges:
        return Gauges() if self._calls is None else self._calls.gauges

    def _circuit_changed(self) -> None:
        assert self._calls is not None
        circuit = self._calls.circuit
        if circuit.state is CircuitState.OPEN:
            self._set_state(circuit.reason, standing_still())
            if not self._probing:
                self._probing = True
                self._host.background(self._probe(), "circuit probe")
        elif circuit.state is CircuitState.CLOSED:
            self._set_state("")

    async def _probe(self) -> None:
        """Wait until the open circuit is due and let calls try again if the server answers a ping.

        Without this nobody would call: an open circuit takes the tools out of every offer. The
        same if the one call that was let through was cancelled.
        """
        assert self._calls is not None and self._session is not None
        circuit, loop = self._calls.circuit, asyncio.get_running_loop()
        try:
            while circuit.state is not CircuitState.CLOSED:
                await asyncio.sleep(circuit.open_for)
                try:
                    async with asyncio.timeout(PROBE_TIMEOUT):
                        answer = await self._session.ask("ping", b"{}")
                except (TimeoutError, OverloadedError):
                    circuit.stay_open(loop.time())
                    self._set_state(circuit.reason, standing_still())
                    continue
                if not answer.fault:
                    self._set_state("")
                return
        finally:
            self._probing = False

    def _set_state(self, reason: str, still: str = "") -> None:
        """Tell why the server is not usable; `still` says which process of it stands still."""
        self._trouble, self._still = reason, still
        self._tell_state()

    def _tell_state(self) -> None:
        wanted = bool(self._trouble), self._still
        if wanted == self._told:  # the reason alone counts calls, which is no news
            return
        if self._trouble:
            reason = f"{self._still}; {self._trouble}" if self._still else self._trouble
            report = StateReport(state="DEGRADED", code="circuit_open", reason=reason)
        else:
            report = StateReport(state="READY")
        if self._host.send(report):
            self._told = wanted
        else:
            self._send_later(self._tell_state)

    def _send_later(self, work: Callable[[], None]) -> None:
        """Do again what the supervisor's full queue refused, once however often it is asked for."""
        if not self._unsent:
            asyncio.get_running_loop().call_later(SEND_AGAIN, self._send_again)
        if work not in self._unsent:
            self._unsent.append(work)

    def _send_again(self) -> None:
        works, self._unsent = self._unsent, []
        for work in works:
            work()

    def _logged(self, params: bytes) -> None:
        if not self._log_limit.admit(asyncio.get_running_loop().time()):
            return
        try:
            message = msgspec.json.decode(mend_text(params), type=_LogParams)
            data = bytes(message.data) or b"null"
            text = msgspec.json.decode(data, type=str) if data[:1] == b'"' else data.decode()
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return
        text, level = self._host.masks.clip(text, LOG_TEXT), message.level[:20]
        self._host.log.line("SERVER", f"{level}: {text}")
        if self._calls is not None:
            self._calls.log(level, text)


@cache
def own_version() -> str:
    """Return the version that servers are told; a warm image has looked it up."""
    return importlib.metadata.version("interlock")


def kind() -> McpKind:
    """Return the kind; called by the host once per process."""
    return McpKind()


def _read(body: bytes) -> McpConfigure:
    try:
        return msgspec.json.decode(body, type=McpConfigure)
    except msgspec.MsgspecError as error:
        raise WorkerError(
            "config", f"the settings cannot be read: {error}", permanent=True
        ) from None


def _call_settings(configure: McpConfigure) -> CallSettings:
    settings = configure.settings
    return CallSettings(
        concurrency=settings.concurrency,
        queue=settings.queue,
        timeout=settings.call_timeout,
        timeout_max=max(settings.call_timeout, settings.call_timeout_max),
        max_result=size_in_bytes(settings.max_result) or 0,
        results_folder=Path(configure.results_folder),
    )


async def _set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or the time is over; None: however long that takes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
