"""The restart policy: how long to wait after a failure, and when to give up for now."""

from __future__ import annotations

from interlock.bus.settings import Timing


def backoff_delay(attempt: int, timing: Timing, jitter: float = 1.0) -> float:
    """Seconds to wait after failure number `attempt` in a row, from 1.

    >>> [backoff_delay(n, Timing()) for n in (1, 2, 3, 8, 2000)]
    [0.25, 0.5, 1.0, 30.0, 30.0]
    """
    doublings = min(attempt - 1, 60)  # a float holds that; the cap makes more pointless
    return float(min(timing.backoff_first * 2**doublings, timing.backoff_max) * jitter)


def recent(failures: tuple[float, ...], now: float, timing: Timing) -> tuple[float, ...]:
    """Those of `failures` that still count at `now`.

    >>> recent((10.0, 80.0), 100.0, Timing())
    (80.0,)
    """
    return tuple(at for at in failures if now - at < timing.failure_window)


def too_many(failures: tuple[float, ...], timing: Timing) -> bool:
    """Whether so many recent failures mean giving up for now."""
    return len(failures) > timing.failures
