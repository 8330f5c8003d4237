"""The synchronous client's sockets: one poll for all of them, and answers sorted by request.

Waiting happens in `Line.pump` alone, in slices short enough to notice that the supervisor died.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import zmq

from interlock.bus import procfs
from interlock.bus.codec import check_json, encode, read_answer
from interlock.bus.endpoints import (
    ConnectionInfo,
    Home,
    lock_holder,
    obstacle,
    read_connection,
    who_holds,
)
from interlock.bus.errors import (
    ConnectionLostError,
    HomeLockedError,
    InterlockError,
    MalformedError,
    NoSupervisorError,
    RequestTimeoutError,
    UsageError,
)
from interlock.bus.given import encode_request
from interlock.bus.messages import ApiAnswer, Gone, Reply, Request
from interlock.bus.remedies import disk_remedy
from interlock.bus.results import error_of
from interlock.bus.socket import OwnContext, connect_socket
from interlock.bus.wording import spoken

Socket = zmq.Socket[bytes]
Handler = Callable[[list[bytes]], None]
Answer = tuple[ApiAnswer, bytes | None]

CHECK: Final = 0.25
"""Seconds of silence after which the supervisor's process is looked at."""
PEER: Final = "the supervisor"
"""Who it is to whom a line leads, in words."""
_BUDGET: Final = 256
"""Messages taken from one socket before the caller's own work has a turn."""
# Plain integers: combining and comparing the enum's members would cost as much as a system call.
_IN: Final = int(zmq.POLLIN)
_NOW: Final = int(zmq.DONTWAIT)
_NOW_PART: Final = int(zmq.DONTWAIT | zmq.SNDMORE)


