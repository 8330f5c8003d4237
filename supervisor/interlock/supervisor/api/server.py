"""The api plane: who may ask, who answers, and that every request gets one answer.

Nobody's requests or unread answers cost others more than a bound: in requests, in bytes, and in
time, as the large answers of one client are made one after the other.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import zmq

from interlock.bus.codec import api_encoding, decode_api_request, encode, request_id
from interlock.bus.errors import (
    InterlockError,
    MalformedError,
    OverloadedError,
    RequestTimeoutError,
    UnauthorizedError,
)
from interlock.bus.listening import Listening
from interlock.bus.messages import (
    ApiAnswer,
    ApiRequest,
    ApprovalsGet,
    Gone,
    ReplayGet,
    Reply,
    Request,
    SnapshotGet,
    StatusGet,
    ToolsGet,
    TurnGet,
    TurnsGet,
    WhyGet,
)
from interlock.bus.socket import FdSocket, open_socket
from interlock.supervisor.api.shares import SMALL, Shares, Unsent
from interlock.supervisor.policy.approvals import Role

Handler = Callable[[bytes, Any, bytes | None], Awaitable[bytes | None]]
"""Takes identity, message and body; returns the JSON document of the reply, or None for no reply.

Raises InterlockError; its code goes into the reply."""

MAX_REQUESTS: Final = 4000
"""Requests that may be under way at the same time."""
MAX_OF_CLIENT: Final = 1000
"""Of these, requests of one client, so that it does not take everybody's place."""
ALWAYS: Final = 16
"""Requests that a client may have under way however many others have."""
LARGE: Final[frozenset[type[Request]]] = frozenset(
    {StatusGet, SnapshotGet, ReplayGet, ToolsGet, WhyGet, TurnsGet, TurnGet, ApprovalsGet}
)
"""Requests with an answer that may be large: of each client, one at a time is worked on."""
MAX_LARGE: Final = 256
"""Such requests that one client may have under way."""
OF_REQUESTS: Final = 32 << 20
"""Bytes of the requests that one client may have under way, if it is not a single one."""
OF_ALL_REQUESTS: Final = 256 << 20
"""Bytes of all requests under way, beyond which only small ones are taken."""
UNREAD: Final = 10.0
"""Seconds that such a request waits for its client to read what it has been sent."""
LOOK: Final = 0.02
"""Seconds between two looks whether it has."""
MAX_CLIENTS: Final = 10_000
"""Clients that are remembered before it is looked who is gone: first those that asked longest ago.
"""
LOOKS: Final = 4
"""Clients of which that is looked for each request, once there are so many."""
REQUEST_TIME: Final = 60.0
"""Seconds that a handler may take, unless it has a time of its own."""


