"""The records between the supervisor and its two images: one msgpack record per SEQPACKET message.

Downwards go `Spawn` and `Reap`, upwards everything else. A record that does not fit or does not
parse is answered or dropped; it ends nobody.
"""

from __future__ import annotations

import socket
from typing import Final

import msgspec

from interlock.bus.errors import MalformedError, TooLargeError

MAX_RECORD: Final = 200_000
"""Bytes of one record; the kernel's default socket buffer takes it whole."""
MAX_BOOT: Final = 60_000
"""Bytes of a boot record: it must fit into a pipe, since nobody reads while it is written."""
BOOT_PREFIX: Final = 4
"""Bytes of the length, big-endian, that stands before the boot record on a lifeline."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of all records."""


class Spawn(Record, frozen=True, kw_only=True, tag="spawn"):
    """Start a worker; answered by `Spawned` or `SpawnFailed`.

    `entry` is `module:function`, called with the number of the lifeline's descriptor. None as a
    limit means none of its own.
    """

    name: str
    generation: int
    boot: bytes
    """The boot record as the worker reads it."""
    entry: str
    title: str
    log: str
    """Absolute path of the file that gets stdout and stderr; empty: /dev/null."""
    folder: str = "/"
    keep_env: tuple[str, ...] = ()
    nice: int = 0
    open_files: int | None = None
    cpu_seconds: int | None = None
    address_space: int | None = None


class Reap(Record, frozen=True, kw_only=True, tag="reap"):
    """The supervisor has taken note of that worker's death; its pid may be used again."""

    pid: int


Down = Spawn | Reap


class ImageReady(Record, frozen=True, kw_only=True, tag="ready"):
    """The image takes orders now. `problem`: why it is not warm and executes Python instead."""

    pid: int
    start: int
    problem: str = ""


class Spawned(Record, frozen=True, kw_only=True, tag="spawned"):
    """The worker runs. Its pidfd comes with this record."""

    name: str
    generation: int
    pid: int
    start: int


class SpawnFailed(Record, frozen=True, kw_only=True, tag="failed"):
    """The worker does not run and nothing is left of it; `message` is one sentence for people."""

    name: str
    generation: int
    code: str
    message: str


class Exited(Record, frozen=True, kw_only=True, tag="exited"):
    """The worker is dead and a zombie until `Reap`. One of `exit_code` and `signal` is set."""

    name: str
    generation: int
    pid: int
    start: int
    exit_code: int | None = None
    signal: int | None = None


class Rejected(Record, frozen=True, kw_only=True, tag="rejected"):
    """A record from the supervisor could not be read."""

    message: str


Up = ImageReady | Spawned | SpawnFailed | Exited | Rejected

_encoder = msgspec.msgpack.Encoder()
_down: msgspec.msgpack.Decoder[Down] = msgspec.msgpack.Decoder(Down)
_up: msgspec.msgpack.Decoder[Up] = msgspec.msgpack.Decoder(Up)


def encode(record: Record) -> bytes:
    """Bytes of a record. Raises TooLargeError above MAX_RECORD."""
    data = _encoder.encode(record)
    if len(data) > MAX_RECORD:
        raise TooLargeError(len(data), MAX_RECORD)
    return data


def decode_down(data: bytes) -> Down:
    """Read a record of the supervisor. Raises MalformedError."""
    try:
        return _down.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedError(f"A record to the spawner cannot be read: {error}.") from error


def decode_up(data: bytes) -> Up:
    """Read a record of an image. Raises MalformedError."""
    try:
        return _up.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedError(f"A record of the spawner cannot be read: {error}.") from error


def make_link() -> tuple[socket.socket, socket.socket]:
    """Make the pair of non-blocking sockets between the supervisor and one image."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_RECORD)
    return ends
