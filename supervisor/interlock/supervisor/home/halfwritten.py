"""Removes files that were being written when their writer was killed."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Final

from interlock.bus.endpoints import Home

_OLD: Final = 60.0
"""Seconds after which nobody writes such a file any more; commands need no lock for theirs."""
_PATTERNS: Final = (
    ".connection.*",
    ".tools-*",
    ".*.json-*",
    ".supervisor.lock-*",
    ".journal.sqlite3.new*",
    "notes/.note-*",
    "results/*/.room-*",
)
"""How writers call what gets its name only once it is whole, relative to the home."""


def remove_half_written(home: Home) -> None:
    """Remove half-written files that nobody writes any more; for the holder of the lock."""
    now = time.time()
    for pattern in _PATTERNS:
        # What cannot be looked at or removed harms nobody.
        with contextlib.suppress(OSError):
            for path in list(home.path.glob(pattern)):
                _remove(path, now)


def _remove(path: Path, now: float) -> None:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and abs(now - found.st_mtime) > _OLD:
            os.unlink(path)
