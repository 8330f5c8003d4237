"""The supervisor's own answers on api: status, events, workers, reload, shutdown."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from interlock.bus import messages as m
from interlock.bus.errors import NotFoundError, UsageError
from interlock.supervisor.api.documents import Documents, DocumentTooLargeError
from interlock.supervisor.api.server import Handler
from interlock.supervisor.api.status import Status
from interlock.supervisor.events.sequencer import Sequencer, gap
from interlock.supervisor.fleet.fleet import Fleet
from interlock.supervisor.fleet.member import SETTLED, Member, Predicate
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.states import INIT_MARGIN, State, Worker

SPAWN_MARGIN: Final = 60.0
"""Seconds for the spawner to start a process, or for another spawner to do it in its place."""
STOP_MARGIN: Final = 5.0
"""Seconds past the stop ladder before a request stops waiting for it."""


class Handlers:
    """Every method takes `(identity, message, body)` and returns the document of its reply."""

    def __init__(
        self,
        fleet: Fleet,
        status: Status,
        sequencer: Sequencer,
        reload: Callable[[], Awaitable[bytes]],
        shutdown: Callable[[], None],
        stopped: Callable[[bytes], Awaitable[bytes]],
        documents: Documents,
    ) -> None:
        self._fleet = fleet
        self._status = status
        self._sequencer = sequencer
        self._reload = reload
        self._shutdown = shutdown
        self._stopped = stopped
        self._documents = documents

    def table(self) -> dict[type[m.Request], Handler]:
        """Which request each method answers."""
        return {
            m.StatusGet: self.status,
            m.SnapshotGet: self.snapshot,
            m.ReplayGet: self.replay,
            m.WorkerControl: self.worker,
            m.Reload: self.reload,
            m.Shutdown: self.shutdown,
        }

    async def status(self, identity: bytes, message: m.StatusGet, body: bytes | None) -> bytes:
        """The status document."""
        members = (self._fleet.find(message.name),) if message.name else None
        await self._status.measure()
        return await self._documents.alone(
            lambda: msgspec.json.encode(self._status.document(members))
        )

    async def snapshot(self, identity: bytes, message: m.SnapshotGet, body: bytes | None) -> bytes:
        """`{epoch, seq, status}`, all of the same moment."""
        await self._status.measure()
        return await self._documents.alone(
            lambda: msgspec.json.encode(
                {
                    "epoch": self._sequencer.epoch,
                    "seq": self._sequencer.seq,
                    "status": self._status.document(),
                }
            )
        )

    async def replay(self, identity: bytes, message: m.ReplayGet, body: bytes | None) -> bytes:
        """`{epoch, events}` after `seq`; code `gap` also if these are too many bytes."""
        events = self._sequencer.replay(message.epoch, message.seq)
        try:
            return await self._documents.make({"epoch": message.epoch}, {"events": events})
        except DocumentTooLargeError as error:
            raise gap() from error

    async def reload(self, identity: bytes, message: m.Reload, body: bytes | None) -> bytes:
        """`{changed, problems}`."""
        return await self._reload()

    async def shutdown(self, identity: bytes, message: m.Shutdown, body: bytes | None) -> bytes:
        """An empty object, after which the end begins; or, at that, what could not be kept."""
        self._shutdown()
        return await self._stopped(identity) if message.wait else b"{}"

    async def worker(self, identity: bytes, message: m.WorkerControl, body: bytes | None) -> bytes:
        """The worker's status row once the outcome is known, or as it is when time is up."""
        member = self._fleet.find(message.name)
        worker, timing = member.worker, self._fleet.timing
        down = timing.drain + timing.term + timing.kill + STOP_MARGIN
        up = SPAWN_MARGIN + timing.hello + worker.init_budget + INIT_MARGIN
        now = time.monotonic()
        match message.action:
            case "stop":
                self._fleet.feed(worker.name, inputs.Stop(now=now, reason="stopped by hand"))
                await self._fleet.reached(member, is_stopped, down)
            case "start":
                self._check_wanted(member)
                self._fleet.feed(worker.name, inputs.Start(now=now))
                await self._fleet.reached(member, settled_since(worker), down + up)
            case "restart":
                self._check_wanted(member)
                restart = inputs.Restart(now=now, reason="restarted by hand")
                self._fleet.feed(worker.name, restart)
                await self._fleet.reached(member, settled_since(worker), down + up)
        await self._status.measure()
        return msgspec.json.encode(self._status.row(member))

    def _check_wanted(self, member: Member) -> None:
        """Refuse to start what the configuration does not want to run."""
        if member.worker.name not in self._fleet.settings.workers():
            raise NotFoundError(
                f"{member.worker.name} was removed from the configuration and is about to end; "
                "add its entry again."
            )
        if not member.entry.settings.enabled:
            raise UsageError(
                f"{member.worker.name} is disabled in the configuration; "
                "remove `enabled = false` there."
            )


def is_stopped(worker: Worker) -> bool:
    """Tell whether a worker has come to rest."""
    return worker.state is State.STOPPED


def settled_since(worker: Worker) -> Predicate:
    """Say when what was just asked of a worker has an outcome.

    While it is STOPPING that is an outcome of the generation to come; a worker that is not started
    again after all is an outcome, too.
    """
    awaited = worker.generation + (worker.state is State.STOPPING)

    def settled(now: Worker) -> bool:
        if now.state is State.STOPPED:
            return True
        return now.generation >= awaited and now.state in SETTLED

    return settled
