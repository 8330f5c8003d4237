"""Leaving nothing behind: ends own descendants, and what an earlier supervisor recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus import procfs
from interlock.bus.records import Child
from interlock.bus.regular import regular
from interlock.bus.remedies import disk_remedy

_PAUSE: Final = 0.005
_DEBOUNCE: Final = 0.05
_RETRY: Final = 1.0
"""Seconds between two attempts while the disk refuses."""
MAX_CLAIMED: Final = 512
"""Processes below one worker that are recorded; more make a worker's report slow to check."""
_NOBODY: Final[frozenset[tuple[int, int]]] = frozenset()


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the next supervisor must end, unless boot id or start time differ."""

    pid: int
    start: int
    boot_id: str
    name: str


class Records:
    """The file of recorded processes; it is written soon after each change, whole and atomically.

    An owner is any text; a worker and its children have one each. While it cannot be written it is
    tried again every second; `on_trouble(reason, fix)` is called when that begins, and with ""
    after it.
    """

    def __init__(
        self, path: Path, on_trouble: Callable[[str, str], None] = lambda reason, fix: None
    ) -> None:
        self._path = path
        self._on_trouble = on_trouble
        self._troubled = False
        self._boot_id = procfs.boot_id()
        self._owned: dict[str, tuple[Child, ...]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def put(self, owner: str, processes: Iterable[Child]) -> None:
        """Replace what that owner has."""
        self._owned[owner] = tuple(processes)
        self._changed()

    def drop(self, owner: str) -> None:
        """Forget that owner."""
        if self._owned.pop(owner, None) is not None:
            self._changed()

    def look(self) -> None:
        """Write the file again soon if somebody removed it."""
        if self._owned and not self._path.exists():
            self._changed()

    def close(self) -> None:
        """Write nothing more, for whoever removes the file at the end."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> None:
        """Write now. Raises OSError."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows = [
            Recorded(pid=one.pid, start=one.start, boot_id=self._boot_id, name=owner)
            for owner, processes in self._owned.items()
            for one in processes
        ]
        fresh = self._path.with_suffix(".new")
        try:
            with open(fresh, "wb", opener=regular) as file:
                file.write(msgspec.json.encode(rows))
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _changed(self) -> None:
        if self._timer is None and not self._closed:
            pause = _RETRY if self._troubled else _DEBOUNCE
            self._timer = asyncio.get_running_loop().call_later(pause, self._write)

    def _write(self) -> None:
        self._timer = None
        try:
            self.flush()
        except OSError as error:
            # A full disk must not stop supervision.
            if not self._troubled:
                self._troubled = True
                reason = f"{self._path} cannot be written: {error.strerror}."
                self._on_trouble(reason, disk_remedy(error.errno, self._path))
            self._changed()
            return
        if self._troubled:
            self._troubled = False
            self._on_trouble("", "")


def sweep_recorded(path: Path, seconds: float = 2.0) -> list[str]:
    """Kill what an earlier supervisor recorded and left, with everything below it.

    Returns the names of what was killed. A record whose start time or boot id is another one is
    never signalled. Waits up to `seconds` until the killed are gone; removes the file.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            rows = msgspec.json.decode(file.read(), type=list[Recorded])
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        rows = []
    boot_id = procfs.boot_id()
    killed: list[str] = []
    handles: list[int] = []
    for row in rows:
        if row.pid <= 1 or row.pid == os.getpid() or row.boot_id != boot_id:
            continue
        root = Child(pid=row.pid, start=row.start)
        if not procfs.alive(root.pid, root.start):
            continue
        for victim in (root, *procfs.descendants(root.pid)):
            handle = _open(victim.pid)
            if procfs.kill(victim) and handle is not None:
                handles.append(handle)
                if victim is root:
                    killed.append(row.name)
            elif handle is not None:
                os.close(handle)
    _wait(handles, seconds)
    with contextlib.suppress(OSError):  # a folder, or a disk that is read-only: no records either
        path.unlink(missing_ok=True)
    return killed


def below(root: int, claimed: Sequence[Child]) -> tuple[Child, ...]:
    """Those of `claimed` that are processes below `root` now; only `MAX_CLAIMED` are looked at.

    A program's name is the claim of its own command line in any case.
    """
    claimed = claimed[:MAX_CLAIMED]
    found = _below(root, claimed)
    # One above others may have ended meanwhile, so that they moved up: those are looked at anew,
    # once, for each look reads the state of all processes above them.
    missed = [child for child in claimed if child not in found]
    found |= _below(root, missed)
    return tuple(child for child in claimed if child in found)


def _below(root: int, claimed: Iterable[Child]) -> set[Child]:
    known = {root: True}
    stats: dict[int, procfs.Stat | None] = {}

    def stat(pid: int) -> procfs.Stat | None:
        if pid not in stats:
            stats[pid] = procfs.stat(pid)
        return stats[pid]

    def is_below(pid: int) -> bool:
        way: list[int] = []
        while pid not in known and pid > 1 and len(way) < MAX_CLAIMED:
            way.append(pid)
            at = stat(pid)
            pid = at.parent if at is not None else 0
        below = known.get(pid, False)
        known.update(dict.fromkeys(way, below))
        return below

    return {
        child
        for child in claimed
        if child.pid != root
        and (at := stat(child.pid)) is not None
        and at.start == child.start
        and is_below(child.pid)
    }


def known_children() -> frozenset[tuple[int, int]]:
    """Pid and start time of each child that this process has now."""
    return frozenset((pid, procfs.start_time(pid) or 0) for pid in procfs.children(os.getpid()))


def sweep_pass(exclude: frozenset[tuple[int, int]] = _NOBODY) -> bool:
    """Kill and reap every child of this process and all below; True if there was one.

    `exclude`: children, by pid and start time, that are left alone with all that is below them.
    Orphans of the killed come to this process if it is a subreaper: call again until False.
    """
    busy = False
    for pid in procfs.children(os.getpid()):
        start = procfs.start_time(pid)
        if start is None or (pid, start) in exclude:
            continue
        busy = True
        end_tree(Child(pid=pid, start=start))
    return busy


def end_tree(child: Child) -> None:
    """Kill a child of this process with all below it, and reap it if it is dead already."""
    for victim in (child, *procfs.descendants(child.pid)):
        procfs.kill(victim)
    try:
        os.waitpid(child.pid, os.WNOHANG)
    except ChildProcessError:
        return


async def sweep_children(
    exclude: frozenset[tuple[int, int]] = _NOBODY, seconds: float = 4.0
) -> bool:
    """Sweep until no child is left; False if some remain after `seconds`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while sweep_pass(exclude):
        if loop.time() > end:
            return False
        await asyncio.sleep(_PAUSE)
    return True


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _wait(handles: list[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    for handle in handles:
        dead = select.poll()  # not `select`: there may be thousands of descriptors
        dead.register(handle, select.POLLIN)
        dead.poll(max(0.0, end - time.monotonic()) * 1000)
        os.close(handle)
