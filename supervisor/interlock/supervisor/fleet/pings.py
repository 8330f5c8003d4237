"""The ping clock: which workers are hung. The caller passes the time."""

from __future__ import annotations

from collections.abc import Iterable

Generation = tuple[str, int]


class PingClock:
    """Counts unanswered pings; one tick for all workers.

    A supervisor that was itself late (stopped, asleep with the machine) cannot tell who is hung,
    so such a tick forgets all counts first.
    """

    def __init__(self, now: float) -> None:
        self.n = 0
        self._last = now
        self._unanswered: dict[Generation, int] = {}

    def tick(
        self, now: float, interval: float, misses: int, up: Iterable[Generation]
    ) -> tuple[list[Generation], list[Generation]]:
        """Return whom to ping now, with number `n`, and who is hung.

        `interval` (seconds) is how long ago the tick before should have been.
        """
        late = now - self._last > 2 * interval
        self._last = now
        self.n += 1
        counts = {} if late else self._unanswered
        self._unanswered = {}
        pinged, hung = [], []
        for worker in up:
            count = counts.get(worker, 0)
            if count >= misses:
                hung.append(worker)
            else:
                self._unanswered[worker] = count + 1
                pinged.append(worker)
        return pinged, hung

    def answered(self, worker: Generation) -> None:
        """The worker's event loop lives."""
        if worker in self._unanswered:
            self._unanswered[worker] = 0
