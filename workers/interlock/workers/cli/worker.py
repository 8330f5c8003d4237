"""The cli kind: one worker for one command-line tool, which is the capability `cli:NAME`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.bus.channel import IncomingCall
from interlock.bus.limits import MAX_ARGUMENTS
from interlock.bus.messages import Capabilities, ControlDown, Ready
from interlock.bus.own import runs_interlock
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import CliConfigure
from interlock.bus.wording import spoken
from interlock.workers.cli.arguments import ArgumentError, input_schema, words
from interlock.workers.cli.run import ProgramRun
from interlock.workers.cuts import Cutter
from interlock.workers.failure import WorkerError
from interlock.workers.kept import prune
from interlock.workers.keptrow import KeptRow
from interlock.workers.kind import Gauges, Host
from interlock.workers.processes import describe_exit
from interlock.workers.programs import Command, Wanted, build_program, size_in_bytes
from interlock.workers.reports import CallReporter

SUMMARY: Final = 200
SEND_AGAIN: Final = 0.5
"""Seconds until a report is sent again that could not be queued."""
SAME_MOMENT: Final = 0.25
"""A caller that gives up so close to the end of the call's time has seen a timeout, too."""
PLAIN: Final[Mapping[str, str]] = {"NO_COLOR": "1"}
"""What every program is told besides: nobody looks at a terminal."""


