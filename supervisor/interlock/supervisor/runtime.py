"""The supervisor: makes all parts, ties them together, starts the workers, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from interlock.bus import messages as m
from interlock.bus import procfs
from interlock.bus.endpoints import ConnectionInfo, Home, HomeLock, endpoint
from interlock.bus.errors import ConfigError, InterlockError
from interlock.bus.events import CatalogChanged, Event, SpawnerDied, ToolEvent
from interlock.bus.listening import Listening
from interlock.bus.messages import PROTOCOL
from interlock.bus.settings import SupervisorSettings
from interlock.bus.socket import FdSocket, OwnContext, open_socket
from interlock.supervisor.api.approvals import ApprovalApi
from interlock.supervisor.api.documents import Documents
from interlock.supervisor.api.doors import Doors
from interlock.supervisor.api.handlers import Handlers, is_stopped
from interlock.supervisor.api.offers import OfferApi
from interlock.supervisor.api.server import Api, Handler
from interlock.supervisor.api.status import Status, version
from interlock.supervisor.api.turns import TurnApi
from interlock.supervisor.attention import Attention, Row
from interlock.supervisor.background import Background
from interlock.supervisor.catalog.rows import Catalog
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.config.model import Loaded
from interlock.supervisor.config.toolnotes import ToolNotes
from interlock.supervisor.config.watch import changes
from interlock.supervisor.control.plane import ControlPlane
from interlock.supervisor.control.quotas import Quotas
from interlock.supervisor.events.journal import Journal
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.events.turnlog import TurnLogs
from interlock.supervisor.events.turns import TurnService
from interlock.supervisor.fleet.fleet import Fleet
from interlock.supervisor.fleet.inbox import Inbox
from interlock.supervisor.fleet.pings import PingClock
from interlock.supervisor.fleet.resources import Sampler
from interlock.supervisor.home.log import Log, RotatingFile
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.wording import SUPERVISOR_STOPS
from interlock.supervisor.links import Links
from interlock.supervisor.mistakes import Mistakes
from interlock.supervisor.policy.desk import ApprovalDesk
from interlock.supervisor.policy.tickets import TicketOffice
from interlock.supervisor.reload import Configuration, Loader
from interlock.supervisor.spawn import signals
from interlock.supervisor.spawn.launcher import Launcher
from interlock.supervisor.spawn.sweep import Records
from interlock.supervisor.upkeep import Upkeep
from interlock.supervisor.watches import ping_workers, repeat_revocations, watch_limits

EVENTS_HIGH_WATER: Final = 10_000
"""Events that one subscriber may be behind before it loses some."""
MAX_SUBSCRIPTION: Final = 512
"""Bytes that a subscriber may send at once, with what it says of itself when it connects. libzmq
keeps topics as a tree, one node for each byte, and takes it down by recursion."""
RESERVE: Final = 3.0
"""Seconds of `stop_total` kept for ending the spawner and closing the journal."""
LAST_EVENTS: Final = 0.2
"""Seconds that the last events and answers may take to reach those who want them."""
FAREWELL: Final = 1.5
"""Seconds that whoever waits for the end has to read that it came, and to leave."""
KILL_WAIT: Final = 1.0
"""Seconds that killed workers get to be gone before the spawner ends with them."""


class Supervisor:
    """One supervisor of one home, whose lock the caller holds.

    `run` returns when it has been told to stop and nothing of it is left. Every part is made in
    the constructor, which therefore must run in the event loop.
    """

    def __init__(self, home: Home, lock: HomeLock, loader: Loader, loaded: Loaded) -> None:
        self.home = home
        self._lock = lock
        self._homeless = ""
        """What is to be said at the end if the home was taken away; else empty."""
        self.epoch = secrets.token_hex(8)
        self._key = secrets.token_hex(32)
        self._stop = asyncio.Event()
        self._stopped = asyncio.Event()
        self._waiting: set[bytes] = set()
        """Clients that want to hear when all has stopped."""
        self.not_kept = ""
        """A sentence about what the journal could not store, at the end; empty if it has all."""
        self._stop_called = False
        self._hurry = asyncio.Event()
        self._ctx: zmq.Context[zmq.Socket[bytes]] = OwnContext()
        self._doors = Doors(self._doors_trouble)
        self._make_events()
        self._log_file = RotatingFile(home.logs / "supervisor.log", self._log_trouble)
        self._log = Log(self._log_file)
        self.sequencer.listen(self._log_event)
        self.fleet = Fleet(home, loaded.settings, self.sequencer, self.attention)
        self._api = Api(
            self._ctx,
            endpoint(home, "api"),
            {self._key: "person"},
            self._trouble,
            self._client_gone,
            self._doors.waiting,
        )
        self._quotas = Quotas(self.sequencer.publish, self.attention)
        self._pings = PingClock(time.monotonic())
        self._tool_notes = ToolNotes(home.path)
        self._sampler = Sampler()
        self._background = Background(self._trouble)
        self._make_turns(loaded.settings.supervisor.timing.ticket)
        self._make_control(loaded.settings.supervisor)
        self._make_configuration(loader, loaded)
        self._serve()

    # --- life ---

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start everything, work until told to stop, end in order.

        Raises SpawnError, OSError, and ConfigError at the end if its home was taken away.
        `on_ready` is called once the api answers; workers are still starting then.
        """
        self._catch_signals()
        try:
            self.turns.interrupted(await self._journal.open())
            await self._launcher.start()
            self._configuration.begin()
            self._upkeep.write_connection()
            self._log.info("supervisor.started", epoch=self.epoch, home=str(self.home.path))
            on_ready()
            self.fleet.feed_all(inputs.Start)
            self._background.keep("pings", lambda: ping_workers(self.fleet, self._pings))
            self._background.keep(
                "limits", lambda: watch_limits(self.fleet, self._sampler, self.attention)
            )
            self._background.keep("configuration", self._watch_files)
            self._background.keep("upkeep", self._upkeep.watch)
            self._background.keep("patterns", self._mistakes.watch)
            self._background.keep(
                "revocations", lambda: repeat_revocations(self.fleet, self._tickets)
            )
            await self._stop.wait()
        finally:
            await self._end()
        if self._homeless:
            raise ConfigError(self._homeless)

    def stop(self) -> None:
        """Begin to end in order; called again, end without waiting for anybody.

        A request to stop does not count: `down` sends a signal when that is not answered in time.
        """
        if self._stop_called:
            self._hurry.set()
        self._stop_called = True
        self._stop.set()

    async def _all_stopped(self, identity: bytes) -> bytes:
        """Wait until the end; returns what `shutdown` answers a client then."""
        self._waiting.add(identity)
        await self._stopped.wait()
        return msgspec.json.encode({"not_kept": self.not_kept})

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_trouble)
        for number in signals.asking_to_stop():
            loop.add_signal_handler(number, self.stop)
        for stray in signals.unused_strays():
            loop.add_signal_handler(stray, self._ignore_signal, signals.name_of(stray))

    def _ignore_signal(self, name: str) -> None:
        self._log.info("signal.ignored", name=name)

    async def _watch_files(self) -> None:
        async for _ in changes(self._configuration.files):
            await self._read_again()

    async def _read_again(self) -> None:
        with contextlib.suppress(InterlockError):  # it stands under needs attention
            await self._configuration.reload()

    async def _end(self) -> None:
        self._log.info("supervisor.stopping")
        refused = (m.WorkerControl, m.Reload, m.TurnStart, m.Resolve)
        self._api.serve(dict.fromkeys(refused, _refuse), frozenset())
        self._configuration.close()
        await self._background.close()
        self.turns.stop()
        await self._stop_workers()
        self._inbox.close()
        self._tool_notes.close()
        await self._launcher.close()
        await self.turns.close()
        await self._journal.close()
        self.not_kept = self._journal.not_kept()
        if self.not_kept:
            self._log.error("journal.not_kept", message=self.not_kept)
        self._stopped.set()
        await asyncio.sleep(0)  # so that who waits for that is answered before the api is closed
        await self._api.farewell(self._waiting, FAREWELL)
        await self._api.close(LAST_EVENTS)
        self._control.close()
        self._subscribing.close()
        self._events.close(LAST_EVENTS)
        self._ctx.destroy(0)
        self._records.close()
        if self._lock.state() != "taken":
            for left in (self.home.connection_file, self.home.processes):
                with contextlib.suppress(OSError):  # the next start makes do with what is left
                    left.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.home.remove_run()
        self._log.info("supervisor.stopped")
        self._log_file.close()

    async def _stop_workers(self) -> None:
        for name in list(self.fleet.members):
            stop = inputs.Stop(now=time.monotonic(), reason=SUPERVISOR_STOPS)
            self.fleet.feed(name, stop)
        patience = max(0.0, self.fleet.timing.stop_total - RESERVE)
        waits = [
            asyncio.ensure_future(self.fleet.reached(member, is_stopped, patience))
            for member in self.fleet.members.values()
        ]
        if not waits:
            return
        hurry = asyncio.ensure_future(self._hurry.wait())
        everyone = asyncio.ensure_future(asyncio.wait(waits))
        await asyncio.wait([everyone, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        late = [member for member in self.fleet.members.values() if not is_stopped(member.worker)]
        for member in late:
            worker = member.worker
            self._launcher.signal(worker.name, worker.generation, signal.SIGKILL)
        if late:
            await asyncio.wait(waits, timeout=KILL_WAIT)
        for task in (everyone, *waits):
            task.cancel()
        await asyncio.wait([everyone, hurry, *waits], timeout=KILL_WAIT)

    # --- parts ---

    def _make_events(self) -> None:
        sock = open_socket(
            self._ctx, zmq.XPUB, sndhwm=EVENTS_HIGH_WATER, maxmsgsize=MAX_SUBSCRIPTION
        )
        self._subscribing = Listening(sock, endpoint(self.home, "events"), self._doors.waiting)
        self._events = FdSocket(sock, lambda frames: self.sequencer.on_frames(frames))
        self._subscribing.on_used = self._events.look
        self.sequencer = Sequencer(self.epoch, self._events.send)
        self.attention = Attention(self.sequencer.publish)

    def _make_turns(self, ticket_life: float) -> None:
        self._tickets = TicketOffice(life=ticket_life)
        self._journal = Journal(self.home.journal, self.epoch, self._own_row)
        self._turn_logs = TurnLogs(self._journal, self._api.answer, present=self._api.present)
        self._approvals = ApprovalDesk(self._journal, self.sequencer, self._own_row)
        self._catalog = Catalog()
        self.turns = TurnService(
            workers=self.fleet,
            catalog=self._catalog,
            schemas=Schemas(),
            tickets=self._tickets,
            journal=self._journal,
            logs=self._turn_logs,
            sequencer=self.sequencer,
            approvals=self._approvals,
            publish_call=self._quotas.publish_call,
        )
        self._documents = Documents()
        self._turn_api = TurnApi(self.turns, self._documents, self._api.present)

    def _make_control(self, settings: SupervisorSettings) -> None:
        self._inbox = Inbox(
            self.fleet,
            self._pings,
            self.attention,
            self.turns,
            self._tickets,
            self._tool_notes,
            self._quotas,
        )
        self._control = ControlPlane(
            self._ctx, endpoint(self.home, "control"), self._inbox.received, self._doors.waiting
        )
        self._records = Records(self.home.processes, self._records_trouble)
        self._launcher = self._make_launcher(settings)
        self._upkeep = Upkeep(
            self.home,
            self._lock,
            self._connection_info(),
            (self._api.listening, self._control.listening, self._subscribing),
            (self._records.look, self._journal.look, self._log.look),
            self._own_row,
            lambda what: self._log.info("home.mended", what=what),
            self._home_lost,
            lambda: self.fleet.timing,
        )
        self._links = Links(
            self._api, self.turns, self._turn_api, self._tickets, self._inbox.forget
        )
        self.fleet.connect(self._control, self._launcher, self._links)

    def _make_configuration(self, loader: Loader, loaded: Loaded) -> None:
        self._configuration = Configuration(
            loader, loaded, self.fleet, self.attention, self.sequencer, self._links
        )
        self._mistakes = Mistakes(lambda: self._configuration.loaded, self._catalog, self.attention)
        self.sequencer.listen(self._mistakes.on_event)

    def _serve(self) -> None:
        """Say who answers which request."""
        documents, turn_api = self._documents, self._turn_api
        offer_api = OfferApi(self.turns, documents)
        left_out = self._quotas.left_out
        status = Status(
            self.fleet, self.attention, self._sampler, self.epoch, self._dropped, left_out
        )
        handlers = Handlers(
            self.fleet,
            status,
            self.sequencer,
            self._configuration.reload,
            self._stop.set,
            self._all_stopped,
            documents,
        )
        turn_handlers: dict[type[m.Request], Handler] = {
            m.TurnStart: turn_api.start,
            m.TurnWatch: turn_api.watch,
            m.TurnCredit: turn_api.credit,
            m.TurnUnwatch: turn_api.unwatch,
            m.TurnStop: turn_api.cancel,
            m.TurnsGet: turn_api.turns,
            m.TurnGet: turn_api.show,
            m.ToolsGet: offer_api.tools,
            m.WhyGet: offer_api.why,
            m.Resolve: self._links.resolve,
        }
        approval_api = ApprovalApi(
            self._approvals, self._journal, self._api.role, documents, turn_api.look
        )
        self._api.serve(
            handlers.table() | turn_handlers | approval_api.table(),
            frozenset({m.WorkerControl, m.Resolve, m.Shutdown}),
        )

    def _make_launcher(self, settings: SupervisorSettings) -> Launcher:
        return Launcher(
            settings.spawn,
            on_spawned=self.fleet.spawned,
            on_failed=self.fleet.spawn_failed,
            on_exited=self.fleet.exited,
            on_died=self.fleet.died,
            on_spawner_lost=self._spawner_lost,
            on_notice=self._spawner_row,
            records=self._records,
            log=self.home.logs / "spawner.log",
        )

    def _connection_info(self) -> ConnectionInfo:
        return ConnectionInfo(
            version=version(),
            protocol=PROTOCOL,
            pid=os.getpid(),
            api=endpoint(self.home, "api"),
            events=endpoint(self.home, "events"),
            key=self._key,
            epoch=self.epoch,
            home=str(self.home.path),
            start=procfs.start_time(os.getpid()) or 0,
            boot_id=procfs.boot_id(),
        )

    # --- what others report ---

    def _dropped(self) -> int:
        """All that was lost or refused since the start: frames, events, items, rows, reports."""
        parts = (self._control, self._inbox, self._api, self.sequencer, self.attention)
        lost = self.turns.bad_items + self._journal.dropped_calls
        return lost + sum(one.dropped for one in parts)

    def _home_lost(self) -> None:
        """End: in order, unless another supervisor is in this one's place already."""
        self._homeless = _homeless(self.home.path, self._lock.same_home())
        self._log.error("supervisor.homeless", message=self._homeless)
        if self._lock.state() == "taken":
            # In order is not possible: each socket that is closed takes the file of the same name
            # along, and these are the other one's now. The spawner ends all that is below it.
            sys.stderr.write(f"{self._homeless}\n")
            sys.stderr.flush()
            os._exit(1)
        self._stop.set()

    def _spawner_lost(self, reason: str) -> None:
        self.sequencer.publish(SpawnerDied(reason=reason))
        self.fleet.spawner_lost("spawner died")

    def _spawner_row(self, code: str, message: str) -> None:
        self._own_row(code, message, f"See {self.home.logs / 'spawner.log'}.", clear=not message)

    def _own_row(self, code: str, message: str, fix: str, *, clear: bool = False) -> None:
        if clear:
            self.attention.clear("supervisor", code)
        else:
            self.attention.set(Row(name="supervisor", code=code, message=message, fix=fix))

    def _log_trouble(self, reason: str, fix: str) -> None:
        fix += "; lines are lost until then, all else goes on."
        self._own_row("log_disk_full", reason, fix, clear=not reason)

    def _doors_trouble(self, reason: str) -> None:
        fix = "Close clients or allow more open files (`ulimit -n`) before the next `interlock up`."
        self._own_row("open_files", reason, fix, clear=not reason)

    def _records_trouble(self, reason: str, fix: str) -> None:
        fix += "; it is tried again by itself. Until then a crash may leave processes."
        self._own_row("processes_disk_full", reason, fix, clear=not reason)

    def _client_gone(self, identity: bytes) -> None:
        self._turn_logs.drop_client(identity)

    def _log_event(self, event: Event) -> None:
        if not isinstance(event, ToolEvent):  # these are in the journal, and too many
            tag = str(event.__struct_config__.tag)
            fields = {name: getattr(event, name) for name in event.__struct_fields__}
            for common in ("epoch", "time"):
                fields.pop(common)
            if isinstance(event, CatalogChanged):  # a list may have a thousand names
                for names in ("added", "removed", "changed"):
                    fields[names] = len(fields[names])
            self._log.info(tag, **fields)

    def _trouble(self, error: BaseException, what: str) -> None:
        self._log.error("internal", error, what=what)

    def _loop_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The last boundary: what a callback raised is logged, and the loop goes on."""
        self._log.error("internal", context.get("exception"), what=context.get("message", ""))


def _homeless(home: Path, same: bool) -> str:
    if same:
        return (
            f"The lock file of {home} was removed and another supervisor has locked it since, so "
            f"this one (pid {os.getpid()}) ended; `interlock status` shows the other one."
        )
    return (
        f"The home {home} was removed while the supervisor (pid {os.getpid()}) ran on it, so it "
        "ended; start another one with `interlock up`."
    )


async def _refuse(identity: bytes, message: m.Request, body: bytes | None) -> bytes | None:
    raise InterlockError("The supervisor is stopping.", code="stopping")
