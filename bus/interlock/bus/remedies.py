"""What to do about a file that cannot be written, by what the system said; pure."""

from __future__ import annotations

import errno
from typing import Final

_FORBIDDEN: Final = (errno.EACCES, errno.EPERM)
_IN_THE_WAY: Final = (errno.EISDIR, errno.ENOTDIR, errno.EINVAL, errno.EEXIST, errno.ELOOP)
_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)


def place_of(error: OSError, otherwise: object) -> str:
    """Return the path that an error names; the folder, if the file is one of our temporary ones.

    Their names change with each attempt: a text that held one would be news each time.

    >>> place_of(OSError(errno.ENOTDIR, "Not a directory", "/h/run/data/.17.3"), "/h")
    '/h/run/data'
    """
    if not error.filename:
        return str(otherwise)
    path = str(error.filename)
    folder, slash, name = path.rpartition("/")
    return folder if slash and name.startswith(".") else path


def disk_remedy(number: int | None, place: object) -> str:
    """Say, as a sentence without its full stop, how `place`, a path, can be written again.

    `number`: the errno with which the system refused to.

    >>> disk_remedy(errno.EROFS, "/h/logs")
    'Make the file system that has /h/logs writable, it is read-only'
    """
    if number == errno.ENOSPC:
        return f"Free some space on the disk that has {place}"
    if number == errno.EFBIG:
        return f"Allow larger files (`ulimit -f`) than {place} may be now"
    if number == errno.EDQUOT:
        return f"Delete files of your own on the disk that has {place}: your quota is used up"
    if number == errno.EROFS:
        return f"Make the file system that has {place} writable, it is read-only"
    if number in _FORBIDDEN:
        return f"Let this user read and write {place}, look at its owner and mode"
    if number in _IN_THE_WAY:
        return f"Remove or rename what is at {place}"
    if number == errno.ENOENT:
        return f"Make the folder that has {place} again"
    if number in _TOO_MANY:
        return "Allow more open files (`ulimit -n`)"
    return f"Look at {place} and its disk"
