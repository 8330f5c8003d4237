"""Where a client's direct calls go, and how one call in flight is followed. Pure.

A route is the answer to `resolve`. It is kept while its ticket lives, so that calling the same
capability again asks the supervisor nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from interlock.bus.messages import (
    CHUNK_WINDOW,
    MAX_MESSAGE,
    Chunk,
    DataDown,
    Failure,
    Progress,
    Result,
)
from interlock.bus.records import Target

TICKET_MARGIN: Final = 2.0
"""Seconds before its expiry from which a ticket is not used any more."""
_RETRY: Final = ("denied", "unavailable", "worker_died")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The document that answers `resolve`. Times are in seconds."""

    capability: str
    local: str
    """The name that the target knows it by."""
    target: Target
    timeout: float = 60.0
    timeout_max: float = 600.0
    single_use: bool = False
    """The ticket is for one call with these arguments."""


class Routes:
    """The routes that are still good, by the name that was asked for."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Route, float]] = {}

    def __len__(self) -> int:
        """Return how many routes are kept."""
        return len(self._kept)

    def find(self, asked: str, now: float) -> Route | None:
        """Return the route for a name if its ticket is good for some time yet."""
        route, end = self._kept.get(asked, (None, 0.0))
        if route is not None and now >= end:
            del self._kept[asked]
            return None
        return route

    def keep(self, asked: str, route: Route, now: float) -> None:
        """Remember a route until shortly before its ticket expires."""
        end = now + route.target.expires_in - TICKET_MARGIN
        if not route.single_use and end > now:
            self._kept[asked] = (route, end)

    def drop(self, asked: str) -> None:
        """Forget the route for a name."""
        self._kept.pop(asked, None)

    def gone(self, worker: str, generation: int) -> None:
        """Forget all routes to a generation that ended."""
        self._kept = {
            asked: (route, end)
            for asked, (route, end) in self._kept.items()
            if (route.target.worker, route.target.generation) != (worker, generation)
        }


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended at its caller."""

    outcome: str
    body: bytes | None = None
    message: str = ""
    duration_ms: float = 0.0
    may_have_run: bool = False


def worth_another(outcome: str, may_have_run: bool, fresh: bool) -> bool:
    """Tell whether a call is to be resolved and sent once more: only if it cannot have run.

    `fresh`: its route came from the supervisor just now, so a refusal is the last word.
    """
    if may_have_run or outcome not in _RETRY:
        return False
    return not fresh or outcome == "worker_died"


class PendingCall:
    """One call in flight: its deadline, the parts of its result, and at last its ending.

    Times are of one monotonic clock, in seconds.
    """

    def __init__(self, now: float, timeout: float, timeout_max: float) -> None:
        self.timeout = timeout
        self.latest = now + max(timeout, timeout_max)
        self.deadline = now + timeout
        self.sent = False
        """The target may have it."""
        self.lost_at: float | None = None
        """When the connection that it was sent over was lost."""
        self.ending: Ending | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._uncredited = 0

    def on_message(self, message: DataDown, body: bytes | None, now: float) -> int:
        """Take a message about this call and return how many chunks to grant, 0 for none."""
        match message:
            case Progress():
                self.deadline = min(now + self.timeout, self.latest)
            case Chunk():
                self.deadline = min(now + self.timeout, self.latest)
                return self._on_chunk(message.n, body or b"")
            case Result() if self._size + len(body or b"") > MAX_MESSAGE:
                self._refuse()
            case Result():
                self.end(
                    message.outcome,
                    body=b"".join([*self._parts, body or b""]),
                    duration_ms=message.duration_ms,
                )
            case Failure():
                self.end(message.code, message=message.message, may_have_run=message.may_have_run)
        return 0

    def end(
        self,
        outcome: str,
        *,
        body: bytes | None = None,
        message: str = "",
        duration_ms: float = 0.0,
        may_have_run: bool = False,
    ) -> None:
        """Set the ending, unless there is one."""
        if self.ending is None:
            self.ending = Ending(
                outcome=outcome,
                body=body,
                message=message,
                duration_ms=duration_ms,
                may_have_run=may_have_run,
            )

    def _on_chunk(self, n: int, part: bytes) -> int:
        self._size += len(part)
        if n != len(self._parts) or not part or self._size > MAX_MESSAGE:
            self._refuse()
            return 0
        self._parts.append(part)
        self._uncredited += 1
        if self._uncredited < CHUNK_WINDOW // 2:
            return 0
        granted, self._uncredited = self._uncredited, 0
        return granted

    def _refuse(self) -> None:
        self.end(
            "unavailable",
            message="The result is too large or its parts do not fit together.",
            may_have_run=True,
        )
