"""The serving end of the data plane: tickets, calls and results of one generation of a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import zmq

from interlock.bus.messages import Revoke


class IncomingCall:
    """One call that its ticket permits. Answer it exactly once with `result` or `fail`.

    Further answers, and answers to a call that its caller cancelled, are dropped.
    """

    id: int
    """Chosen by the caller; unique among the calls in flight of its connection only."""
    name: str
    """Local name of the capability."""
    arguments: bytes
    caller: str
    turn: str
    ticket_id: str
    wants_progress: bool
    answered: bool
    cancelled: bool
    """The caller is no longer interested."""
    on_cancel: Callable[[], None] | None
    """Set by the handler; called once if the caller cancels before the answer."""

    @property
    def left(self) -> float:
        """Seconds that the caller still waits, without renewals; negative when they are over."""
        raise NotImplementedError

    def result(
        self,
        body: bytes,
        outcome: Literal["ok", "tool_error"] = "ok",
        duration_ms: float | None = None,
    ) -> None:
        """Answer with a JSON result. `duration_ms`: None = since the call arrived."""
        raise NotImplementedError

    def fail(self, code: str, message: str, may_have_run: bool = False) -> None:
        """Answer without a result; `code` is one of `errors.OUTCOMES`."""
        raise NotImplementedError

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Pass progress on, which renews the caller's deadline; nothing if it wants none."""
        raise NotImplementedError

    def log(self, level: str, message: str) -> None:
        """Pass a log message of the server on to the caller."""
        raise NotImplementedError


class DataServer:
    """Binds `endpoint` and hands every permitted call to `handler`, in the event loop."""

    dropped: int
    """Frames and answers that were dropped since the start."""

    def __init__(
        self,
        ctx: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        key: bytes,
        worker: str,
        generation: int,
        handler: Callable[[IncomingCall], None],
    ) -> None:
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        """Calls that were handed over and not answered yet."""
        raise NotImplementedError

    @property
    def edges(self) -> int:
        """Connections that hold a valid ticket or have a call in flight."""
        raise NotImplementedError

    def revoke(self, revoke: Revoke) -> None:
        """Void tickets, opened or not; calls that already run go on."""
        raise NotImplementedError

    def close(self) -> None:
        """Unbind and drop everything; twice is harmless."""
        raise NotImplementedError