class CliKind:
    """Implements `interlock.workers.kind.WorkerKind` for one program. Owns its runs."""

    def __init__(self) -> None:
        self._host: Host
        self._configure: CliConfigure
        self._command: Command
        self._reporter: CallReporter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: set[ProgramRun] = set()
        self._waiting = 0
        self._free: asyncio.Condition = asyncio.Condition()
        self._busy = 0
        self._refusal = ""
        self._count = 0
        self._sent: set[str] = set()
        self._cutter = Cutter()
        self._kept_row: KeptRow
        self._again: asyncio.TimerHandle | None = None

    async def start(self, host: Host, body: bytes) -> Ready:
        """Find the program and serve it. Raises WorkerError where it cannot or may not be run."""
        self._host = host
        self._kept_row = KeptRow(host, "outputs")
        self._configure = configure = _read(body)
        settings = configure.settings
        prune(Path(configure.results_folder), time.time())
        where = f"cli_tools.{configure.tool}"
        wanted = Wanted(
            settings.command, settings.args, settings.env, settings.cwd, settings.limits
        )
        command = await build_program(where, configure.folder, wanted, host.masks)
        self._command = command._replace(env={**PLAIN, **command.env})
        if runs_interlock(self._command.argv, self._command.cwd):
            raise WorkerError(
                "forbidden_command",
                f"{where} would run Interlock itself, and agents never may",
                fix="Name another program, or take the entry out.",
                permanent=True,
            )
        self._reporter = CallReporter(host.send, self.gauges, host.report_children)
        self._publish()
        host.serve(self._submit)
        return Ready(tools=1, server=self._command.argv[0])

    async def apply(self, body: bytes) -> None:
        """Take over arguments, subcommands, description and bounds."""
        self._configure = _read(body)
        self._publish()
        async with self._free:
            self._free.notify_all()

    async def drain(self, seconds: float) -> None:
        """Refuse new calls and return when the running ones have ended."""
        self._refusal = f"The tool {self._configure.tool} is being stopped."
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """End all programs and what they started."""
        self._refusal = "The tool was stopped."
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=4.0)
        if self._reporter is not None:
            self._reporter.flush()

    def on_control(self, message: ControlDown, body: bytes | None) -> None:
        """Ignore what is meant for other kinds."""
        self._host.log.line("DEBUG", f"Ignored a message {type(message).__name__}.")

    def gauges(self) -> Gauges:
        """Programs that run and calls that wait."""
        lost = self._reporter.lost if self._reporter is not None else 0
        return Gauges(in_flight=self._busy, queue=self._waiting, dropped=lost)

    def _publish(self) -> None:
        settings = self._configure.settings
        name = self._configure.tool
        about = settings.description or f"Runs the program {os.path.basename(settings.command)}."
        schema = input_schema(settings)
        document = msgspec.json.encode(
            {"name": name, "description": about, "inputSchema": schema}, order="sorted"
        )
        digest = hashlib.sha256(document).hexdigest()
        fresh = {} if digest in self._sent else {digest: msgspec.Raw(document)}
        row = CapabilityReport(name=name, digest=digest, summary=about[:SUMMARY])
        if self._host.send(Capabilities(rows=(row,)), msgspec.json.encode(fresh)):
            self._sent = {digest}  # the supervisor forgets what the newest report does not name
        elif self._again is None:  # what waits already sends the newest
            self._again = asyncio.get_running_loop().call_later(SEND_AGAIN, self._publish_again)

    def _publish_again(self) -> None:
        self._again = None
        self._publish()

    # --- calls ---

    def _submit(self, call: IncomingCall) -> None:
        settings = self._configure.settings
        if self._refusal:
            call.fail("unavailable", self._refusal)
            return
        if call.name != self._configure.tool:
            call.fail("not_found", f"There is no tool {call.name!r} here.")
            return
        if len(self._tasks) >= settings.concurrency + settings.queue:
            text = f"{self._busy} calls run and {self._waiting} wait for {call.name}"
            call.fail("overloaded", f"{text}; try again later.")
            return
        if len(call.arguments) > MAX_ARGUMENTS:
            size = f"{MAX_ARGUMENTS >> 20} MiB"
            call.fail("invalid_arguments", f"Arguments for a program have at most {size}.")
            return
        try:
            given = msgspec.json.decode(call.arguments or b"{}", type=dict[str, Any])
            line = words(settings, given)
        except ArgumentError as error:
            call.fail("invalid_arguments", str(error))
            return
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            call.fail("invalid_arguments", "The arguments are not a JSON object.")
            return
        argv = (*self._command.argv, *line)
        if runs_interlock(argv, self._command.cwd):
            call.fail("denied", "Agents may not run Interlock itself.")
            return
        task = asyncio.get_running_loop().create_task(self._call(call, argv))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, call))
        call.on_cancel = partial(self._cancelled, task)

    def _cancelled(self, task: asyncio.Task[None]) -> None:
        task.cancel()

    def _ended(self, call: IncomingCall, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not call.answered:
            # Cancelled before its first step: nothing of it ran, and nobody has answered it.
            call.fail("cancelled", f"The call of {call.name} was cancelled before it began.")

    async def _call(self, call: IncomingCall, argv: tuple[str, ...]) -> None:
        assert self._reporter is not None
        self._count += 1
        ident, begun = f"p{self._count}", time.monotonic()
        outcome, size = "cancelled", 0
        try:
            if not await self._turn(call):
                outcome = "timeout"
                call.fail("timeout", f"The call waited too long for a free place at {call.name}.")
                return
            self._reporter.started(ident, call)
            try:
                outcome, size = await self._run(call, argv)
            finally:
                async with self._free:
                    self._busy -= 1
                    # All of them: the one that is woken may be cancelled before it looks.
                    self._free.notify_all()
        except asyncio.CancelledError:
            if not call.cancelled:
                outcome = "worker_died"
            elif call.left <= SAME_MOMENT:
                outcome = "timeout"
            call.fail(outcome, f"The call of {call.name} was ended.", may_have_run=True)
        finally:
            self._reporter.ended(ident, call, outcome, time.monotonic() - begun, size)

    async def _turn(self, call: IncomingCall) -> bool:
        """Wait for a free place; False if the caller's time is over before."""
        self._waiting += 1
        try:
            async with asyncio.timeout(max(call.left, 0.0)), self._free:
                await self._free.wait_for(lambda: self._busy < self._configure.settings.concurrency)
                self._busy += 1
                return True
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    async def _run(self, call: IncomingCall, argv: tuple[str, ...]) -> tuple[str, int]:
        """Run the program and answer the call; return its outcome and the answer's bytes."""
        limit = min(self._configure.settings.timeout, max(call.left, 0.0))
        try:
            run = ProgramRun(self._command._replace(argv=argv), self._host.watch_child)
        except WorkerError as error:
            call.fail("unavailable", f"{call.name}: {error.reason}.")
            return "unavailable", 0
        self._runs.add(run)
        self._host.report_children()
        try:
            in_time = await run.wait(limit)
        finally:
            self._runs.discard(run)
            await asyncio.shield(asyncio.ensure_future(run.end(self._runs)))
        if not in_time:
            text = f"{call.name} did not end within {spoken(limit)} s and was killed."
            call.fail("timeout", text, may_have_run=True)
            return "timeout", 0
        status = run.status.result()
        body = await self._body(run, status)
        outcome = "ok" if status == 0 else "tool_error"
        call.result(body, "ok" if status == 0 else "tool_error")
        return outcome, len(body)

    async def _body(self, run: ProgramRun, status: int) -> bytes:
        text, errors = run.stdout.text, run.stderr.text
        parts = [text.rstrip("\n")] if text.strip() else []
        if errors.strip():
            parts.append(f"[standard error]\n{errors.rstrip()}")
        if lost := run.stdout.lost + run.stderr.lost:
            parts.append(f"[{lost} further bytes of output were thrown away]")
        if status:
            parts.append(f"[the program {describe_exit(status)}]")
        document: dict[str, Any] = {
            "content": [{"type": "text", "text": "\n".join(parts)}],
            "structuredContent": {"exit_code": os.waitstatus_to_exitcode(status)},
        }
        if status:
            document["isError"] = True
        body = msgspec.json.encode(document)
        bound = size_in_bytes(self._configure.settings.max_output) or 0
        if len(body) <= bound:
            return body
        folder = Path(self._configure.results_folder)
        done = await self._cutter.cut(body, bound, folder, self._configure.tool)
        self._kept_row.told(done.problem, folder, len(body))
        return done.body


def kind() -> CliKind:
    """Return the kind; called by the host once per process."""
    return CliKind()


def _read(body: bytes) -> CliConfigure:
    try:
        return msgspec.json.decode(body, type=CliConfigure)
    except msgspec.MsgspecError as error:
        raise WorkerError(
            "config", f"the settings cannot be read: {error}", permanent=True
        ) from None