def supervisor_lives(home: Home, info: ConnectionInfo) -> bool:
    """Tell whether the supervisor of a connection file is still there."""
    try:
        os.kill(info.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the pid is somebody else's by now, or hidden; the file has the last word
    found = procfs.stat(info.pid)
    if found is not None and found.state in "ZX":
        return False
    # The pid may be a stranger's by now; above all after a boot, when few pids are in use.
    if found is not None and info.start and found.start != info.start:
        return False
    if info.boot_id and procfs.boot_id() not in ("", info.boot_id):
        return False
    try:
        return read_connection(home).epoch == info.epoch
    except NoSupervisorError:
        return True  # it takes the file away before it ends


def silent_supervisor(home: Home, info: ConnectionInfo, seconds: float) -> RequestTimeoutError:
    """Return the error for a supervisor that is there and did not answer within that time."""
    pid = info.pid
    if stands_still(pid):
        return RequestTimeoutError(
            f"The supervisor (pid {pid}) is stopped, so it answers nobody; `kill -CONT {pid}` lets "
            f"it go on, `kill -9 {pid}` ends it and leaves nothing of it."
        )
    if why := unreachable(home, info):
        return RequestTimeoutError(why)
    return RequestTimeoutError(
        f"The supervisor (pid {pid}) did not answer within {spoken(seconds)} s; it may be "
        "overloaded or frozen. Look at that process and try again."
    )


def unreachable(home: Home, info: ConnectionInfo) -> str:
    """Say why no new connection can come to a supervisor that runs, and what to do; else ""."""
    path = Path(info.api.removeprefix("ipc://"))
    todo = f"It is made again by itself; if not, {home.logs / 'supervisor.log'} says why"
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            return ""
        why = "something else is there"
    except OSError as error:
        why = f"{error.strerror}"
        if error.errno != errno.ENOENT:
            wrong = obstacle(path.parent)
            todo = f"{disk_remedy(error.errno, wrong)}, then it is made again by itself"
    return (
        f"The supervisor (pid {info.pid}) runs, but nobody new can reach it, as its socket {path} "
        f"is missing: {why}. {todo}; `interlock down` stops it all the same."
    )


def stands_still(pid: int) -> bool:
    """Whether a process is stopped now, by a signal or in a debugger."""
    found = procfs.stat(pid)
    return found is not None and found.state in "Tt"


def find_supervisor(home: Home) -> ConnectionInfo:
    """Read the connection file and make sure that its supervisor is there.

    Raises NoSupervisorError; its code is `connection_file` if one runs and the file hides that.
    """
    try:
        info = read_connection(home)
    except NoSupervisorError as error:
        if error.code == NoSupervisorError.code:
            _check_nobody_runs(home)
        raise
    proven = bool(info.start) or _may_be(home, info.pid)
    if not proven or not supervisor_lives(home, info):
        _check_nobody_runs(home)
        last = f" (the last one, pid {info.pid}, is gone)" if proven else ""
        raise NoSupervisorError(
            f"No supervisor is running on {home.path}{last}; start one with `interlock up`."
        )
    return info


def _may_be(home: Home, pid: int) -> bool:
    """Whether a file that does not say when its process started may be a supervisor's at all."""
    known = procfs.start_time(os.getpid()) is not None and home.lock_file.exists()
    return not known or lock_holder(home) == pid


def _check_nobody_runs(home: Home) -> None:
    pid = lock_holder(home)
    if pid:
        raise NoSupervisorError(
            f"A supervisor (pid {pid}) runs on {home.path}, but its connection file is missing or "
            "damaged; it writes that again within seconds, so try again, or stop it with "
            "`interlock down`.",
            code="connection_file",
        )
    taken = who_holds(home)
    if isinstance(taken, HomeLockedError):
        raise NoSupervisorError(f"No supervisor is running on {home.path}. {taken.message}")


def lost_supervisor(home: Home, info: ConnectionInfo, answered: bool) -> InterlockError:
    """Return the error for a supervisor that is gone; `answered`: it was there before."""
    if answered:
        return ConnectionLostError(
            f"The supervisor (pid {info.pid}) is gone; start it again with `interlock up`."
        )
    return NoSupervisorError(
        f"The supervisor on {home.path} (pid {info.pid}) is gone; start one with `interlock up`."
    )


class Line:
    """All sockets of one client, and the answers that nobody has fetched yet."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.info = find_supervisor(home)
        self.answered = False
        self.closed = False
        self.dropped = 0
        """Frames that were no answer, or answers that nobody waits for."""
        self.on_gone: Callable[[Gone], None] = lambda message: None
        self._ids = 0
        self._inbox: dict[int, deque[Answer]] = {}
        self._handlers: dict[Socket, Handler] = {}
        self._links: dict[int, Callable[[], None]] = {}
        """By descriptor: what serves a connection that is none of these sockets."""
        self._ctx: zmq.Context[Socket] = OwnContext.made(PEER)
        self._poller = zmq.Poller()
        self._api = self.connect(zmq.DEALER, self.info.api, self._on_api, immediate=1)

    def connect(
        self,
        kind: int,
        endpoint: str,
        handler: Handler,
        peer: str = PEER,
        **options: int | bytes,
    ) -> Socket:
        """Open a further socket whose messages go to `handler`, while `pump` runs.

        `peer` names the other end in words. Raises UnreachableError.
        """
        self._check_open()
        sock = connect_socket(self._ctx, kind, endpoint, peer, **options)
        self._handlers[sock] = handler
        self._poller.register(sock, zmq.POLLIN)
        return sock

    def disconnect(self, sock: Socket) -> None:
        """Close a socket; twice is harmless."""
        if self._handlers.pop(sock, None) is not None:
            self._poller.unregister(sock)
            sock.close(0)

    def watch(self, descriptor: int, on_ready: Callable[[], None], writing: bool = False) -> None:
        """Have `on_ready` called when there is something to read, or room if it is `writing`."""
        self._check_open()
        self._links[descriptor] = on_ready
        self._poller.register(descriptor, zmq.POLLIN | zmq.POLLOUT if writing else zmq.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Undo `watch`; to be called before the descriptor is closed."""
        if self._links.pop(descriptor, None) is not None:
            self._poller.unregister(descriptor)

    def close(self) -> None:
        """Close every socket and end their I/O thread; twice is harmless."""
        self.closed = True
        for sock in tuple(self._handlers):
            self.disconnect(sock)
        self._ctx.destroy(0)

    def open_request(
        self, kind: type[Request], body: bytes | None, until: float, fields: dict[str, Any]
    ) -> int:
        """Send a request and return the id under which `next_answer` finds what comes back.

        Whoever opens a request ends it with `close_request`. Raises RequestTimeoutError and, if
        the supervisor is gone, ConnectionLostError or NoSupervisorError.
        """
        self._check_open()
        self._ids += 1
        request_id = self._ids
        header = encode_request(kind, request_id, self.info.key, fields)
        self._inbox[request_id] = deque()
        frames = [b"msgpack", header] if body is None else [b"msgpack", header, body]
        begun = time.monotonic()
        try:
            self.send(self._api, frames, until)
        except RequestTimeoutError:
            self.close_request(request_id)
            raise silent_supervisor(self.home, self.info, until - begun) from None
        except BaseException:
            self.close_request(request_id)
            raise
        return request_id

    def close_request(self, request_id: int) -> None:
        """Drop whatever still comes for a request."""
        self._inbox.pop(request_id, None)

    def take_answer(self, request_id: int) -> Answer | None:
        """Return the next answer that is already here."""
        waiting = self._inbox[request_id]
        return waiting.popleft() if waiting else None

    def next_answer(self, request_id: int, until: float) -> Answer | None:
        """Wait for the next answer to a request; None at `until` (monotonic seconds)."""
        while (answer := self.take_answer(request_id)) is None:
            if time.monotonic() >= until:
                return None
            self.pump(until)
        return answer

    def exchange(
        self, kind: type[Request], body: bytes | None, timeout: float, fields: dict[str, Any]
    ) -> tuple[Reply, bytes | None]:
        """Send a request and return its reply, whatever its code, and the reply's body.

        `timeout` in seconds. Raises RequestTimeoutError; and as `pump`.
        """
        until = time.monotonic() + timeout
        request_id = self.open_request(kind, body, until, fields)
        try:
            answer = self.next_answer(request_id, until)
        finally:
            self.close_request(request_id)
        if answer is None:
            raise silent_supervisor(self.home, self.info, timeout)
        reply, document = answer
        if not isinstance(reply, Reply):
            raise MalformedError("The supervisor answered a request with something else.")
        return reply, document

    def document(
        self, kind: type[Request], body: bytes | None, timeout: float, fields: dict[str, Any]
    ) -> Any:
        """Send a request and return the document of its reply; raises the error of one not ok."""
        reply, document = self.exchange(kind, body, timeout, fields)
        if reply.code != "ok":
            raise error_of(reply)
        return check_json(document) if document else None

    def notify(self, kind: type[Request], fields: dict[str, Any]) -> bool:
        """Send a request that has no answer, if that is possible at once; False if it is not."""
        return try_send(self._api, [b"msgpack", encode(kind(id=0, key=self.info.key, **fields))])

    def send(self, sock: Socket, frames: list[bytes], until: float) -> None:
        """Send one message as soon as its peer can take it; raises as `wait_writable`."""
        while not try_send(sock, frames):
            self.wait_writable(sock, until)

    def wait_writable(self, sock: Socket, until: float) -> None:
        """Wait as `pump` does, and also for the peer of `sock` to take messages.

        Raises RequestTimeoutError at `until`; and as `pump`.
        """
        if time.monotonic() >= until:
            raise RequestTimeoutError("The other end took no message in time.")
        self._poller.modify(sock, zmq.POLLIN | zmq.POLLOUT)
        try:
            self.pump(until)
        finally:
            if sock in self._handlers:
                self._poller.modify(sock, zmq.POLLIN)

    def pump(self, until: float) -> None:
        """Wait until something happens, at most until `until`, and deliver what came.

        Raises ConnectionLostError, or NoSupervisorError if it never answered, once the
        supervisor's process is gone.
        """
        self._check_open()
        left = min(max(until - time.monotonic(), 0.0), CHECK)
        if self.deliver(math.ceil(left * 1000)) or supervisor_lives(self.home, self.info):
            return
        raise lost_supervisor(self.home, self.info, self.answered)

    def deliver(self, milliseconds: int = 0) -> bool:
        """Deliver one message of each socket that has one, or the first to come within that time.

        False if nothing came.
        """
        # What `Poller.poll` does, without its handling of unusual timeouts.
        ready = zmq.zmq_poll(self._poller.sockets, milliseconds)
        for sock, flags in ready:
            if isinstance(sock, int):
                if (on_ready := self._links.get(sock)) is not None:
                    on_ready()
                continue
            handler = self._handlers.get(sock)
            if flags & _IN and handler is not None:
                try:
                    frames = sock.recv_multipart(_NOW)
                except zmq.Again:
                    continue  # an earlier handler used this client, which took it from here
                handler(frames)
        return bool(ready)

    def deliver_all(self) -> None:
        """Deliver what is here already, within bounds."""
        for _ in range(_BUDGET):
            if not self.deliver():
                return

    def renew(self) -> bool:
        """Turn to the supervisor that runs on this home now; False if there is no other one."""
        try:
            info = read_connection(self.home)
        except NoSupervisorError:
            return False
        if info.epoch == self.info.epoch or not supervisor_lives(self.home, info):
            return False
        api = self.connect(zmq.DEALER, info.api, self._on_api, immediate=1)
        self.info = info
        self.answered = False
        self.disconnect(self._api)
        self._api = api
        return True

    def _check_open(self) -> None:
        if self.closed:  # by whoever goes on with a stream
            raise UsageError("This client is closed; connect again.")

    def _on_api(self, frames: list[bytes]) -> None:
        read = read_answer(frames)
        if read is None:
            self.dropped += 1
            return
        message, body = read
        self.answered = True
        if isinstance(message, Gone):
            self.on_gone(message)
            return
        waiting = self._inbox.get(message.id)
        if waiting is None:
            self.dropped += 1
            return
        waiting.append((message, body))


def try_send(sock: Socket, frames: list[bytes]) -> bool:
    """Send one message if its peer can take it at once."""
    try:
        for frame in frames[:-1]:
            sock.send(frame, _NOW_PART)
        sock.send(frames[-1], _NOW)
    except zmq.Again:
        return False
    return True
