"""The stdio connection to one MCP server: the only reader and writer of its pipes.

Two users share it. Requests made here carry string ids (`i1`, `i2`, ...) and never meet the SDK's
models; answers with other ids go to `on_foreign`. Nothing that arrives can raise: what is no frame,
answers nothing or comes twice is dropped and counted. Work per turn of the event loop is bounded,
so a server that floods cannot keep the worker from answering pings; and if it says much and answers
nothing that was asked, whatever else it says gets a small part of a core only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.bus.errors import OverloadedError
from interlock.workers.mcp.frames import (
    NOTHING,
    Frame,
    find_own_id,
    mend_halves,
    mend_text,
    read_frame,
)
from interlock.workers.mcp.lines import LineSplitter, LongLine
from interlock.workers.mcp.mending import Answered, batch_of, fault_of, mended_frame

MAX_LINE: Final = 64 << 20
MAX_OUTGOING: Final = 64 << 20
"""Bytes that may wait for a server that does not read its input."""
MAX_WAITING: Final = 16_384
"""Lines that may wait for it; a short one takes ten times its bytes."""
MAX_REPLIES: Final = 1024
"""Waiting lines from which on it gets no answers to what it asks itself."""
READ_SIZE: Final = 256 << 10
LINES_PER_TURN: Final = 256
TURN: Final = 0.02
"""Seconds after which a turn of the loop begins no further line."""
GATHERED: Final = 32 << 10
"""Bytes of lines that are kept back at most: half of what the server's input pipe holds."""
USELESS_BYTES: Final = 4 << 20
"""After so many bytes in a row without one answer the reader pauses after every read."""
ASKED_BYTES: Final = 64 << 20
"""The same while it has something to answer: many a tool reports much before its result."""
PAUSE: Final = 0.004
"""Seconds of that pause at least."""
REST: Final = 9
"""That pause as a multiple of the time that the read took, so a flood gets a tenth of a core."""
PIPE_SIZE: Final = 1 << 20
"""Wished capacity of the server's output pipe; fewer wake-ups for large results."""


class Answer(msgspec.Struct, frozen=True):
    """The end of a request: one of result, error or fault is not empty.

    `fault` is a code: closed, too_large, unreadable; `why` says more of the last.
    """

    result: bytes = b""
    error: bytes = b""
    fault: str = ""
    why: str = ""


