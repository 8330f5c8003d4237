"""How much one worker may make known: what is above is left out and counted, and said once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from interlock.bus.events import Event
from interlock.supervisor.attention import TOO_MANY, Attention, Row


class Rate(NamedTuple):
    """So many at once at most, and `per_second` in the long run."""

    burst: float
    per_second: float


CALL_EVENTS: Final = Rate(4_000, 200)
"""Events about the calls of one worker. The replay ring holds 10,000 of all workers: so what others
say can be replayed for half a minute at least, whatever one worker reports."""
REPORTS: Final = Rate(100, 10)
"""What a worker says of itself, by `cost`."""


class Bucket:
    """Gives out what a rate allows; the caller passes the time in seconds."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate, self._left, self._at = rate, rate.burst, now

    def take(self, now: float, cost: float = 1.0) -> bool:
        """Whether the rate allows that much more; if so it is given out.

        >>> bucket = Bucket(Rate(2, 1), now=0.0)
        >>> [bucket.take(now) for now in (0.0, 0.0, 0.5, 1.5, 1.6)]
        [True, True, False, True, False]
        """
        burst, per_second = self._rate
        self._left = min(burst, self._left + (now - self._at) * per_second)
        self._at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True

    def wait(self, cost: float) -> float:
        """Seconds from the last `take` until it allows that much.

        >>> bucket = Bucket(Rate(1, 10), now=0.0)
        >>> bucket.take(0.0), bucket.wait(1.0)
        (True, 0.1)
        """
        return max(0.0, (cost - self._left) / self._rate.per_second)


class Quotas:
    """The quotas of all workers, and the row under needs attention about each that says too much.

    `publish` takes the events about calls. `left_out` counts by worker what was not made known;
    that many calls run is no fault, so only reports of a worker about itself bring the row.
    """

    def __init__(
        self,
        publish: Callable[[Event], object],
        attention: Attention,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.left_out: Counter[str] = Counter()
        self._publish = publish
        self._attention = attention
        self._clock = clock
        self._calls: dict[str, Bucket] = {}

    def publish_call(self, worker: str, event: Event) -> None:
        """Publish an event about a call, unless there were too many of that worker."""
        now = self._clock()
        bucket = self._calls.get(worker)
        if bucket is None:
            bucket = self._calls[worker] = Bucket(CALL_EVENTS, now)
        if bucket.take(now):
            self._publish(event)
        else:  # a busy server is no fault that a person should look into
            self.left_out[worker] += 1

    def leave_out(self, worker: str, count: int = 1) -> None:
        """Count reports that are not made known; the row is the same as long as it is there."""
        self.left_out[worker] += count
        if self._attention.has(worker, TOO_MANY):
            return
        self._attention.set(
            Row(
                name=worker,
                code=TOO_MANY,
                message=f"{worker} changes its state, rows or processes more often than others "
                "could follow; some of it is left out (`left_out` in its status counts that).",
                fix=f"See `interlock logs {worker}`; if nothing explains it, "
                f"`interlock restart {worker}`.",
            )
        )

    def forget(self, worker: str) -> None:
        """The worker is in no configuration any more."""
        self._calls.pop(worker, None)
        self.left_out.pop(worker, None)
