"""Calls on their way to one server: queue, concurrency, deadlines, progress, cancellation, circuit.

A call is in one of three places: in the queue, at the server (`_running`, by our request id), or
ended. One timer stands for all calls, at the earliest deadline it has heard of; progress moves
deadlines, and the timer looks again when it fires. How a server's answer becomes an outcome:

| answer | outcome | circuit |
|---|---|---|
| a result | ok, or tool_error where it says `isError` | success |
| JSON-RPC error -32602 | invalid_arguments | success |
| another JSON-RPC error | tool_error, with its message as the result's text | success |
| an object whose content cannot be read | tool_error that says so | success |
| no object | unavailable | failure |
| a line over 64 MiB, or no strict JSON | tool_error that says so | - |
| none before the deadline | timeout | failure, if the caller waited long enough |
| the server ended | worker_died | failure |
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from interlock.bus.channel import IncomingCall
from interlock.bus.errors import OverloadedError
from interlock.bus.memory import MemoryReturn
from interlock.bus.wording import spoken
from interlock.workers import cuts
from interlock.workers.kind import Gauges
from interlock.workers.mcp import results
from interlock.workers.mcp.circuit import Circuit, CircuitState
from interlock.workers.mcp.extras import Extra
from interlock.workers.mcp.frames import (
    call_line,
    is_object,
    json_string,
    mend_text,
    read_error,
    request_line,
)
from interlock.workers.mcp.transport import MAX_LINE, Answer
from interlock.workers.secrets import Masks

COUNTS_AS_MUTE: Final = 0.9
"""Part of a second, or of a shorter `call_timeout`, that the server must have had a call for its
timeout to say something about the server."""
SAME_MOMENT: Final = 0.1
"""A caller whose deadline passes cancels; that close to our own deadline it means a timeout."""
ERROR_TEXT: Final = 64 << 10
"""Characters of a server's error message that are passed on."""


