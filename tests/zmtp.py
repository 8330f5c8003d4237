"""ZMTP spoken by hand over a Unix socket, for what no ZeroMQ socket would send.

`Wire` connects, shakes hands as a socket of any type and sends frames of any size and shape; it
notices when the other side hangs up. What comes is read away and not looked at.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
PATIENCE = 20.0
MORE, LONG, COMMAND = 1, 2, 4


def frame(data: bytes, flags: int = 0, size: int | None = None) -> bytes:
    """One frame; `size` is what it claims to be, in the long form, whatever follows."""
    if size is not None:
        return bytes([flags | LONG]) + size.to_bytes(8, "big") + data
    if len(data) > 255:
        return bytes([flags | LONG]) + len(data).to_bytes(8, "big") + data
    return bytes([flags, len(data)]) + data


def message(*frames: bytes) -> bytes:
    """All frames of one message."""
    return b"".join(frame(one, MORE) for one in frames[:-1]) + frame(frames[-1])


def ready(kind: bytes, identity: bytes = b"") -> bytes:
    """The command with which a socket of that type introduces itself."""
    parts = b"\x05READY"
    for name, value in ((b"Socket-Type", kind), (b"Identity", identity)):
        parts += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return frame(parts, COMMAND)


def open_wire(path: str) -> socket.socket:
    """A connection that has said nothing yet."""
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(path)
    wire.settimeout(PATIENCE)
    return wire


class Wire:
    """One connection with a handshake."""

    def __init__(self, path: str, kind: bytes, identity: bytes = b"") -> None:
        self._wire = open_wire(path)
        self.send(GREETING + ready(kind, identity))
        # Frames before the other side has introduced itself too would end the connection.
        greeted = b""
        while len(greeted) < 66 or len(greeted) < 66 + greeted[65]:
            part = self._wire.recv(1 << 16)
            assert part, "it does not shake hands"
            greeted += part
        self.ended = threading.Event()
        """The other side hung up."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, data: bytes) -> bool:
        """Send bytes as they are; False if the other side hung up meanwhile."""
        try:
            self._wire.sendall(data)
        except ConnectionError:
            return False
        return True

    def close(self) -> None:
        """Hang up in the middle of whatever was sent."""
        try:
            self._wire.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
        self._reader.join(PATIENCE)
        self._wire.close()

    def _read(self) -> None:
        while True:
            try:
                if not self._wire.recv(1 << 16):
                    break
            except TimeoutError:
                continue
            except OSError:
                break  # reset, or closed by this side
        self.ended.set()


def patiently(seconds: float = PATIENCE) -> Iterator[float]:
    """Go round a loop that asks again and again, until the time is over."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        yield end - now
    raise AssertionError(f"nothing came of it in {seconds:g} s")
