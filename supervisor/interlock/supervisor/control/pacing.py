"""Slows down what a worker says of itself, so that no worker can drown what others say.

What changes a row, a state or a list goes through at once while its worker keeps to its quota.
Beyond that it waits for its turn; of what says the same thing anew, only the last word counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from interlock.bus import messages as m
from interlock.bus.limits import MAX_DOCUMENTS
from interlock.supervisor.control.quotas import REPORTS, Bucket, Rate

LIST_COST: Final = 5.0
"""A list of tools counts as so many notices: it changes rows, offers and running turns."""
SIZE_COST: Final = 0.5 / (1 << 20)
"""And each byte of its documents, as reading 1 MiB of them takes some milliseconds."""
MAX_LISTS: Final = 8
"""Lists of one worker that wait behind its newest for their documents; of `MAX_DOCUMENTS` bytes."""
WAITING: Final = 128
"""Rows of one worker that wait; it may have 100 under needs attention. Its newest state, its newest
list of tools and its newest processes always find a place."""

Key = tuple[str, ...]
Said = tuple[int, m.ControlUp, bytes | None]
"""Generation, message and body."""
List = tuple[m.Capabilities, bytes | None]
Merge = Callable[[Sequence[List]], tuple[int | None, bytes | None, int | None]]
Deliver = Callable[[str, int, m.ControlUp, bytes | None], None]


class _Line:
    """What one worker has waiting, in the order in which it is to be delivered."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.bucket = Bucket(rate, now)
        self.waiting: dict[Key, Said] = {}
        self.lists: list[List] = []
        """Those before the newest that waits, the oldest first: their documents may be needed."""
        self.generation = 0
        self.timer: asyncio.TimerHandle | None = None

    def clear(self) -> None:
        """Nothing of it waits any more."""
        self.waiting.clear()
        self.lists.clear()

    def keep(self, before: List) -> None:
        """Another list takes the place of this one, which is kept as far as there is room."""
        self.lists.append(before)
        while len(self.lists) > MAX_LISTS or self.size() > MAX_DOCUMENTS:
            del self.lists[0]

    def size(self) -> int:
        """Bytes of the documents of those lists."""
        return sum(len(body or b"") for _, body in self.lists)


class Pacing:
    """One line for each worker.

    `deliver` gets what may be taken now; `lost(worker)` hears of each message that is left out.
    `merge(lists)` gets the lists that wait, the oldest first, and returns the place of the newest
    that can be taken, all documents that it needs of them, and the place of one that cannot be.
    """

    def __init__(
        self, deliver: Deliver, lost: Callable[[str], None], merge: Merge, rate: Rate = REPORTS
    ) -> None:
        self._deliver = deliver
        self._merge = merge
        self._lost = lost
        self._rate = rate
        self._lines: dict[str, _Line] = {}
        self._loop = asyncio.get_running_loop()

    def take(self, name: str, generation: int, message: m.ControlUp, body: bytes | None) -> None:
        """Deliver the message, now or when its worker has kept quiet for long enough."""
        key = _key(message)
        if not key:
            self._deliver(name, generation, message, body)
            return
        line = self._lines.get(name)
        now = self._loop.time()
        if line is None:
            line = self._lines[name] = _Line(self._rate, now)
        if generation > line.generation:  # what the one before had to say is void
            line.generation = generation
            line.clear()
        if not line.waiting and line.bucket.take(now, self._cost(line, message, body)):
            self._deliver(name, generation, message, body)
            return
        self._wait(name, line, key, (generation, message, body))

    def forget(self, name: str) -> None:
        """The worker is in no configuration any more."""
        line = self._lines.pop(name, None)
        if line is not None and line.timer is not None:
            line.timer.cancel()

    def close(self) -> None:
        """Deliver nothing more."""
        for name in list(self._lines):
            self.forget(name)

    def _wait(self, name: str, line: _Line, key: Key, what: Said) -> None:
        before = line.waiting.get(key)
        if before is not None:
            self._lost(name)  # one of the two
        elif isinstance(what[1], m.Notice) and len(line.waiting) >= WAITING:
            self._lost(name)
            return
        if before is not None and isinstance(before[1], m.Capabilities):
            line.keep((before[1], before[2]))
        line.waiting[key] = what
        self._arm(name, line)

    def _arm(self, name: str, line: _Line) -> None:
        if line.timer is None and line.waiting:
            _, message, body = next(iter(line.waiting.values()))
            delay = line.bucket.wait(self._cost(line, message, body))
            line.timer = self._loop.call_later(delay, self._next, name, line)

    def _next(self, name: str, line: _Line) -> None:
        line.timer = None
        while line.waiting:
            key = next(iter(line.waiting))
            generation, message, body = line.waiting[key]
            if not line.bucket.take(self._loop.time(), self._cost(line, message, body)):
                break
            del line.waiting[key]
            try:
                if isinstance(message, m.Capabilities) and line.lists:
                    lists, line.lists = [*line.lists, (message, body)], []
                    self._deliver_one_of(name, generation, lists)
                else:
                    self._deliver(name, generation, message, body)
            finally:
                if line.waiting:
                    self._arm(name, line)
        self._arm(name, line)

    def _deliver_one_of(self, name: str, generation: int, lists: Sequence[List]) -> None:
        """Deliver what counts of lists that waited, and one that is to be refused, in their order.

        They are read only here, and once: that is work, and so it is paced, whatever they hold.
        """
        good, documents, bad = self._merge(lists)
        for place in sorted(place for place in (good, bad) if place is not None):
            message, body = lists[place]
            self._deliver(name, generation, message, documents if place == good else body)

    def _cost(self, line: _Line, message: m.ControlUp, body: bytes | None) -> float:
        if not isinstance(message, m.Capabilities):
            return 1.0
        size = len(body or b"") + line.size()
        return min(LIST_COST + SIZE_COST * size, max(self._rate.burst, LIST_COST))


def _key(message: m.ControlUp) -> Key:
    """What a message is about, where a later one about the same takes its place; else empty."""
    match message:
        case m.Notice():
            return ("notice", message.code, message.subject)
        case m.StateReport():
            return ("state",)
        case m.Children():
            return ("children",)
        case m.Capabilities():
            return ("list",)
        case _:
            return ()
