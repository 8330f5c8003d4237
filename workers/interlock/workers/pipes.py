"""Pipes of programs that a worker started, read in its event loop."""

from __future__ import annotations

import os


def read_now(descriptor: int, size: int) -> bytes | None:
    """Return what a pipe holds, up to `size` bytes: None if that is nothing now, b"" at its end.

    A pipe that cannot be read any more is at its end. The descriptor must not block.
    """
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""