class Connection(Protocol):
    """What calls need of the transport."""

    @property
    def closed(self) -> bool:
        """Whether the server is gone."""
        ...

    def next_id(self) -> str:
        """Return a fresh request id."""
        ...

    def ask(self, request_id: str, line: bytes, on_answer: Callable[[Answer], None]) -> None:
        """Send a request's whole line. Raises OverloadedError."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        ...

    def forget(self, request_id: str) -> None:
        """Drop the answer to a request."""
        ...


class Reports(Protocol):
    """Whoever keeps the books about calls."""

    def started(self, request_id: str, call: IncomingCall) -> None:
        """Note that a call was sent to the server."""
        ...

    def ended(
        self, request_id: str, call: IncomingCall, outcome: str, seconds: float, size: int = 0
    ) -> None:
        """Note how a call ended, after how long and with how many bytes."""
        ...


class CallSettings(NamedTuple):
    """The settings that bound calls; times in seconds, sizes in bytes."""

    concurrency: int
    queue: int
    timeout: float
    timeout_max: float
    max_result: int
    results_folder: Path


class _ProgressParams(msgspec.Struct, rename="camel"):
    progress_token: str | int
    progress: float
    total: float | None = None
    message: str | None = None


_PROGRESS = msgspec.json.Decoder(_ProgressParams)


class _Run:
    """One call between its arrival and its end."""

    __slots__ = (
        *("call", "deadline", "ended", "extra", "id", "latest", "sent", "sent_at", "started"),
        "window",
    )

    def __init__(
        self, call: IncomingCall, request_id: str, now: float, left: float, limit: float
    ) -> None:
        self.call, self.id, self.started = call, request_id, now
        self.window = left if left < limit else limit
        self.deadline, self.latest = now + self.window, now + limit
        self.sent = self.ended = False
        self.sent_at = now
        self.extra: Extra | None = None
        """Set where it is no tool that is called."""


class Calls:
    """Owner of all calls of one server. Everything runs in the event loop; nothing waits.

    `on_circuit()` is called after the circuit opened or closed, `on_problem(text)` when a whole
    result could not be kept ("" when it could). `reports` hears of every start and end.
    """

    def __init__(
        self,
        server: str,
        connection: Connection,
        settings: CallSettings,
        circuit: Circuit,
        masks: Masks,
        *,
        reports: Reports,
        on_circuit: Callable[[], None],
        on_kept: Callable[[OSError | None, Path, int], None],
    ) -> None:
        self.settings, self.circuit = settings, circuit
        self.names: frozenset[str] = frozenset()
        self.extras: Mapping[str, Extra] = {}
        """Resources and prompts among `names`, which are not called but read or got."""
        self.dropped = 0
        self._server, self._connection, self._masks = server, connection, masks
        self._reports, self._on_circuit, self._on_kept = reports, on_circuit, on_kept
        self._loop = asyncio.get_running_loop()
        self._time: Final = time.monotonic  # what the loop's clock is, without a call in between
        self._running: dict[str, _Run] = {}
        self._queue: deque[_Run] = deque()
        self._cutter = cuts.Cutter()
        self._memory = MemoryReturn()
        self._cutting: set[asyncio.Task[cuts.Cut]] = set()
        self._refusal = ""
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    @property
    def gauges(self) -> Gauges:
        """Calls at the server, calls in the queue, notifications dropped."""
        return Gauges(len(self._running), len(self._queue), self.dropped)

    def submit(self, call: IncomingCall) -> None:
        """Take a call: it starts, waits or is refused, at once."""
        now = self._time()
        left = call.deadline - now
        if self._refusal:
            call.fail("unavailable", self._refusal)
        elif call.name not in self.names:
            call.fail("not_found", f"The server {self._server} has no tool {call.name!r} now.")
        elif left <= 0:
            call.fail("timeout", "The call arrived after its deadline.")
        elif (fault := self._fault(call)) != "":
            call.fail("invalid_arguments", f"{fault[:1].upper()}{fault[1:]}.")
        elif len(self._running) < self.settings.concurrency:
            self._start(self._accept(call, now, left), now)
        elif self.circuit.state is CircuitState.OPEN and not self.circuit.due(now):
            call.fail("unavailable", self._open_text())
        elif len(self._queue) < self.settings.queue:
            self._queue.append(self._accept(call, now, left))
        else:
            waiting = f"{len(self._running)} calls run and {len(self._queue)} wait"
            call.fail("overloaded", f"{waiting} for {self._server}; try again later.")

    def _fault(self, call: IncomingCall) -> str:
        """What is wrong with a call's arguments, as far as it can be told here."""
        extra = self.extras.get(call.name)
        if extra is None:
            return "" if is_object(call.arguments) else "the arguments are not a JSON object"
        try:
            extra.params(call.arguments)
        except ValueError as error:
            return str(error)
        return ""

    def progress(self, params: bytes) -> None:
        """Take the params of a progress notification: pass it on and renew the deadline."""
        try:
            news = _PROGRESS.decode(mend_text(params))
        except (msgspec.MsgspecError, RecursionError):
            self.dropped += 1
            return
        run = (
            self._running.get(news.progress_token) if isinstance(news.progress_token, str) else None
        )
        if run is None or run.ended:
            self.dropped += 1
            return
        run.deadline = min(self._time() + run.window, run.latest)
        run.call.progress(news.progress, news.total, news.message or "")

    def log(self, level: str, text: str) -> None:
        """Pass a log message of the server once to everybody who has a call at it."""
        told: set[bytes] = set()
        for run in self._running.values():
            if run.call.peer not in told:
                told.add(run.call.peer)
                run.call.log(level, text)

    def pump(self) -> None:
        """Start waiting calls while there is room, for example after the settings changed."""
        while self._queue and len(self._running) < self.settings.concurrency:
            self._start(self._queue.popleft(), self._time())
        if self._idle is not None and not self._running and not self._queue:
            if not self._idle.done():
                self._idle.set_result(None)

    async def drain(self, reason: str) -> None:
        """Refuse new calls with `reason` and return when none is under way."""
        self._refusal = reason
        self._idle = self._loop.create_future()
        self.pump()
        await self._idle

    def end_all(self, code: str, message: str, refusal: str) -> None:
        """End every call now, and refuse further ones with `refusal`."""
        self._refusal = refusal
        runs = [*self._running.values(), *self._queue]
        self._queue.clear()
        for run in runs:
            self._end(run, code)
            run.call.fail(code, message, may_have_run=run.sent)
        self.pump()

    def _accept(self, call: IncomingCall, now: float, left: float) -> _Run:
        run = _Run(call, self._connection.next_id(), now, left, self.settings.timeout_max)
        run.extra = self.extras.get(call.name)
        call.on_cancel = partial(self._cancelled, run)
        if self._timer is None or run.deadline < self._timer.when():
            self._look_at(run.deadline)
        return run

    def _start(self, run: _Run, now: float) -> None:
        if self._connection.closed:
            self._end(run, "worker_died")
            run.call.fail("worker_died", f"The server {self._server} ended before the call.")
            return
        if run.started < now and run.deadline - now <= min(SAME_MOMENT, run.window / 10):
            # Its caller gives up this moment: a server would only work for nobody.
            self._end(run, "timeout")
            run.call.fail("timeout", self._waited_text(run, now))
            return
        if not self.circuit.admit(now):
            self._end(run, "unavailable")
            run.call.fail("unavailable", self._open_text())
            return
        call = run.call
        if run.extra is None:
            line = call_line(call.name, call.arguments, run.id)
        else:
            line = request_line(run.extra.method, run.extra.params(call.arguments), run.id)
        try:
            self._connection.ask(run.id, line, partial(self._answered, run))
        except OverloadedError as error:
            self.circuit.abandoned()
            self._end(run, "overloaded")
            call.fail("overloaded", error.message)
            return
        run.sent, run.sent_at = True, now
        self._running[run.id] = run
        self._reports.started(run.id, call)

    def _answered(self, run: _Run, answer: Answer) -> None:
        if run.ended:
            return
        body = answer.result
        if answer.fault == "closed":
            self._failed(run, "worker_died", f"The server {self._server} ended during the call.")
        elif answer.fault:
            text = f"The server's answer is larger than {MAX_LINE >> 20} MiB and was thrown away."
            if answer.why:
                text = f"The server's answer is no valid JSON-RPC message: {answer.why}."
            self.circuit.abandoned()
            self._succeeded(run, results.error_body(text), "tool_error")
        elif answer.error:
            error = read_error(answer.error)
            # It goes to logs and the journal; a result is the server's own and is not looked into.
            message = self._masks.clip(error.message, ERROR_TEXT)
            message = message or f"The server reports error {error.code}."
            self._note_success()
            if results.is_argument_error(error):
                self._failed(run, "invalid_arguments", message, blame=False)
            else:
                self._succeeded(run, results.error_body(message), "tool_error")
        elif not results.is_result(body) or (run.extra and not (body := _converted(run, body))):
            text = f"The answer of the server {self._server} is not a tool result."
            self._failed(run, "unavailable", text)
        else:
            self._note_success()
            if len(body) > self.settings.max_result:
                self._cut(run, body)
            else:
                self._succeeded(run, *self._judged(body))

    def _judged(self, body: bytes) -> tuple[bytes, results.Outcome]:
        try:
            body = results.fit(body)
        except ValueError as error:
            text = f"The answer of the server {self._server} is not a tool result: {error}."
            return results.error_body(text), "tool_error"
        return body, "tool_error" if results.is_error(body) else "ok"

    def _cut(self, run: _Run, body: bytes) -> None:
        settings = self.settings
        run.deadline = run.latest = run.window = math.inf
        cutting = self._cutter.cut(
            body, settings.max_result, settings.results_folder, run.call.name
        )
        work = self._loop.create_task(cutting)
        self._cutting.add(work)
        work.add_done_callback(self._cutting.discard)
        work.add_done_callback(partial(self._was_cut, run, len(body), results.is_error(body)))

    def _was_cut(self, run: _Run, size: int, failed: bool, work: asyncio.Task[cuts.Cut]) -> None:
        if run.ended or work.cancelled():
            return
        problem = work.exception()
        if problem is not None:
            self._failed(run, "unavailable", f"The result was too large to handle: {problem}.")
            return
        cut = work.result()
        self._on_kept(cut.problem, self.settings.results_folder, size)
        self._succeeded(run, cut.body, "tool_error" if failed else "ok")

    def _succeeded(self, run: _Run, body: bytes, outcome: results.Outcome) -> None:
        # The caller first; who only keeps the books can wait.
        run.ended = True
        self._running.pop(run.id, None)
        run.call.result(body, outcome)
        self._reports.ended(run.id, run.call, outcome, self._time() - run.started, len(body))
        self._memory.used(len(body))
        self.pump()

    def _failed(self, run: _Run, code: str, message: str, *, blame: bool = True) -> None:
        if blame:
            self._note_failure(message)
        elif run.sent:
            self.circuit.abandoned()  # not the probe's fault, so another one may try
        self._end(run, code)
        may_have_run = run.sent and code != "invalid_arguments"
        run.call.fail(code, message, may_have_run=may_have_run)
        self.pump()

    def _look_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._time()
        for run in [*self._running.values(), *self._queue]:
            if run.deadline <= now and not run.ended:
                self._time_out(run, now)
        left = [run.deadline for run in (*self._running.values(), *self._queue)]
        if left and (earliest := min(left)) < math.inf:
            self._look_at(earliest)

    def _time_out(self, run: _Run, now: float) -> None:
        if not run.sent:
            self._queue.remove(run)
            self._failed(run, "timeout", self._waited_text(run, now), blame=False)
            return
        self._give_up(run, "deadline")
        spent = now - run.sent_at
        blame = spent >= COUNTS_AS_MUTE * min(1.0, self.settings.timeout)
        text = f"{run.call.name} of {self._server} did not answer within {spoken(spent)} s."
        self._failed(run, "timeout", text, blame=blame)

    def _waited_text(self, run: _Run, now: float) -> str:
        return f"The call waited {spoken(now - run.started)} s for a free place at {self._server}."

    def _cancelled(self, run: _Run) -> None:
        now = self._time()
        if run.ended:
            return
        if now >= run.deadline - SAME_MOMENT:
            self._time_out(run, now)
            return
        if run.sent:
            self._give_up(run, "cancelled")
        else:
            self._queue.remove(run)
        self._failed(run, "cancelled", "The caller cancelled the call.", blame=False)

    def _give_up(self, run: _Run, reason: str) -> None:
        self._connection.forget(run.id)
        params = b'{"requestId":"%b","reason":%b}' % (run.id.encode(), json_string(reason))
        self._connection.notify("notifications/cancelled", params)

    def _end(self, run: _Run, outcome: str) -> None:
        run.ended = True
        self._running.pop(run.id, None)
        self._reports.ended(run.id, run.call, outcome, self._time() - run.started)

    def _note_success(self) -> None:
        before = self.circuit.state
        self.circuit.succeeded()
        if before is not CircuitState.CLOSED:
            self._on_circuit()

    def _note_failure(self, why: str) -> None:
        before = self.circuit.state
        self.circuit.failed(self._time(), why)
        if self.circuit.state is CircuitState.OPEN and before is not CircuitState.OPEN:
            self._on_circuit()

    def _open_text(self) -> str:
        return f"The server {self._server} is not used for a while ({self.circuit.reason})."


def _converted(run: _Run, body: bytes) -> bytes:
    """Return the answer for a resource or prompt as a tool result; empty if it is none."""
    assert run.extra is not None
    try:
        return run.extra.result(mend_text(body))
    except ValueError:
        return b""
