"""Files of the home that more than one process changes: one at a time reads, changes and writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from interlock.bus.errors import ConfigError
from interlock.bus.remedies import disk_remedy

PATIENCE: Final = 10.0
"""Seconds to wait for another process, which needs milliseconds."""
_LOOK: Final = 0.01


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Be the only one to change the file at `path` in this block, through a lock file beside it.

    The lock file stays; the kernel drops the lock with the process. Raises ConfigError if the lock
    cannot be made, or if somebody else holds it for ten seconds.
    """
    lock = path.with_name(f".{path.name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, flags, 0o600)
    except OSError as error:
        todo = disk_remedy(error.errno, lock)
        raise ConfigError(f"{lock} cannot be made: {error.strerror}. {todo}.") from error
    try:
        take(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def take(descriptor: int, path: Path) -> None:
    """Lock an open file or folder; raises ConfigError if somebody else holds it for ten seconds.

    `path` is what the sentence names.
    """
    until = time.monotonic() + PATIENCE
    while not taken(descriptor):
        if time.monotonic() > until:
            raise ConfigError(f"Another program is changing {path}; try again when it is done.")
        time.sleep(_LOOK)


def replace(path: Path, data: bytes) -> None:
    """Replace a file by one with that content, at once and for its owner alone.

    Whatever happens there is the old one or the new one. Raises OSError.
    """
    import tempfile

    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as new:
        try:
            new.write(data)
            new.flush()
            os.fsync(new.fileno())
            os.replace(new.name, path)
        except BaseException:
            os.unlink(new.name)
            raise


def taken(descriptor: int) -> bool:
    """Lock an open file or folder; False if somebody else has it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
