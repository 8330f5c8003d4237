"""The calling end of the data plane: one connection to one generation of a serving worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import zmq

from interlock.bus.messages import Log, Progress
from interlock.bus.records import Target


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended; `outcome` is one of `errors.OUTCOMES`."""

    outcome: str
    body: bytes | None = None
    """The JSON result; None unless the outcome is ok or tool_error."""
    message: str = ""
    duration_ms: float = 0.0
    may_have_run: bool = False
    """The server had the request, or may have had it, so its effect is unknown."""


class DataEdge:
    """Calls one generation of a worker. Dropped for good when that generation ends."""

    late: int
    """Answers that came after their call had ended here."""
    dropped: int
    """Frames that were no message."""

    def __init__(
        self,
        ctx: zmq.Context[zmq.Socket[bytes]],
        target: Target,
        on_log: Callable[[Log], None] | None = None,
    ) -> None:
        raise NotImplementedError

    def open(self, ticket: str) -> str:
        """Present a further ticket and return its id, for `call(ticket=...)`."""
        raise NotImplementedError

    def call(
        self,
        local_name: str,
        body: bytes,
        timeout: float,
        timeout_max: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        ticket: str = "",
    ) -> asyncio.Future[CallAnswer]:
        """Call a capability; the future always ends with an answer, at its deadline at the latest.

        `timeout` in seconds runs from now and anew from each progress, `timeout_max` (None =
        `timeout`) bounds the whole. `ticket` is an id from `open`; empty = the target's ticket.
        Cancelling the future tells the server.
        """
        raise NotImplementedError

    def renew(self, target: Target) -> None:
        """Use the ticket of `target`, the same generation, from now on."""
        raise NotImplementedError

    def gone(self, reason: str) -> None:
        """Fail all calls in flight with `worker_died` and drop the connection."""
        raise NotImplementedError

    def close(self) -> None:
        """Drop the connection; calls in flight end as cancelled. Twice is harmless."""
        raise NotImplementedError
