"""What ZeroMQ sockets say to each other over one connection: no I/O, no clock.

ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23/): a greeting, one command `READY`
from each side, then messages of one or more frames. libzmq speaks the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_COMMAND: Final = 4096
"""Bytes of a command; libzmq's are below 100."""
MOST_COMMANDS: Final = 64
"""Commands that are obeyed in one look; more wait for the next one."""
MOST_FRAMES: Final = 1000
"""Frames of a message from which on it is none of a careless peer, but an attack."""
LONGEST_IDENTITY: Final = 255
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_NULL: Final = b"NULL".ljust(20, b"\0")
_GREETING: Final = 64
_MORE: Final = 1
_LONG: Final = 2
_COMMAND: Final = 4
_TYPES: Final = {"DEALER": (b"DEALER", b"ROUTER"), "ROUTER": (b"DEALER", b"REQ", b"ROUTER")}
"""Which sockets may be at the other end of one of that type."""


class ProtocolFault(Exception):  # noqa: N818 - "error" would say that it is one of the user's
    """The other end says what no ZeroMQ socket says, or more than is allowed: hang up."""


def opening(kind: str) -> bytes:
    """Return what a socket of that type says first: its greeting and its `READY`."""
    greeting = _SIGNATURE + b"\x03\x00" + _NULL
    socket_type = _property(b"Socket-Type", kind.encode()) + _property(b"Identity", b"")
    return greeting.ljust(_GREETING, b"\0") + _command(b"READY", socket_type)


def prefix(size: int, more: bool) -> bytes:
    """Return the bytes that stand before a frame of `size` bytes in a message.

    >>> prefix(3, True), prefix(256, False).hex()
    (b'\\x01\\x03', '020000000000000100')
    """
    if size < 256:
        return bytes((more, size))
    return bytes((_LONG | more,)) + size.to_bytes(8)


def small_message(frames: Sequence[bytes | memoryview]) -> bytes:
    """Return the bytes of a whole message, for one whose frames are worth copying.

    >>> small_message([b"a", b"bc"]).hex()
    '01016100026263'
    """
    parts: list[bytes | memoryview] = []
    last = len(frames) - 1
    for number, frame in enumerate(frames):
        parts.append(prefix(len(frame), number < last))
        parts.append(frame)
    return b"".join(parts)


