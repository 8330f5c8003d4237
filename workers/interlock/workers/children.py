"""The processes below a worker: reaping them, reporting them, ending them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Final

from interlock.bus import procfs
from interlock.bus.records import Child

WHILE_CHANGING: Final = 2.0
"""Seconds between two looks while the last one found a change."""
WHEN_QUIET: Final = 30.0
GLANCE: Final = 2.0
"""Seconds between two counts of the processes, which tell whether to look before time. What a
server starts in a session of its own may outlive everybody: only the record of it finds it then."""
GLANCE_SHARE: Final = 1e-3
"""Part of a core that these counts may take: a large tree is counted less often."""
SOON: Final = 0.1
"""Seconds from a request to the look, so that a burst of requests costs one."""
BETWEEN: Final = 1.0
"""Seconds between two looks at least; a busy server asks after every call."""


class ChildWatch:
    """Reaps every child of this process and reports the tree below it when it changed.

    Each change is reported a second time by the next look, so that none is lost for good.
    Needs the running event loop's SIGCHLD; nothing else in the process may wait for children.
    """

    def __init__(self, on_change: Callable[[tuple[Child, ...]], None]) -> None:
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._owners: dict[int, Callable[[int], None]] = {}
        self._last: tuple[Child, ...] = ()
        self._settled = True
        """Whether the last look found what the one before had reported."""
        self._timer: asyncio.TimerHandle | None = None
        self._glancer: asyncio.TimerHandle | None = None
        self._closed, self._looked = False, 0.0
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def watch(self, pid: int, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit(wait status)` when the child `pid` has ended; it is reported at once."""
        self._owners[pid] = on_exit
        self.look()

    def look(self) -> None:
        """Look at the tree now, for a moment after which its record must be exact."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def look_soon(self) -> None:
        """Look at the tree soon."""
        self._look_in(max(SOON, self._looked + BETWEEN - self._loop.time()))

    def close(self) -> None:
        """Stop looking and reaping."""
        self._closed = True
        self._loop.remove_signal_handler(signal.SIGCHLD)
        for timer in (self._timer, self._glancer):
            if timer is not None:
                timer.cancel()

    def _look_in(self, seconds: float) -> None:
        if self._closed:
            return
        when = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, self._looked = None, self._loop.time()
        found = tuple(procfs.descendants(os.getpid()))
        changed = found != self._last
        self._last = found
        if changed or not self._settled:
            self._on_change(found)
        self._settled = not changed
        self._look_in(WHILE_CHANGING if changed else WHEN_QUIET)
        self._glance_in(GLANCE)

    def _glance_in(self, seconds: float) -> None:
        if self._glancer is not None:
            self._glancer.cancel()
            self._glancer = None
        if self._last and not self._closed:
            # Without a child there is nobody who could start one.
            self._glancer = self._loop.call_later(seconds, self._glance)

    def _glance(self) -> None:
        began = self._loop.time()
        if procfs.pids_below(os.getpid()) == {child.pid for child in self._last}:
            self._glance_in(max(GLANCE, (self._loop.time() - began) / GLANCE_SHARE))
        else:
            self.look()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            owner = self._owners.pop(pid, None)
            if owner is not None:
                owner(status)
        self.look_soon()


async def end_descendants(seconds: float) -> bool:
    """Kill everything below this process until nothing is left; False if that took too long.

    A process whose parent dies comes to this one (it is a subreaper), so none gets away.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while found := procfs.descendants(os.getpid()):
        if loop.time() > until:
            return False
        for child in found:
            procfs.kill(child, signal.SIGKILL)
        await asyncio.sleep(0.01)
    return True


def kill_descendants_now(rounds: int = 20) -> None:
    """Kill everything below this process without an event loop, on the way out."""
    for _ in range(rounds):
        found = procfs.descendants(os.getpid())
        if not found:
            return
        for child in found:
            procfs.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