class StdioTransport:
    """Non-blocking JSON-RPC over two pipes; takes over the descriptors and closes them."""

    def __init__(
        self,
        stdin: int,
        stdout: int,
        *,
        on_message: Callable[[Frame], None],
        on_foreign: Callable[[bytes], bool],
        on_closed: Callable[[str], None],
        on_unreadable: Callable[[bytes], None] = lambda line: None,
        max_line: int = MAX_LINE,
        max_outgoing: int = MAX_OUTGOING,
    ) -> None:
        self.dropped = 0
        self._in, self._out = stdin, stdout
        self._on_message, self._on_foreign, self._on_closed = on_message, on_foreign, on_closed
        self._on_unreadable, self._answered = on_unreadable, Answered()
        self._splitter, self._max_outgoing = LineSplitter(max_line), max_outgoing
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, Callable[[Answer], None]] = {}
        self._count = 0
        self._outgoing: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._gathered: list[bytes] | None = None
        """Lines that leave together; None: each leaves at once."""
        self._gathered_bytes = 0
        self._lines: deque[bytes] = deque()
        self._useless, self._spent = 0, 0.0
        self._reading = True
        self._resume: asyncio.Handle | None = None
        self._ended = False
        # Pages of a mapping exist once they are written to: most servers never fill it.
        self._buffer = mmap.mmap(-1, READ_SIZE)
        self._views = [memoryview(self._buffer)]
        os.set_blocking(stdin, False)
        os.set_blocking(stdout, False)
        enlarge_pipe(stdout)
        self._loop.add_reader(stdout, self._readable)

    @property
    def closed(self) -> bool:
        """Whether the server's output has ended or the transport was closed."""
        return self._ended

    def next_id(self) -> str:
        """Return a fresh id for `request`."""
        self._count += 1
        return f"i{self._count}"

    def request(
        self, request_id: str, method: str, params: bytes, on_answer: Callable[[Answer], None]
    ) -> None:
        """Send a request as `ask` does; `params` is JSON without line breaks."""
        line = b'{"jsonrpc":"2.0","id":"%b","method":"%b","params":%b}\n'
        self.ask(request_id, line % (request_id.encode(), method.encode(), params), on_answer)

    def ask(self, request_id: str, line: bytes, on_answer: Callable[[Answer], None]) -> None:
        """Send a request's whole line; `on_answer` is called once unless `forget` comes first.

        Raises OverloadedError when the server does not read its input and the buffer is full.
        """
        if self._ended:
            self._loop.call_soon(on_answer, Answer(fault="closed"))
            return
        self.send_line(line)
        self._pending[request_id] = on_answer

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification; lost without a word when it cannot be sent."""
        try:
            self.send_line(
                b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)
            )
        except OverloadedError:
            self.dropped += 1

    def forget(self, request_id: str) -> None:
        """Give up on a request: its answer will be dropped and counted."""
        self._pending.pop(request_id, None)

    def send_line(self, line: bytes) -> None:
        """Write one complete line, now or as soon as the server reads. Raises OverloadedError."""
        if self._ended:
            return
        if self._gathered is not None and not self._outgoing:
            self._gathered.append(line)
            self._gathered_bytes += len(line)
            if self._gathered_bytes > GATHERED:
                self._write_gathered(self._gathered)
            return
        if self._outgoing:
            full = len(self._outgoing) >= MAX_WAITING
            if full or self._waiting_bytes + len(line) > self._max_outgoing:
                raise OverloadedError("The server does not read its input; try again later.")
            self._outgoing.append(memoryview(line))
            self._waiting_bytes += len(line)
            return
        self._write_or_wait(line)

    def reply(self, line: bytes) -> None:
        """Answer what the server asks; dropped and counted if it does not read its input."""
        try:
            if len(self._outgoing) >= MAX_REPLIES:
                raise OverloadedError("The server does not read its input.")
            self.send_line(line)
        except OverloadedError:
            self.dropped += 1

    def gather(self, on: bool) -> None:
        """Keep lines back while `on`, and write them as one when it ends.

        A write is a system call and a wake-up of the server. For use within one callback of the
        loop: nobody may have to wait for what is kept back.
        """
        lines, self._gathered = self._gathered, [] if on else None
        if lines:
            self._write_gathered(lines)

    def _write_gathered(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        lines.clear()
        self._gathered_bytes = 0
        self._write_or_wait(data)

    def _write_or_wait(self, data: bytes) -> None:
        written = self._write(data)
        if written < len(data):
            self._outgoing.append(memoryview(data)[written:])
            self._waiting_bytes = len(data) - written
            self._loop.add_writer(self._in, self._writable)

    def close_input(self) -> None:
        """Close the server's standard input, which asks it to end."""
        self.gather(False)
        if self._in >= 0:
            self._loop.remove_writer(self._in)
            os.close(self._in)
            self._in = -1
            self._outgoing.clear()

    def close(self, reason: str = "closed") -> None:
        """Close both pipes and end every pending request with fault `closed`."""
        self.close_input()
        if self._out >= 0:
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._out = -1
        if self._resume is not None:
            self._resume.cancel()
        self._lines.clear()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(Answer(fault="closed"))
        self._on_closed(reason)

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._in, data)
        except BlockingIOError:
            return 0
        except OSError:
            # Its death is seen on the other pipe, with the process or by the deadline.
            return len(data)

    def _writable(self) -> None:
        first = self._outgoing[0]
        written = self._write(first[:READ_SIZE])
        self._waiting_bytes -= written
        if written < len(first):
            self._outgoing[0] = first[written:]
            return
        self._outgoing.popleft()
        if not self._outgoing:
            self._loop.remove_writer(self._in)

    def _readable(self) -> None:
        try:
            count = os.readv(self._out, self._views)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._loop.remove_reader(self._out)
            self._end("the server closed its output")
            return
        self._lines.extend(self._splitter.feed(bytes(self._views[0][:count])))
        if self._splitter.discarding:
            self._useless += count
        self._work()

    def _work(self) -> None:
        began = self._loop.time()
        count = min(LINES_PER_TURN, len(self._lines))
        if count > 1:
            self.gather(True)  # each answer may let a waiting call start
        for _ in range(count):
            line = self._lines.popleft()
            self._useless = 0 if self._line(line) else self._useless + len(line) + 1
            if self._ended:
                return
            if self._loop.time() - began > TURN:
                break
        self.gather(False)
        self._spent += self._loop.time() - began
        if self._lines:
            self._pause(0.0, self._work)
            return
        spent, self._spent = self._spent, 0.0
        if self._useless > (ASKED_BYTES if self._pending else USELESS_BYTES):
            self._pause(max(PAUSE, REST * spent), self._read_again)
        elif not self._reading:
            self._read_again()

    def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._out)
        self._resume = self._loop.call_later(seconds, then)

    def _read_again(self) -> None:
        self._reading = True
        self._loop.add_reader(self._out, self._readable)

    def _line(self, line: bytes) -> bool:
        """Deal with one line; True if it answers a request."""
        if isinstance(line, LongLine):
            return self._long_line(line)
        frame = read_frame(line)
        if frame is None and (mended := mend_halves(line)) is not line:
            line, frame = mended, read_frame(mended)
        if frame is None:
            return self._odd_line(line)
        return self._frame(line, frame)

    def _odd_line(self, line: bytes) -> bool:
        """Deal with a line that is no frame; what answers a request ends it, in whatever form."""
        found = self._answered.find(line) if self._pending else None
        if found is not None and found in self._pending:
            mended, frame = mended_frame(line)
            if frame is not None:
                return self._frame(mended, frame)
            self._pending.pop(found)(Answer(fault="unreadable", why=fault_of(line)))
        elif self._pending and line[:1] == b"[":
            frames, more = batch_of(line)
            self._lines.extendleft(reversed(frames))  # each is a line of its own
            if frames and not more:
                return False
        if line.strip():
            self.dropped += 1
            self._on_unreadable(line)
        return found is not None

    def _frame(self, line: bytes, frame: Frame) -> bool:
        if frame.method is not None:
            self._on_message(frame)
            return False
        if not isinstance(frame.id, str):
            return self._on_foreign(line)
        on_answer = self._pending.pop(frame.id, None)
        if on_answer is None:
            self.dropped += 1
            return False
        if frame.error is NOTHING:
            on_answer(Answer(mend_text(bytes(frame.result))))
        else:
            on_answer(Answer(mend_text(bytes(frame.result)), bytes(frame.error)))
        return True

    def _long_line(self, line: LongLine) -> bool:
        self.dropped += 1
        found = find_own_id(line)
        on_answer = self._pending.pop(found, None) if found else None
        if on_answer is None:
            return False
        on_answer(Answer(fault="too_large"))
        return True


def enlarge_pipe(descriptor: int) -> None:
    """Ask for a larger pipe where the system has that; the usual size works too."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