class Reader:
    """Makes messages of the bytes that come in over one connection.

    `kind` is the type of this end's socket. A frame, and a message, may have `max_size` bytes; of a
    message of more than `max_frames` frames only those are kept; one look takes `most` messages.
    The first and the last of these may be changed at any time. What has come of a message is kept
    once, however small its pieces were.
    """

    __slots__ = (
        "_count",
        "_frames",
        "_greeted",
        "_kept",
        "_kind",
        "_max_frames",
        "_missing",
        "_size",
        "identity",
        "max_size",
        "more",
        "most",
        "ready",
        "reply",
    )

    def __init__(self, kind: str, max_size: int, max_frames: int, most: int = 256) -> None:
        self.ready = False
        """Whether the other end has introduced itself; nothing may be sent to it before."""
        self.identity = b""
        """The name that the other end has given itself."""
        self.reply = b""
        """The newest command that is to be sent; whoever sends it takes it out."""
        self.more = False
        """Whether further messages may be here already: feed it with nothing to have them."""
        self.max_size = max_size
        self.most = most
        self._kind = kind
        self._max_frames = max_frames
        self._greeted = False
        self._kept = bytearray()
        self._missing = 0
        """Bytes without which there is nothing to look at."""
        self._frames: list[bytes] = []
        self._count = 0
        self._size = 0

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Return the messages that these bytes complete, each as its frames.

        Raises ProtocolFault; the connection is of no use then.
        """
        if self._missing or self.more:
            self.more = False
            self._kept += data
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = bytes(self._kept)
            self._kept = bytearray()
            self._missing = 0
        at = 0
        if not self._greeted:
            at = self._greet(data)
            if not self._greeted:
                self._keep(data, _GREETING - len(data))
                return []
        return self._read(data, at)

    def _greet(self, data: bytes) -> int:
        # Signature and version come first, and are enough to see that this is something else.
        if data[:1] != b"\xff" or (len(data) > 9 and not data[9] & 1):
            raise ProtocolFault("no greeting of a ZeroMQ socket")
        if len(data) > 10 and data[10] < 3:
            raise ProtocolFault(f"version {data[10]} of the protocol")
        if len(data) < _GREETING:
            return 0
        if data[12:32] != _NULL:
            raise ProtocolFault("another security mechanism")
        self._greeted = True
        return _GREETING

    def _read(self, data: bytes, at: int) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        end = len(data)
        commands = 0
        while end - at > 1:
            if len(found) >= self.most or commands >= MOST_COMMANDS:
                self.more = True
                self._keep(data[at:], 0)
                return found
            flags = data[at]
            if flags & _LONG:
                if end - at < 9:
                    break
                start = at + 9
                size = int.from_bytes(data[at + 1 : start])
            else:
                start = at + 2
                size = data[at + 1]
            stop = start + size
            if flags or self._size or not self.ready:
                self._check(flags, size)
            if stop > end:
                self._keep(data[at:] if at else data, stop - end)
                return found
            at = stop
            if flags & _COMMAND:
                commands += 1
                self._obey(data[start:stop])
            elif self._add(data[start:stop], flags & _MORE):
                found.append(self._frames)
                self._frames = []
        if at < end:
            self._keep(data[at:] if at else data, 1)
        return found

    def _check(self, flags: int, size: int) -> None:
        if flags & ~(_MORE | _LONG | _COMMAND) or (flags & _COMMAND and flags & _MORE):
            raise ProtocolFault("flags that do not exist")
        if flags & _COMMAND:
            if size > MAX_COMMAND:
                raise ProtocolFault("a command that is too long")
        elif not self.ready:
            raise ProtocolFault("a message before the introduction")
        elif size > self.max_size or self._size + size > self.max_size + MAX_COMMAND:
            raise ProtocolFault("a message that is too large")

    def _add(self, frame: bytes, more: int) -> bool:
        """Take the next frame of a message; True if it was the last."""
        self._count = self._count + 1 if more else 0
        self._size = self._size + len(frame) if more else 0
        if self._count > MOST_FRAMES:
            raise ProtocolFault("a message of too many frames")
        if len(self._frames) < self._max_frames:
            self._frames.append(frame)
        return not more

    def _keep(self, data: bytes, missing: int) -> None:
        self._kept += data
        self._missing = missing

    def _obey(self, command: bytes) -> None:
        name, rest = _split(command)
        if name == b"READY" and not self.ready:
            self._introduced(_properties(rest))
        elif name == b"PING" and self.ready and len(rest) >= 2:
            self.reply = _command(b"PONG", rest[2:18])
        elif name == b"ERROR":
            raise ProtocolFault("an error of the other end")
        elif not self.ready:
            raise ProtocolFault("no introduction")

    def _introduced(self, properties: dict[bytes, bytes]) -> None:
        if properties.get(b"socket-type") not in _TYPES[self._kind]:
            raise ProtocolFault("a socket of another type")
        identity = properties.get(b"identity", b"")
        if len(identity) > LONGEST_IDENTITY:
            raise ProtocolFault("an identity that is too long")
        self.identity = identity
        self.ready = True


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4) + value


def _command(name: bytes, rest: bytes) -> bytes:
    body = bytes((len(name),)) + name + rest
    long = len(body) > 255
    size = len(body).to_bytes(8) if long else bytes((len(body),))
    return bytes((_COMMAND | (_LONG if long else 0),)) + size + body


def _split(command: bytes) -> tuple[bytes, bytes]:
    if not command or len(command) < 1 + command[0]:
        raise ProtocolFault("a command without a name")
    return command[1 : 1 + command[0]], command[1 + command[0] :]


def _properties(data: bytes) -> dict[bytes, bytes]:
    """Return the properties of an introduction; their names count in any case."""
    found: dict[bytes, bytes] = {}
    while data:
        name, data = _split(data)
        if len(data) < 4:
            raise ProtocolFault("a property without a value")
        size = int.from_bytes(data[:4])
        if len(data) < 4 + size:
            raise ProtocolFault("a property that is cut off")
        found[name.lower()] = data[4 : 4 + size]
        data = data[4 + size :]
    return found