class Api:
    """A ROUTER that runs one task per request and owns these tasks.

    `keys` says who has which role. A client may have one at a time: a request with the key of
    another role makes it a stranger.
    `slow` names the message types that have their own deadline. `on_trouble(error, request)` hears
    of handlers that raised what they must not raise.
    """

    def __init__(
        self,
        ctx: zmq.Context[zmq.Socket[bytes]],
        address: str,
        keys: Mapping[str, Role],
        on_trouble: Callable[[BaseException, str], None],
        on_client_gone: Callable[[bytes], None],
        on_full: Callable[[bool], None] = lambda full: None,
    ) -> None:
        sock = open_socket(ctx, zmq.ROUTER)
        self.listening = Listening(sock, address, on_full)
        """How clients come in."""
        self.dropped = 0
        self._keys = {key.encode(): role for key, role in keys.items()}
        self._roles: dict[bytes, Role] = {}
        self._on_trouble = on_trouble
        self._on_client_gone = on_client_gone
        self._handlers: dict[type[Request], Handler] = {}
        self._slow: frozenset[type[Request]] = frozenset()
        self._encodings: OrderedDict[bytes, bytes] = OrderedDict()
        self._holders: dict[tuple[str, int], set[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: Counter[bytes] = Counter()
        self._large: Counter[bytes] = Counter()
        self._lines: dict[bytes, asyncio.Lock] = {}
        """Who has its next large answer made, of each client that has asked for any."""
        self._taken = Shares(OF_REQUESTS, OF_ALL_REQUESTS)
        """Bytes of the requests under way."""
        self._unsent = Unsent()
        self._socket = FdSocket(sock, self._received)
        self.listening.on_used = self._socket.look

    def serve(
        self, handlers: Mapping[type[Request], Handler], slow: frozenset[type[Request]]
    ) -> None:
        """Answer these requests from now on."""
        self._handlers.update(handlers)
        self._slow |= slow

    def answer(self, identity: bytes, message: ApiAnswer, body: bytes | None = None) -> bool:
        """Send one answer in the client's encoding; False: full or gone, it never waits.

        A client that has not read too much of what it was sent is full, too.
        """
        if body is not None and not self._unsent.fits(identity, len(body)):
            return False
        return self._send(identity, message, body)

    def _send(self, identity: bytes, message: ApiAnswer, body: bytes | None = None) -> bool:
        encoding = self._encodings.get(identity)
        if encoding is None:
            return False
        frames = [identity, encoding, encode(message, api_encoding(encoding))]
        if body is None:
            return self._socket.send(frames)
        frame = self._unsent.frame(identity, body)
        sent = self._socket.send([*frames, frame])
        if sent:
            self._unsent.sent(identity, frame)
        return sent

    def present(self, identity: bytes) -> bool:
        """Whether a client is still connected, found out by a reply to nothing; never waits."""
        if identity not in self._encodings:
            return False
        if self._send(identity, Reply(id=0)) or not self._socket.unreachable:
            return True
        self._lose(identity)
        return False

    async def farewell(self, identities: Iterable[bytes], seconds: float) -> None:
        """Wait until these clients have read all and left, for so many seconds at most.

        What somebody has not read when the connection ends is lost.
        """
        until = asyncio.get_running_loop().time() + seconds
        while any(map(self.present, identities)):
            if asyncio.get_running_loop().time() > until:
                return
            await asyncio.sleep(LOOK)

    def role(self, identity: bytes) -> Role:
        """Who a client is; one that has not asked for anything is an app."""
        return self._roles.get(identity, "app")

    def holds(self, identity: bytes, worker: str, generation: int) -> None:
        """Remember that the client may call that generation, to tell it when that ends."""
        holders = self._holders.setdefault((worker, generation), set())
        holders.add(identity)
        if len(holders) > MAX_CLIENTS:
            holders.intersection_update(self._encodings)

    def tell_gone(self, worker: str, generation: int, reason: str) -> None:
        """Tell every client that may call that generation that it has ended."""
        gone = Gone(worker=worker, generation=generation, reason=reason)
        for identity in self._holders.pop((worker, generation), ()):
            self._send(identity, gone)

    async def close(self, linger: float = 0.0) -> None:
        """End all requests that are under way, then drop the socket.

        What is queued for clients has `linger` seconds to leave.
        """
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        self.listening.close()
        self._socket.close(linger)

    def _received(self, frames: list[bytes]) -> None:
        if not 3 <= len(frames) <= 4:
            self.dropped += 1
            return
        identity, encoding, header = frames[:3]
        try:
            message = decode_api_request(encoding, header)
        except MalformedError as error:
            self._refuse(identity, encoding, header, error)
            return
        role = self._role_of(message.key.encode("utf-8", "replace"))
        if role is None or self._roles.setdefault(identity, role) != role:
            stranger = UnauthorizedError(
                "The api key is not the one of the connection file; read that file again."
            )
            self._refuse(identity, encoding, header, stranger)
            return
        self._remember(identity, encoding)
        body = frames[3] if len(frames) == 4 else None
        size = len(header) + len(body or b"")
        if not self._has_room(identity, message, size):
            busy = OverloadedError("Too many requests are under way; try again in a moment.")
            self._reply_error(identity, message.id, busy)
            return
        self._taken.add(identity, size)
        self._under_way[identity] += 1
        self._large[identity] += type(message) in LARGE
        task = asyncio.get_running_loop().create_task(self._run(identity, message, body))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(done, identity, message, size))

    def _has_room(self, identity: bytes, message: ApiRequest, size: int) -> bool:
        mine = self._under_way[identity]
        if mine >= MAX_OF_CLIENT or (len(self._tasks) >= MAX_REQUESTS and mine >= ALWAYS):
            return False
        if type(message) in LARGE and self._large[identity] >= MAX_LARGE:
            return False
        return self._taken.fits(identity, size)

    def _role_of(self, key: bytes) -> Role | None:
        # All are compared, so that the time tells nothing.
        found = [role for known, role in self._keys.items() if hmac.compare_digest(known, key)]
        return found[0] if found else None

    async def _run(self, identity: bytes, message: ApiRequest, body: bytes | None) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            tag = str(message.__struct_config__.tag)
            raise InterlockError(
                f"This supervisor does not answer `{tag}` yet.", code="unsupported"
            )
        if type(message) in self._slow:
            self._reply(identity, message.id, await handler(identity, message, body))
            return
        try:
            async with asyncio.timeout(REQUEST_TIME):
                if type(message) not in LARGE:
                    self._reply(identity, message.id, await handler(identity, message, body))
                    return
                async with self._lines.setdefault(identity, asyncio.Lock()):
                    await self._read(identity)
                    self._reply(identity, message.id, await handler(identity, message, body))
        except TimeoutError:
            raise RequestTimeoutError(
                "The supervisor could not answer in time; try again when it is less busy."
            ) from None

    async def _read(self, identity: bytes) -> None:
        """Wait until the client has read enough of its answers for the next one."""
        until = asyncio.get_running_loop().time() + UNREAD
        while not self._unsent.fits(identity, SMALL):
            if asyncio.get_running_loop().time() > until:
                raise OverloadedError(
                    "Too many bytes of answers wait to be read; read them, then ask again."
                )
            await asyncio.sleep(LOOK)

    def _reply(self, identity: bytes, number: int, document: bytes | None) -> None:
        if document is None:
            return
        if len(document) > SMALL and not self._unsent.has_room(len(document)):
            raise OverloadedError("Too many clients do not read their answers; try again later.")
        if not self._send(identity, Reply(id=number), document):
            self._lose(identity)

    def _done(
        self, task: asyncio.Task[None], identity: bytes, message: ApiRequest, size: int
    ) -> None:
        """Answer where that failed; the last boundary for what a handler must not have raised."""
        self._tasks.discard(task)
        self._taken.remove(identity, size)
        self._large[identity] -= type(message) in LARGE
        if not self._large[identity]:
            del self._large[identity]
            self._lines.pop(identity, None)
        self._under_way[identity] -= 1
        if not self._under_way[identity]:
            del self._under_way[identity]
        if task.cancelled():
            stopping = InterlockError("The supervisor is stopping.", code="stopping")
            self._reply_error(identity, message.id, stopping)
            return
        error = task.exception()
        if isinstance(error, InterlockError):
            self._reply_error(identity, message.id, error)
        elif error is not None:
            self._on_trouble(error, str(message.__struct_config__.tag))
            internal = InterlockError(
                "Something went wrong inside the supervisor; its log says what."
            )
            self._reply_error(identity, message.id, internal)

    def _reply_error(self, identity: bytes, number: int, error: InterlockError) -> None:
        fix = getattr(error, "fix", "")
        reply = Reply(id=number, code=error.code, message=error.message, fix=fix)
        if not self._send(identity, reply):
            self._lose(identity)

    def _lose(self, identity: bytes) -> None:
        self._encodings.pop(identity, None)
        self._roles.pop(identity, None)
        self._unsent.forget(identity)
        self._on_client_gone(identity)

    def _refuse(
        self, identity: bytes, encoding: bytes, header: bytes, error: InterlockError
    ) -> None:
        """Answer a sender that is not known and stays so, if its request has an id at all."""
        self.dropped += 1
        number = request_id(encoding, header)
        if number:
            reply = encode(
                Reply(id=number, code=error.code, message=error.message), api_encoding(encoding)
            )
            self._socket.send([identity, encoding, reply])

    def _remember(self, identity: bytes, encoding: bytes) -> None:
        self._encodings[identity] = encoding
        self._encodings.move_to_end(identity)
        if len(self._encodings) > MAX_CLIENTS:
            # Whoever is connected may wait for an answer; how many are, descriptors bound.
            for oldest in list(itertools.islice(self._encodings, LOOKS)):
                if self.present(oldest):
                    self._encodings.move_to_end(oldest)
