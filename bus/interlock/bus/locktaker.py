"""Which process has locked a file, as the kernel tells; only looks, and never tries the lock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_PID: Final = 4
"""Which word of a line there is the pid."""


def lock_taker(path: Path) -> int:
    """Return the pid of a process that has locked a file; 0 if none is seen to."""
    try:
        locked = os.stat(path)
        lines = _LOCKS.read_text(errors="replace").splitlines()
    except OSError:
        return 0
    for line in lines:
        words = line.split()
        # A line with an arrow is about somebody who waits.
        if "FLOCK" in words[:2] and len(words) > _PID and words[_PID].isdigit():
            pid = int(words[_PID])
            if holds_lock(pid, locked):
                return pid
    return 0


def holds_lock(pid: int, locked: os.stat_result) -> bool:
    """Whether a process has that file open and locked. False where that cannot be seen."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):
            if not os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), locked):
                continue
            if b"FLOCK" in Path(f"/proc/{pid}/fdinfo/{number}").read_bytes():
                return True
    return False
