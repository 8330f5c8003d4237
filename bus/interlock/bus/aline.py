"""The asynchronous client's connection to the supervisor: requests, streams and its liveness."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from interlock.bus.codec import check_json, encode, read_answer
from interlock.bus.endpoints import ConnectionInfo, Home, read_connection
from interlock.bus.errors import (
    InterlockError,
    MalformedError,
    NoSupervisorError,
    UsageError,
)
from interlock.bus.given import encode_request
from interlock.bus.line import (
    CHECK,
    PEER,
    find_supervisor,
    lost_supervisor,
    silent_supervisor,
    supervisor_lives,
)
from interlock.bus.messages import ApiAnswer, Gone, Reply, Request
from interlock.bus.results import error_of
from interlock.bus.socket import FdSocket, OwnContext, connect_socket

Answer = tuple[ApiAnswer, bytes | None]


class Mailbox:
    """Answers to one request, in order; whoever reads it waits on `news`."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.news = asyncio.Event()
        self.lost: InterlockError | None = None
        """Why no further answer comes."""


class AsyncLine:
    """One api socket in the running event loop, and a look at the supervisor's process."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.info: ConnectionInfo = find_supervisor(home)
        self.closed = False
        self.dropped = 0
        """Frames that were no answer, or answers that nobody waits for."""
        self.on_gone: Callable[[Gone], None] = lambda message: None
        self.ctx: zmq.Context[zmq.Socket[bytes]] = OwnContext.made(PEER)
        self._answered = False
        self._ids = 0
        self._boxes: dict[int, Mailbox] = {}
        self._writable = asyncio.Event()
        self._subscriptions: set[FdSocket] = set()
        self._api = self._connect(self.info)

    def close(self) -> None:
        """Close every socket and end their I/O thread; twice is harmless."""
        self.closed = True
        self._api.close()
        # Before the context: whoever closes a socket below its reader leaves the loop a descriptor
        # that may be somebody else's next.
        for sock in tuple(self._subscriptions):
            self.unsubscribe(sock)
        self.ctx.destroy(0)

    def subscribe(self, on_message: Callable[[list[bytes]], None], high_water: int) -> FdSocket:
        """Open a subscription to all events, until `unsubscribe` or the end of the line."""
        self.check_open()
        options: dict[str, int | bytes] = {"rcvhwm": high_water, "subscribe": b"msgpack"}
        sock = connect_socket(self.ctx, zmq.SUB, self.info.events, PEER, **options)
        subscription = FdSocket(sock, on_message)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: FdSocket) -> None:
        """End a subscription; twice is harmless."""
        self._subscriptions.discard(subscription)
        subscription.close()

    async def open_request(
        self, kind: type[Request], body: bytes | None, limit: float, fields: dict[str, Any]
    ) -> int:
        """Send a request; its answers are found under the id, until `close_request`."""
        self.check_open()
        self._ids += 1
        request_id = self._ids
        header = encode_request(kind, request_id, self.info.key, fields)
        self._boxes[request_id] = Mailbox()
        frames = [b"msgpack", header] if body is None else [b"msgpack", header, body]
        end = asyncio.get_running_loop().time() + limit
        try:
            while not self._api.send(frames):
                self._api.want_writable = True
                await self._wait(self._writable, end, limit)
        except BaseException:
            self.close_request(request_id)
            raise
        return request_id

    def close_request(self, request_id: int) -> None:
        """Drop whatever still comes for a request."""
        self._boxes.pop(request_id, None)

    async def next_answer(self, request_id: int, limit: float) -> Answer:
        """Wait for the next answer to a request.

        Raises RequestTimeoutError after `limit` seconds, and ConnectionLostError or
        NoSupervisorError once the supervisor's process is gone.
        """
        box = self._boxes[request_id]
        end = asyncio.get_running_loop().time() + limit
        while not box.answers:
            if box.lost is not None:
                raise box.lost
            box.news.clear()
            await self._wait(box.news, end, limit)
        return box.answers.popleft()

    async def exchange(
        self, kind: type[Request], body: bytes | None, limit: float, fields: dict[str, Any]
    ) -> tuple[Reply, bytes | None]:
        """Send a request and return its reply, whatever its code; raises as `next_answer`."""
        request_id = await self.open_request(kind, body, limit, fields)
        try:
            reply, document = await self.next_answer(request_id, limit)
        finally:
            self.close_request(request_id)
        if not isinstance(reply, Reply):
            raise MalformedError("The supervisor answered a request with something else.")
        return reply, document

    async def document(
        self, kind: type[Request], body: bytes | None, limit: float, fields: dict[str, Any]
    ) -> Any:
        """Send a request and return the document of its reply; raises the error of one not ok."""
        reply, document = await self.exchange(kind, body, limit, fields)
        if reply.code != "ok":
            raise error_of(reply)
        return check_json(document) if document else None

    def notify(self, kind: type[Request], fields: dict[str, Any]) -> bool:
        """Send a request that has no answer, if that is possible at once; False if it is not."""
        return self._api.send([b"msgpack", encode(kind(id=0, key=self.info.key, **fields))])

    def check_open(self) -> None:
        """Raise UsageError once the line is closed."""
        if self.closed:
            raise UsageError("This client is closed; connect again.")

    def check(self) -> None:
        """Raise the error of a lost connection if the supervisor's process is gone.

        And UsageError once the line is closed.
        """
        self.check_open()
        if not supervisor_lives(self.home, self.info):
            raise self._lost()

    def renew(self) -> bool:
        """Turn to the supervisor that runs on this home now; False if there is no other one."""
        try:
            info = read_connection(self.home)
        except NoSupervisorError:
            return False
        if info.epoch == self.info.epoch or not supervisor_lives(self.home, info):
            return False
        api = self._connect(info)
        for box in self._boxes.values():  # what the last one was asked, nobody answers any more
            box.lost = self._lost()
            box.news.set()
        self.info = info
        self._answered = False
        self._api.close()
        self._api = api
        return True

    def _connect(self, info: ConnectionInfo) -> FdSocket:
        sock = connect_socket(self.ctx, zmq.DEALER, info.api, PEER, immediate=1)
        return FdSocket(sock, self._on_api, on_writable=self._on_writable)

    async def _wait(self, event: asyncio.Event, end: float, limit: float) -> None:
        """Wait for an event in slices short enough to notice that the supervisor died.

        `limit` is how long that was to take in all.
        """
        left = end - asyncio.get_running_loop().time()
        if left <= 0:
            raise silent_supervisor(self.home, self.info, limit)
        try:
            async with asyncio.timeout(min(left, CHECK)):
                await event.wait()
        except TimeoutError:
            self.check()

    def _lost(self) -> InterlockError:
        return lost_supervisor(self.home, self.info, self._answered)

    def _on_writable(self) -> None:
        self._api.want_writable = False
        self._writable.set()
        self._writable = asyncio.Event()

    def _on_api(self, frames: list[bytes]) -> None:
        read = read_answer(frames)
        if read is None:
            self.dropped += 1
            return
        message, body = read
        self._answered = True
        if isinstance(message, Gone):
            self.on_gone(message)
            return
        box = self._boxes.get(message.id)
        if box is None:
            self.dropped += 1
            return
        box.answers.append((message, body))
        box.news.set()
