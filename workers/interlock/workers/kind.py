"""What a worker kind is to the host, and how it says that it cannot do its job.

The host (`interlock.workers.host`) is the same for every worker. It finds the kind's entry by
name, so a process imports only the libraries of its own kind. A kind that cannot do its job raises
`interlock.workers.failure.WorkerError` from `start`, or calls `Host.fail` later.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from interlock.bus.channel import DataServer, IncomingCall
from interlock.bus.messages import ControlDown, ControlUp, Ready
from interlock.bus.records import Boot
from interlock.workers.logs import WorkerLog
from interlock.workers.secrets import Masks


class Gauges(NamedTuple):
    """What a worker has to do at this moment, and what it dropped since its start."""

    in_flight: int = 0
    queue: int = 0
    dropped: int = 0


class Host(Protocol):
    """What a kind may ask of its host. All of it must be used from the host's event loop."""

    boot: Boot
    log: WorkerLog
    masks: Masks
    """Values added here appear in no log line, notice or failure of this worker."""

    def send(self, message: ControlUp, body: bytes | None = None) -> bool:
        """Send a control message; False if it could not even be queued. Never waits.

        What it says of the worker leaves without the values of `masks`.
        """
        ...

    def serve(
        self,
        handler: Callable[[IncomingCall], None],
        on_burst: Callable[[bool], None] | None = None,
    ) -> DataServer:
        """Bind the data endpoint of this generation and return its DataServer.

        `handler` is called with an IncomingCall for every call that a valid ticket permits,
        `on_burst` with True and False around calls that come right after each other.
        """
        ...

    def notice(
        self, code: str, subject: str = "", message: str = "", fix: str = "", *, clear: bool = False
    ) -> None:
        """Add a row to needs attention, or with `clear` take it away."""
        ...

    def fail(self, code: str, reason: str, *, fix: str = "", permanent: bool = False) -> None:
        """Report that the worker cannot go on; `stop` is called and the process exits with 1.

        Only the first report counts.
        """
        ...

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` until it ends or the worker does; if it raises, the worker fails."""
        ...

    def report_children(self) -> None:
        """Look soon at the processes below this one and report them if they changed."""
        ...

    def watch_child(self, pid: int, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit(wait status)` once the child process `pid` has ended and is reaped.

        The host reaps every child of the process, so a kind must not wait for one itself.
        """
        ...


class WorkerKind(Protocol):
    """One kind of worker. The host makes one object per process and calls it from its loop.

    Order of calls: `start` once; then any number of `apply`, `on_control` and `gauges`; then
    `drain` at most once and `stop` exactly once, even if `start` failed or was cancelled.
    """

    async def start(self, host: Host, body: bytes) -> Ready:
        """Get ready for work; `body` holds the kind's settings as JSON.

        The host fills in the endpoint and sends the returned message, so whatever must arrive
        before it (capabilities) is sent in here. Raises WorkerError where the job cannot be done.
        The kind sets its own deadline.
        """
        ...

    async def apply(self, body: bytes) -> None:
        """Take over new settings that need no restart; `body` holds all of them as JSON."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuse new work and return when the running work has ended; cancelled after `seconds`."""
        ...

    async def stop(self) -> None:
        """Close everything that the kind owns, its processes too."""
        ...

    def on_control(self, message: ControlDown, body: bytes | None) -> None:
        """Take a control message that the host does not know itself; must not wait."""
        ...

    def gauges(self) -> Gauges:
        """Say how much there is to do; called for every ping, so it must be cheap."""
        ...
