"""The circuit of one server: after failures in a row its calls end at once, until a probe succeeds.

Pure: the caller passes the time.

```
CLOSED --3 failures in a row--> OPEN --`open_for` seconds--> HALF_OPEN (one call is let through)
   ^                             ^                              |
   +------- success -------------|------- success --------------+
                                 +------- failure --------------+
```

A failure is a call that timed out, that a broken answer ended or that the server did not survive.
A result that says `isError` is a success here: the server works.
"""

from __future__ import annotations

import enum
from typing import Final

FAILURES: Final = 3


class CircuitState(enum.Enum):
    """CLOSED: calls pass. OPEN: none does. HALF_OPEN: one probe is under way or may start."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Circuit:
    """Decides which calls may reach the server. Times in seconds, monotonic."""

    def __init__(self, open_for: float, failures: int = FAILURES) -> None:
        self.state = CircuitState.CLOSED
        self.reason = ""
        self.open_for = open_for
        self._limit, self._in_a_row = failures, 0
        self._opened_at, self._probing = 0.0, False

    def __repr__(self) -> str:
        """Show the state as tests and logs want to see it."""
        return f"Circuit({self.state.value}, failures={self._in_a_row}, probing={self._probing})"

    def due(self, now: float) -> bool:
        """Whether an open circuit has waited long enough for a probe."""
        return now >= self._opened_at + self.open_for

    def admit(self, now: float) -> bool:
        """Say whether a call may start now; a probe that is let through must be ended.

        >>> circuit = Circuit(open_for=10)
        >>> for _ in range(3): circuit.failed(0.0, "timeout")
        >>> circuit.admit(5.0), circuit.admit(10.0), circuit.admit(10.0)
        (False, True, False)
        """
        if self.state is CircuitState.CLOSED:
            return True
        if self.state is CircuitState.OPEN and self.due(now):
            self.state = CircuitState.HALF_OPEN
        if self.state is CircuitState.OPEN or self._probing:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """Note that the server answered a call."""
        self.state, self.reason = CircuitState.CLOSED, ""
        self._in_a_row, self._probing = 0, False

    def failed(self, now: float, why: str) -> None:
        """Note that a call failed by the server's fault; `why` completes "circuit open: "."""
        self._in_a_row += 1
        if self.state is CircuitState.HALF_OPEN or self._in_a_row >= self._limit:
            self.state, self._opened_at, self._probing = CircuitState.OPEN, now, False
            self.reason = f"circuit open: {self._in_a_row} calls in a row failed, last: {why}"

    def stay_open(self, now: float) -> None:
        """Note that an open circuit has a reason to stay open for another `open_for` seconds."""
        self._opened_at = now

    def abandoned(self) -> None:
        """Note that a call ended without saying anything about the server (cancelled)."""
        self._probing = False
