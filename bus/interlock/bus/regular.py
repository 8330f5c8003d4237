"""Opens files by name without ever waiting for whoever is at the other end of a pipe."""

from __future__ import annotations

import errno
import os
import stat


def regular(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, readable by its owner alone if it is made; also an `opener` for `open`.

    A pipe, a socket or a folder that has its name is refused at once: to open a pipe waits for its
    other end, which nobody may ever open. Raises OSError.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise
        raise _not_regular(path) from None
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def _not_regular(path: str | os.PathLike[str]) -> OSError:
    return OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
