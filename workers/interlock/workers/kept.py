"""One worker's folder of whole results: files that cut results name, and the bound on them.

The folders of all workers lie beside each other. Each worker bounds its own, so that what one
server floods costs no other its results; what is too old goes everywhere, also where no worker is
left.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

MAX_FILES: Final = 200
MAX_TOTAL: Final = 1 << 30
"""Bytes of all files together."""
MAX_AGE: Final = 7 * 24 * 3600.0
"""Seconds."""
_OWN: Final = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9_-]{0,40}-[0-9a-f]{8}\.(?:txt|json)")
"""Names that `keep` makes; whatever else is in the folder is left alone."""


class KeptFile(NamedTuple):
    """One kept result. `written` is in Unix seconds."""

    name: str
    written: float
    size: int


def keep(
    whole: bytes, suffix: str, *, folder: Path, tool: str
) -> tuple[Path | None, OSError | None]:
    """Write a whole result to a new file (0600), drop what is too old or too much beside it.

    Returns its path, or None and why it could not be written.
    """
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in tool)[:40]
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    path = folder.absolute() / f"{stamp}-{safe}-{secrets.token_hex(4)}.{suffix}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        prune(folder, now, len(whole))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        return None, error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(whole)
    except OSError as error:
        path.unlink(missing_ok=True)
        return None, error
    return path, None


def reason_of(problem: OSError) -> str:
    """Say why a whole could not be kept, as the end of a sentence."""
    if isinstance(problem, TimeoutError) and problem.errno is None:
        return "the disk did not answer in time"
    return problem.strerror or "unknown error"


def room_for(size: int, folder: Path) -> None:
    """See whether a file of that many bytes can be made in a folder now. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f".room-{secrets.token_hex(4)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


def is_kept(path: Path, root: Path) -> bool:
    """Tell whether a path is that of a whole result in one of the workers' folders below `root`."""
    if not _OWN.fullmatch(path.name) or path.parent.parent != root.absolute():
        return False
    try:
        return stat.S_ISREG(path.lstat().st_mode) and ".." not in path.parts
    except (OSError, ValueError):
        return False


def prune(folder: Path, now: float, coming: int = 0) -> None:
    """Remove the oldest results until there is room for another of `coming` bytes.

    In the folders beside it only what is too old goes. Never raises.
    """
    _unlink(folder, surplus(_files(folder), now, coming))
    for other in (folder.parent, *_folders(folder.parent)):
        if other != folder:
            _unlink(other, [f.name for f in _files(other) if now - f.written > MAX_AGE])


def surplus(files: Iterable[KeptFile], now: float, coming: int = 0) -> list[str]:
    """Return the names that must go: too old, or not among the newest that fit. Pure.

    >>> surplus([KeptFile("old", 0.0, 1), KeptFile("new", MAX_AGE, 1)], now=MAX_AGE + 1)
    ['old']
    """
    gone, count, total = [], 1, coming
    for file in sorted(files, key=lambda file: file.written, reverse=True):
        count, total = count + 1, total + file.size
        if count > MAX_FILES or total > MAX_TOTAL or now - file.written > MAX_AGE:
            gone.append(file.name)
    return gone


def _unlink(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            os.unlink(folder / name)
        except OSError:
            continue  # another worker was faster


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _files(folder: Path) -> list[KeptFile]:
    found: list[KeptFile] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _OWN.fullmatch(entry.name):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        found.append(KeptFile(entry.name, about.st_mtime, about.st_size))
    except OSError:
        pass  # no folder yet, or a file that another worker removed; the next time will do
    return found
