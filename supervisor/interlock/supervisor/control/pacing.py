"""Slows down what a worker says of itself, so that no worker can drown what others say.

What changes a row, a state or a list goes through at once while its worker keeps to its quota.
Beyond that it waits for its turn; of what says the same thing anew, only the last word counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from interlock.bus import messages as m
from interlock.bus.errors import MalformedError
from interlock.supervisor.control.quotas import REPORTS, Bucket, Rate

LIST_COST: Final = 5.0
"""A list of tools counts as so many notices: it changes rows, offers and running turns."""
WAITING: Final = 128
"""Rows of one worker that wait; it may have 100 under needs attention. Its newest state, its newest
list of tools and its newest processes always find a place."""

Key = tuple[str, ...]
Said = tuple[int, m.ControlUp, bytes | None]
"""Generation, message and body."""
Merge = Callable[[bytes | None, bytes | None, Iterable[str]], bytes | None]
Deliver = Callable[[str, int, m.ControlUp, bytes | None], None]


class _Line:
    """What one worker has waiting, in the order in which it is to be delivered."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.bucket = Bucket(rate, now)
        self.waiting: dict[Key, Said] = {}
        self.generation = 0
        self.timer: asyncio.TimerHandle | None = None


class Pacing:
    """One line for each worker.

    `deliver` gets what may be taken now; `lost(worker)` hears of each message that is left out.
    `merge(before, now, digests)` adds to the documents of a list those of one before it that it
    names, and raises MalformedError if its own cannot be taken.
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
            line.waiting.clear()
        if not line.waiting and line.bucket.take(now, _cost(message)):
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
        try:
            line.waiting[key] = self._after(before, what)
        except MalformedError:  # to be refused; the word before still counts
            self._deliver(name, *what)
        self._arm(name, line)

    def _after(self, before: Said | None, now: Said) -> Said:
        """What is left to say when `now` takes the place of `before`, if any.

        A list repeats no document that its worker sent with an earlier one. Raises MalformedError.
        """
        generation, message, body = now
        if isinstance(message, m.Capabilities):
            earlier = before[2] if before is not None else None
            body = self._merge(earlier, body, (row.digest for row in message.rows))
        return generation, message, body

    def _arm(self, name: str, line: _Line) -> None:
        if line.timer is None and line.waiting:
            _, message, _ = next(iter(line.waiting.values()))
            delay = line.bucket.wait(_cost(message))
            line.timer = self._loop.call_later(delay, self._next, name, line)

    def _next(self, name: str, line: _Line) -> None:
        line.timer = None
        while line.waiting:
            key = next(iter(line.waiting))
            generation, message, body = line.waiting[key]
            if not line.bucket.take(self._loop.time(), _cost(message)):
                break
            del line.waiting[key]
            try:
                self._deliver(name, generation, message, body)
            finally:
                if line.waiting:
                    self._arm(name, line)
        self._arm(name, line)


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


def _cost(message: m.ControlUp) -> float:
    return LIST_COST if isinstance(message, m.Capabilities) else 1.0
