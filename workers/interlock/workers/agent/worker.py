"""The agent kind: takes turns from the supervisor and runs them, several at once."""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path
from typing import Final

import msgspec

from interlock.bus import messages as m
from interlock.bus.events import TurnFailed, TurnStarted
from interlock.bus.memory import MemoryReturn
from interlock.bus.settings import AgentConfigure
from interlock.workers.agent.direct import DirectDriver
from interlock.workers.agent.driver import Driver
from interlock.workers.agent.edges import EdgePool
from interlock.workers.agent.items import ItemSink
from interlock.workers.agent.nomodel import NoModelDriver
from interlock.workers.agent.tickets import TicketDesk
from interlock.workers.agent.turn import AgentView, TurnRun
from interlock.workers.agent.wholes import Wholes
from interlock.workers.failure import WorkerError
from interlock.workers.kept import prune
from interlock.workers.keptrow import KeptRow
from interlock.workers.kind import Gauges, Host

_LAST_WORDS: Final = 1.0
"""Seconds of a drain that are kept for cancelling what did not end, and for its items."""


def kind() -> AgentKind:
    """Make the agent kind; the entry that the host looks up."""
    return AgentKind()


class AgentKind:
    """One agent. Owns its turns, its connections to servers and its ticket requests."""

    def __init__(self) -> None:
        self._runs: dict[str, TurnRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False

    async def start(self, host: Host, body: bytes) -> m.Ready:
        """Read the settings; raises WorkerError for settings that are none."""
        self._host = host
        self._kept_row = KeptRow(host)
        self._memory = MemoryReturn()
        self._configured(body)
        prune(self._folder, time.time())
        self._pool = EdgePool()
        self._desk = TicketDesk(host.send)
        return m.Ready()

    async def apply(self, body: bytes) -> None:
        """Use new settings from the next turn on; running turns keep theirs."""
        self._configured(body)

    async def drain(self, seconds: float) -> None:
        """Let turns end, then cancel them in time for their last items to leave."""
        self._draining = True
        tasks = list(self._tasks.values())
        if not tasks:
            return
        patience = max(seconds - _LAST_WORDS, seconds / 2)
        await asyncio.wait(tasks, timeout=patience)
        await self._cancel_all(seconds - patience)

    async def stop(self) -> None:
        """Cancel what still runs and drop all connections."""
        self._draining = True
        await self._cancel_all(_LAST_WORDS / 2)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if hasattr(self, "_pool"):
            self._pool.close()

    def on_control(self, message: m.ControlDown, body: bytes | None) -> None:
        """Take turns, their changes, and the answers to ticket requests."""
        match message:
            case m.TurnDispatch():
                self._dispatch(message, body)
            case m.TurnCancel(turn=turn, code=code):
                if turn in self._runs:
                    self._runs[turn].cancel(code)
            case m.OfferUpdate(turn=turn):
                if turn in self._runs:
                    self._runs[turn].update(message)
            case m.Gone(worker=worker, generation=generation, reason=reason):
                for run in self._runs.values():
                    run.gone(worker, generation)
                self._pool.gone(worker, generation, reason)
            case m.TicketGrant():
                self._desk.on_grant(message)
            case m.TicketParked():
                self._desk.on_parked(message)
            case _:
                # What concerns other kinds.
                pass

    def gauges(self) -> Gauges:
        """Turns under way; an agent queues none."""
        return Gauges(in_flight=len(self._runs))

    def _configured(self, body: bytes) -> None:
        configure = _read(body)
        self._folder = Path(configure.results_folder)
        settings = configure.settings
        self._view = AgentView(
            name=configure.agent,
            model=settings.model,
            max_steps=settings.max_steps,
            driver=_driver(configure.agent, settings.model),
            wholes=Wholes(self._folder, self._kept_row.told),
        )

    def _dispatch(self, dispatch: m.TurnDispatch, body: bytes | None) -> None:
        turn = dispatch.turn
        if turn in self._tasks:
            return
        items = m.TurnItems(turn=turn)
        sink = ItemSink(lambda batch: self._host.send(items, batch))
        code, refusal = "bad_turn", ""
        text = ""
        if self._draining:
            code, refusal = "agent_stopped", "The agent is about to stop; send the turn again."
        else:
            try:
                text = msgspec.json.decode(body or b"", type=str)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                refusal = "The turn's text is no JSON string."
        if refusal:
            sink.put(TurnStarted(agent=self._view.name, model=self._view.model))
            sink.put(TurnFailed(code=code, message=refusal))
            task = asyncio.get_running_loop().create_task(self._send_rest(turn, sink))
        else:
            run = TurnRun(dispatch, text, self._view, sink, self._pool, self._desk)
            self._runs[turn] = run
            task = asyncio.get_running_loop().create_task(self._run(run, sink))
        self._tasks[turn] = task
        task.add_done_callback(lambda done: self._ended(turn, sink, done))

    async def _run(self, run: TurnRun, sink: ItemSink) -> None:
        try:
            await run.run()
        except BaseExceptionGroup as errors:
            # A fault of ours in one turn must not reach the others: it is this turn's end.
            self._host.log.error(_trace(run.turn, errors))
            sink.put(TurnFailed(code="internal", message="The agent failed; see its log."))
        finally:
            self._runs.pop(run.turn, None)
        await self._send_rest(run.turn, sink)

    async def _send_rest(self, turn: str, sink: ItemSink) -> None:
        if not await sink.flushed():
            self._host.log.line(
                "ERROR", f"The end of turn {turn} could not be sent; it is dropped."
            )

    def _ended(self, turn: str, sink: ItemSink, task: asyncio.Task[None]) -> None:
        self._tasks.pop(turn, None)
        wholes = self._view.wholes
        self._memory.used(wholes.taken)
        wholes.taken = 0
        sink.close()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.log.error(_trace(turn, error))

    async def _cancel_all(self, patience: float) -> None:
        for run in list(self._runs.values()):
            run.cancel("cancelled")
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=patience)


def _trace(turn: str, error: BaseException) -> str:
    return f"turn {turn} broke: " + "".join(traceback.format_exception(error))


def _read(body: bytes) -> AgentConfigure:
    try:
        return msgspec.json.decode(body, type=AgentConfigure)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WorkerError(
            "bad_settings", f"The agent's settings cannot be read: {error}", permanent=True
        ) from None


def _driver(agent: str, model: str) -> Driver:
    """Return the driver for a model; one that does not exist yet says so in every turn."""
    return DirectDriver() if model == "direct" else NoModelDriver(agent, model)
